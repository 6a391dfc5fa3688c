#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/search/constraints/glossary.hpp"
#include "eigenformer/search/constraints/phrase_automaton.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "test_tools.hpp"
#include "translator/text/output_format.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;

std::string refusal(const std::string& text) {
  return message_of<IoError>([&] { (void)Glossary::parse(text, "terms.tsv"); });
}

const ParallelCorpus corpus{{"a man walks the dog", "and of a dog in New York City"},
                            {"ein Mann geht mit dem Hund", "und Hunde in der (Stadt), roter Ball"}};

}  // namespace

TEST_CASE("a glossary's file: comments, alternatives, terms that are not translated, spaces") {
  const Glossary glossary = Glossary::parse(
      "# terms\n\ndog\tHund\n  New   York\tNeuyork \nEigen\nCMake\t\ndog\tKöter\ndog\tHund\n\\#tag\t#Marke\n"
      "New York City\tNeuyork-Stadt\r\n",
      "terms.tsv");
  CHECK(glossary.size() == 6);
  const auto found = glossary.find("the New  York\tCity dog, a dog of New York with Eigen/CMake: #tag!");
  REQUIRE(found.size() == 6);
  CHECK(found[0] == GlossaryTerm{"New  York\tCity", {"Neuyork-Stadt"}, {4, 18}});  // the longest
  CHECK(found[1] == GlossaryTerm{"dog", {"Hund", "Köter"}, {19, 22}});             // once
  CHECK(found[2].targets == std::vector<std::string>{"Neuyork"});
  CHECK(found[3] == GlossaryTerm{"Eigen", {"Eigen"}, {47, 52}});
  CHECK(found[4].targets == std::vector<std::string>{"CMake"});
  CHECK(found[5].targets == std::vector<std::string>{"#Marke"});
  // Whole words.
  CHECK(glossary.find("dogs underdog Dog New Yorker eigen").empty());
  CHECK(glossary.find("dog's (dog)-dog").size() == 1);
  CHECK(glossary.find("").empty());
}

TEST_CASE("a glossary that ignores case keeps what the line has") {
  Glossary glossary(true);
  glossary.add("Dog", "Hund");
  glossary.add("github", "");
  const auto found = glossary.find("DOG and GitHub, dog");
  REQUIRE(found.size() == 2);
  CHECK(found[0].targets == std::vector<std::string>{"Hund"});
  CHECK(found[1].targets == std::vector<std::string>{"GitHub"});
  // Known is a term of the same entry with the same targets: a protected word in another spelling is not, nor
  // another entry with the same target.
  CHECK(glossary.find("GitHub, GITHUB, GitHub").size() == 2);
  glossary.add("hound", "Hund");
  CHECK(glossary.find("dog, hound, dog").size() == 2);
  if (detail::find_linked<detail::CaseFunctions>() != nullptr) {
    glossary.add("ÖL", "oil");
    CHECK(glossary.find("öl").size() == 1);
  }
  CHECK(contains(message_of<ValueError>([&] { glossary.add(" ", "x"); }), "the source of a term is empty"));
}

TEST_CASE("a malformed glossary is refused with its line") {
  CHECK(contains(refusal("a\tb\nc\td\te\n"),
                 "'terms.tsv', line 2 has more than one tab, expected source<TAB>target"));
  CHECK(contains(refusal("# x\n \tb\n"), "'terms.tsv', line 2 has no source"));
  CHECK(contains(refusal("a\tb\nc\xFF\td\n"), "invalid UTF-8 in 'terms.tsv', line 2, byte offset 5"));
  CHECK(contains(message_of<IoError>([] { (void)Glossary::load("there/is/none"); }), "there/is/none"));
}

TEST_CASE("a text has a phrase where it has it as whole words, or begins with it and a capital") {
  CHECK(detail::has_phrase("der rote Ball.", "rote Ball"));
  CHECK(detail::has_phrase("Rote Bälle", "rote Bälle"));
  CHECK(detail::has_phrase("am U.S.-Zoll", "U.S."));
  CHECK(detail::has_phrase("ein  Hund", "ein Hund"));
  CHECK(detail::has_phrase("東京都に", "東京"));  // a script without spaces
  CHECK_FALSE(detail::has_phrase("der Rote Ball", "rote Ball"));
  CHECK_FALSE(detail::has_phrase("die Hunde", "Hund"));
  CHECK_FALSE(detail::has_phrase("ein Windhund", "hund"));
  CHECK_FALSE(detail::has_phrase("Hunde", "hund"));
  CHECK_FALSE(detail::has_phrase("", "hund"));
  CHECK(detail::capitalized("ein") == "Ein");
  CHECK(detail::capitalized("am Zaun") == "Am Zaun");
  CHECK(detail::capitalized("z") == "Z");
  for (const char* same : {"", "Ein", "1a", "`a", "{a"}) CHECK(detail::capitalized(same) == same);
}

