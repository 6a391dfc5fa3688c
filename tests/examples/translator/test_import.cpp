#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/program.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

TEST_CASE(
    "a checkpoint is imported, translates as its own library does, is inspected, evaluated and quantised") {
  const TemporaryFolder folder;
  const fs::path checkpoint = fixtures_folder() / "checkpoints" / "ct2_post";
  const std::string model = (folder.path() / "model").string();
  const Ended imported = run("translator", {"import", "--from", checkpoint.string(), "--model", model});
  CAPTURE(imported.err);
  REQUIRE(imported.code == 0);
  CHECK(contains(imported.out, model + ": 2 + 1 layers of width 12, "));

  const auto reference = nlohmann::json::parse(read_file(checkpoint / "reference.json"));
  std::string lines, expected;
  for (const auto& line : reference.at("lines")) lines += line.get<std::string>() + "\n";
  for (const auto& tokens : reference.at("greedy_tokens")) {
    std::string text;
    for (const std::string token : tokens) {
      if (token == "<s>" || token == "<blank>") continue;
      text += (text.empty() ? "" : " ") + (token == "<unk>" ? std::string("\xE2\x81\x87") : token);
    }
    expected += text + "\n";
  }
  const Ended translated =
      run("translator", {"translate", "--model", model, "--beam", "1", "--max-length", "14"}, lines);
  CHECK(translated.err.empty());
  CHECK(translated.out == expected);

  const std::string source = folder.write("source", lines).string(),
                    target = folder.write("target", expected).string();
  const Ended evaluated = run("translator", {"evaluate", "--model", model, "--source", source, "--reference",
                                             target, "--beam", "1", "--max-length", "14"});
  CAPTURE(evaluated.err);
  CHECK(evaluated.code == 0);
  CHECK(contains(evaluated.out, "exact match: 100.0 %"));
  CHECK(contains(evaluated.out, "perplexity of the references"));
  CHECK(contains(run("translator", {"inspect", "--model", model}).out, "float32 weights"));
  REQUIRE(run("translator", {"quantize", "--model", model, "--to", "int8"}).code == 0);
  CHECK(run("translator", {"translate", "--model", model + "-int8"}, lines).code == 0);

  const auto refused = [](const std::vector<std::string>& arguments, const std::string& why) {
    const Ended ended = run("translator", arguments);
    CHECK(ended.code == 1);
    CHECK(ended.out.empty());
    CHECK_MESSAGE(contains(ended.err, why), ended.err);
  };
  refused({"import", "--from", checkpoint.string(), "--model", model}, "exists already; give --overwrite");
  refused({"import", "--from", model, "--model", model}, "is the checkpoint folder");
  refused({"import", "--from", model, "--model", model + "2"}, "is an eigenformer model already");
  refused({"import", "--from", model + "3", "--model", model + "2"}, "does not exist");
  CHECK_FALSE(fs::exists(model + "2"));
  folder.write("model/confidence.json", "{}");
  CHECK(run("translator",
            {"import", "--from", checkpoint.string(), "--model", model, "--overwrite", "--weights", "bf16"})
            .code == 0);
  CHECK_FALSE(fs::exists(fs::path(model) / "confidence.json"));
}

TEST_CASE(
    "a model of Marian is imported with its int8 weights, and translates with and without a shortlist") {
  const TemporaryFolder folder;
  const fs::path checkpoint = fixtures_folder() / "checkpoints" / "marian_int8";
  const std::string model = (folder.path() / "model").string();
  const Ended imported = run("translator", {"import", "--from", checkpoint.string(), "--model", model});
  CAPTURE(imported.err);
  REQUIRE(imported.code == 0);
  CHECK(contains(imported.out, model + ": 2 + 2 layers of width 16, "));
  const std::string shown = run("translator", {"inspect", "--model", model}).out;
  CHECK(contains(shown, "int8 weights"));
  CHECK(contains(shown, "\"self_mixing\":\"ssru\""));
  const std::string lines = "the dog sees the red bird .\n\na tree\n";
  const Ended translated = run("translator", {"translate", "--model", model, "--max-length", "20"}, lines);
  CHECK(translated.err.empty());
  CHECK(std::count(translated.out.begin(), translated.out.end(), '\n') == 3);

  const std::string source = folder.write("source", "the dog sees\na tree\n").string(),
                    target = folder.write("target", "a red bird\nthe house\n").string(),
                    lex = (folder.path() / "lex.bin").string();
  const Ended made = run("translator", {"shortlist", "--model", model, "--source", source, "--target", target,
                                        "--output", lex, "--first", "8", "--best", "4"});
  CAPTURE(made.err);
  REQUIRE(made.code == 0);
  CHECK(contains(made.out, "source ids have translations"));
  const Ended listed =
      run("translator", {"translate", "--model", model, "--max-length", "20", "--shortlist", lex}, lines);
  CHECK(listed.err.empty());
  CHECK(listed.code == 0);
  CHECK(std::count(listed.out.begin(), listed.out.end(), '\n') == 3);
  // With all ids in it, nothing changes.
  REQUIRE(run("translator", {"shortlist", "--model", model, "--source", source, "--target", target,
                             "--output", lex, "--first", "1000"})
              .code == 0);
  CHECK(run("translator", {"translate", "--model", model, "--max-length", "20", "--shortlist", lex}, lines)
            .out == translated.out);
  const std::string links = folder.write("links", "0-0 1-2\n0-1\n").string();
  CHECK(run("translator", {"shortlist", "--model", model, "--source", source, "--target", target, "--output",
                           lex, "--alignments", links})
            .code == 0);

  const auto refused = [](const std::vector<std::string>& arguments, const std::string& why) {
    const Ended ended = run("translator", arguments);
    CHECK(ended.code == 1);
    CHECK_MESSAGE(contains(ended.err, why), ended.err);
  };
  refused({"shortlist", "--model", model, "--source", source, "--target", target, "--output", lex,
           "--alignments", folder.write("bad", "0-0\n1:2\n").string()},
          "line 2: '1:2' is not a link, expected links");
  refused({"translate", "--model", model, "--shortlist", source}, "header of a binary shortlist");
  refused({"translate", "--model", model, "--shortlist", lex, "--sample"}, "--shortlist");
  refused({"quantize", "--model", model, "--to", "int8"}, "has int8 weights already");
  const std::string plain = (folder.path() / "plain").string();
  REQUIRE(run("translator", {"import", "--from", (checkpoint / "model.intgemm.alphas.bin").string(),
                             "--model", plain, "--weights", "float32"})
              .code == 0);
  CHECK(contains(run("translator", {"inspect", "--model", plain}).out, "float32 weights"));
  CHECK(run("translator", {"quantize", "--model", plain, "--to", "int8"}).code == 0);
}

