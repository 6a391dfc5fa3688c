#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "sentence.hpp"

/// Random sentences that make sense: who can do what, with what, when and where.
namespace toy::grammar {

class Sampler {
 public:
  explicit Sampler(eigenformer::RandomGenerator& rng) : rng_(&rng) {}

  Sentence sentence() {
    const double u = rng_->uniform();
    if (u < 0.50) return statement();
    if (u < 0.58) return yes_no();
    if (u < 0.66) return adverb_question();
    if (u < 0.74) return person_question();
    return two_clauses();
  }

 private:
  /// What a clause may hold.
  struct Wish {
    unsigned tenses = present | past | future | modal;
    bool negation = true;
    bool extras = true;  // time, place, manner, how often
  };

  bool chance(double probability) { return rng_->uniform() < probability; }

  template <class Range, class Allowed>
  auto* pick(const Range& range, Allowed allowed) {
    std::vector<decltype(&*std::begin(range))> choices;
    for (const auto& item : range) {
      if (allowed(item)) choices.push_back(&item);
    }
    return choices[static_cast<std::size_t>(
        rng_->uniform_int(static_cast<eigenformer::index_t>(choices.size())))];
  }
  template <class Range>
  auto* pick(const Range& range) {
    return pick(range, [](const auto&) { return true; });
  }

  Determiner definite_determiner(const Noun& noun) {
    constexpr std::array choices = {Determiner::the, Determiner::the,   Determiner::the,
                                    Determiner::the, Determiner::this_, Determiner::my,
                                    Determiner::his, Determiner::her,   Determiner::our};
    return *pick(choices, [&](Determiner d) {
      return d == Determiner::the || d == Determiner::this_ || (noun.kinds & unowned) == 0;
    });
  }

  NounPhrase common_noun(unsigned kinds, bool may_be_plural, double adjective = 0.35) {
    NounPhrase np;
    np.noun = pick(nouns, [&](const Noun& n) { return (n.kinds & kinds) != 0; });
    np.plural = may_be_plural && chance(0.3);
    np.determiner = definite_determiner(*np.noun);
    if (chance(adjective)) {
      np.adjective = pick(adjectives, [&](const Adjective& a) { return (a.kinds & np.noun->kinds) != 0; });
    }
    return np;
  }

  NounPhrase subject(unsigned kinds) {
    NounPhrase np;
    const bool alive = (kinds & living) != 0;
    if (alive && chance(0.35)) {
      // "I" more often: it has verb forms of its own.
      np.pronoun = chance(0.15) ? &pronouns[0] : pick(pronouns);
    } else if (alive && chance(0.15)) {
      np.name = *pick(names);
    } else {
      // Only a subject shows the nominative, and only here are things subjects: so they have an adjective
      // more often.
      np = common_noun(kinds, true, alive ? 0.35 : 0.7);
      if (np.plural && chance(0.25)) np.determiner = chance(0.5) ? Determiner::two : Determiner::many;
      if (!np.plural && chance(alive ? 0.15 : 0.3)) np.determiner = Determiner::a;
    }
    return np;
  }

  NounPhrase object(unsigned kinds, const Clause& c, bool definite) {
    NounPhrase np;
    if ((kinds & person) != 0 && chance(0.25)) {
      // "I see me" would need a reflexive pronoun.
      np.pronoun = pick(pronouns, [&](const Pronoun& p) {
        return c.subject.pronoun == nullptr || !p.first_person || !c.subject.pronoun->first_person;
      });
    } else if ((kinds & person) != 0 && chance(0.1)) {
      np.name = *pick(names);
    } else {
      do np = common_noun(kinds, true);
      while (np.noun == c.subject.noun);
      if (!definite && chance(0.5)) {
        np.determiner = !np.plural                 ? Determiner::a
                        : c.negated || chance(0.4) ? Determiner::none
                        : chance(0.5)              ? Determiner::two
                                                   : Determiner::many;
      }
    }
    return np;
  }

  Place place(bool direction) {
    Place p;
    const bool in = direction || chance(0.6);
    p.preposition = in ? &in_preposition : pick(beside_prepositions);
    p.noun_phrase = common_noun(in ? inside : beside, false, 0.25);
    return p;
  }

  Tense tense(unsigned allowed) {
    constexpr std::array choices = {present, present, present, present, past,   past,
                                    past,    future,  can,     must,    should, want};
    return *pick(choices, [&](Tense t) { return (t & allowed) != 0; });
  }

  /// Tense and polarity. "must not" is left out: it is not "muss nicht".
  void add_tense(Clause& c, const Wish& wish) {
    c.tense = tense(wish.tenses);
    c.negated = wish.negation && c.tense != must && chance(0.2);
    // A negated clause speaks of someone definite.
    if (c.negated && !c.subject.definite()) c.subject.determiner = Determiner::the;
  }

  void add_extras(Clause& c) {
    if (c.tense == present && !c.negated && chance(0.15)) c.frequency = pick(frequencies);
    if (c.frequency == nullptr && chance(0.4)) add_time(c);
    if (c.verb == nullptr) return;
    if (c.verb->takes_manner && chance(0.2)) c.manner = pick(manners);
    if (c.verb->takes_place && c.manner == nullptr && chance(0.35)) c.place = place(false);
  }

  void add_time(Clause& c) {
    c.time = pick(times, [&](const TimePhrase& t) {
      return (t.tenses & c.tense) != 0 && (t.with_negation || !c.negated);
    });
  }

