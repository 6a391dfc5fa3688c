#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "eigenformer/data/text/sentences.hpp"
#include "eigenformer/data/text/utf8.hpp"

using namespace eigenformer;

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU

namespace {

using Texts = std::vector<std::string>;

Texts sentences(const SentenceSplitter& splitter, const std::string& text) {
  Texts found;
  for (const ByteSpan s : splitter.split(text)) found.emplace_back(s.of(text));
  return found;
}

Texts sentences(const std::string& language, const std::string& text) {
  return sentences(SentenceSplitter({.language = language}), text);
}

/// Splits the sentences, joined by spaces, and compares.
void check_sentences(const std::string& language, const Texts& expected) {
  const SentenceSplitter splitter({.language = language});
  std::string text;
  for (const std::string& s : expected) text += (text.empty() ? "" : " ") + s;
  CHECK(sentences(splitter, text) == expected);
}

}  // namespace

TEST_CASE("English: abbreviations, initials, numbers, addresses and ellipses end no sentence") {
  check_sentences("en", {"Mr. Smith met Dr. Jones.",
                         "He left at 3 p.m. on Jan. 5.",
                         "George W. Bush won.",
                         "Is it No. 5?",
                         "No.",
                         "Tom likes fruit, e.g. The Golden Delicious.",
                         "It is 3.50 dollars.",
                         "See www.example.com/a?b=1!C or mail a.b@c.org now.",
                         "Well...",
                         "Then no\u2026",
                         "Tom came.",
                         "J. R. R. Tolkien wrote.",
                         "He lives in the U.S.",
                         "The rain falls on the U.S. Army.",
                         "Apple Inc. is big.",
                         "I like Apple Inc.",
                         "They are big!",
                         "What?!",
                         "Yes.",
                         "1. First.",
                         "2. Second.",
                         "So do I.",
                         "Then he left."});
}

TEST_CASE("quotes and brackets belong to the sentence that they close or open") {
  check_sentences("en", {"Tom said \"Hi.\"", "Then he left.", "\"Really?\" he asked.", "He came (really!).",
                         "(It was so.)", "[Yes.]", "\u201CNo.\u201D", "\u201CStop!\u201D they cried."});
  check_sentences("de", {"\u201EWas?\u201C, fragte er.", "\u201EWas?\u201C", "Er ging.",
                         "\u00BBJa!\u00AB rief er.", "\u00BBJa!\u00AB", "Er kam."});
  check_sentences("fr", {"\u00AB Bonjour ! \u00BB dit-il.", "\u00AB Bonjour ! \u00BB", "Il partit.",
                         "\u00AB\u00A0Quoi\u00A0?\u00A0\u00BB", "Rien\u00A0!"});
}

TEST_CASE("German: ordinals, Roman numerals and spaced abbreviations go on, years and ages end sentences") {
  check_sentences(
      "de",
      {"Am 3. Mai kam z. B. Herr Prof. Dr. Müller.", "Das ist z.B. Die Welt.", "Er ist 12.", "Tom ist 13.",
       "Der 2. Weltkrieg endete 1945.", "Dann kam die 3. Person.", "Friedrich II. König von Preußen.",
       "Ludwig XIV.", "Er war da.", "Nr. 5 steht auf S. 12.", "Das heißt d. h. Tom.", "Sie kauften Brot usw.",
       "Dann nicht.", "Seine 9. Sinfonie.", "Am 5. 6. 2020 war es.", "Dipl.-Ing. Meier kam."});
  // Abbreviations of a letter and a word, spaced as the Duden has them.
  check_sentences(
      "de", {"Um 500 v. Chr. war Rom klein.", "Es war 5 n. Chr.", "Die Stadt wuchs im 2. Jh. n. Chr. rasch.",
             "Karl d. Gr. herrschte.", "Er lebt in Halle a. d. Saale.", "Sie ist Dr. h. c. Meier.",
             "Prof. Dr. rer. nat. Schmidt und Dr. med. Klein kamen.", "Er ist Dr. med.", "Sie ist Ärztin."});
}

TEST_CASE("French: titles, elisions behind abbreviations, initials with hyphens") {
  check_sentences("fr", {"M. Dupont est là.", "Mme. Curie a p. ex. Le Figaro.", "C'est à 3,5 km.",
                         "J.-P. Sartre écrit des livres, etc.", "L'homme lit.", "Voir le no. 5.", "Quoi ?",
                         "Rien avant J.-C.", "Les Romains viennent."});
}

TEST_CASE("full-width marks need no space, and other scripts have their own marks") {
  CHECK(sentences("zh", "你好。我很好！“好。”他说。真的？") ==
        Texts{"你好。", "我很好！", "“好。”", "他说。", "真的？"});
  CHECK(sentences("ja", "「行く。」と彼は言った。東京。") == Texts{"「行く。」と彼は言った。", "東京。"});
  CHECK(sentences("hi", "यह घर है। वह आदमी है।") == Texts{"यह घर है।", "वह आदमी है।"});
  // Languages without a list of ours have ICU's.
  CHECK(sentences("es", "El Sr. Pérez está. Hola.") == Texts{"El Sr. Pérez está.", "Hola."});
}

