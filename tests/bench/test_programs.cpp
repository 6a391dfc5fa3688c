#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "examples/program.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

// Benchmarks are optional: without Google Benchmark or CLI11 there is nothing to test.
bool built(const std::string& name) {
  if (fs::exists(programs_folder() / name)) return true;
  MESSAGE(name << " is not built");
  return false;
}

// The value of a field behind `after` in a benchmark's JSON, or -1.
double value(const std::string& json, const std::string& field, const std::string& after = "\"benchmarks\"") {
  const auto from = json.find(after);
  if (from == std::string::npos) return -1;
  const std::string key = "\"" + field + "\": ";
  const auto at = json.find(key, from);
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + key.size(), nullptr);
}

Ended run_json(const std::string& name, std::vector<std::string> flags) {
  flags.push_back("--benchmark_format=json");
  Ended ended = run(name, flags);
  INFO(ended.err);
  CHECK(ended.code == 0);
  return ended;
}

const std::vector<std::string> tiny = {"--d_model", "12", "--layers", "2",  "--ff",      "20",
                                       "--heads",   "3",  "--vocab",  "23", "--threads", "2"};

std::vector<std::string> with_tiny(const std::vector<std::string>& flags) {
  std::vector<std::string> all = tiny;
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

fs::path script(const std::string& name) { return fixtures_folder() / ".." / ".." / "bench" / name; }

bool has_python() {
  if (run("/usr/bin/env", {"python3", "-c", "import sys; sys.exit(sys.version_info < (3, 8))"}).code == 0)
    return true;
  MESSAGE("there is no python3");
  return false;
}

Ended run_script(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"python3", "-B", script(name).string()});
  return run("/usr/bin/env", arguments);
}

std::string build_folder() { return programs_folder().parent_path().string(); }

}  // namespace

TEST_CASE("bench_loading: time and memory of both ways of loading") {
  if (!built("bench_loading")) return;
  const Ended ended =
      run_json("bench_loading", with_tiny({"--parts", "map,copy,int8,bf16", "--repeats", "2"}));
  for (const char* part : {"\"map/", "\"copy/"}) {
    for (const char* counter : {"ms", "read ms", "file MiB"}) {
      INFO(part << counter);
      CHECK(value(ended.out, counter, part) > 0);
    }
    // So small a file may even leave the process smaller.
    CHECK(std::abs(value(ended.out, "grown MiB", part)) < 64);
  }
  for (const char* part : {"\"int8/", "\"bf16/"}) {
    for (const char* counter : {"ms", "first ms", "file MiB"}) {
      INFO(part << counter);
      CHECK(value(ended.out, counter, part) > 0);
    }
  }
}

TEST_CASE("bench_training: counters, and a profile that keeps forward and backward apart") {
  if (!built("bench_training")) return;
  for (const char* precision : {"", "--bf16"}) {
    std::vector<std::string> flags =
        with_tiny({"--tokens", "64", "--length", "7", "--steps", "3", "--profile"});
    if (*precision != 0) flags.push_back(precision);
    const Ended ended = run_json("bench_training", flags);
    for (const char* counter : {"target tokens/s", "peak MiB", "kept MiB", "loss", "GFLOP/step"}) {
      INFO(counter);
      CHECK(value(ended.out, counter) > 0);
    }
    CHECK(value(ended.out, "allocations") >= 0);
    for (const char* word :
         {"linear_cross_entropy", "self_attention", "adam", " forward ", " backward ", "GFLOP/s"}) {
      INFO(word);
      CHECK(contains(ended.err, word));
    }
  }
}

TEST_CASE("bench_training: plain output for a reader, with batches of one length") {
  if (!built("bench_training")) return;
  const Ended ended =
      run("bench_training", with_tiny({"--tokens", "64", "--length", "8", "--same_length", "--steps", "2"}));
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, "target tokens/s="));
  CHECK(ended.err.find("error") == std::string::npos);
}

