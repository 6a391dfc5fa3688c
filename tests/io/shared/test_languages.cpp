#include "eigenformer/io/shared/foreign_tokenizers.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

std::string refusal(const std::vector<TargetLanguage>& known, const std::string& language) {
  return message_of<ValueError>([&] { (void)detail::find_language("/models/x", known, language); });
}

}  // namespace

TEST_CASE("the languages that transformers' tokenizers imply have its order") {
  using detail::implied_languages;
  CHECK(implied_languages("m2m100").size() == 100);
  CHECK(implied_languages("m2m100")[16] == "__de__");
  CHECK(implied_languages("m2m100").back() == "__zu__");
  CHECK(implied_languages("wmt21") == std::vector<std::string>{"__en__", "__ha__", "__is__", "__ja__",
                                                               "__cs__", "__ru__", "__zh__", "__de__"});
  CHECK(implied_languages("mbart").size() == 25);
  CHECK(implied_languages("mbart50").size() == 52);
  CHECK(implied_languages("mbart50")[24] == implied_languages("mbart")[24]);
  CHECK(implied_languages("mbart50").back() == "sl_SI");
  CHECK(implied_languages("nllb").empty());
}

TEST_CASE("a language is found by its token or its code, and an unknown one is answered with near ones") {
  const std::vector<TargetLanguage> marked = {{"__en__", 9}, {"__de__", 8}, {">>deu<<", 7}};
  CHECK(detail::find_language("x", marked, "de") == 8);
  CHECK(detail::find_language("x", marked, "__de__") == 8);
  CHECK(detail::find_language("x", marked, "deu") == 7);
  CHECK(refusal(marked, "german") ==
        "[import] '/models/x' has no language 'german', expected __en__, __de__, >>deu<<");
  CHECK(refusal(marked, "EN-us") ==
        "[import] '/models/x' has no language 'EN-us', expected __en__ or one of 2 others");
  const std::vector<TargetLanguage> scripts = {
      {"deu_Latn", 1}, {"zho_Hans", 2}, {"zho_Hant", 3}, {"eng_Latn", 4}};
  CHECK(refusal(scripts, "de") ==
        "[import] '/models/x' has no language 'de', expected deu_Latn or one of 3 others");
  CHECK(refusal(scripts, "zh") ==
        "[import] '/models/x' has no language 'zh', expected zho_Hans, zho_Hant or one of 2 others");
  CHECK(refusal(scripts, "").find("expected deu_Latn, zho_Hans, zho_Hant, eng_Latn") != std::string::npos);
  CHECK(refusal({}, "de").find("additional_special_tokens") != std::string::npos);
  std::vector<TargetLanguage> many;
  for (const std::string& token : detail::implied_languages("m2m100")) many.push_back({token, 0});
  CHECK(refusal(many, "7").find(" or one of 88 others") != std::string::npos);
}

TEST_CASE("a piece of words is not spelled as a language") {
  for (const char* token : {"__de__", ">>deu<<", "<2de>", "de_DE", "deu_Latn", "en_XX", "fil_PH"})
    CHECK(detail::is_spelled_as_language(token));
  for (const char* token :
       {"en", "de", "_", "__", "____", ">><<", "<pad>", "</s>", ".", "a_B", "de_De", "de_", "_DE", "deu_latn",
        "\xE2\x96\x81"
        "de",
        ""})
    CHECK(!detail::is_spelled_as_language(token));
}
