#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/generation/processors/logits_processor.hpp"

namespace eigenformer {

/// How tokens are drawn from a model's distribution.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: the likeliest token (greedy)
  index_t top_k = 0;       ///< draws from so many likeliest tokens only (Fan et al. 2018); 0: from all
  /// and of those from the likeliest that together reach this share (Holtzman et al. 2020)
  double top_p = 1;
  std::uint64_t seed = 0;    ///< with the text's number and the token's place, fixes what is drawn
  index_t max_length = 256;  ///< new tokens at most, the end symbol included
  index_t min_length = 0;    ///< new tokens at least before the end symbol may come
  std::int32_t begin_id = SpecialIds::begin;  ///< what comes first, of models without a prompt
  /// Forced after begin_id or the prompt, at no cost; not in the results.
  std::vector<std::int32_t> prefix_ids{};
  std::int32_t end_id = SpecialIds::end;  ///< ends a text; -1: none does
  /// Never drawn.
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
  /// The first tokens of each prompt (of an encoder-decoder, begin_id and prefix_ids) that see one another in
  /// both directions, for a model that was trained as a prefix language model; more than there are means all
  /// of them.
  index_t prefix_length = 0;
  /// The texts' numbers, which decide with the seed what is drawn, so that parts of a list can be sampled on
  /// their own; empty: 0, 1, ...
  std::vector<std::uint64_t> numbers{};
  index_t no_repeat_ngram_size = 0;  ///< as in GenerationOptions
  double repetition_penalty = 1;     ///< as in GenerationOptions
  LogitsProcessors processors{};     ///< as in GenerationOptions; they see logits

  /// Throws ValueError that names an impossible field.
  void validate() const {
    const auto require = [](bool good, const char* name, const std::string& value, const char* rule) {
      if (!good) throw ValueError("sampling", std::string(name) + " is " + value + ", " + rule);
    };
    require(temperature >= 0 && std::isfinite(temperature), "temperature", std::to_string(temperature),
            std::isfinite(temperature) ? "must not be negative" : "must be finite");
    require(top_k >= 0, "top_k", std::to_string(top_k), "must not be negative");
    require(top_p > 0 && top_p <= 1, "top_p", std::to_string(top_p), "must be in (0, 1]");
    require(max_length >= 1, "max_length", std::to_string(max_length), "must be at least 1");
    require(min_length >= 0 && min_length <= max_length, "min_length", std::to_string(min_length),
            "must be from 0 to max_length");
    require(prefix_length >= 0, "prefix_length", std::to_string(prefix_length), "must not be negative");
    require(no_repeat_ngram_size >= 0, "no_repeat_ngram_size", std::to_string(no_repeat_ngram_size),
            "must not be negative");
    require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
            std::to_string(repetition_penalty), "must be positive and finite");
  }
};

}  // namespace eigenformer