TEST_CASE("bench_decoding: every sentence gets exactly the tokens asked for, in every format") {
  if (!built("bench_decoding")) return;
  for (const char* format : {"float32", "bf16", "int8"}) {
    for (const char* beam : {"1", "3"}) {
      const Ended ended = run_json(
          "bench_decoding", with_tiny({"--sentences", "5", "--source", "7", "--target", "6", "--beam", beam,
                                       "--batch", "2", "--repeats", "1", "--format", format}));
      INFO(format << ", beam " << beam);
      CHECK(value(ended.out, "tokens") == 30);
      CHECK(value(ended.out, "target tokens/s") > 0);
      CHECK(value(ended.out, "peak MiB") > 0);
    }
  }
}

TEST_CASE("bench_serving: rates, latencies and batches, with requests translated alone and together") {
  if (!built("bench_serving")) return;
  const std::vector<std::string> flags = {"--clients", "5",        "--sentences", "40",        "--source",
                                          "7",         "--target", "6",           "--repeats", "2"};
  const Ended ended = run_json("bench_serving", with_tiny(flags));
  CHECK(value(ended.out, "sentences/s", "\"offline/") > 0);
  for (const char* part : {"\"alone/", "\"together/"}) {
    const double p50 = value(ended.out, "ms p50", part), p99 = value(ended.out, "ms p99", part);
    INFO(part);
    CHECK(value(ended.out, "sentences/s", part) > 0);
    CHECK(p50 > 0);
    CHECK(p99 >= p50);
    const double batch = value(ended.out, "sentences a batch", part);
    CHECK(batch >= 1);
    CHECK(batch <= (std::string(part) == "\"alone/" ? 1 : 5));
  }
  std::vector<std::string> longer = flags;
  longer.insert(longer.end(), {"--lines", "16"});  // 3 requests, the last of 8 sentences
  const Ended of_many = run_json("bench_serving", with_tiny(longer));
  CHECK(value(of_many.out, "sentences a batch", "\"together/") > 5);
}

TEST_CASE("bench_decoding --latency: times of single requests, to the first token and to the last") {
  if (!built("bench_decoding")) return;
  const Ended ended =
      run_json("bench_decoding", with_tiny({"--sentences", "5", "--source", "7", "--target", "6", "--beam",
                                            "2", "--repeats", "1", "--latency"}));
  for (const char* which : {"first token ms", "last token ms"}) {
    const double p50 = value(ended.out, std::string(which) + " p50");
    CHECK(p50 > 0);
    CHECK(value(ended.out, std::string(which) + " p95") >= p50);
  }
}

TEST_CASE("bench_layers: forward and forward with backward of every layer") {
  if (!built("bench_layers")) return;
  const Ended ended = run_json("bench_layers", {"--d_model", "12", "--heads", "3", "--ff", "20", "--tokens",
                                                "30", "--length", "5", "--benchmark_min_time=0.001"});
  for (const char* layer : {"multi_head_attention", "feed_forward", "encoder_layer", "decoder_layer"}) {
    for (const char* pass : {"/forward", "/forward+backward"}) {
      const std::string name = "\"" + std::string(layer) + pass + "/real_time\"";
      INFO(name);
      for (const char* counter : {"tokens/s", "GFLOP/s", "work MiB"})
        CHECK(value(ended.out, counter, name) > 0);
    }
  }
}

TEST_CASE("bench_attention_memory: eight times the length takes about eight times the memory") {
  if (!built("bench_attention_memory")) return;
  const Ended ended = run_json("bench_attention_memory", {"--d_model", "12", "--heads", "3", "--lengths",
                                                          "512,4096", "--repeats", "1", "--threads", "2"});
  for (const std::string part : {"attention", "module"}) {
    const auto counter = [&](const char* name, const char* length) {
      return value(ended.out, name, "\"" + part + "/" + length + "/");
    };
    INFO(part);
    CHECK(counter("forward ms", "512") > 0);
    CHECK(counter("backward ms", "512") > 0);
    CHECK(counter("peak MiB", "512") > 0);
    CHECK(counter("peak MiB", "4096") < 10 * counter("peak MiB", "512"));
  }
}

