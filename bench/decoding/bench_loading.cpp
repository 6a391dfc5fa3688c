// Time and memory of loading weights from a safetensors file that is in the system's cache, into a
// Seq2SeqTransformer of base size (307 MB). "map" and "copy" are LoadOptions::map: parameters that are the
// mapped file, or their own memory filled from it. "ms" is construction and loading, "read ms" the first read
// of every value after that, which loads the pages of a mapped file. "grown MiB" is the memory that the
// process took from the system until then, without its code: run one part per process. "int8" and "bf16" are
// a model folder of such weights, loaded for inference (load_packed_folder); "first ms" is then the time up
// to the first translation, of 12 tokens into 12, greedily.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "../../tests/support/temporary_folder.hpp"
#include "../shared/bench_options.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/search/beams/generate.hpp"

namespace ef = eigenformer;

namespace {

struct Flags {
  ef::bench::ModelFlags model{
      .d_model = 512, .layers = 6, .ff = 2048, .heads = 8, .vocab = 32000, .threads = 2};
  int repeats = 5;
  std::vector<std::string> parts = {"map"};
};

ef::Seq2SeqOptions options_of(const Flags& f) {
  ef::Seq2SeqOptions options = f.model.model(0, false);
  options.tying = ef::Tying::target;
  return options;
}

bool is_packed(const std::string& part) { return part == "int8" || part == "bf16"; }

// In a separate process, so that its memory is not counted.
void write_model(const Flags& f, const std::string& part, const std::filesystem::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      ef::RandomGenerator rng(1);
      const ef::Seq2SeqTransformer<float> model(options_of(f), rng);
      if (is_packed(part)) {
        const auto format = part == "int8" ? ef::WeightFormat::int8 : ef::WeightFormat::bf16;
        ef::save_model_folder(path, model, {}, {}, format);
      } else {
        ef::save_model(path, model);
      }
      code = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "bench_loading: %s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 1;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    throw ef::IoError("bench_loading", {"cannot write a model to ", path.string()});
  }
}

double read_everything(const ef::Seq2SeqTransformer<float>& model) {
  double sum = 0;
  for (const auto& entry : ef::state_dict(model)) {
    for (const float x : entry.value.span()) sum += static_cast<double>(x);
  }
  return sum;
}

void measure(benchmark::State& state, const Flags& f, const std::string& part,
             const std::filesystem::path& path) {
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const double before = ef::bench::resident_mib();
  double fastest = 0, reading = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    ef::RandomGenerator rng = ef::RandomGenerator::idle();
    ef::Seq2SeqTransformer<float> model(options_of(f), rng);
    ef::load_model(path, model, {.map = part == "map"});
    const auto loaded = Clock::now();
    benchmark::DoNotOptimize(read_everything(model));
    const auto end = Clock::now();
    const Milliseconds load = loaded - start, read = end - loaded;
    fastest = fastest == 0 ? load.count() : std::min(fastest, load.count());
    reading = reading == 0 ? read.count() : std::min(reading, read.count());
  }
  state.counters["ms"] = fastest;
  state.counters["read ms"] = reading;
  state.counters["file MiB"] = static_cast<double>(std::filesystem::file_size(path)) / (1024.0 * 1024.0);
  state.counters["grown MiB"] = ef::bench::peak_mib() - before;
}

void measure_packed(benchmark::State& state, const Flags& f, const std::filesystem::path& folder) {
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const double before = ef::bench::resident_mib();
  ef::RandomGenerator rng(2);
  const std::vector<std::vector<std::int32_t>> source = {ef::bench::random_tokens(rng, 12, f.model.vocab)};
  double fastest = 0, first = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    const auto model = ef::load_packed_folder<ef::Seq2SeqTransformer<float>>(folder);
    const auto loaded = Clock::now();
    benchmark::DoNotOptimize(ef::generate(model.loaded.model, model.context(), source,
                                          {.beam_size = 1, .max_length = 12, .min_length = 12}));
    const Milliseconds load = loaded - start, whole = Clock::now() - start;
    fastest = fastest == 0 ? load.count() : std::min(fastest, load.count());
    first = first == 0 ? whole.count() : std::min(first, whole.count());
  }
  state.counters["ms"] = fastest;
  state.counters["first ms"] = first;
  state.counters["file MiB"] =
      static_cast<double>(std::filesystem::file_size(folder / "model.safetensors")) / (1024.0 * 1024.0);
  state.counters["grown MiB"] = ef::bench::peak_mib() - before;
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Time and memory of loading weights"};
  f.model.add_to(app);
  app.add_option("--repeats", f.repeats, "number of loads; the fastest is reported")
      ->check(ef::bench::ModelFlags::minimum(1))
      ->capture_default_str();
  app.add_option("--parts", f.parts, "what to measure: map, copy, int8, bf16")
      ->check(CLI::IsMember({"map", "copy", "int8", "bf16"}))
      ->delimiter(',');
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  return ef::bench::run("bench_loading", [&] {
    static const ef::testing::TemporaryFolder folder;
    ef::bench::use_threads(f.model.threads);
    for (const std::string& part : f.parts) {
      const std::filesystem::path path = folder / (is_packed(part) ? part : "model.safetensors");
      if (!std::filesystem::exists(path)) write_model(f, part, path);
      benchmark::RegisterBenchmark(part.c_str(),
                                   [&f, part, path](benchmark::State& s) {
                                     is_packed(part) ? measure_packed(s, f, path) : measure(s, f, part, path);
                                   })
          ->Iterations(f.repeats)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  });
}
