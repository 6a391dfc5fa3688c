#include "translator/preparing/prepared_corpus.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> sides(index_t n) {
  std::string source, target;
  for (index_t i = 0; i < n; ++i) {
    source += "satz nummer " + std::to_string(i) + "\n";
    target += "sentence number " + std::to_string(i) + "\n";
  }
  return {source, target};
}

PrepareOptions word_options(bool separate = false) {
  PrepareOptions options;
  options.tokenizer = "word";
  options.vocab_size = 4000;
  options.separate_vocab = separate;
  return options;
}

}  // namespace

TEST_CASE("a prepared corpus is read as it was written, from files compressed or not") {
  const TemporaryFolder folder;
  const auto text = sides(1500);
  std::string fingerprint;
  for (const Compression compression : {Compression::none, Compression::gzip, Compression::zstd}) {
    if (compression == Compression::gzip && detail::find_linked<detail::GzipFunctions>() == nullptr) continue;
    if (compression == Compression::zstd && detail::find_linked<detail::ZstdFunctions>() == nullptr) continue;
    CAPTURE(detail::compression_name(compression));
    // Two members or frames, as parallel compressors write.
    const std::size_t half = text[0].size() / 2;
    detail::write_file(folder.path() / "source", compress(compression, text[0].substr(0, half)) +
                                                     compress(compression, text[0].substr(half)));
    detail::write_file(folder.path() / "target", compress(compression, text[1]));
    const fs::path out = folder.path() / "prepared";
    const PrepareReport report = prepare_corpus({folder.path() / "source", folder.path() / "target", {}}, out,
                                                word_options(compression == Compression::zstd));
    CHECK(report.kept == 1485);
    const PreparedCorpus corpus = load_prepared_corpus(out);
    CHECK(corpus.pairs->size() == 1485);
    CHECK(corpus.description.report.kept == 1485);
    CHECK(corpus.description.report.source_vocabulary == corpus.tokenizers.source->vocabulary_size());
    CHECK(corpus.description.report.target_vocabulary == corpus.tokenizers.target->vocabulary_size());
    CHECK(corpus.description.report.source_tokens == corpus.pairs->source_tokens());
    CHECK(corpus.description.max_length == 256);
    CHECK(corpus.description.vocab_size == 4000);
    CHECK_FALSE(corpus.description.of_a_model);
    CHECK(corpus.tokenizers.joint() == (compression != Compression::zstd));
    REQUIRE(corpus.validation.size() == 15);
    CHECK(corpus.validation.source[0] == "satz nummer 50");
    CHECK(corpus.validation.target[14] == "sentence number 1450");
    EncodedPair pair;
    corpus.pairs->read(0, 50, pair);  // the one after that held out
    CHECK(corpus.tokenizers.source->decode(pair.source) == "satz nummer 51");
    CHECK(corpus.tokenizers.target->decode(pair.target) == "sentence number 51");
    if (fingerprint.empty()) fingerprint = corpus.pairs->fingerprint();
    if (compression == Compression::gzip) CHECK(corpus.pairs->fingerprint() == fingerprint);
    for (const auto& entry : fs::directory_iterator(out))
      CHECK(entry.path().filename().string().front() != '.');
    CHECK(contains(detail::read_file(out / "report.txt"), "1485  pairs to train on"));
  }
}

TEST_CASE("a corpus prepared with a model's tokenizers, and validation files of its own") {
  const TemporaryFolder folder;
  const auto text = sides(1200);
  detail::write_file(folder.path() / "source", text[0]);
  detail::write_file(folder.path() / "target", text[1]);
  detail::write_file(folder.path() / "vs", "satz\nnoch  ein satz\n");
  detail::write_file(folder.path() / "vt", "sentence\nanother sentence\n");
  ParallelCorpus small;
  small.source = {"satz nummer 1 2 3"};
  small.target = {"sentence number"};
  const TokenizerPair model = train_tokenizers({.kind = "char", .vocabulary_size = 50}, small);
  const PrepareFiles files{folder.path() / "source", folder.path() / "target", {}};
  const fs::path out = folder.path() / "out";
  const PrepareReport report = prepare_corpus(files, out, word_options(), {model, "de: "},
                                              {folder.path() / "vs", folder.path() / "vt", {}});
  CHECK(report.kept == 1200);
  CHECK(report.sampled == 0);
  CHECK(report.source_vocabulary == model.source->vocabulary_size());
  CHECK(report.validation == 2);
  PreparedCorpus corpus = load_prepared_corpus(out);
  CHECK(corpus.description.of_a_model);
  CHECK(corpus.description.source_text == "de: ");
  CHECK(corpus.validation.source == std::vector<std::string>{"satz", "noch ein satz"});
  CHECK(detail::tokenizer_fingerprint(corpus.tokenizers) == detail::tokenizer_fingerprint(model));
  EncodedPair pair;
  corpus.pairs->read(0, 7, pair);
  CHECK(pair.source == model.source->encode("de: satz nummer 7"));

  // Prepared again without: what was there goes.
  PrepareOptions options = word_options();
  (void)prepare_corpus({{}, {}, folder.write("tsv", "eins\tone\nzwei\ttwo\n")}, out, options);
  corpus = load_prepared_corpus(out);
  CHECK(corpus.pairs->size() == 2);
  CHECK(corpus.validation.size() == 0);
  CHECK_FALSE(fs::exists(out / "validation.source"));
}

