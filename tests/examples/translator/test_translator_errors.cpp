#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "examples/translator/translator_corpus.hpp"
#include "folders.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

/// Checks that a call fails as every failure is to: exit code 1, one line on stderr that says why, nothing on
/// stdout.
void refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts,
             const std::string& input = "") {
  const Ended ended = run("translator", arguments, input);
  CAPTURE(ended.err);
  CHECK(ended.code == 1);
  CHECK(ended.out.empty());
  CHECK(contains(ended.err, "translator: error: "));
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(contains(ended.err, part));
  }
}

std::vector<std::string> replaced(std::vector<std::string> arguments, const std::string& option,
                                  const std::string& value) {
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == option) {
      arguments[i + 1] = value;
      return arguments;
    }
  }
  arguments.insert(arguments.end(), {option, value});
  return arguments;
}

}  // namespace

TEST_CASE("a model without tokenizers is refused by name") {
  const TemporaryFolder folder;
  const fs::path ids = folder.path() / "ids";
  fs::copy(fixtures_folder() / "translation_model", ids, fs::copy_options::recursive);
  auto options = nlohmann::json::parse(read_file(ids / "options.json"));
  options["tokenizer"] = nullptr;
  folder.write("ids/options.json", options.dump());
  const std::string text = folder.write("text", "I see the dog.\n").string(), model = ids.string(),
                    out = (folder.path() / "out").string(), pairs = text + "2",
                    why = "'" + model + "' was saved without a tokenizer, expected a model with one";
  fs::copy(text, pairs);
  refused({"translate", "--model", model}, {why}, "I see the dog.\n");
  refused({"shortlist", "--model", model, "--source", text, "--target", pairs, "--output", out}, {why});
  refused({"prepare", "--init-from", model, "--source", text, "--target", pairs, "--output", out}, {why});
}

TEST_CASE("calls that make no sense are refused") {
  refused({}, {"a command is required, such as translate; see translator --help"});
  refused({"sing"}, {"there is no command 'sing'; see translator --help"});
  refused({"tranlate", "--model", "m"},
          {"there is no command 'tranlate': did you mean 'translate'? See translator --help"});
  refused({"evalaute", "--model", "m"}, {"there is no command 'evalaute': did you mean 'evaluate'?"});
  refused({"--hlep"}, {"unknown option '--hlep': did you mean '--help'? See translator --help"});
  refused({"train"}, {"--model"});
  refused({"translate", "--model"}, {"--model needs a value; see translator translate --help"});
  refused({"translate", "--model", "m", "--beams", "4"},
          {"unknown option '--beams': did you mean '--beam'? See translator translate --help"});
  refused({"translate", "--model", "m", "--nbest=4"}, {"unknown option '--nbest': did you mean '--n-best'?"});
  refused({"translate", "--modell", "m"},
          {"unknown option '--modell': did you mean '--model'? See translator translate --help"});
  refused({"translate"}, {"--model is required; see translator translate --help"});
  refused({"translate", "--model", "m", "--xyzzy"},
          {"unknown option '--xyzzy'; see translator translate --help"});
  refused({"train", "--lr", "1"}, {"unknown option '--lr'; see translator train --help"});
  refused({"train", "--weight", "1"}, {"unknown option '--weight': did you mean '--weight-decay'?"});
  refused({"translate", "--model", "m", "first", "second"},
          {"unexpected argument 'first', expected options"});
  refused({"translate", "--model", "m", "--beam", "four"}, {"--beam"});
  CHECK(run("translator", {"--help"}).code == 0);
  CHECK(run("translator", {"train", "--help"}).code == 0);
  CHECK(contains(run("translator", {"--version"}).out, "eigenformer "));
}

TEST_CASE("a folder that cannot hold a result, or holds another model, is named") {
  const std::string model = (fixtures_folder() / "translation_model").string(),
                    other = (fixtures_folder() / "checkpoints" / "hf_marian").string();
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  refused({"translate", "--model", model, "--output", path}, {"cannot write '" + path + "': Is a directory"});
  refused({"translate", "--model", other},
          {"'" + other +
           "' is not a model folder: it has no options.json, but a config.json; import "
           "checkpoints of other libraries first"});
}

