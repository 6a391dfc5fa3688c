#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// The attention weights of a sentence and its translation, one tensor (heads, queries, keys) per layer. Row
/// t of target and memory is the attention when token t was chosen, the last row that of the end symbol.
struct AttentionMaps {
  std::vector<Tensor<float>> source;  ///< the encoder's self-attention, (H, S, S)
  /// The decoder's self-attention, (H, T + 1, T + 1); the first key is the begin symbol.
  std::vector<Tensor<float>> target;
  std::vector<Tensor<float>> memory;  ///< the decoder's cross-attention, (H, T + 1, S)
};

/// A text found for an input.
struct Hypothesis {
  std::vector<std::int32_t> ids;  ///< without begin and end symbol, prompt and forced prefixes
  double log_probability = 0;     ///< sum over its tokens and the end symbol, in nats
  double score = 0;               ///< ranks texts, see SearchRule; log_probability in sampling
  bool finished = false;          ///< whether it ended with the end symbol
  std::shared_ptr<const AttentionMaps> attention = {};  ///< with SearchOptions::attention, else null
  /// With token_scores, the log-probability of each token and of the end symbol of a finished text, in nats;
  /// they sum to log_probability. Else empty.
  std::vector<double> token_log_probabilities{};
  /// Indices of the input's constraints that the text does not meet. Of finished texts, and of unfinished
  /// ones, those with more of them rank lower.
  std::vector<std::size_t> unmet{};
};

namespace detail {

/// Returns what to add to the score of a hypothesis that has ended or was cut off; an empty function:
/// nothing.
using EndScore = std::function<double(std::size_t input, const Hypothesis& ended)>;

}  // namespace detail

}  // namespace eigenformer
