#pragma once

#include <array>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"

/// A sentence and whether it praises (1) or not (0).
struct Opinion {
  std::string text;
  int label;
};

namespace opinions {

template <std::size_t N>
const char* pick(const std::array<const char*, N>& words, eigenformer::RandomGenerator& rng) {
  return words[static_cast<std::size_t>(rng.uniform_int(static_cast<eigenformer::index_t>(N)))];
}

/// "the soup was not dull": a clause, and whether it praises. A negation turns the adjective round.
inline Opinion clause(eigenformer::RandomGenerator& rng) {
  static constexpr std::array things = {"the soup",  "the film",   "the room", "the book",
                                        "the music", "the garden", "the play", "the bread"};
  static constexpr std::array good = {"lovely", "fresh", "bright", "clever", "warm", "charming"};
  static constexpr std::array bad = {"dull", "stale", "gloomy", "silly", "cold", "dreadful"};
  static constexpr std::array plain = {"was", "seemed", "was really", "seemed rather"};
  static constexpr std::array negated = {"was not", "never seemed", "was hardly", "was anything but"};
  const bool praises = rng.uniform_int(2) == 1, negates = rng.uniform_int(2) == 1;
  const std::string verb = negates ? pick(negated, rng) : pick(plain, rng);
  const std::string adjective = praises != negates ? pick(good, rng) : pick(bad, rng);
  return {std::string(pick(things, rng)) + " " + verb + " " + adjective, praises ? 1 : 0};
}

/// One clause, or two, of which the one after "but" or before "although" counts: which words there are does
/// not tell.
inline Opinion sentence(eigenformer::RandomGenerator& rng) {
  const Opinion a = clause(rng), b = clause(rng);
  switch (rng.uniform_int(3)) {
    case 0:
      return {a.text + " .", a.label};
    case 1:
      return {a.text + " , but " + b.text + " .", b.label};
    default:
      return {a.text + " , although " + b.text + " .", a.label};
  }
}

inline std::vector<Opinion> sentences(eigenformer::index_t count, eigenformer::RandomGenerator& rng) {
  std::vector<Opinion> all;
  for (eigenformer::index_t i = 0; i < count; ++i) all.push_back(sentence(rng));
  return all;
}

}  // namespace opinions
