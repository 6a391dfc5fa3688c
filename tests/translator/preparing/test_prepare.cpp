#include "translator/preparing/hash_set.hpp"
#include "translator/preparing/in_order.hpp"
#include "translator/preparing/pair_filter.hpp"
#include "translator/preparing/prepare.hpp"
#include "translator/preparing/word_encoder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "eigenformer/data/files/mapped_file.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "translator/preparing/token_file.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::TemporaryFolder;

namespace {

/// n different pairs of words.
std::string numbered_tsv(index_t n) {
  std::string text;
  for (index_t i = 0; i < n; ++i) {
    const std::string word = std::to_string(i);
    text += "satz " + word + "\tsentence " + word + "\n";
  }
  return text;
}

PrepareOptions word_options() {
  PrepareOptions options;
  options.tokenizer = "word";
  return options;
}

std::vector<std::string> decoded(const TokenFile& file, const TokenizerPair& tokenizers) {
  std::vector<std::string> pairs;
  EncodedPair pair;
  for (index_t i = 0; i < file.size(); ++i) {
    file.read(0, i, pair);
    pairs.push_back(tokenizers.source->decode(pair.source) + '\t' + tokenizers.target->decode(pair.target));
  }
  return pairs;
}

}  // namespace

TEST_CASE("prepare: each pair that is left out is counted once, by its reason") {
  if (!detail::has_unicode_text()) return;
  const TemporaryFolder folder;
  detail::write_file(folder.path() / "tsv",
                     "\xEF\xBB\xBF"
                     "ein  Haus\ta house\r\n"             // kept, with the spaces made one
                     "ein Haus\ta house\tthird column\n"  // the same pair again
                     "\n"                                 // empty
                     " \tsomething\n"                     // empty
                     "no tab\n"                           // invalid
                     "kaputt \xFF\tbroken\n"              // invalid
                     "Hamburg\tHamburg\n"                 // identical
                     "ja\tthis is far too long for it\n"  // ratio
                     "viel zu viele Zeichen sind das hier\tby far too many characters these\n"  // characters
                     "Привет Welt\thello there\n"                                               // script
                     "12 + 3\t3 + 12\n"                // no letters: kept
                     "a b c d e f g\tone two three\n"  // over-long
                     "das letzte\tthe last");
  PrepareOptions options = word_options();
  options.max_characters = 30;
  options.max_ratio = 4;
  options.source_script = "Latin";
  options.script_share = 0.6;
  options.max_length = 5;
  options.nfc = true;
  TokenizerPair tokenizers;
  const PrepareReport report =
      prepare_pairs({.tsv = folder.path() / "tsv"}, folder.path(), options, tokenizers);
  CHECK(report.read == 13);
  CHECK(report.invalid == 2);
  CHECK(report.empty == 2);
  CHECK(report.identical == 1);
  CHECK(report.ratio == 1);
  CHECK(report.characters == 1);
  CHECK(report.script == 1);
  CHECK(report.duplicates == 1);
  CHECK(report.over_long == 1);
  CHECK(report.validation == 0);
  CHECK(report.kept == 3);
  CHECK(report.sampled == 4);
  CHECK(contains(report.str(), "            13  pairs read\n"));
  const TokenFile file(folder.path() / PreparedNames::tokens);
  CHECK(decoded(file, tokenizers) ==
        std::vector<std::string>{"ein Haus\ta house", "12 + 3\t3 + 12", "das letzte\tthe last"});
  CHECK(file.source_tokens() == report.source_tokens);
  CHECK(file.target_tokens() == report.target_tokens);
  CHECK(file.tokenizers() == detail::tokenizer_fingerprint(tokenizers));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "clean.spool"));
}

TEST_CASE("prepare: letters and accents are composed") {
  if (!detail::has_unicode_text()) return;
  const detail::PairFilter filter(word_options());
  const auto clean = filter({{"u\xCC\x88"
                              "ber A\xCC\x8A",
                              "\xC3\xBC"
                              "ber"},
                             {"o\xCC\x82ter", "above"}});
  CHECK(clean.source == std::vector<std::string>{"\xC3\xBC"
                                                 "ber \xC3\x85",
                                                 "\xC3\xBC"
                                                 "ber"});
  CHECK(clean.target == std::vector<std::string>{"\xC3\xB4ter", "above"});
  CHECK(detail::Scripts("Hani,Hira").share("\xE6\xBC\xA2\xE3\x81\x82 a!") == doctest::Approx(2.0 / 3));
  CHECK(detail::Scripts("Cyrl").share("12!") == 1);
  CHECK(contains(message_of<ValueError>([] { detail::Scripts("Latin,Klingonish"); }),
                 "'Klingonish' is not a script"));
}