TEST_CASE("output that gets lost is an error") {
  const std::string model = (fixtures_folder() / "translation_model").string();
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"train", "--help"},
                                                    {"inspect", "--parameters", "--model", model}}) {
    const Ended ended = Program("translator", arguments, "", {.out = "/dev/full"}).wait();
    CHECK(ended.code == 1);
    CHECK_MESSAGE(contains(ended.err, "cannot write: No space left on device"), ended.err);
  }
}

TEST_CASE("where nothing can be written, that is said before the work") {
  const TinyCorpus corpus;
  const std::string model = (fixtures_folder() / "translation_model").string();
  const std::string file = corpus.folder.write("s.txt", "mine\n").string();
  // The corpus does not exist: whether the folder is fine is asked first.
  for (const std::string& place : {file, std::string("/dev/full")}) {
    refused({"train", "--source", "/no/a", "--target", "/no/b", "--model", place},
            {"'" + place + "' is not a folder"});
    refused({"train", "--resume", "--model", place}, {"is not a folder"});
    refused({"quantize", "--model", model, "--to", "int8", "--output", place},
            {"'" + place + "' is not a folder"});
    refused({"import", "--from", model, "--model", place}, {"'" + place + "' is not a folder"});
  }
  refused({"train", "--source", "/no/a", "--target", "/no/b", "--model", "/proc/x"},
          {"cannot make the folder '/proc/x'"});
  refused({"translate", "--model", model, "--attention", "/nope/a"}, {"cannot write '/nope/a'"},
          "I see the dog.\n");
  refused({"evaluate", "--model", model, "--source", "/no/a", "--reference", "/no/b", "--output", "/nope/a"},
          {"/nope/a"});
  CHECK(read_file(file) == "mine\n");
}

TEST_CASE("a training that diverges says so, is an error, and leaves no model") {
  const TinyCorpus corpus;
  const fs::path model = corpus.model;
  std::vector<std::string> arguments =
      replaced(corpus.train({"--max-steps", "6"}), "--learning-rate", "1000");
  arguments = replaced(arguments, "--warmup", "0");
  const auto diverges = [&](const std::vector<std::string>& more, const std::string& message) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended = run("translator", all);
    CAPTURE(ended.err);
    CHECK(ended.code == 1);
    CHECK(contains(ended.err, message));
    CHECK(contains(ended.err, "; lower --learning-rate"));
    CHECK_FALSE(contains(ended.err, "translate with"));
    CHECK_FALSE(contains(ended.err, "nan,"));
  };
  // The loss is finite, but a thousandfold that of guessing.
  diverges({}, "training diverged: its loss was ");
  CHECK_FALSE(fs::exists(model / "options.json"));
  CHECK_FALSE(fs::exists(model / "model.safetensors"));
  CHECK_FALSE(fs::exists(model / "training/last.safetensors"));
  CHECK(fs::exists(model / "training/training.jsonl"));
  diverges({"--valid-source", corpus.source, "--valid-target", corpus.target}, "training diverged: its loss");
  CHECK_FALSE(fs::exists(model / "model.safetensors"));
  // A model that is there stays.
  REQUIRE(run("translator", corpus.train({"--max-steps", "2", "--overwrite"})).code == 0);
  const std::string weights = read_file(model / "model.safetensors"),
                    state = read_file(model / "training/last.safetensors");
  diverges({"--overwrite"}, "training diverged: its loss was ");
  CHECK(read_file(model / "model.safetensors") == weights);
  CHECK(read_file(model / "training/last.safetensors") == state);
}