TEST_CASE(
    "the forms of a term are what tokenizers make of it within texts, and tokens know where words go on") {
  for (const char* kind : {"word", "char", "subword"}) {
    if (kind == std::string("subword") && !has_subword_tokenizer()) continue;
    const TokenizerPair tokenizers =
        train_tokenizers({.kind = kind, .vocabulary_size = 60, .joint = false}, corpus);
    const Tokenizer& tokenizer = *tokenizers.target;
    const detail::TermForms forms(tokenizers.target);
    CAPTURE(kind);
    for (const std::string& term : std::vector<std::string>{"Hund", "roter Ball", "dem Hund"}) {
      const PhraseConstraint constraint = forms.constraint({term});
      REQUIRE_FALSE(constraint.forms.empty());
      const auto meets = [&](const std::string& text) {
        const PhraseConstraints one = {constraint};
        const detail::PhraseAutomaton of_one(one, {});
        return of_one.unmet(of_one.begin(tokenizer.encode(text))).empty();
      };
      CAPTURE(term);
      for (const std::string& text : {term, "ein " + term, "(" + term + ")", term + ".",
                                      "und " + term + " geht", "ein, " + term + ", und"}) {
        CAPTURE(text);
        CHECK(meets(text));
      }
      if (kind == std::string("word")) continue;  // which knows no other words
      for (const std::string& text :
           {"ein " + term + "e", "ein Wa" + term, term.substr(1), term + "n geht"}) {
        CAPTURE(text);
        CHECK_FALSE(meets(text));
      }
    }
    CHECK_FALSE(forms.constraint({"mann"}).initial_forms.empty());  // "Mann"
  }
  // The word tokenizer does not know this one.
  const TokenizerPair words = train_tokenizers({.kind = "word", .joint = false}, corpus);
  CHECK(detail::TermForms(words.target).constraint({"Katze"}).forms.empty());
}

TEST_CASE("translations have the terms of the glossary, and say which ones they could not have") {
  const TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = false}, corpus);
  RandomGenerator rng(3);
  LoadedModel<Seq2SeqTransformer<double>> loaded{
      {},
      tokenizers,
      {{.source_vocab_size = tokenizers.source->vocabulary_size(),
        .target_vocab_size = tokenizers.target->vocabulary_size(),
        .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
        .encoder = {.num_layers = 1},
        .decoder = {.num_layers = 1}},
       rng}};
  for (double& w : loaded.model.own_projection.value().span()) w *= 3;
  loaded.description.model = loaded.model.options;
  const std::vector<std::string> lines = {"a man walks the dog", "", "and of a man", "walks"};
  auto glossary = std::make_shared<Glossary>();
  glossary->add("dog", "roter Ball");
  glossary->add("man", "Stadt");
  glossary->add("man", "Mann geht");
  glossary->add("of", "Katze");
  for (const index_t beam : {1, 3}) {
    TextTranslatorOptions options = text_translator_options(loaded.description);
    options.search.max_length = 12;
    options.search.beam_size = beam;
    options.search.num_hypotheses = beam;
    const auto without = TextTranslator(loaded, options).alternatives(lines);
    options.glossary = glossary;
    const TextTranslator translator(loaded, options);
    const auto found = translator.alternatives(lines);
    REQUIRE(found.size() == 4);
    CAPTURE(beam);
    const std::vector<TermOutcome>& first = found[0][0].terms;
    REQUIRE(first.size() == 2);
    CHECK(first[0].source == "man");
    CHECK(first[0].honoured);
    CHECK(first[1].honoured);
    CHECK(contains(found[0][0].text, "roter Ball"));
    CHECK((contains(found[0][0].text, "Stadt") || contains(found[0][0].text, "Mann geht")));
    CHECK(found[1][0].terms.empty());
    REQUIRE(found[2][0].terms.size() == 2);
    CHECK_FALSE(found[2][0].terms[0].honoured);  // the vocabulary has no "Katze"
    CHECK(found[2][0].terms[1].honoured);
    CHECK(found[3][0].text == without[3][0].text);
    CHECK(found[3][0].score == without[3][0].score);
    const std::string json = eigenformer::detail::format_translations(
        {.output_format = OutputFormat::jsonl}, 3, lines[2], std::span(found[2]).first(1));
    CHECK(contains(json, R"("terms":[{"source":"of","targets":["Katze"],"honoured":false},)"
                         R"({"source":"man","targets":["Stadt","Mann geht"],"honoured":true}])"));

    options.search.max_length = 1;
    const auto cut = TextTranslator(loaded, options).translate(lines[0]);
    CHECK_FALSE((cut.terms[0].honoured && cut.terms[1].honoured));
  }
  TextTranslatorOptions drawn = text_translator_options(loaded.description);
  drawn.search.sampling = Sampling{};
  drawn.glossary = glossary;
  CHECK(contains(message_of<ValueError>([&] { TextTranslator(loaded, drawn); }),
                 "a glossary is given together with sampling, which does not support constraints"));
}