TEST_CASE("prepare: the result is that of one thread, and pairs are held out as train holds them out") {
  const TemporaryFolder folder;
  std::string repeated = numbered_tsv(30000);
  repeated += repeated.substr(0, repeated.size() / 2 / 100 * 100);
  repeated = repeated.substr(0, repeated.rfind('\n') + 1);
  detail::write_file(folder.path() / "tsv", repeated);
  PrepareOptions options = word_options();
  options.sample_pairs = 500;
  std::string tokens, validation;
  for (const int threads : {1, 3}) {
    const ThreadScope scope(threads);
    const auto out = folder.path() / std::to_string(threads);
    std::filesystem::create_directory(out);
    TokenizerPair tokenizers;
    std::set<std::string> stages;
    const PrepareReport report =
        prepare_pairs({.tsv = folder.path() / "tsv"}, out, options, tokenizers, {}, true,
                      [&](const PrepareProgress& p) { stages.insert(p.stage); });
    CHECK(stages.size() == 3);
    CHECK(report.duplicates > 14000);
    CHECK(report.validation == 300);
    CHECK(report.kept + report.validation == 30000);
    CHECK(report.sampled == 500);
    const std::string own_tokens = detail::read_file(out / PreparedNames::tokens),
                      own_validation = detail::read_file(out / PreparedNames::validation_source);
    if (threads == 1) {
      tokens = own_tokens;
      validation = own_validation;
    }
    CHECK(own_tokens == tokens);
    CHECK(own_validation == validation);
  }
  CHECK(validation.starts_with("satz 50\nsatz 150\nsatz 250\n"));
}

