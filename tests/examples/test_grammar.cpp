#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../examples/translation/grammar/grammar.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "test_tools.hpp"

using namespace toy;
using namespace toy::grammar;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {

template <class Table>
const auto& entry(const Table& table, const std::string& english) {
  for (const auto& item : table) {
    if (item.english == english) return item;
  }
  FAIL("no such word: " << english);
  return table[0];
}

NounPhrase np(Determiner determiner, const std::string& noun, bool plural = false,
              const std::string& adjective = "") {
  NounPhrase result;
  result.noun = &entry(nouns, noun);
  result.determiner = determiner;
  result.plural = plural;
  if (!adjective.empty()) result.adjective = &entry(adjectives, adjective);
  return result;
}

NounPhrase pronoun(const std::string& english) {
  NounPhrase result;
  for (const Pronoun& p : pronouns) {
    if (p.english_nominative == english) result.pronoun = &p;
  }
  REQUIRE(result.pronoun != nullptr);
  return result;
}

Clause clause(const NounPhrase& subject, const std::string& verb, Tense tense = present) {
  Clause c;
  c.subject = subject;
  if (!verb.empty()) c.verb = &entry(verbs, verb);
  c.tense = tense;
  return c;
}

void check(const Sentence& sentence, const std::string& in_english, const std::string& in_german) {
  CHECK(english(sentence) == in_english);
  CHECK(german(sentence) == in_german);
}

}  // namespace

TEST_CASE("grammar: articles, adjectives and nouns in all cases, genders and numbers") {
  using D = Determiner;
  const auto in = [](const NounPhrase& n, Case c, bool negated = false) {
    return german_detail::noun_phrase(n, c, negated);
  };
  const auto all = [&](const NounPhrase& n) {
    return in(n, Case::nominative) + ", " + in(n, Case::accusative) + ", " + in(n, Case::dative);
  };
  CHECK(all(np(D::the, "dog", false, "old")) == "der alte Hund, den alten Hund, dem alten Hund");
  CHECK(all(np(D::the, "cat", false, "old")) == "die alte Katze, die alte Katze, der alten Katze");
  CHECK(all(np(D::the, "horse", false, "old")) == "das alte Pferd, das alte Pferd, dem alten Pferd");
  CHECK(all(np(D::the, "bird", true, "old")) == "die alten Vögel, die alten Vögel, den alten Vögeln");
  CHECK(all(np(D::a, "hat", false, "expensive")) == "ein teurer Hut, einen teuren Hut, einem teuren Hut");
  CHECK(all(np(D::a, "lamp", false, "red")) == "eine rote Lampe, eine rote Lampe, einer roten Lampe");
  CHECK(all(np(D::a, "book", false, "new")) == "ein neues Buch, ein neues Buch, einem neuen Buch");
  CHECK(all(np(D::none, "child", true, "tired")) == "müde Kinder, müde Kinder, müden Kindern");
  CHECK(all(np(D::this_, "teacher")) == "dieser Lehrer, diesen Lehrer, diesem Lehrer");
  CHECK(all(np(D::this_, "girl", true, "clever")) ==
        "diese klugen Mädchen, diese klugen Mädchen, diesen klugen Mädchen");
  CHECK(all(np(D::our, "doctor", false, "good")) ==
        "unser guter Arzt, unseren guten Arzt, unserem guten Arzt");
  CHECK(all(np(D::her, "car", true)) == "ihre Autos, ihre Autos, ihren Autos");
  CHECK(all(np(D::two, "dog", true, "big")) == "zwei große Hunde, zwei große Hunde, zwei großen Hunden");
  CHECK(all(np(D::many, "mother", true, "young")) ==
        "viele junge Mütter, viele junge Mütter, vielen jungen Müttern");
  CHECK(in(np(D::a, "apple", false, "red"), Case::accusative, true) == "keinen roten Apfel");
  CHECK(in(np(D::none, "child", true, "tired"), Case::dative, true) == "keinen müden Kindern");
  CHECK(in(np(D::none, "egg", true, "good"), Case::accusative, true) == "keine guten Eier");
}

