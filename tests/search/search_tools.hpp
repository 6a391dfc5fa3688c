#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/search/beams/generate.hpp"

namespace eigenformer::testing {

using Ids = std::vector<std::int32_t>;

/// A small random model with two layers each.
inline Seq2SeqTransformer<double> small_model(index_t vocabulary, bool norm_first = false,
                                              std::uint64_t seed = 1) {
  RandomGenerator rng(seed);
  Seq2SeqTransformer<double> model(
      {.source_vocab_size = 23,
       .target_vocab_size = vocabulary,
       .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .norm_first = norm_first},
       .encoder = {.num_layers = 2},
       .decoder = {.num_layers = 2}},
      rng);
  // Untrained projections are nearly uniform; larger ones make different sentences clearly better and worse.
  for (double& w : model.own_projection.value().span()) w *= 3;
  rng.fill_normal(model.projection_bias.value().data(), vocabulary, 0, 0.5);
  return model;
}

/// A processor that allows only the ids that a function of the text so far returns.
template <class F>
std::shared_ptr<const LogitsProcessor> allow_only(F allowed) {
  return logits_processor([allowed](const LogitsStep& step, auto scores) {
    const Ids ids = allowed(Ids(step.generated.begin(), step.generated.end()));
    for (std::size_t id = 0; id < scores.size(); ++id) {
      if (std::find(ids.begin(), ids.end(), static_cast<std::int32_t>(id)) == ids.end())
        scores[id] = -std::numeric_limits<typename decltype(scores)::value_type>::infinity();
    }
  });
}

/// The texts of generate() for all inputs in one list.
template <class M>
std::vector<Hypothesis> draw(const M& model, const Context<typename M::value_type>& ctx,
                             std::span<const typename M::Input> inputs,
                             const SearchOptions& options = {.sampling = Sampling{}}) {
  std::vector<Hypothesis> texts;
  for (const auto& of_input : generate(model, ctx, inputs, options))
    texts.insert(texts.end(), of_input.begin(), of_input.end());
  return texts;
}

inline Tensor<std::int32_t> id_tensor(const Ids& ids) {
  return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
}

/// Encoded source sentences, packed.
inline Memory<double> encode(const Seq2SeqTransformer<double>& model, const std::vector<Ids>& sources) {
  return model.encode_sentences(Context<double>::inference(), sources);
}

/// Log-probabilities (T, V) of every next token after begin and the given target, without any cache.
inline Tensor<double> uncached_log_probabilities(const Seq2SeqTransformer<double>& model,
                                                 const Memory<double>& memory, const Ids& target) {
  const auto ctx = Context<double>::inference();
  const auto layout = SequenceLayout::packed({static_cast<index_t>(target.size())});
  return model.log_probabilities(ctx, model.decode(ctx, id_tensor(target), layout, memory)).value();
}

}  // namespace eigenformer::testing
