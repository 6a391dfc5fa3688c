#pragma once

#include <cstring>
#include <string>

#include "sentence.hpp"

/// A sentence in English.
namespace toy::grammar {

namespace english_detail {

inline bool is_first_singular(const NounPhrase& subject) {
  return subject.pronoun != nullptr && subject.pronoun->first_person && !subject.pronoun->plural;
}

inline bool is_plural(const NounPhrase& subject) {
  return subject.pronoun != nullptr ? subject.pronoun->plural : subject.plural;
}

/// Whether the verb takes its third-person singular form; the gap of "who" does too.
inline bool is_third_singular(const NounPhrase& subject) {
  return !is_plural(subject) && !is_first_singular(subject);
}

inline std::string noun_phrase(const NounPhrase& np, bool subject) {
  if (np.pronoun != nullptr) return subject ? np.pronoun->english_nominative : np.pronoun->english_object;
  if (np.name != nullptr) return np.name;
  if (np.noun == nullptr) return "";
  Words rest;
  if (np.adjective != nullptr) rest << np.adjective->english;
  rest << (np.plural ? np.noun->english_plural : np.noun->english);
  const bool vowel = std::strchr("aeiou", rest.text()[0]) != nullptr;
  Words words;
  switch (np.determiner) {
    case Determiner::the:
      words << "the";
      break;
    case Determiner::a:
      words << (vowel ? "an" : "a");
      break;
    case Determiner::none:
      break;
    case Determiner::this_:
      words << (np.plural ? "these" : "this");
      break;
    case Determiner::my:
      words << "my";
      break;
    case Determiner::his:
      words << "his";
      break;
    case Determiner::her:
      words << "her";
      break;
    case Determiner::our:
      words << "our";
      break;
    case Determiner::two:
      words << "two";
      break;
    case Determiner::many:
      words << "many";
      break;
  }
  words << rest.text();
  return words.text();
}

inline std::string place(const Place& place, bool direction) {
  if (!place.present()) return "";
  Words words;
  words << (direction ? "into" : place.preposition->english) << noun_phrase(place.noun_phrase, false);
  return words.text();
}

/// The finite verb ("does", "can", "sees", "is") and what follows it behind the subject ("want to see").
struct VerbPhrase {
  std::string finite;
  std::string rest;
};

inline VerbPhrase verb_phrase(const Clause& c, bool inverted) {
  const bool third = is_third_singular(c.subject);
  const char* base = c.verb != nullptr ? c.verb->english : "be";
  const char* modal = c.tense == future   ? "will"
                      : c.tense == can    ? (c.negated ? "cannot" : "can")
                      : c.tense == must   ? "must"
                      : c.tense == should ? "should"
                                          : nullptr;
  if (modal != nullptr) return {modal, base};
  if (c.verb == nullptr && c.tense != want) {
    if (c.tense == past) return {is_plural(c.subject) ? "were" : "was", ""};
    return {is_plural(c.subject) ? "are" : is_first_singular(c.subject) ? "am" : "is", ""};
  }
  const std::string wanted = c.tense == want ? std::string("want to ") + base : base;
  if (inverted || c.negated) return {c.tense == past ? "did" : third ? "does" : "do", wanted};
  if (c.tense == want) return {third ? "wants to" : "want to", base};
  if (c.tense == past) return {c.verb->english_past, ""};
  return {third ? c.verb->english_third : base, ""};
}

/// What stands behind the verb; a part that stands in front of the clause is left out.
inline void add_rest(Words& words, const Clause& c, Front front) {
  if (c.verb != nullptr) words << c.verb->english_particle;
  words << noun_phrase(c.dative, false);
  if (front != Front::object) words << noun_phrase(c.accusative, false);
  if (c.quality != nullptr) words << c.quality->english;
  if (c.manner != nullptr) words << c.manner->english;
  const bool direction = c.verb != nullptr && c.verb->frame == Frame::direction;
  if (front != Front::place) words << place(c.place, direction);
  if (c.time != nullptr && front != Front::time) words << c.time->english;
}

inline void add_clause(Words& words, const Clause& c, Front front = Front::subject, bool inverted = false) {
  const VerbPhrase verb = verb_phrase(c, inverted);
  const bool copula = c.verb == nullptr;
  if (inverted) words << verb.finite;
  words << noun_phrase(c.subject, true);
  if (!copula && c.frequency != nullptr) words << c.frequency->english;
  if (!inverted) words << verb.finite;
  if (copula && c.frequency != nullptr) words << c.frequency->english;
  if (c.negated && c.tense != can) words << "not";
  words << verb.rest;
  add_rest(words, c, front);
}

}  // namespace english_detail

/// The English sentence.
inline std::string english(const Sentence& s) {
  using namespace english_detail;
  Words words;
  switch (s.form) {
    case Form::statement:
      if (s.front == Front::time) words << s.main.time->english;
      if (s.front == Front::place) words << place(s.main.place, false);
      if (s.front == Front::object) words << noun_phrase(s.main.accusative, false) << ",";
      add_clause(words, s.main, s.front);
      return (words << ".").sentence();
    case Form::because:
      add_clause(words, s.main), words << "because";
      break;
    case Form::that:
      add_clause(words, s.main), words << "that";
      break;
    case Form::and_:
      add_clause(words, s.main), words << "and";
      break;
    case Form::but:
      add_clause(words, s.main), words << ","
                                       << "but";
      break;
    case Form::when_clause:
      words << "when";
      add_clause(words, s.second);
      words << ",";
      add_clause(words, s.main);
      return (words << ".").sentence();
    case Form::yes_no:
      break;
    case Form::where:
      words << "where";
      break;
    case Form::when:
      words << "when";
      break;
    case Form::why:
      words << "why";
      break;
    case Form::whom:
      words << "whom";
      break;
    case Form::what:
      words << "what";
      break;
    case Form::who:
      words << "who";
      add_clause(words, s.main);
      return (words << "?").sentence();
  }
  if (s.second.subject.present()) {
    add_clause(words, s.second);
    return (words << ".").sentence();
  }
  add_clause(words, s.main, Front::subject, true);
  return (words << "?").sentence();
}

}  // namespace toy::grammar
