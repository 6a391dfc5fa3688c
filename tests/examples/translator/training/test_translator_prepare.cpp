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

/// A small training on a prepared corpus, with more options at the end.
std::vector<std::string> train_on(const std::string& data, const std::string& model,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"train", "--data",         data,  "--model",   model, "--d-model",
                                  "16",    "--heads",        "2",   "--layers",  "1",   "--ff",
                                  "32",    "--batch-tokens", "120", "--threads", "1",   "--learning-rate",
                                  "0.01"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> prepare_words(const TinyCorpus& corpus, const std::string& data) {
  return {"prepare",     "--source", corpus.source, "--target", corpus.target,
          "--tokenizer", "word",     "--output",    data};
}

std::string weights(const fs::path& model) { return read_file(model / "model.safetensors"); }

}  // namespace

TEST_CASE("prepare, train on it, resume, start from the model with more data") {
  const TinyCorpus corpus;
  const fs::path folder = corpus.folder.path();
  const std::string data = (folder / "data").string(), model = (folder / "model").string();
  const std::vector<std::string> prepare = prepare_words(corpus, data);
  const Ended prepared = run("translator", prepare);
  CAPTURE(prepared.err);
  REQUIRE(prepared.code == 0);
  CHECK(contains(prepared.out, "60  pairs read\n"));
  CHECK(contains(prepared.out, "60  pairs to train on\n"));
  CHECK(contains(prepared.err, "encoding: 60 pairs in "));
  CHECK(nlohmann::json::parse(read_file(fs::path(data) / "prepared.json")).at("report").at("kept") == 60);

  // What the corpus gives as text it gives when it is prepared.
  const Ended text =
      run("translator", corpus.train({"--model", (folder / "text").string(), "--max-steps", "12"}));
  REQUIRE(text.code == 0);
  const std::vector<std::string> same = {"--dropout", "0.05", "--warmup", "20"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), same.begin(), same.end());
    return more;
  };
  const Ended whole = run("translator", train_on(data, model, with({"--max-steps", "12"})));
  CAPTURE(whole.err);
  REQUIRE(whole.code == 0);
  CHECK(contains(whole.err, "60 pairs, "));
  CHECK(contains(whole.err, "as prepared in '" + data + "'"));
  CHECK(weights(model) == weights(folder / "text"));

  const std::string other = (folder / "other").string();
  REQUIRE(run("translator", train_on(data, other, with({"--max-steps", "5"}))).code == 0);
  const Ended resumed =
      run("translator", {"train", "--model", other, "--resume", "--max-steps", "12", "--threads", "1"});
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(weights(other) == weights(model));

  // Prepared with the model's vocabulary.
  const std::string more = (folder / "more").string(), adapted = (folder / "adapted").string();
  const Ended again = run("translator", {"prepare", "--source", corpus.source, "--target", corpus.target,
                                         "--output", more, "--init-from", model, "--max-length", "20"});
  CAPTURE(again.err);
  CHECK(again.code == 0);
  const Ended tuned = run(
      "translator", {"train", "--data", more, "--model", adapted, "--init-from", model, "--max-steps", "3"});
  CAPTURE(tuned.err);
  CHECK(tuned.code == 0);
  CHECK(read_file(fs::path(adapted) / "tokenizer.vocab") == read_file(fs::path(model) / "tokenizer.vocab"));
}