TEST_CASE("grammar: verb second, whatever stands first") {
  using D = Determiner;
  Sentence s;
  s.main = clause(np(D::the, "woman"), "see");
  s.main.accusative = np(D::the, "dog");
  s.main.time = &entry(times, "today");
  check(s, "The woman sees the dog today.", "Die Frau sieht heute den Hund.");
  s.front = Front::object;
  check(s, "The dog, the woman sees today.", "Den Hund sieht die Frau heute.");
  s.front = Front::time;
  s.main = clause(np(D::the, "teacher"), "give");
  s.main.dative = np(D::the, "child");
  s.main.accusative = np(D::a, "apple", false, "red");
  s.main.time = &entry(times, "today");
  check(s, "Today the teacher gives the child a red apple.",
        "Heute gibt der Lehrer dem Kind einen roten Apfel.");
  s.front = Front::place;
  s.main = clause(np(D::my, "sister"), "sing", past);
  s.main.place = {&in_preposition, np(D::the, "garden", false, "old")};
  check(s, "In the old garden my sister sang.", "Im alten Garten hat meine Schwester gesungen.");
}

TEST_CASE("grammar: brackets of separable verbs, the perfect and modal verbs") {
  using D = Determiner;
  Sentence s;
  s.main = clause(np(D::the, "mother"), "call");
  s.main.accusative = pronoun("he");
  check(s, "The mother calls him.", "Die Mutter ruft ihn an.");
  s.main.tense = past;
  check(s, "The mother called him.", "Die Mutter hat ihn angerufen.");
  s.main.tense = want;
  check(s, "The mother wants to call him.", "Die Mutter will ihn anrufen.");
  s.main = clause(pronoun("I"), "get", past);
  check(s, "I got up.", "Ich bin aufgestanden.");
  s.main = clause(pronoun("they"), "go", future);
  s.main.place = {&in_preposition, np(D::the, "house")};
  s.main.time = &entry(times, "tomorrow");
  check(s, "They will go into the house tomorrow.", "Sie werden morgen ins Haus gehen.");
}

TEST_CASE("grammar: nicht and kein") {
  using D = Determiner;
  Sentence s;
  s.main = clause(np(D::the, "man"), "fetch");
  s.main.negated = true;
  s.main.accusative = np(D::the, "child");
  s.main.time = &entry(times, "now");
  check(s, "The man does not fetch the child now.", "Der Mann holt jetzt das Kind nicht ab.");
  s.main.accusative = np(D::a, "child");
  check(s, "The man does not fetch a child now.", "Der Mann holt jetzt kein Kind ab.");
  s.main = clause(pronoun("we"), "help", can);
  s.main.negated = true;
  s.main.dative = np(D::a, "friend");
  check(s, "We cannot help a friend.", "Wir können keinem Freund helfen.");
  s.main = clause(np(D::his, "dog"), "", past);
  s.main.negated = true;
  s.main.quality = &entry(adjectives, "tired");
  check(s, "His dog was not tired.", "Sein Hund war nicht müde.");
}

TEST_CASE("grammar: questions") {
  using D = Determiner;
  Sentence s;
  s.form = Form::whom;
  s.main = clause(np(D::the, "woman"), "see");
  check(s, "Whom does the woman see?", "Wen sieht die Frau?");
  s.main = clause(np(D::the, "woman"), "help", past);
  check(s, "Whom did the woman help?", "Wem hat die Frau geholfen?");
  s.form = Form::who;
  s.main = clause({}, "invite");
  s.main.accusative = np(D::her, "friend", true);
  check(s, "Who invites her friends?", "Wer lädt ihre Freunde ein?");
  s.form = Form::what;
  s.main = clause(pronoun("he"), "look", should);
  check(s, "What should he look for?", "Was sollte er suchen?");
  s.form = Form::where;
  s.main = clause(np(D::the, "child", true), "wait");
  check(s, "Where do the children wait?", "Wo warten die Kinder?");
  s.form = Form::yes_no;
  s.main = clause(np(D::the, "cat"), "follow", past);
  s.main.dative = pronoun("she");
  check(s, "Did the cat follow her?", "Ist die Katze ihr gefolgt?");
}