TEST_CASE("a training starts from an imported model, keeps its vocabulary and conventions, and resumes") {
  const TemporaryFolder folder;
  const auto in_folder = [&](const char* name) { return (folder.path() / name).string(); };
  const std::string base = in_folder("base"), tuned = in_folder("tuned");
  REQUIRE(
      run("translator", {"import", "--from", (fixtures_folder() / "checkpoints" / "hf_nllb").string(),
                         "--model", base, "--source-language", "eng_Latn", "--target-language", "deu_Latn"})
          .code == 0);
  const std::string lines = "the dog sees the red bird .\na tree\n";
  const std::string source = folder.write("source", lines).string(),
                    target = folder.write("target", "der Hund sieht den Vogel .\nein Baum\n").string();
  const std::vector<std::string> common = {"train",    "--source", source,        "--target", target,
                                           "--warmup", "0",        "--max-steps", "3"};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run("translator", more);
  };
  // With a rate that changes nothing the model stays what it was.
  const Ended kept =
      train({"--init-from", base, "--model", tuned, "--learning-rate", "1e-30", "--freeze", "encoder.*"});
  REQUIRE_MESSAGE(kept.code == 0, kept.err);
  CHECK(contains(kept.out + kept.err, "starting from the model in '" + base + "'"));
  const auto translate = [&](const std::string& model) {
    const Ended ended =
        run("translator", {"translate", "--model", model, "--max-length", "12", "--beam", "3"}, lines);
    CHECK(ended.err.empty());
    return ended.out;
  };
  CHECK(translate(tuned) == translate(base));
  const auto options = [](const std::string& model) {
    return nlohmann::json::parse(read_file(fs::path(model) / "options.json"));
  };
  CHECK(options(tuned).at("text") == options(base).at("text"));
  CHECK(options(tuned).at("tokenizer") == options(base).at("tokenizer"));

  const std::vector<std::string> again = {"--init-from", base, "--model", tuned, "--overwrite"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), again.begin(), again.end());
    return train(more);
  };
  REQUIRE(with({"--learning-rate", "0.05", "--dropout", "0.2"}).code == 0);
  CHECK(translate(tuned) != translate(base));
  CHECK(options(tuned).at("model").at("dropout") == 0.2);
  const Ended resumed = run("translator", {"train", "--resume", "--model", tuned, "--max-steps", "5"});
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(options(tuned).at("text") == options(base).at("text"));

  const auto refused = [](const Ended& ended, const std::string& why) {
    CHECK(ended.code == 1);
    CHECK_MESSAGE(contains(ended.err, why), ended.err);
  };
  refused(with({"--d-model", "32"}), "--d-model 32 differs from the model to start from, which has 16");
  refused(with({"--tokenizer", "char"}), "--tokenizer sets up a new vocabulary");
  refused(with({"--freeze", "encodr.*"}), "'encodr.*' matches no parameter; the nearest names are");
  refused(with({"--guided-alignment-weight", "0.5"}), "has no effect without --guided-alignment: give both");
  refused(with({"--resume"}), "give --resume or --overwrite, not both");
  folder.write("source", lines + "a dog\n");
  folder.write("target", "der Hund\nein Baum\nein Hund\n");
  refused(run("translator", {"train", "--resume", "--model", tuned, "--max-steps", "6"}),
          "to continue with other data, start a new training from the saved model");
}
