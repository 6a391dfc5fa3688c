#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/corpus/conventions.hpp"

namespace eigenformer {

/// How a target sentence is searched for.
struct GenerationOptions {
  index_t beam_size = 4;        ///< hypotheses kept for each sentence; 1: greedy
  index_t max_length = 256;     ///< target tokens at most, the end symbol included
  index_t min_length = 0;       ///< target tokens at least before the end symbol may come
  double length_penalty = 1.0;  ///< alpha: see SearchRule
  SearchRule rule = SearchRule::gnmt;
  bool early_stopping = false;  ///< end a sentence's search as soon as beam_size hypotheses have ended
  bool force_end = false;       ///< at max_length take the end symbol, at no cost
  /// So many tokens in a row come once in a sentence, begin_id and prefix_ids counted; 0: as often as
  /// they may (Paulus et al. 2018, section 2.5).
  index_t no_repeat_ngram_size = 0;
  index_t num_hypotheses = 1;  ///< sentences returned for each input, the best first; at most beam_size
  std::int32_t begin_id = 2;
  std::int32_t end_id = 3;
  std::vector<std::int32_t> prefix_ids{};  ///< forced after begin_id, at no cost; not in the results
  /// The first of begin_id and prefix_ids that see one another in both directions, for a decoder that was
  /// trained as a prefix language model.
  index_t prefix_length = 0;
  std::vector<std::int32_t> forbidden_ids = {0, 2};  ///< never produced: padding and begin
  /// Whether hypotheses come with their attention weights; those not asked for cost nothing.
  bool attention = false;

  /// Throws ValueError that names an impossible field.
  void validate() const {
    const auto at_least = [](const char* name, index_t value, index_t least) {
      if (value < least) {
        throw ValueError("generation", std::string(name) + " is " + std::to_string(value) +
                                           ", must be at least " + std::to_string(least));
      }
    };
    at_least("beam_size", beam_size, 1);
    at_least("max_length", max_length, 1);
    at_least("min_length", min_length, 0);
    at_least("no_repeat_ngram_size", no_repeat_ngram_size, 0);
    at_least("num_hypotheses", num_hypotheses, 1);
    at_least("prefix_length", prefix_length, 0);
    if (prefix_length > static_cast<index_t>(prefix_ids.size()) + 1) {
      throw ValueError("generation", "prefix_length is " + std::to_string(prefix_length) +
                                         ", must be at most " + std::to_string(prefix_ids.size() + 1) +
                                         ", the begin_id and the prefix_ids");
    }
    if (num_hypotheses > beam_size) {
      throw ValueError("generation", "num_hypotheses is " + std::to_string(num_hypotheses) +
                                         ", must be at most beam_size, which is " +
                                         std::to_string(beam_size));
    }
    if (min_length > max_length) {
      throw ValueError("generation", "min_length is " + std::to_string(min_length) +
                                         ", must be at most max_length, which is " +
                                         std::to_string(max_length));
    }
    if (!(length_penalty >= 0 || rule != SearchRule::gnmt) || !std::isfinite(length_penalty)) {
      throw ValueError("generation", "length_penalty is " + std::to_string(length_penalty) + ", must " +
                                         (std::isfinite(length_penalty) ? "not be negative" : "be finite"));
    }
  }
};

/// The attention weights of a sentence and its translation, for every layer (heads, queries, keys). Row t of
/// target and memory is what was looked at when token t was chosen; the last row chose the end symbol.
struct AttentionMaps {
  std::vector<Tensor<float>> source;  ///< the encoder's self-attention, (H, S, S)
  /// The decoder's self-attention, (H, T + 1, T + 1), the first key being begin.
  std::vector<Tensor<float>> target;
  std::vector<Tensor<float>> memory;  ///< the decoder's attention to the source, (H, T + 1, S)
};

/// One target sentence found for an input.
struct Hypothesis {
  std::vector<std::int32_t> ids;  ///< without begin and end
  double log_probability = 0;     ///< sum over its tokens, the end symbol included, in nats
  double score = 0;               ///< log_probability / length penalty
  bool finished = false;          ///< ended by the end symbol and not by max_length
  std::shared_ptr<const AttentionMaps> attention = {};  ///< where the options ask for it
};

/// ((5 + length) / 6)^alpha; length counts the end symbol and not the start (Wu et al. 2016, eq. 14).
inline double length_penalty(index_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

/// A hypothesis's log probability divided by its length penalty, as options.rule says. length: its tokens
/// without begin and prefix, with the end symbol where it has one.
inline double hypothesis_score(double log_probability, index_t length, const GenerationOptions& options) {
  if (options.rule == SearchRule::gnmt)
    return log_probability / length_penalty(length, options.length_penalty);
  const index_t counted = length + static_cast<index_t>(options.prefix_ids.size());
  return log_probability / std::pow(static_cast<double>(counted), options.length_penalty);
}

}  // namespace eigenformer