TEST_CASE("grammar: subordinate clauses have the verb at the end") {
  using D = Determiner;
  Sentence s;
  s.form = Form::because;
  s.main = clause(pronoun("she"), "laugh");
  s.second = clause(np(D::the, "friend"), "arrive");
  check(s, "She laughs because the friend arrives.", "Sie lacht, weil der Freund ankommt.");
  s.second.tense = past;
  check(s, "She laughs because the friend arrived.", "Sie lacht, weil der Freund angekommen ist.");
  s.form = Form::that;
  s.main = clause(pronoun("I"), "know");
  s.second = clause(np(D::our, "teacher"), "show", must);
  s.second.dative = pronoun("they");
  s.second.accusative = np(D::a, "picture");
  check(s, "I know that our teacher must show them a picture.",
        "Ich weiß, dass unser Lehrer ihnen ein Bild zeigen muss.");
  s.form = Form::when_clause;
  s.main = clause(np(D::the, "doctor"), "work");
  s.second = clause(np(D::two, "dog", true), "sleep");
  check(s, "When two dogs sleep, the doctor works.", "Wenn zwei Hunde schlafen, arbeitet der Arzt.");
  s.form = Form::but;
  check(s, "The doctor works, but two dogs sleep.", "Der Arzt arbeitet, aber zwei Hunde schlafen.");
}

TEST_CASE("grammar: no English sentence has two German ones") {
  eigenformer::RandomGenerator rng(3);
  Sampler sampler(rng);
  std::unordered_map<std::string, std::string> translations;
  for (int i = 0; i < 200'000; ++i) {
    const Sentence s = sampler.sentence();
    const auto [entry, fresh] = translations.emplace(english(s), german(s));
    if (!fresh) REQUIRE(entry->second == german(s));
  }
  CHECK(translations.size() > 100'000);
}

TEST_CASE("grammar: sentences look like sentences") {
  const GrammarCorpus corpus = make_grammar_corpus(5000, 300, 2);
  for (const auto* side : {&corpus.train, &corpus.held_out}) {
    for (std::size_t i = 0; i < side->source.size(); ++i) {
      for (const std::string& s : {side->source[i], side->target[i]}) {
        CAPTURE(s);
        CHECK(std::isupper(static_cast<unsigned char>(s.front())));
        CHECK((s.back() == '.' || s.back() == '?'));
        CHECK_FALSE(contains(s, "  "));
        CHECK_FALSE(contains(s, " ,"));
      }
      CHECK(side->source[i].back() == side->target[i].back());
      const auto words = 1 + std::count(side->source[i].begin(), side->source[i].end(), ' ');
      CHECK(words >= 3);
      CHECK(words <= 14);
    }
  }
}

TEST_CASE(
    "grammar: the corpus is distinct, the same for a seed, and held-out sentences are never trained on") {
  const GrammarCorpus corpus = make_grammar_corpus(6000, 500, 1), other = make_grammar_corpus(6000, 500, 2);
  CHECK(corpus.train.size() == 6000);
  CHECK(corpus.held_out.size() == 500);
  CHECK(make_grammar_corpus(6000, 500, 1).train.target == corpus.train.target);
  CHECK(other.train.source != corpus.train.source);
  const std::unordered_set<std::string> train(corpus.train.source.begin(), corpus.train.source.end());
  CHECK(train.size() == 6000);
  for (const GrammarCorpus* c : {&corpus, &other}) {
    for (const std::string& s : c->held_out.source) CHECK(train.count(s) == 0);
  }
  CHECK(contains(message_of<eigenformer::ValueError>([] { make_grammar_corpus(-1, 5, 1); }),
                 "must not be negative"));
}

TEST_CASE("grammar: every word of the held-out sentences is well covered in training") {
  const GrammarCorpus corpus = make_grammar_corpus(20'000, 1000, 1);
  for (const auto side : {&eigenformer::ParallelCorpus::source, &eigenformer::ParallelCorpus::target}) {
    std::map<std::string, int> counts;
    for (const std::string& sentence : corpus.train.*side) {
      for (const std::string& word : eigenformer::WordTokenizer::split(sentence)) ++counts[word];
    }
    CHECK(counts.size() < 500);
    for (const auto& entry : counts) {
      CAPTURE(entry.first);
      CHECK(entry.second >= 5);
    }
    for (const std::string& sentence : corpus.held_out.*side) {
      for (const std::string& word : eigenformer::WordTokenizer::split(sentence))
        CHECK(counts.count(word) == 1);
    }
  }
}