TEST_CASE("language codes are those of ISO 639, with region or script, and unknown ones are refused") {
  for (const std::string code : {"de", "de-AT", "de_DE", "deu", "deu_Latn", "DE"})
    CHECK(sentences(code, "Am 3. Mai. Ende.") == Texts{"Am 3. Mai.", "Ende."});
  CHECK(sentences("", "Tom ist 13. Dann kam er.").size() == 2);
  CHECK_THROWS_WITH_AS(SentenceSplitter({.language = "german"}),
                       doctest::Contains("unknown language 'german'"), ValueError);
}

TEST_CASE("without a language, titles and abbreviations before numbers end no sentence") {
  check_sentences("", {"Mr. Smith met Dr. Jones.", "Voir p. 5 et no. 7.", "M. J. Dupont, p.ex. Le Figaro.",
                       "Hr. Meier kam z.B. Nach Rom.", "El Sr. Pérez!", "Am 3. Mai beim 2. Versuch.", "Ja.",
                       "I am 12.", "Tom is 13.", "We were in 5.", "They left."});
}

TEST_CASE("the share of lines of several sentences tells sentences from paragraphs") {
  const Texts of_sentences = {"A man walks.", "Mr. Smith has a dog.", "",          " ", "No. It is so.",
                              "Why",          "A \xFF. B. C.",        "1. A list."};
  CHECK(several_sentences(of_sentences) == 0.2);  // of five lines with text
  Texts many;
  for (int i = 0; i < 30000; ++i) many.push_back(i % 4 == 1 ? "A man walks. A dog runs." : "A man walks.");
  CHECK(*several_sentences(many) == doctest::Approx(0.25).epsilon(0.05));
  CHECK_FALSE(several_sentences(Texts{}).has_value());
  CHECK_FALSE(several_sentences(Texts{"", " "}).has_value());
}

TEST_CASE("abbreviations of one's own, with and without the last full stop") {
  const std::string text = "The Fzg. Nine is a z. k. Word.";
  CHECK(sentences("en", text).size() == 3);
  const SentenceSplitter splitter({.language = "en", .abbreviations = {"fzg", "z. k."}});
  CHECK(sentences(splitter, text) == Texts{text});
  CHECK_THROWS_WITH_AS(SentenceSplitter({.language = "en", .abbreviations = {"."}}),
                       doctest::Contains("abbreviation is empty"), ValueError);
}

TEST_CASE("line breaks are white space, no white space is part of a sentence's ends, no text gives none") {
  CHECK(sentences("en", " \t A man\r\nwalks\nhere.\u2028 A dog\v runs.\u3000\n") ==
        Texts{"A man\r\nwalks\nhere.", "A dog\v runs."});
  CHECK(sentences("en", "").empty());
  CHECK(sentences("en", " \n\u00A0").empty());
}

TEST_CASE("text that is not UTF-8 is refused with the place") {
  const SentenceSplitter splitter({.language = "en"});
  CHECK_THROWS_WITH_AS(splitter.split("A\xFF b."), doctest::Contains("the text has invalid UTF-8 at byte 1"),
                       ValueError);
}

TEST_CASE("all that is not white space is in exactly one sentence, whatever the text, in several threads") {
  const Texts pieces = {"Mr", ".",  " ",      "\n", "\"",     "\u00BB", "\u00AB ", "3",   "Mai",
                        "am", "z",  "B",      "!",  "?",      "\u2026", "...",     "(",   ")",
                        "。", "「", "」",     "の", "\u00A0", "I",      "etc",     "The", "\xF0\x9F\x98\x80",
                        "\t", "-",  "\u200B", "A'", "e\u0301"};
  for (const std::string language : {"en", "de", "fr", "ja", "es", ""}) {
    const SentenceSplitter splitter({.language = language});
    const auto check = [&](unsigned seed, Texts& wrong) {
      std::mt19937 rng(seed);
      for (int i = 0; i < 150; ++i) {
        std::string text;
        for (int n = 0; n < 30; ++n) text += pieces[rng() % pieces.size()];
        std::size_t end = 0;
        bool good = true;
        for (const ByteSpan s : splitter.split(text)) {
          good = good && s.begin >= end && s.end > s.begin && trim(s.of(text)) == s.of(text) &&
                 trim(text.substr(end, s.begin - end)).empty();
          end = s.end;
        }
        if (!good || !trim(text.substr(end)).empty()) wrong.push_back(text);
      }
    };
    Texts wrong, other_wrong;
    std::thread other([&] { check(1, other_wrong); });
    check(2, wrong);
    other.join();
    CHECK(wrong == Texts{});
    CHECK(other_wrong == Texts{});
  }
}

#else

TEST_CASE("without ICU a splitter says so") {
  CHECK_FALSE(SentenceSplitter::available());
  CHECK_THROWS_WITH_AS(SentenceSplitter({}), doctest::Contains("needs ICU"), ValueError);
  CHECK_FALSE(several_sentences(std::vector<std::string>{"A. B. C."}).has_value());
}

#endif
