#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lexicon.hpp"

/// What a sentence says, before it is put into words of either language.
namespace toy::grammar {

/// `none` is the plural of `a`.
enum class Determiner { the, a, none, this_, my, his, her, our, two, many };

/// A noun with what stands before it, a pronoun, a name, or the gap that a question word asks for.
struct NounPhrase {
  const Noun* noun = nullptr;
  const Pronoun* pronoun = nullptr;
  const char* name = nullptr;
  Determiner determiner = Determiner::the;
  const Adjective* adjective = nullptr;
  bool plural = false;

  bool present() const { return noun != nullptr || pronoun != nullptr || name != nullptr; }
  /// Whether the hearer knows which one is meant: German puts such objects further to the front.
  bool definite() const {
    return noun == nullptr || (determiner != Determiner::a && determiner != Determiner::none &&
                               determiner != Determiner::two && determiner != Determiner::many);
  }
  /// Whether the noun takes "kein" in a negated clause.
  bool takes_kein() const {
    return noun != nullptr && (determiner == Determiner::a || determiner == Determiner::none);
  }
};

/// Where something is or, with a verb of motion, where it goes to.
struct Place {
  const Adverb* preposition = nullptr;
  NounPhrase noun_phrase;

  bool present() const { return preposition != nullptr; }
};

/// A clause; without a verb it says that the subject is somewhere or has a quality.
struct Clause {
  NounPhrase subject;
  const Verb* verb = nullptr;
  Tense tense = Tense::present;
  bool negated = false;
  NounPhrase dative;
  NounPhrase accusative;
  const Adverb* frequency = nullptr;
  const Adverb* manner = nullptr;
  const Adjective* quality = nullptr;
  Place place;
  const TimePhrase* time = nullptr;
};

/// What stands first in a statement.
enum class Front { subject, time, place, object };

enum class Form {
  statement,
  yes_no,
  where,
  when,
  why,
  who,
  whom,
  what,
  because,
  that,
  when_clause,
  and_,
  but
};

struct Sentence {
  Form form = Form::statement;
  Front front = Front::subject;
  Clause main;
  Clause second;  // because ..., that ..., when ..., and ..., but ...
};

/// Words with single spaces between them, marks attached, the first letter in upper case.
class Words {
 public:
  /// Adds words; an empty text adds nothing.
  Words& operator<<(std::string_view words) {
    if (words.empty()) return *this;
    const bool mark = words == "," || words == "." || words == "?";
    if (!text_.empty() && !mark) text_ += ' ';
    text_ += words;
    return *this;
  }

  std::string sentence() const {
    std::string s = text_;
    if (!s.empty() && s[0] >= 'a' && s[0] <= 'z') s[0] = static_cast<char>(s[0] - 'a' + 'A');
    return s;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace toy::grammar