TEST_CASE("prepare and train --data refuse what does not fit") {
  const TinyCorpus corpus;
  const fs::path folder = corpus.folder.path();
  const std::string data = (folder / "data").string(), model = (folder / "model").string();
  const std::vector<std::string> prepare = prepare_words(corpus, data);
  const auto refused = [&](std::vector<std::string> command, const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
    const Ended ended = run("translator", command);
    CHECK(ended.code == 1);
    CHECK_FALSE(fs::exists(model));
    return ended.err;
  };
  CHECK(contains(refused(train_on(data, model), {}), "is not a prepared corpus"));
  CHECK(contains(refused(prepare, {"--source-script", "Elvish"}), "'Elvish' is not a script"));
  CHECK(contains(refused(prepare, {"--max-ratio", "0.2"}), "max_ratio is 0.2"));
  CHECK(contains(refused(prepare, {"--tsv", corpus.source}), "--tsv instead of both"));
  CHECK_FALSE(fs::exists(data));
  REQUIRE(run("translator", prepare).code == 0);
  CHECK(contains(refused(prepare, {}), "already holds a prepared corpus; give --overwrite"));
  CHECK(contains(refused(train_on(data, data), {"--overwrite"}),
                 "holds a prepared corpus; give another folder"));
  CHECK(contains(refused(train_on(data, model), {"--vocab-size", "100"}),
                 "--vocab-size has no effect with a prepared corpus"));
  CHECK(contains(refused(train_on(data, model), {"--source", corpus.source, "--target", corpus.target}),
                 "one of --tsv, --data and --corpora instead"));
  CHECK(contains(refused(train_on(data, data), {}), "holds a prepared corpus; give another folder"));
  REQUIRE(run("translator", corpus.train({"--max-steps", "1", "--tokenizer", "char", "--model",
                                          (folder / "chars").string()}))
              .code == 0);
  CHECK(contains(
      refused({"train", "--data", data, "--model", model, "--init-from", (folder / "chars").string()}, {}),
      "other tokenizers than the model's"));

  std::string tokens = read_file(fs::path(data) / "train.tokens");
  tokens[100] = static_cast<char>(tokens[100] ^ 1);
  std::ofstream(fs::path(data) / "train.tokens", std::ios::binary) << tokens;
  CHECK(contains(refused(train_on(data, model), {}), "is damaged"));
}

TEST_CASE("a training records whether its lines are sentences, also that of a prepared corpus") {
  TinyCorpus corpus;
  const fs::path folder = corpus.folder.path();
  const auto text_of = [](const fs::path& model) {
    return nlohmann::json::parse(read_file(model / "options.json")).value("text", nlohmann::json::object());
  };
  const Ended sentences = run("translator", corpus.train({"--max-steps", "2"}));
  CAPTURE(sentences.err);
  REQUIRE(sentences.code == 0);
  CHECK_FALSE(text_of(corpus.model).contains("lines_are_sentences"));

  // A quarter of the lines has two sentences.
  const auto joined = [](const std::string& text) {
    std::string lines;
    for (std::size_t i = 0, at = 0; at < text.size(); ++i) {
      const std::size_t end = text.find('\n', at);
      lines += text.substr(at, end - at) + (i % 5 == 3 ? " " : "\n");
      at = end + 1;
    }
    return lines;
  };
  corpus.source = corpus.folder.write("joined.en", joined(corpus.english())).string();
  corpus.target = corpus.folder.write("joined.de", joined(corpus.german())).string();
  const std::string model = (folder / "paragraphs").string();
  const Ended paragraphs =
      run("translator", corpus.train({"--source", corpus.source, "--target", corpus.target, "--model", model,
                                      "--max-steps", "2"}));
  CAPTURE(paragraphs.err);
  REQUIRE(paragraphs.code == 0);
  CHECK(contains(paragraphs.err, "25 % of the source lines have several sentences"));
  CHECK(text_of(model).at("lines_are_sentences") == false);
  const std::string two = "I see the dog. We paint the cat.\n";
  const auto translated = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"translate", "--model", model, "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return run("translator", all, two);
  };
  CHECK(translated({}).out == translated({"--no-split-sentences"}).out);
  CHECK(contains(translated({"--language", "en"}).err, "--language has no effect"));
  CHECK(translated({"--split-sentences", "--language", "en"}).code == 0);

  // Of a prepared corpus, the validation pairs say it.
  const std::string data = (folder / "data").string(), other = (folder / "other").string();
  std::vector<std::string> prepare = prepare_words(corpus, data);
  prepare.insert(prepare.end(), {"--valid-source", corpus.source, "--valid-target", corpus.target});
  REQUIRE(run("translator", prepare).code == 0);
  REQUIRE(run("translator", train_on(data, other, {"--max-steps", "2"})).code == 0);
  CHECK(text_of(other).at("lines_are_sentences") == false);
  CHECK(
      contains(run("translator", {"inspect", "--model", other}).out, "\n  best validation            loss "));

  // Training on sentences makes it a model of sentences again.
  const TinyCorpus small;
  const std::string tuned = (folder / "tuned").string();
  const Ended fine =
      run("translator", {"train", "--init-from", model, "--model", tuned, "--source", small.source,
                         "--target", small.target, "--max-steps", "1", "--threads", "1"});
  CAPTURE(fine.err);
  REQUIRE(fine.code == 0);
  CHECK_FALSE(text_of(tuned).contains("lines_are_sentences"));
}
