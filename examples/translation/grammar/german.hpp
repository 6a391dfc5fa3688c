#pragma once

#include <string>

#include "sentence.hpp"

/// A sentence in German: case, agreement, the verb in second place, and the order of the middle field.
namespace toy::grammar {

enum class Case { nominative, accusative, dative };

namespace german_detail {

/// masculine, feminine, neuter, plural: a column of the tables below.
inline std::size_t column(const NounPhrase& np) {
  return np.plural ? 3 : static_cast<std::size_t>(np.noun->gender);
}

inline constexpr const char* definite_article[3][4] = {
    {"der", "die", "das", "die"}, {"den", "die", "das", "die"}, {"dem", "der", "dem", "den"}};
/// Endings of "dieser".
inline constexpr const char* this_ending[3][4] = {
    {"er", "e", "es", "e"}, {"en", "e", "es", "e"}, {"em", "er", "em", "en"}};
/// Endings of "ein", "kein", "mein", "sein", "ihr", "unser".
inline constexpr const char* ein_ending[3][4] = {
    {"", "e", "", "e"}, {"en", "e", "", "e"}, {"em", "er", "em", "en"}};
/// Endings of an adjective behind "der" and "dieser", behind "ein" and its like, and behind a word without an
/// ending (plural only).
inline constexpr const char* weak_ending[3][4] = {
    {"e", "e", "e", "en"}, {"en", "e", "e", "en"}, {"en", "en", "en", "en"}};
inline constexpr const char* mixed_ending[3][4] = {
    {"er", "e", "es", "en"}, {"en", "e", "es", "en"}, {"en", "en", "en", "en"}};
inline constexpr const char* strong_plural_ending[3] = {"e", "e", "en"};

/// The article, in a negated clause "kein".
inline std::string article(const NounPhrase& np, Case c, bool negated) {
  const auto row = static_cast<std::size_t>(c);
  const char* ein = ein_ending[row][column(np)];
  switch (np.determiner) {
    case Determiner::the:
      return definite_article[row][column(np)];
    case Determiner::a:
      return std::string(negated ? "kein" : "ein") + ein;
    case Determiner::none:
      return negated ? std::string("kein") + ein : "";
    case Determiner::this_:
      return std::string("dies") + this_ending[row][column(np)];
    case Determiner::my:
      return std::string("mein") + ein;
    case Determiner::his:
      return std::string("sein") + ein;
    case Determiner::her:
      return std::string("ihr") + ein;
    case Determiner::our:
      return std::string("unser") + ein;
    case Determiner::two:
      return "zwei";
    case Determiner::many:
      return std::string("viel") + strong_plural_ending[row];
  }
  return "";
}

inline const char* adjective_ending(const NounPhrase& np, Case c, bool negated) {
  const auto row = static_cast<std::size_t>(c);
  switch (np.determiner) {
    case Determiner::the:
    case Determiner::this_:
      return weak_ending[row][column(np)];
    case Determiner::two:
    case Determiner::many:
      return strong_plural_ending[row];
    case Determiner::none:
      return negated ? mixed_ending[row][3] : strong_plural_ending[row];
    default:
      return mixed_ending[row][column(np)];
  }
}

/// The noun itself: only the dative plural has an ending, -n, unless there is an n or s already.
inline std::string inflected_noun(const NounPhrase& np, Case c) {
  std::string noun = np.plural ? np.noun->german_plural : np.noun->german;
  if (np.plural && c == Case::dative && noun.back() != 'n' && noun.back() != 's') noun += 'n';
  return noun;
}

inline std::string noun_phrase(const NounPhrase& np, Case c, bool negated = false) {
  if (np.pronoun != nullptr) {
    return c == Case::nominative   ? np.pronoun->german_nominative
           : c == Case::accusative ? np.pronoun->german_accusative
                                   : np.pronoun->german_dative;
  }
  if (np.name != nullptr) return np.name;
  if (np.noun == nullptr) return "";
  Words words;
  words << article(np, c, negated);
  if (np.adjective != nullptr)
    words << std::string(np.adjective->german_stem) + adjective_ending(np, c, negated);
  words << inflected_noun(np, c);
  return words.text();
}

/// Where something is stands in the dative, where it goes to in the accusative; "in dem" and "in das" melt
/// into one word.
inline std::string place(const Place& place, bool direction) {
  if (!place.present()) return "";
  std::string text = noun_phrase(place.noun_phrase, direction ? Case::accusative : Case::dative);
  if (std::string_view(place.preposition->german) == "in" &&
      place.noun_phrase.determiner == Determiner::the) {
    if (text.substr(0, 4) == "dem ") return "im " + text.substr(4);
    if (text.substr(0, 4) == "das ") return "ins " + text.substr(4);
  }
  return place.preposition->german + (" " + text);
}

/// The forms of a verb for "ich", "er" and "wir".
struct FiniteForms {
  const char* first;
  const char* third;
  const char* plural;
};

inline const char* agree(const FiniteForms& forms, const NounPhrase& subject) {
  if (subject.pronoun != nullptr && subject.pronoun->plural) return forms.plural;
  if (subject.pronoun != nullptr && subject.pronoun->first_person) return forms.first;
  return subject.plural ? forms.plural : forms.third;
}

/// The parts of the verb: the finite one, and what stands at the end of a main clause or before the finite
/// one of a subordinate clause.
struct VerbParts {
  std::string finite;
  std::string end;
  std::string subordinate_end;  // the end and the finite part of a subordinate clause
};

inline VerbParts verb_parts(const Clause& c) {
  const auto parts = [&](const FiniteForms& forms, const std::string& end) {
    const std::string finite = agree(forms, c.subject);
    return VerbParts{finite, end, end.empty() ? finite : end + " " + finite};
  };
  constexpr FiniteForms sein = {"bin", "ist", "sind"};
  const std::string prefix = c.verb != nullptr ? c.verb->german_prefix : "";
  const std::string infinitive = c.verb != nullptr ? prefix + c.verb->german_plural : "sein";
  switch (c.tense) {
    case future:
      return parts({"werde", "wird", "werden"}, infinitive);
    case can:
      return parts({"kann", "kann", "können"}, infinitive);
    case must:
      return parts({"muss", "muss", "müssen"}, infinitive);
    case should:
      return parts({"sollte", "sollte", "sollten"}, infinitive);
    case want:
      return parts({"will", "will", "wollen"}, infinitive);
    case past:
      if (c.verb == nullptr) return parts({"war", "war", "waren"}, "");
      if (c.verb->perfect_with_sein) return parts(sein, c.verb->german_participle);
      return parts({"habe", "hat", "haben"}, c.verb->german_participle);
    case present:
      break;
  }
  if (c.verb == nullptr) return parts(sein, "");
  const std::string finite =
      agree({c.verb->german_first, c.verb->german_third, c.verb->german_plural}, c.subject);
  return {finite, prefix, prefix + finite};
}

/// What stands between the finite verb and the end; a part in front of the clause is left out. The order:
/// pronouns, time, definite objects, "nicht" or how often, how, where, indefinite objects, quality.
inline void add_middle_field(Words& words, const Clause& c, Front front) {
  const bool kein = c.negated && (c.accusative.takes_kein() || c.dative.takes_kein());
  const std::string dative = noun_phrase(c.dative, Case::dative, kein);
  const std::string accusative =
      front == Front::object ? "" : noun_phrase(c.accusative, Case::accusative, kein);
  if (c.accusative.pronoun != nullptr) words << accusative;
  if (c.dative.pronoun != nullptr) words << dative;
  if (c.time != nullptr && front != Front::time) words << c.time->german;
  if (c.dative.pronoun == nullptr && c.dative.definite()) words << dative;
  if (c.accusative.pronoun == nullptr && c.accusative.definite()) words << accusative;
  if (c.negated && !kein) words << "nicht";
  if (c.frequency != nullptr) words << c.frequency->german;
  if (c.manner != nullptr) words << c.manner->german;
  const bool direction = c.verb != nullptr && c.verb->frame == Frame::direction;
  if (front != Front::place) words << place(c.place, direction);
  if (!c.dative.definite()) words << dative;
  if (!c.accusative.definite()) words << accusative;
  if (c.quality != nullptr) words << c.quality->german;
}

/// A main clause whose first place is taken already: the verb, the subject, the rest.
inline void add_inverted(Words& words, const Clause& c, Front front = Front::subject) {
  const VerbParts verb = verb_parts(c);
  words << verb.finite << noun_phrase(c.subject, Case::nominative);
  add_middle_field(words, c, front);
  words << verb.end;
}

inline void add_main(Words& words, const Clause& c) {
  const VerbParts verb = verb_parts(c);
  words << noun_phrase(c.subject, Case::nominative) << verb.finite;
  add_middle_field(words, c, Front::subject);
  words << verb.end;
}

inline void add_subordinate(Words& words, const char* conjunction, const Clause& c) {
  words << conjunction << noun_phrase(c.subject, Case::nominative);
  add_middle_field(words, c, Front::subject);
  words << verb_parts(c).subordinate_end;
}

inline void add_statement(Words& words, const Clause& c, Front front) {
  switch (front) {
    case Front::subject:
      return add_main(words, c);
    case Front::time:
      words << c.time->german;
      break;
    case Front::place:
      words << place(c.place, false);
      break;
    case Front::object:
      words << noun_phrase(c.accusative, Case::accusative);
      break;
  }
  add_inverted(words, c, front);
}

}  // namespace german_detail

/// The German sentence.
inline std::string german(const Sentence& s) {
  using namespace german_detail;
  Words words;
  switch (s.form) {
    case Form::statement:
      add_statement(words, s.main, s.front);
      return (words << ".").sentence();
    case Form::because:
      add_main(words, s.main);
      add_subordinate(words << ",", "weil", s.second);
      return (words << ".").sentence();
    case Form::that:
      add_main(words, s.main);
      add_subordinate(words << ",", "dass", s.second);
      return (words << ".").sentence();
    case Form::when_clause:
      add_subordinate(words, "wenn", s.second);
      add_inverted(words << ",", s.main);
      return (words << ".").sentence();
    case Form::and_:
      add_main(words, s.main);
      add_main(words << "und", s.second);
      return (words << ".").sentence();
    case Form::but:
      add_main(words, s.main);
      add_main(words << ","
                     << "aber",
               s.second);
      return (words << ".").sentence();
    case Form::who:
      words << "wer";
      break;
    case Form::where:
      words << "wo";
      break;
    case Form::when:
      words << "wann";
      break;
    case Form::why:
      words << "warum";
      break;
    case Form::what:
      words << "was";
      break;
    case Form::whom:
      words << (s.main.verb->frame == Frame::dative ? "wem" : "wen");
      break;
    case Form::yes_no:
      break;
  }
  add_inverted(words, s.main);
  return (words << "?").sentence();
}

}  // namespace toy::grammar