TEST_CASE("bad training data: each is named, and no model folder appears") {
  const TinyCorpus corpus;
  const auto refuse = [&](const std::string& option, const std::string& file,
                          const std::vector<std::string>& parts) {
    refused(replaced(corpus.train(), option, file), parts);
    CHECK_FALSE(fs::exists(corpus.model));
  };
  const auto file = [&](const std::string& name, const std::string& bytes) {
    return corpus.folder.write(name, bytes).string();
  };
  refuse("--source", (corpus.folder.path() / "no.en").string(), {"no.en", "No such file"});
  refuse("--target", corpus.folder.path().string(), {"it is a folder"});
  refuse("--target", file("short.de", "Ein Hund.\nEine Katze.\n"),
         {"has 60 lines", "has 2", "expected equal numbers"});
  refuse("--source", file("latin1.en", "fine\nna\xEFve\n"), {"invalid UTF-8", "latin1.en", "line 2"});
  refuse("--source", file("nul.en", std::string("a\0b\n", 4)), {"NUL byte", "line 1"});
  const std::string empty = file("empty", "");
  std::vector<std::string> both = replaced(replaced(corpus.train(), "--source", empty), "--target", empty);
  refused(both, {"empty' and '", "empty' are empty, expected at least one sentence pair"});
  const std::string blank = file("blank", "\n  \n\n");
  both = replaced(replaced(corpus.train(), "--source", blank), "--target", blank);
  refused(both, {"are empty on one side"});
  refuse("--max-length", "1", {"no sentence pair is left"});
  refuse("--valid-source", corpus.source, {"--valid-source and --valid-target"});
  refuse("--tsv", corpus.source, {"one of --tsv, --data and --corpora instead"});
  CHECK_FALSE(fs::exists(corpus.model));
}

TEST_CASE("impossible sizes are refused by name, and no model folder appears") {
  const TinyCorpus corpus;
  const std::vector<std::vector<std::string>> cases = {
      {"--d-model", "17", "d_model is 17, must be divisible by num_heads, which is 2"},
      {"--d-model", "0", "d_model is 0"},
      {"--d-model", "-16", "d_model is -16"},
      {"--heads", "0", "num_heads is 0"},
      {"--heads", "-2", "num_heads is -2"},
      {"--layers", "0", "num_encoder_layers is 0, must be positive (--layers)"},
      {"--layers", "-1", "num_encoder_layers is -1"},
      {"--ff", "0", "(--ff)"},
      {"--kv-heads", "3", "(--kv-heads)"},
      {"--window", "-1", "(--window)"},
      {"--qk-norm-kind", "rms_norm", "--qk-norm-kind has no effect without --qk-norm"},
      {"--ff", "-32", "dim_feedforward is -32"},
      {"--dropout", "1", "dropout is 1"},
      {"--dropout", "-0.1", "dropout is -0.1"},
      {"--vocab-size", "4", "vocab_size is 4"},
      {"--vocab-size", "-8000", "vocab_size is -8000"},
      {"--max-length", "0", "max_length is 0"},
      {"--batch-tokens", "0", "batch_tokens is 0"},
      {"--epochs", "0", "epochs, max_steps and max_minutes are all 0"},
      {"--max-steps", "-1", "max_steps is -1"},
      {"--max-minutes", "-1", "max_minutes is -1"},
      {"--learning-rate", "0", "learning_rate is 0"},
      {"--learning-rate", "nan", "learning_rate is nan"},
      {"--learning-rate", "1e10", "learning_rate is 10000000000, must be at most 1000"},
      {"--warmup", "-1", "warmup is -1"},
      {"--label-smoothing", "1", "label_smoothing is 1"},
      {"--patience", "-1", "patience is -1"},
      {"--average-last", "-1", "average_last is -1"},
      {"--validate-every", "-1", "validate_every is -1"},
      {"--clip", "-1", "(--clip)"},
      {"--threads", "-1", "threads is -1, must be from 0 to 1024"},
      {"--threads", "1000000", "threads is 1000000, must be from 0 to 1024"},
      {"--tokenizer", "morse", "tokenizer is 'morse'"},
      {"--schedule", "zigzag", "schedule is \"zigzag\""},
      {"--tie", "some", "tying is \"some\", expected one of none, target, all (--tie)"},
      {"--seed", "-1", "--seed is '-1', expected a whole number, 0 or more"},
      {"--seed", "", "--seed is '', expected a whole number, 0 or more"},
      {"--dropout", "", "--dropout is '', expected a number"},
      {"--dropout", "0x1p-3", "--dropout is '0x1p-3', expected a number"},
      {"--max-steps", "7.5", "--max-steps is '7.5', expected a whole number"},
      {"--seed", "18446744073709551616", "--seed is 18446744073709551616, which is out of range"},
      {"--max-steps", "9223372036854775808", "--max-steps is 9223372036854775808, which is out of range"},
      {"--d-model", "abc", "--d-model"},
      {"--model", "/proc/no/such/place", "/proc/no"},
      {"--model", (corpus.folder.path() / "no/such/m").string(), "no/such', expected one that exists"},
  };
  for (const auto& c : cases) {
    CAPTURE(c[0] + " " + c[1]);
    refused(replaced(corpus.train(), c[0], c[1]), {c[2]});
    CHECK_FALSE(fs::exists(corpus.model));
  }
}

