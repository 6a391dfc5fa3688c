#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// A token of a text and what the model gives it after the ones before, in nats.
struct TokenScore {
  std::string token;  ///< as Tokenizer::token shows it
  double log_probability = 0;
};

/// A word of a text, which is what stands between white space, and how sure the model is of it, in [0, 1].
struct WordConfidence {
  std::string word;
  double confidence = 0;
};

/// How a probability of a model becomes a confidence: 1 / (1 + exp(-(slope * logit(p) + offset))), Platt
/// scaling (Platt 1999). The defaults leave it as it is; fit_confidence() in metrics/calibration.hpp finds
/// others on held-out data.
struct ConfidenceScale {
  double slope = 1;
  double offset = 0;

  friend bool operator==(const ConfidenceScale&, const ConfidenceScale&) = default;

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"slope", "factor that the logit is multiplied by", Allowed::finite}, self.slope);
    visit(OptionField{"offset", "added to the logit", Allowed::finite}, self.offset);
  }

  /// probability: in [0, 1].
  double operator()(double probability) const {
    if (slope == 1 && offset == 0) return probability;
    const double p = clamped(probability);
    return 1 / (1 + std::exp(-(slope * std::log(p / (1 - p)) + offset)));
  }

  /// A probability that has a logit: 0 and 1 have none.
  static double clamped(double probability) { return std::clamp(probability, 1e-12, 1 - 1e-12); }
};

/// The words of a text with their confidences: the probability of a word is the product of its tokens', each
/// given all before it, and `scale` makes a confidence of it. ids: the text's tokens, without the end symbol;
/// log_probabilities: of the last so many of them, in nats, so that those before count as given, with
/// probability 1. A token belongs to the word in which the text ends with it. Throws ValueError for more
/// log-probabilities than ids.
inline std::vector<WordConfidence> word_confidences(const Tokenizer& tokenizer,
                                                    std::span<const std::int32_t> ids,
                                                    std::span<const double> log_probabilities,
                                                    const ConfidenceScale& scale = {}) {
  if (log_probabilities.size() > ids.size()) {
    throw ValueError("word_confidences", std::to_string(log_probabilities.size()) +
                                             " log-probabilities must be at most " +
                                             std::to_string(ids.size()) + ", one for each id");
  }
  const auto words_of = [](std::string_view text) {
    std::vector<std::string> words;
    bool inside = false;
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      const bool space = is_space(c);
      if (!space && !inside) words.emplace_back();
      if (!space) words.back() += bytes;
      inside = !space;
    });
    return words;
  };
  const std::vector<std::string> words = words_of(tokenizer.decode(ids));
  std::vector<double> sums(words.size());
  const std::size_t given = ids.size() - log_probabilities.size();
  if (words.empty()) return {};
  for (std::size_t i = given; i < ids.size(); ++i) {
    const std::size_t count = words_of(tokenizer.decode(ids.first(i + 1))).size();
    sums[count == 0 ? 0 : std::min(count, words.size()) - 1] += log_probabilities[i - given];
  }
  std::vector<WordConfidence> result;
  for (std::size_t w = 0; w < words.size(); ++w)
    result.push_back({words[w], sums[w] == 0 ? 1 : scale(std::exp(sums[w]))});
  return result;
}

/// The confidence of a sentence: the mean of its words', which is the share of words that are expected to be
/// right; 0 for no word.
inline double sentence_confidence(std::span<const WordConfidence> words) {
  double sum = 0;
  for (const WordConfidence& word : words) sum += word.confidence;
  return words.empty() ? 0 : sum / static_cast<double>(words.size());
}

}  // namespace eigenformer