TEST_CASE("prepare: hashes are found again, in less than 16 bytes each") {
  detail::HashSet set;
  RandomGenerator rng(1);
  std::vector<std::uint64_t> hashes(100'000);
  for (auto& hash : hashes) hash = rng.next_u64();
  hashes[17] = 0;
  for (const auto hash : hashes) CHECK(set.insert(hash));
  for (const auto hash : hashes) CHECK_FALSE(set.insert(hash));
  CHECK(set.size() == hashes.size());
  CHECK(set.bytes() < 16 * hashes.size());
}

TEST_CASE("prepare: an error of any stage comes out, and nothing stays behind") {
  const auto items = [] { return [i = 0]() mutable { return i < 50 ? std::optional(i++) : std::nullopt; }; };
  std::vector<int> taken;
  const auto square = [](const int& i) {
    if (i == 20) throw ValueError("test", "twenty");
    std::this_thread::sleep_for(std::chrono::microseconds(i % 7 * 100));
    return i * i;
  };
  CHECK_THROWS_AS(detail::in_order(3, items(), square, [&](int i) { taken.push_back(i); }), ValueError);
  CHECK(taken.size() <= 20);
  for (std::size_t i = 0; i < taken.size(); ++i) CHECK(taken[i] == static_cast<int>(i * i));

  const TemporaryFolder folder;
  const auto refusal = [&](const PrepareFiles& files, const PrepareOptions& options) {
    TokenizerPair tokenizers;
    const auto out = folder.path() / "out";
    std::filesystem::create_directories(out);
    const std::string message =
        message_of<Error>([&] { (void)prepare_pairs(files, out, options, tokenizers); });
    CHECK(std::filesystem::is_empty(out));
    return message;
  };
  detail::write_file(folder.path() / "two", "a\nb\n");
  detail::write_file(folder.path() / "three", "a\nb\nc\n");
  detail::write_file(folder.path() / "none", "");
  const auto at = [&](const char* name) { return folder.path() / name; };
  CHECK(
      contains(refusal({at("two"), at("three"), {}}, word_options()), "which has 2; expected equal numbers"));
  CHECK(contains(refusal({at("three"), at("two"), {}}, word_options()),
                 "'" + at("three").string() + "' has more"));
  CHECK(contains(refusal({at("two"), at("two"), {}}, word_options()), "passes the filters"));
  CHECK(contains(refusal({at("none"), at("none"), {}}, word_options()), "no sentence pair"));
  CHECK(contains(refusal({at("gone"), at("none"), {}}, word_options()), "gone"));
  CHECK(contains(refusal({at("two"), {}, at("two")}, word_options()), "one file with both sides"));
  PrepareOptions options = word_options();
  options.max_ratio = 0.5;
  CHECK(contains(refusal({at("two"), at("two"), {}}, options), "max_ratio is 0.5"));
  options = word_options();
  options.max_length = 70000;
  CHECK(contains(refusal({at("two"), at("two"), {}}, options), "max_length is 70000"));
  options = word_options();
  options.drop_identical = false;
  options.max_length = 1;
  detail::write_file(folder.path() / "long", "a b\n");
  CHECK(contains(refusal({at("long"), at("long"), {}}, options), "more than 1 tokens on at least one side"));
}

TEST_CASE("prepare: tags are tokens of the vocabulary, which no text is cut into") {
  if (!has_subword_tokenizer()) return;
  TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "word " + std::to_string(i) + " <2de> of a line\n";
  detail::write_file(folder.path() / "text", lines);
  std::filesystem::create_directory(folder.path() / "out");
  PrepareOptions options;
  options.deduplicate = options.drop_identical = false;
  options.vocab_size = 40;
  options.tags = "<2de>,<2fr>";
  const PrepareFiles files{folder.path() / "text", folder.path() / "text", {}};
  TokenizerPair tokenizers;
  (void)prepare_pairs(files, folder.path() / "out", options, tokenizers);
  const auto tokenizer = tokenizers.source;
  const auto de = find_token(*tokenizer, "<2de>"), fr = find_token(*tokenizer, "<2fr>");
  REQUIRE(de);
  REQUIRE(fr);
  CHECK(*de != *fr);
  const auto ids = tokenizer->encode("word <2de>");
  CHECK(std::find(ids.begin(), ids.end(), *de) == ids.end());
  for (const char* wrong : {"2de", "<2de>,", "<2de>, <2fr>", "<>"}) {
    options.tags = wrong;
    CHECK(contains(message_of<ValueError>([&] { options.validate(); }), "expected tags such as <2de>"));
  }
}

TEST_CASE("prepare: words encoded one by one have the ids of the whole text") {
  if (!has_subword_tokenizer()) return;
  RandomGenerator rng(5);
  const std::vector<std::string> letters = {"a", "b", "c", "d", "e", "1", ".", "\xC3\xA4", "\xCE\xB1"};
  const auto text_of = [&](std::size_t kinds) {
    std::string text;
    for (index_t i = 0, n = 1 + rng.uniform_int(40); i < n; ++i) {
      text += rng.uniform_int(4) == 0
                  ? std::string(" ")
                  : letters[static_cast<std::size_t>(rng.uniform_int(static_cast<index_t>(kinds)))];
    }
    return detail::normalize_text(text);
  };
  ParallelCorpus corpus;
  for (int i = 0; i < 300; ++i) {
    corpus.source.push_back(text_of(8));
    corpus.target.push_back(text_of(8));
  }
  const TokenizerPair tokenizers = train_tokenizers({.kind = "subword", .vocabulary_size = 60}, corpus);
  const detail::WordEncoder encoder(*tokenizers.source);
  CHECK(encoder.by_word());
  std::size_t unknown = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text = text_of(9);  // with a letter that is unknown
    if (i % 50 == 0) text += "\xE2\x96\x81 \xE2\x96\x81 ab\xE2\x96\x81";
    const auto ids = tokenizers.source->encode(text);
    CHECK(encoder.encode(text) == ids);
    unknown += static_cast<std::size_t>(std::count(ids.begin(), ids.end(), SpecialIds::unknown));
  }
  CHECK(unknown > 100);
  const TokenizerPair words = train_tokenizers({.kind = "word", .vocabulary_size = 60}, corpus);
  const detail::WordEncoder whole(*words.source);
  CHECK_FALSE(whole.by_word());
  CHECK(whole.encode("a b.") == words.source->encode("a b."));
}