TEST_CASE("a model folder is not overwritten unasked, and a training that cannot go on says why") {
  const TinyCorpus corpus;
  refused({"train", "--resume", "--model", corpus.model}, {"holds no model to resume"});
  REQUIRE(run("translator", corpus.train({"--max-steps", "2"})).code == 0);
  const fs::path model = corpus.model;
  const std::string before = read_file(model / "model.safetensors"),
                    state = read_file(model / "training/last.safetensors");
  refused(corpus.train({"--max-steps", "3"}), {"already holds a model", "--resume", "--overwrite"});
  refused(corpus.train({"--resume", "--overwrite"}), {"not both"});
  refused({"train", "--resume", "--model", corpus.model, "--d-model", "24"}, {"--d-model 24 cannot change"});
  refused({"train", "--resume", "--model", corpus.model, "--seed", "2"}, {"--seed 2 cannot change"});
  const std::string other = corpus.folder.write("other.en", corpus.german()).string();
  refused({"train", "--resume", "--model", corpus.model, "--source", other}, {"corpus"});
  // A failed start of a new training leaves the old model alone.
  refused(replaced(corpus.train({"--overwrite"}), "--source", "/no/such/file"), {"/no/such/file"});
  CHECK(read_file(model / "model.safetensors") == before);
  CHECK(read_file(model / "training/last.safetensors") == state);

  corpus.folder.write("model/training/last.safetensors", state.substr(0, state.size() / 2));
  refused({"train", "--resume", "--model", corpus.model}, {"last.safetensors", "truncated"});
  fs::remove(model / "training/last.safetensors");
  refused({"train", "--resume", "--model", corpus.model}, {"cannot be resumed"});
  CHECK(read_file(model / "model.safetensors") == before);
}

TEST_CASE("truncated and foreign model folders are refused by translate, evaluate and inspect") {
  const TinyCorpus corpus;
  const fs::path model = corpus.model;
  const auto all_refuse = [&](const std::vector<std::string>& parts) {
    refused({"translate", "--model", corpus.model}, parts, "I see the dog.\n");
    refused({"evaluate", "--model", corpus.model, "--source", corpus.source, "--reference", corpus.target},
            parts);
    refused({"inspect", "--model", corpus.model}, parts);
  };
  all_refuse({"does not exist"});
  fs::create_directory(model);
  all_refuse({"is not a model folder"});
  fs::remove(model);
  REQUIRE(run("translator", corpus.train({"--max-steps", "1"})).code == 0);
  const std::string options = read_file(model / "options.json"),
                    weights = read_file(model / "model.safetensors");
  const std::string vocabulary = read_file(model / "tokenizer.vocab");
  const auto write = [&](const char* name, const std::string& bytes) {
    corpus.folder.write(std::string("model/") + name, bytes);
  };

  write("model.safetensors", weights.substr(0, weights.size() - 100));
  all_refuse({"model.safetensors", "truncated"});
  write("model.safetensors", "PK\x03\x04 something else altogether");
  all_refuse({"model.safetensors", "not a safetensors file"});
  fs::remove(model / "model.safetensors");
  all_refuse({"model.safetensors"});
  write("model.safetensors", weights);
  write("options.json", options.substr(0, 200));
  all_refuse({"options.json", "truncated or not JSON"});
  write("options.json", "{\"architectures\": [\"MarianMTModel\"], \"d_model\": 512}");
  all_refuse({"options.json", "not the options.json of a model folder"});
  std::string newer = options;
  newer.replace(newer.find("\"format_version\": 1"), 19, "\"format_version\": 99");
  write("options.json", newer);
  all_refuse({"format_version 99"});
  write("options.json", options);
  // More words than the model has embeddings for: ids out of range.
  write("tokenizer.vocab", vocabulary + "zebra\n");
  all_refuse({"tokenizer has", "options.json says"});
  write("tokenizer.vocab", "not a vocabulary\n");
  all_refuse({"tokenizer.vocab"});
  write("tokenizer.vocab", vocabulary);
  CHECK(run("translator", {"inspect", "--model", corpus.model}).code == 0);
}

