#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "english.hpp"
#include "german.hpp"
#include "sampler.hpp"

/// The embedded corpus: English sentences and their only right German translations, from a
/// bilingual grammar. German shows gender, number and case on articles, adjectives and pronouns, the verb in
/// second place or at the end, separable verbs, the perfect, modal verbs, "nicht" and "kein", questions and
/// subordinate clauses.
namespace toy {

/// Sentence pairs to learn from, and others that are never among them.
struct GrammarCorpus {
  eigenformer::ParallelCorpus train;
  eigenformer::ParallelCorpus held_out;
};

/// Whether an English sentence belongs to the held-out ones: one in 16 does, by its letters alone and
/// whatever the seed.
inline bool is_held_out(std::string_view english) {
  std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : english) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3u;
  return (hash ^ hash >> 32) % 16 == 0;
}

/// So many distinct pairs of each, the same for the same seed, of 3 to 14 English words. Throws ValueError
/// for negative sizes.
inline GrammarCorpus make_grammar_corpus(eigenformer::index_t train_size, eigenformer::index_t held_out_size,
                                         std::uint64_t seed) {
  if (train_size < 0 || held_out_size < 0) {
    throw eigenformer::ValueError("grammar",
                                  {"sizes ", train_size, " and ", held_out_size, " must not be negative"});
  }
  constexpr std::ptrdiff_t fewest_words = 3, most_words = 14;
  eigenformer::RandomGenerator rng(seed);
  grammar::Sampler sampler(rng);
  GrammarCorpus corpus;
  std::unordered_set<std::string> seen;
  while (corpus.train.size() < train_size || corpus.held_out.size() < held_out_size) {
    const grammar::Sentence sentence = sampler.sentence();
    std::string english = grammar::english(sentence);
    const std::ptrdiff_t words = 1 + std::count(english.begin(), english.end(), ' ');
    if (words < fewest_words || words > most_words) continue;
    const bool held_out = is_held_out(english);
    eigenformer::ParallelCorpus& side = held_out ? corpus.held_out : corpus.train;
    if (side.size() == (held_out ? held_out_size : train_size) || !seen.insert(english).second) continue;
    side.target.push_back(grammar::german(sentence));
    side.source.push_back(std::move(english));
    ++side.report.read;
    ++side.report.kept;
  }
  return corpus;
}

}  // namespace toy
