#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "examples/translator/translator_corpus.hpp"
#include "folders.hpp"
#include "test_tools.hpp"

using namespace eigenformer::testing;

namespace {

// Another language: English in capital letters.
std::string capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The arguments of a training on a list of corpora.
std::vector<std::string> train_on_list(const TinyCorpus& corpus, const std::string& list,
                                       std::vector<std::string> more) {
  more.insert(more.end(), {"--corpora", corpus.folder.write("corpora.json", list).string()});
  std::vector<std::string> arguments = corpus.train(more);
  for (const char* unwanted : {"--source", "--target"}) {
    const auto at = std::find(arguments.begin(), arguments.end(), unwanted);
    arguments.erase(at, at + 2);
  }
  return arguments;
}

}  // namespace

TEST_CASE("one model of two target languages: the tag is asked for, known, and kept") {
  const TinyCorpus corpus;
  corpus.folder.write("train.up", capitals(corpus.english()));
  const std::string list =
      R"([{"source": "train.en", "target": "train.de", "target_language": "de"},
          {"source": "train.en", "target": "train.up", "target_language": "up"}])";
  const Ended trained =
      run("translator", train_on_list(corpus, list,
                                      {"--epochs", "80", "--dropout", "0", "--label-smoothing", "0",
                                       "--validate-every", "0", "--batch-tokens", "240"}));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.err, "an epoch has 120 pairs: 60 of "));

  const std::vector<std::string> translate = {"translate", "--model", corpus.model};
  const auto into = [&](const std::string& model, const std::string& language) {
    return run("translator", {"translate", "--model", model, "--target-language", language, "--beam", "1"},
               "We see the cat.\n");
  };
  CHECK(into(corpus.model, "de").out == "Wir sehen die Katze.\n");
  CHECK(into(corpus.model, "up").out == "WE SEE THE CAT.\n");
  const Ended none = run("translator", translate, "We see the cat.\n");
  CHECK(none.code != 0);
  CHECK(contains(none.err, "the model translates into several languages, expected one of de, up"));
  const Ended unknown = into(corpus.model, "fr");
  CHECK(unknown.code != 0);
  CHECK(contains(unknown.err, "the target language is 'fr', expected one of de, up"));

  const Ended scored =
      run("translator",
          {"evaluate", "--model", corpus.model, "--target-language", "up", "--source", corpus.source,
           "--reference", corpus.folder.write("reference", capitals(corpus.english())).string()});
  CAPTURE(scored.err);
  CHECK(contains(scored.out, "exact match: 100.0 %"));

  const std::string small = (corpus.folder.path() / "small").string();
  CHECK(run("translator", {"quantize", "--model", corpus.model, "--output", small, "--to", "bf16"}).code ==
        0);
  CHECK(into(small, "de").out == "Wir sehen die Katze.\n");

  // From the model on, to one of its languages: its tokens are there, those of others are not.
  const auto fine_tune = [&](const std::string& entry) {
    const std::string further = (corpus.folder.path() / "further").string();
    return run("translator",
               {"train", "--init-from", corpus.model, "--model", further, "--overwrite", "--max-steps", "2",
                "--corpora", corpus.folder.write("further.json", "[" + entry + "]").string()});
  };
  CHECK(contains(fine_tune(R"({"source": "train.en", "target": "train.de", "target_language": "fr"})").err,
                 "no token '<2fr>'"));
  CHECK(contains(fine_tune(R"({"source": "train.en", "target": "train.de"})").err, "several languages"));
  const Ended further = fine_tune(R"({"source": "train.en", "target": "train.de", "target_language": "de"})");
  CAPTURE(further.err);
  CHECK(further.code == 0);
  CHECK(into((corpus.folder.path() / "further").string(), "up").code == 0);
}

