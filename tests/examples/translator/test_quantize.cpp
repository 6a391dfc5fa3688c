#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/translator/translator_corpus.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

TEST_CASE("a model is quantised, translates, is inspected and compared, and refuses to be trained") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--epochs", "120", "--dropout", "0", "--label-smoothing", "0",
                                          "--validate-every", "0"}))
              .code == 0);
  const auto translate = [&](const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"translate", "--model", model};
    all.insert(all.end(), more.begin(), more.end());
    return run("translator", all, corpus.english());
  };
  for (const std::string format : {"int8", "bf16"}) {
    CAPTURE(format);
    const std::string small = corpus.model + "-" + format;
    const Ended quantized = run("translator", {"quantize", "--model", corpus.model + "/", "--to", format});
    CAPTURE(quantized.err);
    REQUIRE(quantized.code == 0);
    CHECK(contains(quantized.out, small + ": " + format + " weights, 0."));
    const auto bytes = [](const std::string& folder) {
      return fs::file_size(fs::path(folder) / "model.safetensors");
    };
    // Names and whole panels of so small matrices weigh much.
    CHECK(bytes(small) * 10 < bytes(corpus.model) * 8);
    CHECK_FALSE(fs::exists(fs::path(small) / "training"));

    CHECK(translate(small).out == corpus.german());
    CHECK(translate(small, {"--batch-size", "1", "--threads", "1"}).out ==
          translate(small, {"--batch-size", "60", "--threads", "2"}).out);
    const Ended evaluated = run("translator", {"evaluate", "--model", small, "--source", corpus.source,
                                               "--reference", corpus.target});
    CHECK(contains(evaluated.out, "BLEU = 100.00"));
    CHECK(contains(evaluated.out, "perplexity of the references: 1."));
    const Ended inspected = run("translator", {"inspect", "--model", small});
    CHECK(contains(inspected.out, format + " weights"));
    CHECK(contains(inspected.out, "model.safetensors"));
    const Ended compared = run("translator", {"compare", "--model", corpus.model, "--with", small, "--source",
                                              corpus.source, "--reference", corpus.target});
    CAPTURE(compared.out);
    CHECK(compared.code == 0);
    const std::vector<std::string> lines = lines_of(compared.out);
    REQUIRE(lines.size() == 4);
    CHECK(contains(lines[0], "equal next tokens: "));
    CHECK(contains(lines[1], "A float32  BLEU = 100.00"));
    CHECK(contains(lines[2], "B " + format));
    CHECK(contains(lines[2], "BLEU = 100.00"));
    CHECK(contains(lines[3], "tok:13a"));

    const auto refused = [](const std::vector<std::string>& arguments, const std::string& why) {
      const Ended ended = run("translator", arguments);
      CHECK(ended.code == 1);
      CHECK(ended.out.empty());
      CHECK_MESSAGE(contains(ended.err, why), ended.err);
    };
    std::vector<std::string> resume = {"train", "--resume", "--model", small};
    refused(resume, small + "' has " + format + " weights, which cannot be trained");
    // Nor does a training state that lies about change that.
    fs::copy(fs::path(corpus.model) / "training", fs::path(small) / "training");
    refused(resume, small + "' has " + format + " weights, which cannot be trained");

    const std::string before = read_file(fs::path(small) / "model.safetensors");
    refused({"quantize", "--model", corpus.model, "--to", format},
            small + "' exists already; give --overwrite");
    refused({"quantize", "--model", small, "--to", "int8"}, small + "' has " + format + " weights already");
    refused({"quantize", "--model", corpus.model, "--to", format, "--overwrite", "--output",
             corpus.model + "/../model"},
            "is the model to quantize");
    refused({"quantize", "--model", corpus.model, "--to", "int4"}, "int4");
    // Neither a training nor the confidences of the model before are left beside another model.
    refused({"quantize", "--model", corpus.model, "--to", format, "--overwrite"},
            small + "' holds a training that --resume can continue");
    CHECK(read_file(fs::path(small) / "model.safetensors") == before);
    fs::remove_all(fs::path(small) / "training");
    corpus.folder.write(fs::path(small).filename().string() + "/confidence.json", "{}");
    CHECK(run("translator", {"quantize", "--model", corpus.model, "--to", format, "--overwrite"}).code == 0);
    CHECK_FALSE(fs::exists(fs::path(small) / "confidence.json"));
    CHECK(read_file(fs::path(small) / "model.safetensors") == before);
  }
  // A folder of something else is not written into either.
  const std::string notes = (corpus.folder.path() / "notes").string();
  fs::create_directory(notes);
  corpus.folder.write("notes/a.txt", "mine");
  const Ended other =
      run("translator", {"quantize", "--model", corpus.model, "--to", "int8", "--output", notes});
  CHECK(other.code == 1);
  CHECK(contains(other.err, "exists already"));
  CHECK(contains(run("translator", {"compare", "--help"}).out, "forced decoding"));
}