TEST_CASE("bench_kernels: every kernel runs and says its rate") {
  if (!built("bench_kernels")) return;
  const Ended ended =
      run_json("bench_kernels", {"--benchmark_min_time=0.001", "--benchmark_filter=-2048x8000|2048/d512"});
  for (const char* kernel : {"softmax/forward",
                             "softmax/backward",
                             "layer_norm/forward",
                             "layer_norm/backward",
                             "add_layer_norm/forward",
                             "dropout/forward",
                             "dropout/backward",
                             "relu/forward",
                             "gelu/forward",
                             "gelu/backward",
                             "gelu_tanh/backward",
                             "cross_entropy/forward/",
                             "cross_entropy/backward/",
                             "cross_entropy/forward_backward",
                             "embedding/forward",
                             "embedding/backward",
                             "adam/",
                             "sum_of_squares/",
                             "attention/forward",
                             "attention/backward"}) {
    INFO(kernel);
    CHECK(value(ended.out, "GB/s", "\"name\": \"" + std::string(kernel)) > 0);
    CHECK(value(ended.out, "ns/element", "\"name\": \"" + std::string(kernel)) > 0);
  }
}

TEST_CASE("bench_gemm: ours and packed weights") {
  if (!built("bench_gemm")) return;
  const Ended ended = run_json("bench_gemm", {"--benchmark_min_time=0.001",
                                              "--benchmark_filter=/512x512x512/eigenformer|/1x256x256/"});
  for (const char* name : {"NN/512x512x512/eigenformer/", "TN/512x512x512/eigenformer_bf16/"}) {
    CHECK(value(ended.out, "GFLOP/s", "\"name\": \"" + std::string(name)) > 0);
  }
  for (const char* name : {"NT/1x256x256/eigenformer_packed_float32", "NT/1x256x256/eigenformer_packed_bf16",
                           "NT/1x256x256/eigenformer_packed_int8"}) {
    CHECK(value(ended.out, "GB/s", "\"name\": \"" + std::string(name)) > 0);
  }
}

TEST_CASE("benchmarks: impossible sizes end with a message and exit code 1") {
  if (!built("bench_training") || !built("bench_decoding")) return;
  const Ended heads = run("bench_training", {"--d_model", "13", "--heads", "3"});
  CHECK(heads.code == 1);
  CHECK(contains(heads.err, "bench_training: error: "));
  CHECK(contains(heads.err, "d_model is 13, must be divisible by num_heads, which is 3"));
  CHECK(run("bench_training", {"--tokens", "0"}).code == 1);
  CHECK(run("bench_training", {"--nonsense"}).code == 1);
  CHECK(run("bench_decoding", {"--format", "int3"}).code == 1);
  CHECK(run("bench_decoding", {"--batch", "-1"}).code == 1);
}

TEST_CASE("curves and page: figures from tiny runs, and their text in a page that keeps all else") {
  if (!built("bench_training") || !has_python()) return;
  const TemporaryFolder folder;
  const std::string figures = (folder.path() / "figures").string();
  const Ended curves = run_script("curves", {"--quick", "--build", build_folder(), "--out", figures});
  INFO(curves.err);
  REQUIRE(curves.code == 0);
  for (const char* name : {"training/d_model", "training/layers", "training/length", "training/vocab",
                           "training/tokens", "threads/training", "decoding/d_model", "decoding/batch",
                           "decoding/beam", "threads/decoding", "attention/memory", "attention/time"}) {
    INFO(name);
    const std::string svg = read_file(fs::path(figures) / (std::string(name) + ".svg"));
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(contains(svg, "<polyline "));
    CHECK_FALSE(contains(svg, "nan"));
    CHECK(contains(read_file(fs::path(figures) / (std::string(name) + ".json")), "\"series\""));
  }
  fs::create_directory(folder / "pages");
  const std::string page = folder
                               .write("pages/page.md",
                                      "before\n<!-- measured: training -->\nold\n<!-- end -->\nbetween\n"
                                      "<!-- measured: compare -->\nkept\n<!-- end -->\nafter\n")
                               .string();
  REQUIRE(run_script("page", {"--figures", figures, "--page", page}).code == 0);
  const std::string once = read_file(page);
  CHECK(once.starts_with("before\n<!-- measured: training -->"));
  CHECK(contains(once, "](../figures/training/d_model.svg)"));
  CHECK(contains(once, "](../figures/threads/training.svg)"));
  CHECK_FALSE(contains(once, "old"));
  CHECK(once.ends_with("<!-- end -->\nbetween\n<!-- measured: compare -->\nkept\n<!-- end -->\nafter\n"));
  REQUIRE(run_script("page", {"--figures", figures, "--page", page}).code == 0);
  CHECK(read_file(page) == once);
}