TEST_CASE("back-translation: sampled by a reverse model, tagged, and mixed with real pairs") {
  const TinyCorpus corpus;
  const std::string reverse = (corpus.folder.path() / "reverse").string(),
                    synthetic = (corpus.folder.path() / "synthetic.en").string();
  const std::vector<std::string> short_training = {"--epochs",       "60", "--validate-every", "0",
                                                   "--batch-tokens", "240"};
  std::vector<std::string> backwards = short_training;
  backwards.insert(backwards.end(),
                   {"--source", corpus.target, "--target", corpus.source, "--model", reverse});
  REQUIRE(run("translator", corpus.train(backwards)).code == 0);
  const std::string mono = corpus.folder.write("mono.de", corpus.german() + "\n" + corpus.german()).string();
  const Ended sampled = run(
      "translator", {"translate", "--model", reverse, "--sample", "--input", mono, "--output", synthetic});
  CAPTURE(sampled.err);
  REQUIRE(sampled.code == 0);
  CHECK(lines_of(read_file(synthetic)).size() == 121);  // one line for each, the empty one too

  const std::string list = R"([{"source": "train.en", "target": "train.de", "weight": 1},
                               {"source": "synthetic.en", "target": "mono.de", "tag": "<bt>", "weight": 2}])";
  const Ended trained = run("translator", train_on_list(corpus, list, short_training));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  // What was drawn may be empty: such a pair is dropped, as that of the empty line is.
  int kept = 0;
  for (const std::string& line : lines_of(read_file(synthetic))) kept += line.empty() ? 0 : 1;
  CHECK(kept > 100);
  CHECK(contains(trained.err, "121 pairs read, " + std::to_string(kept) + " kept"));
  CHECK(contains(trained.err, "an epoch has " + std::to_string(60 + kept) + " pairs: "));
  CHECK(run("translator", {"translate", "--model", corpus.model}, "We see the cat.\n").out ==
        "Wir sehen die Katze.\n");
}

TEST_CASE("several corpora by flags, drawn segmentations, and what does not fit together") {
  const TinyCorpus corpus;
  const std::vector<std::string> twice = {"--source", corpus.source, "--source", corpus.source,
                                          "--target", corpus.target, "--target", corpus.target};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--max-steps", "3", "--overwrite"});
    return run("translator", corpus.train(more));
  };
  const auto with = [](std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const Ended weighted = train(with(twice, {"--corpus-weights", "3,1"}));
  CAPTURE(weighted.err);
  CHECK(weighted.code == 0);
  CHECK(contains(weighted.err, "an epoch has 120 pairs: 90 of '" + corpus.source + "' with "));
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const Ended ended = train(arguments);
    CAPTURE(ended.err);
    CHECK(ended.code != 0);
    CHECK(contains(ended.err, why));
  };
  refused(with(twice, {"--corpus-weights", "3"}), "--corpus-weights has 1 weights for 2 corpora");
  refused(with(twice, {"--corpus-weights", "3,x"}), "--corpus-weights has 'x'");
  refused({"--source", corpus.source, "--source", corpus.source, "--target", corpus.target}, "equal numbers");
  refused({"--corpus-temperature", "5"}, "--corpus-temperature has no effect on a single corpus");
  refused({"--bpe-dropout", "0.1"}, "need the tokenizer subword, not 'word'");
  refused({"--sampled-sides", "source"}, "--sampled-sides has no effect");
  for (const auto& [list, why] : std::vector<std::pair<std::string, std::string>>{
           {"[", "is not JSON"},
           {"{}", "has no list of corpora"},
           {R"([{"source": "train.en"}])", "corpus 1 needs source and target"},
           {R"([{"tsv": "x", "wieght": 1}])", "has 'wieght', expected"},
           {R"([{"tsv": "x", "weight": -1}])", "the weight -1"},
           {R"([{"tsv": "x", "tag": "bt"}])", "the tag 'bt'"},
           {R"([{"tsv": "x", "target_language": "de"}, {"tsv": "y"}])",
            "some corpora have a target_language"},
           {R"([{"tsv": "x", "weight": 1}, {"tsv": "y"}])", "some corpora have a weight"}}) {
    const Ended ended = run("translator", train_on_list(corpus, list, {"--overwrite"}));
    CAPTURE(ended.err);
    CHECK(ended.code != 0);
    CHECK(contains(ended.err, why));
  }
  if (!eigenformer::has_subword_tokenizer()) return;
  const Ended drawn = train({"--tokenizer", "subword", "--vocab-size", "80", "--bpe-dropout", "0.1"});
  CAPTURE(drawn.err);
  CHECK(drawn.code == 0);
  const std::string of_drawn = read_file(std::filesystem::path(corpus.model) / "model.safetensors");
  const Ended plain = train({"--tokenizer", "subword", "--vocab-size", "80"});
  CHECK(plain.code == 0);
  const auto weights = [&] { return read_file(std::filesystem::path(corpus.model) / "model.safetensors"); };
  CHECK(weights() != of_drawn);
  const Ended changed =
      run("translator", {"train", "--model", corpus.model, "--resume", "--bpe-dropout", "0.2"});
  CHECK(changed.code != 0);
  CHECK(contains(changed.err, "--bpe-dropout 0.2 cannot change when a training is resumed"));
  refused({"--tokenizer", "subword", "--vocab-size", "80", "--unigram-alpha", "0.1"}, "expected bpe_dropout");
}
