#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// The attention weights of a sentence and its translation, for every layer (heads, queries, keys). Row t of
/// target and memory is what was looked at when token t was chosen; the last row chose the end symbol.
struct AttentionMaps {
  std::vector<Tensor<float>> source;  ///< the encoder's self-attention, (H, S, S)
  /// The decoder's self-attention, (H, T + 1, T + 1), the first key being begin.
  std::vector<Tensor<float>> target;
  std::vector<Tensor<float>> memory;  ///< the decoder's attention to the source, (H, T + 1, S)
};

/// One text found for an input.
struct Hypothesis {
  std::vector<std::int32_t> ids;  ///< without begin and end, or without the prompt
  double log_probability = 0;     ///< sum over its tokens, the end symbol included, in nats
  double score = 0;               ///< log_probability / length penalty
  bool finished = false;          ///< ended by the end symbol and not by max_length
  std::shared_ptr<const AttentionMaps> attention = {};  ///< where the options ask for it
  /// Of each token, the end symbol of a finished text included, in nats; they sum to log_probability. Empty
  /// unless the options ask for them.
  std::vector<double> token_log_probabilities{};
  /// The constraints that the text does not meet, by place in the input's list; such texts come after all
  /// others.
  std::vector<std::size_t> unmet{};
};

}  // namespace eigenformer