TEST_CASE("compare: a row of our own, as text, Markdown and JSON") {
  if (!built("bench_training") || !has_python()) return;
  const TemporaryFolder folder;
  const std::string json = (folder.path() / "figures" / "compare.json").string();
  const Ended ended = run_script(
      "compare", {"--build", build_folder(), "--rounds", "1", "--markdown", "--json", json, "own-bf16-d64"});
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(contains(ended.out, "| train in bf16, width 64, 2 + 2 layers | "));
  CHECK(contains(read_file(json), "\"own-bf16-d64\""));
  const std::string page = folder.write("page.md", "<!-- measured: compare -->\n<!-- end -->\n").string();
  REQUIRE(run_script("page", {"--figures", (folder.path() / "figures").string(), "--page", page}).code == 0);
  CHECK(contains(read_file(page), "| our float32 | own-bf16-d64 |"));
}

TEST_CASE("compare: names that it does not know and programs that are not there") {
  if (!has_python()) return;
  const Ended unknown = run_script("compare", {"no-such-row"});
  CHECK(unknown.code == 1);
  CHECK(contains(unknown.err, "compare: there is no row no-such-row"));
  const Ended missing = run_script("compare", {"--build", "no/such/folder", "own-bf16-d64"});
  CHECK(missing.code == 1);
  CHECK(contains(missing.err, "own-bf16-d64: there is no no/such/folder"));
}

TEST_CASE("multi30k: a folder without the corpus is named, and scores get their place on the page") {
  if (!has_python()) return;
  const Ended missing = run_script("multi30k", {"--data", "no/such/folder"});
  CHECK(missing.code == 1);
  CHECK(contains(missing.err, "multi30k: there is no no/such/folder/train.en"));
  const TemporaryFolder folder;
  const std::string scores =
      folder
          .write(
              "multi30k.json",
              R"({"runs": [{"recipe": "cosine", "seed": 7, "bleu": 12.34, "minutes": 5.6, "threads": 2, "epochs": 3, "arithmetic": "bf16",
                               "cpu": "a CPU", "date": "d", "commit": "c"}]})")
          .string();
  const std::string page = folder.write("page.md", "<!-- measured: multi30k -->\n<!-- end -->\n").string();
  REQUIRE(run_script("page", {"--figures", folder.path().string(), "--page", page}).code == 0);
  CHECK(contains(read_file(page), "| cosine | 7 | 12.3 | 5.6 | 2 | bf16 | 3 | a CPU | d | c |"));

  for (const char* name :
       {"train.en", "train.de", "val.en", "val.de", "test_2016_flickr.en", "test_2016_flickr.de"}) {
    folder.write(name, "a line\n");
  }
  const Ended resumed =
      run_script("multi30k", {"--data", folder.path().string(), "--models", folder.path().string(), "--json",
                              scores, "--seeds", "8", "--resume"});
  CHECK(resumed.code == 1);
  CHECK(contains(resumed.err, "multi30k: seed 8 cannot be resumed: " + scores + " does not have it"));
}
