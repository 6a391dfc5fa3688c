#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/search/beams/generate.hpp"

namespace eigenformer::testing {

/// A random float model with two layers each; sizes that no block of a kernel divides.
inline Seq2SeqTransformer<float> float_model(Tying tying = Tying::none, bool norm_first = false) {
  RandomGenerator rng(7);
  Seq2SeqTransformer<float> model(
      {.source_vocab_size = 53,
       .target_vocab_size = 53,
       .layer = {.d_model = 36, .num_heads = 3, .dim_feedforward = 44, .norm_first = norm_first},
       .encoder = {.num_layers = 2},
       .decoder = {.num_layers = 2},
       .tying = tying},
      rng);
  rng.fill_normal(model.projection_bias.value().data(), 53, 0, 0.5);
  return model;
}

/// Sentences of different lengths.
inline std::vector<std::vector<std::int32_t>> float_model_sources() {
  RandomGenerator rng(8);
  std::vector<std::vector<std::int32_t>> sources;
  for (const index_t length : {7, 3, 5, 1, 11}) {
    auto& ids = sources.emplace_back();
    for (index_t i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>(4 + rng.uniform_int(49)));
    ids.push_back(3);
  }
  return sources;
}

inline Context<float> packed_context(std::shared_ptr<const detail::kernels::PackedWeights> packed) {
  return Context<float>::inference().with_packed_weights(std::move(packed));
}

/// Ids and log-probabilities of all hypotheses, to compare bit by bit.
struct Found {
  std::vector<std::int32_t> ids;
  double log_probability;
  bool operator==(const Found&) const = default;
};

inline std::vector<Found> translate(const Seq2SeqTransformer<float>& model, const Context<float>& ctx,
                                    const std::vector<std::vector<std::int32_t>>& sources,
                                    index_t batch_size = 32) {
  const SearchOptions options{.beam_size = 3, .max_length = 12, .num_hypotheses = 2};
  std::vector<Found> found;
  for (const auto& hypotheses : generate(model, ctx, std::span<const std::vector<std::int32_t>>(sources),
                                         options, {.batch_size = batch_size})) {
    for (const Hypothesis& h : hypotheses) found.push_back({h.ids, h.log_probability});
  }
  return found;
}

}  // namespace eigenformer::testing
