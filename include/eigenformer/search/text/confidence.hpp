#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// A token of a text with its log-probability.
struct TokenScore {
  std::string token;           ///< as Tokenizer::token() shows it
  double log_probability = 0;  ///< in nats, given the tokens before
};

/// A white-space separated word of a text with its confidence.
struct WordConfidence {
  std::string word;       ///< the word with its punctuation
  double confidence = 0;  ///< in [0, 1]
};

/// Converts a model's probability to a confidence by Platt scaling (Platt 1999): 1 / (1 + exp(-(slope *
/// logit(p) + offset))). The defaults keep the probability; the translator's fit_confidence() fits others to
/// held-out data.
struct ConfidenceScale {
  double slope = 1;   ///< factor of the logit
  double offset = 0;  ///< added to the scaled logit

  /// Compares both fields.
  friend bool operator==(const ConfidenceScale&, const ConfidenceScale&) = default;

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"slope", "factor that the logit is multiplied by", Allowed::finite}, self.slope);
    visit(OptionField{"offset", "added to the logit", Allowed::finite}, self.offset);
  }

  /// The confidence, in [0, 1], of a probability in [0, 1].
  double operator()(double probability) const {
    if (slope == 1 && offset == 0) return probability;
    const double p = clamped(probability);
    return 1 / (1 + std::exp(-(slope * std::log(p / (1 - p)) + offset)));
  }

  /// Clamps a probability to [1e-12, 1 - 1e-12], where its logit is finite.
  static double clamped(double probability) { return std::clamp(probability, 1e-12, 1 - 1e-12); }
};

/// The words of a text with their confidences: `scale` of the product of the probabilities of a word's
/// tokens.
///
/// ids: the text's tokens without the end symbol. log_probabilities: in nats, of the last
/// log_probabilities.size() ids; earlier ids count as given, with probability 1. A token belongs to the word
/// that the text up to the token ends with. A word of given tokens has confidence 1. Throws ValueError for
/// more log-probabilities than ids.
EIGENFORMER_IO_FUNCTION std::vector<WordConfidence> word_confidences(
    const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::span<const double> log_probabilities,
    const ConfidenceScale& scale = {});

/// The confidence of a sentence: the mean confidence of its words, i.e. the expected share of right words; 0
/// without words.
inline double sentence_confidence(std::span<const WordConfidence> words) {
  double sum = 0;
  for (const WordConfidence& word : words) sum += word.confidence;
  return words.empty() ? 0 : sum / static_cast<double>(words.size());
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION std::vector<WordConfidence> word_confidences(
    const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::span<const double> log_probabilities,
    const ConfidenceScale& scale) {
  if (log_probabilities.size() > ids.size()) {
    throw ValueError("word_confidences",
                     {"there are ", log_probabilities.size(), " log-probabilities, must be at most ",
                      ids.size(), ", one for each id"});
  }
  const std::string text = tokenizer.decode(ids);
  const std::vector<ByteSpan> words = detail::word_spans(text);
  std::vector<double> sums(words.size());
  const std::size_t given = ids.size() - log_probabilities.size();
  if (words.empty()) return {};
  for (std::size_t i = given; i < ids.size(); ++i) {
    const std::size_t count = detail::word_spans(tokenizer.decode(ids.first(i + 1))).size();
    sums[count == 0 ? 0 : std::min(count, words.size()) - 1] += log_probabilities[i - given];
  }
  std::vector<WordConfidence> result;
  for (std::size_t w = 0; w < words.size(); ++w)
    result.push_back({std::string(words[w].of(text)), sums[w] == 0 ? 1 : scale(std::exp(sums[w]))});
  return result;
}

}  // namespace eigenformer

#endif
