#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"
#include "translator/text/output_format.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

std::vector<Translation> two() {
  Translation a;
  a.text = "Ich\tsehe \"ihn\"\\.";
  a.score = -0.25;
  a.log_probability = -0.50000012;
  a.confidence = 0.75;
  a.tokens = {{"Ich", -0.2}, {" ", -0.3}, {"</s>", -0.0000001}};
  a.words = {{"Ich", 0.5}, {"ihn", 1}};
  Translation b;
  b.text = "Gut \xFF\xE2\x82 so";  // a byte that cannot begin a code point, and two that begin one
  b.score = -1;
  return {a, b};
}

}  // namespace

TEST_CASE("text: as many lines for each line, whatever was found") {
  const auto translations = two();
  const OutputOptions text;
  CHECK(detail::translations_header(text).empty());
  CHECK(detail::format_translations(text, 3, "x", translations, 2) ==
        translations[0].text + "\n" + translations[1].text + "\n");
  CHECK(detail::format_translations(text, 3, "x", translations, 3) ==
        translations[0].text + "\n" + translations[1].text + "\n\n");
  CHECK(detail::format_translations(text, 3, "x", translations) == translations[0].text + "\n");
  Translation lines;
  lines.text = "a\nb\r";  // as tokens of bytes may have it
  CHECK(detail::format_translations(text, 3, "x", std::vector<Translation>{lines}) == "a b \n");
}

TEST_CASE("tsv: a line for each translation, with tabs, line ends and backslashes escaped") {
  OutputOptions tsv{.output_format = OutputFormat::tsv};
  CHECK(detail::translations_header(tsv) == "line\trank\ttranslation\n");
  CHECK(detail::format_translations(tsv, 3, "x", two()) ==
        "3\t1\tIch\\tsehe \"ihn\"\\\\.\n3\t2\tGut \xEF\xBF\xBD\xEF\xBF\xBD so\n");
  tsv.scores = true;
  CHECK(detail::translations_header(tsv) ==
        "line\trank\ttranslation\tscore\tlog_probability\tconfidence\ttokens\ttoken_log_probabilities\t"
        "word_confidences\n");
  CHECK(detail::format_translations(tsv, 3, "x", std::vector<Translation>{two()[0]}) ==
        "3\t1\tIch\\tsehe \"ihn\"\\\\.\t-0.25\t-0.5\t0.75\tIch \\s </s>\t-0.2 -0.3 0\t0.5 1\n");
  CHECK(detail::tsv_field("a\r\nb c") == "a\\r\\nb c");
  CHECK(detail::tsv_field("a b", true) == "a\\sb");
}

TEST_CASE("jsonl: one object for each line, valid UTF-8 whatever the text is") {
  OutputOptions jsonl{.output_format = OutputFormat::jsonl};
  CHECK(detail::translations_header(jsonl).empty());
  const std::string plain = detail::format_translations(jsonl, 3, "a \xC3", two());
  CHECK(plain.find('\n') == plain.size() - 1);
  CHECK_FALSE(detail::find_invalid_utf8(plain));
  const auto object = nlohmann::json::parse(plain);
  CHECK(object.at("line") == 3);
  CHECK(object.at("source") == "a \xEF\xBF\xBD");
  CHECK(object.at("translations").size() == 2);
  CHECK(object.at("translations")[0] == nlohmann::json{{"text", two()[0].text}});
  CHECK_FALSE(object.contains("cut"));
  jsonl.scores = true;
  auto cut = two();
  cut[0].cut = true;
  const auto scored = nlohmann::json::parse(detail::format_translations(jsonl, 4, "s", cut));
  CHECK(scored.at("cut") == true);
  const auto& best = scored.at("translations")[0];
  CHECK(best.at("score") == -0.25);
  CHECK(best.at("log_probability") == -0.5);
  CHECK(best.at("confidence") == 0.75);
  CHECK(best.at("tokens")[1] == nlohmann::json{{"token", " "}, {"log_probability", -0.3}});
  CHECK(best.at("words")[1] == nlohmann::json{{"word", "ihn"}, {"confidence", 1.0}});
}

TEST_CASE("scored pairs: log-probability, tokens, perplexity; nothing where a side has no word") {
  const auto pair = two()[0];
  const OutputOptions text, tsv{.output_format = OutputFormat::tsv},
      jsonl{.output_format = OutputFormat::jsonl};
  CHECK(detail::format_scored_pair(text, 1, "s", "t", pair) == "-0.5\n");
  CHECK(detail::format_scored_pair(text, 1, "s", "", Translation{}) == "nan\n");
  CHECK(detail::scored_pairs_header(tsv) == "line\tlog_probability\tnum_tokens\tperplexity\tconfidence\n");
  CHECK(detail::format_scored_pair(tsv, 1, "s", "t", pair) == "1\t-0.5\t3\t1.18136\t0.75\n");
  CHECK(detail::format_scored_pair(tsv, 2, "s", "", Translation{}) == "2\tnan\t0\tnan\tnan\n");
  const auto object = nlohmann::json::parse(detail::format_scored_pair(jsonl, 1, "s", "t", pair));
  CHECK(object.at("target") == "t");
  CHECK(object.at("num_tokens") == 3);
  CHECK(nlohmann::json::parse(detail::format_scored_pair(jsonl, 1, "s", "", Translation{}))
            .at("perplexity")
            .is_null());
}

TEST_CASE("scores in a format without a place for them are refused") {
  CHECK(contains(message_of<ValueError>([] { OutputOptions{.scores = true}.validate(); }),
                 "output_format is text, which cannot hold scores; expected tsv or jsonl"));
}
