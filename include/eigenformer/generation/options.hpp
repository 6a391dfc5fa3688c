#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/config.hpp"
#include "eigenformer/core/error.hpp"
#include "eigenformer/core/tensor.hpp"

namespace eigenformer {

/// How a target sentence is searched for.
struct GenerationOptions {
  index_t beam_size = 4;       ///< hypotheses kept for each sentence; 1: greedy
  index_t max_length = 256;    ///< target tokens at most, the end symbol included
  index_t min_length = 0;      ///< target tokens at least before the end symbol may come
  double length_penalty = 1.0; ///< alpha of ((5 + |y|) / 6)^alpha, which divides a score (Wu et al. 2016, eq. 14)
  index_t num_hypotheses = 1;  ///< sentences returned for each input, the best first; at most beam_size
  std::int32_t begin_id = 2;
  std::int32_t end_id = 3;
  std::vector<std::int32_t> forbidden_ids = {0, 2};  ///< never produced: padding and begin
  bool attention = false;  ///< whether hypotheses come with their attention weights; those not asked for cost nothing

  /// Throws ValueError that names an impossible field.
  void validate() const {
    const auto at_least = [](const char* name, index_t value, index_t least) {
      if (value < least) {
        throw ValueError("generation", std::string(name) + " is " + std::to_string(value) + ", must be at least " +
                                           std::to_string(least));
      }
    };
    at_least("beam_size", beam_size, 1);
    at_least("max_length", max_length, 1);
    at_least("min_length", min_length, 0);
    at_least("num_hypotheses", num_hypotheses, 1);
    if (num_hypotheses > beam_size) {
      throw ValueError("generation", "num_hypotheses is " + std::to_string(num_hypotheses) +
                                         ", must be at most beam_size, which is " + std::to_string(beam_size));
    }
    if (min_length > max_length) {
      throw ValueError("generation", "min_length is " + std::to_string(min_length) +
                                         ", must be at most max_length, which is " + std::to_string(max_length));
    }
    if (!(length_penalty >= 0) || !std::isfinite(length_penalty)) {
      throw ValueError("generation", "length_penalty is " + std::to_string(length_penalty) + ", must not be negative");
    }
  }
};

/// The attention weights of a sentence and its translation, for every layer (heads, queries, keys). Row t of target and
/// memory is what was looked at when token t was chosen; the last row chose the end symbol.
struct AttentionMaps {
  std::vector<Tensor<float>> source;  ///< the encoder's self-attention, (H, S, S)
  std::vector<Tensor<float>> target;  ///< the decoder's self-attention, (H, T + 1, T + 1), the first key being begin
  std::vector<Tensor<float>> memory;  ///< the decoder's attention to the source, (H, T + 1, S)
};

/// One target sentence found for an input.
struct Hypothesis {
  std::vector<std::int32_t> ids;    ///< without begin and end
  double log_probability = 0;       ///< sum over its tokens, the end symbol included, in nats
  double score = 0;                 ///< log_probability / length penalty
  bool finished = false;            ///< ended by the end symbol and not by max_length
  std::shared_ptr<const AttentionMaps> attention = {};  ///< where the options ask for it
};

/// ((5 + length) / 6)^alpha; length counts the end symbol and not the start (Wu et al. 2016, eq. 14).
inline double length_penalty(index_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

}  // namespace eigenformer