TEST_CASE("an interrupted preparation leaves no corpus, and the one that was there") {
  const TemporaryFolder folder;
  const auto text = sides(300);
  detail::write_file(folder.path() / "source", text[0]);
  detail::write_file(folder.path() / "target", text[1]);
  const PrepareFiles files{folder.path() / "source", folder.path() / "target", {}};
  struct Interrupted {};
  for (const char* stage : {"reading", "vocabulary", "encoding"}) {
    const fs::path out = folder.path() / stage;
    const auto prepare = [&](const char* until) {
      return prepare_corpus(files, out, word_options(), {}, {}, [&](const PrepareProgress& p) {
        if (std::string(until) == p.stage) throw Interrupted{};
      });
    };
    CHECK_THROWS_AS((void)prepare(stage), Interrupted);
    CHECK_FALSE(fs::exists(out));
    CHECK(
        contains(message_of<IoError>([&] { (void)load_prepared_corpus(out); }), "is not a prepared corpus"));
    (void)prepare("");
    const std::string before = load_prepared_corpus(out).pairs->fingerprint();
    CHECK_THROWS_AS((void)prepare(stage), Interrupted);
    CHECK(load_prepared_corpus(out).pairs->fingerprint() == before);
  }
}

TEST_CASE("a prepared corpus that is damaged or mixed up is refused") {
  const TemporaryFolder folder;
  const auto text = sides(200);
  detail::write_file(folder.path() / "source", text[0]);
  detail::write_file(folder.path() / "target", text[1]);
  const PrepareFiles files{folder.path() / "source", folder.path() / "target", {}};
  const fs::path one = folder.path() / "one", two = folder.path() / "two";
  (void)prepare_corpus(files, one, word_options());
  PrepareOptions other = word_options();
  other.vocab_size = 100;
  (void)prepare_corpus(files, two, other);
  const std::string tokens = detail::read_file(one / "train.tokens"),
                    json = detail::read_file(one / "prepared.json");
  const auto refusal = [&] { return message_of<IoError>([&] { (void)load_prepared_corpus(one); }); };

  fs::copy_file(two / "train.tokens", one / "train.tokens", fs::copy_options::overwrite_existing);
  CHECK(contains(refusal(), "other tokenizers than those in the folder"));
  detail::write_file(one / "train.tokens", std::string_view(tokens).substr(0, tokens.size() - 1));
  CHECK(contains(refusal(), "truncated or damaged"));
  fs::remove(one / "train.tokens");
  CHECK(contains(refusal(), "train.tokens"));
  detail::write_file(one / "train.tokens", tokens);
  for (const char* bad : {"", "{}", "[1]", "{\"format\": \"eigenformer-corpus\", \"format_version\": 2}"}) {
    detail::write_file(one / "prepared.json", bad);
    CHECK(contains(refusal(), "prepared.json' is damaged"));
  }
  detail::write_file(one / "prepared.json", "{\"source_text\": \"x\", " + json.substr(1));
  CHECK(contains(refusal(), "'source_text' twice"));
  auto nameless = nlohmann::json::parse(json);
  nameless["tokenizer"]["kind"] = "";
  detail::write_file(one / "prepared.json", nameless.dump());
  CHECK(contains(refusal(), "prepared.json' is damaged: its kind of tokenizer is empty"));
  detail::write_file(one / "prepared.json", json);
  CHECK(load_prepared_corpus(one).pairs->size() == 200);

  detail::write_file(two / "options.json", "{}");  // a model's
  CHECK(contains(message_of<IoError>([&] { (void)prepare_corpus(files, two, word_options()); }),
                 "holds a model"));
}

TEST_CASE("prepare: a vocabulary is as large as the text needs, unless it is given") {
  if (!has_subword_tokenizer()) return;
  TemporaryFolder folder;
  RandomGenerator rng(3);
  std::string lines;
  for (int i = 0; i < 4000; ++i) {
    for (int k = 0; k < 25; ++k) lines += static_cast<char>(k % 6 == 5 ? ' ' : 'a' + rng.uniform_int(26));
    lines += '\n';
  }
  detail::write_file(folder.path() / "text", lines);
  PrepareOptions options;
  options.drop_identical = false;
  const PrepareFiles files{folder.path() / "text", folder.path() / "text", {}};
  const auto entries = [&](index_t size) {
    options.vocab_size = size;
    (void)prepare_corpus(files, folder.path() / "out", options);
    const PreparedDescription description = read_prepared_description(folder.path() / "out");
    CHECK(description.vocab_size ==
          load_prepared_corpus(folder.path() / "out").tokenizers.source->vocabulary_size());
    return description.vocab_size;
  };
  CHECK(entries(0) == 2000);  // of 0.1 MB
  CHECK(entries(2500) == 2500);
}