TEST_CASE("bad input to translate and evaluate is refused, and no output file is touched") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "1"})).code == 0);
  const std::string out = corpus.folder.write("out.de", "kept\n").string();
  const std::string bad = corpus.folder.write("bad.en", "I see the dog.\nI see \xFF\n").string();
  refused({"translate", "--model", corpus.model, "--input", bad, "--output", out},
          {"invalid UTF-8 in line 2 of", "bad.en", "nothing was written to '" + out + "'"});
  CHECK(read_file(out) == "kept\n");
  refused({"translate", "--model", corpus.model, "--input", "/no/such/file", "--output", out},
          {"/no/such/file"});
  CHECK(read_file(out) == "kept\n");
  // What came before the bad line is translated, so that nothing is lost.
  const Ended ended = run("translator", {"translate", "--model", corpus.model, "--max-length", "4"},
                          "I see\n\nI see \xC3(\nWe see\n");
  CHECK(ended.code == 1);
  CHECK(lines_of(ended.out + "|").size() == 3);
  CHECK(contains(ended.err, "invalid UTF-8 in line 3 of standard input, at byte 7"));
  CHECK(contains(ended.err, "the lines before it were translated"));

  const std::vector<std::vector<std::string>> cases = {
      {"--beam", "0", "beam_size is 0, must be positive (--beam)"},
      {"--beam", "100000000", ", the size of the vocabulary (--beam)"},
      {"--no-repeat-ngram", "-1", "(--no-repeat-ngram)"},
      {"--length-penalty", "nan", "length_penalty is nan, must be finite"},
      {"--beam", "-3", "beam_size is -3"},
      {"--max-length", "0", "max_length is 0"},
      {"--length-penalty", "-1", "length_penalty is -1"},
      {"--batch-size", "0", "batch_size is 0"},
      {"--threads", "-2", "threads is -2"}};
  for (const auto& c : cases) {
    CAPTURE(c[0] + " " + c[1]);
    refused({"translate", "--model", corpus.model, c[0], c[1]}, {c[2]}, "I see the dog.\n");
  }
  refused({"translate", "--model", corpus.model, "--sample", "--temperature", "inf"},
          {"temperature is inf, must be finite"});
  const std::string one = corpus.folder.write("one.de", "Ein Satz.\n").string();
  refused({"evaluate", "--model", corpus.model, "--source", corpus.source, "--reference", one},
          {"has 60 lines", "has 1"});
  const std::string empty = corpus.folder.write("empty", "").string();
  refused({"evaluate", "--model", corpus.model, "--source", empty, "--reference", empty}, {"is empty"});
  refused({"evaluate", "--model", corpus.model, "--source", bad, "--reference", one}, {"invalid UTF-8"});
  refused({"translate", "--model", corpus.model, "--output", "/dev/full"}, {"No space left on device"},
          "I see\n");
}

TEST_CASE("a full disk while saving is an error, and the old checkpoint stays whole") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "2"})).code == 0);
  const fs::path model = corpus.model;
  const std::string weights = read_file(model / "model.safetensors"),
                    state = read_file(model / "training/last.safetensors");
  for (const rlim_t size : {rlim_t{100}, rlim_t{weights.size() / 2}, rlim_t{weights.size() + 1000}}) {
    CAPTURE(size);
    const Ended ended =
        Program("translator", {"train", "--resume", "--model", corpus.model, "--max-steps", "4"}, "", {size})
            .wait();
    CAPTURE(ended.err);
    CHECK(ended.code == 1);
    if (size > 100)
      CHECK(contains(ended.err, "File too large"));  // with so little the message itself is cut off
    CHECK(read_file(model / "training/last.safetensors") == state);
    // The model may have become that of step 4, but is whole.
    CHECK(run("translator", {"inspect", "--model", corpus.model}).code == 0);
  }
  REQUIRE(run("translator", {"train", "--resume", "--model", corpus.model, "--max-steps", "4"}).code == 0);

  // A new training for which there is no room leaves no half of a model behind.
  const std::string fresh = (corpus.folder.path() / "fresh").string();
  std::vector<std::string> arguments = replaced(corpus.train(), "--model", fresh);
  const Ended ended = Program("translator", arguments, "", {rlim_t{2000}}).wait();
  CHECK(ended.code == 1);
  CHECK_FALSE(fs::exists(fresh + "/model.safetensors"));
}