  void add_objects(Clause& c) {
    switch (c.verb->frame) {
      case Frame::accusative:
        c.accusative = object(c.verb->accusatives, c, false);
        break;
      case Frame::dative:
        c.dative = object(c.verb->datives, c, false);
        break;
      case Frame::both:
        c.dative = object(c.verb->datives, c, true);
        do c.accusative = object(c.verb->accusatives, c, false);
        // "gives her books" could also be the books that are hers.
        while (c.accusative.determiner == Determiner::none || c.accusative.noun == c.dative.noun);
        break;
      case Frame::direction:
        c.place = place(true);
        break;
      case Frame::nothing:
      case Frame::clause:
        break;
    }
  }

  template <class Allowed>
  Clause verb_clause(const Wish& wish, Allowed allowed) {
    Clause c;
    const auto fits = [&](const Verb& v) { return v.frame != Frame::clause && allowed(v); };
    const auto separable = [&](const Verb& v) { return fits(v) && v.german_prefix[0] != '\0'; };
    // Separable verbs more often: each has a form for the end of a subordinate clause.
    const bool prefer = std::any_of(verbs.begin(), verbs.end(), separable) && chance(0.15);
    c.verb = prefer ? pick(verbs, separable) : pick(verbs, fits);
    c.subject = subject(c.verb->subjects);
    add_tense(c, wish);
    add_objects(c);
    if (wish.extras) add_extras(c);
    return c;
  }

  /// "The dog is tired", "The dog is in the garden".
  Clause copula_clause(Wish wish) {
    Clause c;
    c.subject = subject(chance(0.5) ? objects : living);
    const bool quality = chance(0.7);
    if (quality) {
      const unsigned kinds = c.subject.noun != nullptr ? c.subject.noun->kinds : person;
      const Adjective* known = c.subject.adjective;
      c.quality = pick(adjectives, [&](const Adjective& a) {
        return (a.kinds & kinds) != 0 &&
               (known == nullptr || a.topic != known->topic || known->topic == Topic::state);
      });
      if (c.quality == known) c.subject.adjective = nullptr;
    } else {
      c.place = place(false);
    }
    const bool lasting = quality && c.quality->topic != Topic::state;
    wish.tenses &= lasting ? present | past : present | past | future;
    add_tense(c, wish);
    if (wish.extras && !lasting) add_extras(c);
    return c;
  }

  Clause clause(const Wish& wish) {
    if (chance(0.15)) return copula_clause(wish);
    return verb_clause(wish, [](const Verb&) { return true; });
  }

  Sentence statement() {
    Sentence s;
    s.main = clause({});
    const Clause& c = s.main;
    const double u = rng_->uniform();
    const NounPhrase& object = c.accusative;
    if (u < 0.25 && c.time != nullptr) {
      s.front = Front::time;
    } else if (u < 0.45 && object.noun != nullptr && object.definite()) {
      s.front = Front::object;
    } else if (u < 0.75 && c.place.present() && c.verb != nullptr && c.verb->takes_place && !c.negated) {
      s.front = Front::place;
    } else if (u < 0.5 && c.time != nullptr) {
      s.front = Front::time;
    }
    return s;
  }

  /// "Did the dog sleep?"
  Sentence yes_no() {
    Sentence s;
    s.form = Form::yes_no;
    const Wish wish = {.tenses = past | future | modal, .negation = chance(0.5)};
    s.main = chance(0.15) ? copula_clause({}) : verb_clause(wish, [](const Verb&) { return true; });
    s.main.frequency = nullptr;
    if (s.main.tense == can) s.main.negated = false;
    return s;
  }

  /// "Where does ...?", "When ...?", "Why ...?"
  Sentence adverb_question() {
    Sentence s;
    s.form = *pick(std::array{Form::where, Form::when, Form::why});
    const Wish wish = {.negation = false, .extras = s.form == Form::why};
    s.main = verb_clause(wish, [&](const Verb& v) { return s.form != Form::where || v.takes_place; });
    s.main.frequency = nullptr;
    return s;
  }

  /// "Who sees the dog?", "Whom does the woman see?", "What does the man buy?"
  Sentence person_question() {
    Sentence s;
    s.form = *pick(std::array{Form::who, Form::whom, Form::what});
    const Wish wish = {.negation = false};
    s.main = verb_clause(wish, [&](const Verb& v) {
      if (s.form == Form::what) return (v.accusatives & objects) != 0;
      if (s.form == Form::whom) return v.frame != Frame::both && ((v.accusatives | v.datives) & person) != 0;
      return true;
    });
    if (s.form == Form::who) s.main.subject = {};
    if (s.form == Form::what) s.main.accusative = {};
    if (s.form == Form::whom) s.main.accusative = s.main.dative = {};
    return s;
  }

  Sentence two_clauses() {
    Sentence s;
    s.form = *pick(std::array{Form::because, Form::because, Form::that, Form::that, Form::when_clause,
                              Form::and_, Form::but});
    if (s.form == Form::that) {
      s.main.verb = pick(verbs, [](const Verb& v) { return v.frame == Frame::clause; });
      s.main.subject = subject(person);
      add_tense(s.main, {.tenses = present | past});
      s.second = clause({});
    } else if (s.form == Form::when_clause) {
      s.main = clause({.tenses = present, .extras = false});
      s.second = clause({.tenses = present, .extras = false});
    } else {
      s.main = clause({.extras = chance(0.3)});
      s.second = clause({.extras = chance(0.5)});
    }
    return s;
  }

  eigenformer::RandomGenerator* rng_;
};

}  // namespace toy::grammar
