#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "eigenformer/kernels/packed_weights.hpp"
#include "eigenformer/nn/seq2seq.hpp"

namespace eigenformer {

/// The format of packed weights: float32 (the same bits as without packing), bf16 or int8.
using WeightFormat = kernels::PackedMatrix::Format;

/// A model's linear weights, packed once for decoding: hand them to Context::with_packed_weights.
///
///     auto ctx = ef::Context<float>::inference().with_packed_weights(ef::pack_weights(model, ef::WeightFormat::int8));
///     auto sentences = ef::generate(model, ctx, sources);
///
/// They are a copy of the parameters' values now; pack again after training on. Embeddings and norms stay as they are.
/// Throws ValueError for int8 weights that are not finite.
inline std::shared_ptr<const kernels::PackedWeights> pack_weights(const Seq2SeqTransformer<float>& model,
                                                                  WeightFormat format = WeightFormat::float32) {
  auto packed = std::make_shared<kernels::PackedWeights>();
  const auto rows = [&](const Parameter<float>& weight, index_t first, index_t count) {
    const index_t in = weight.shape()[1];
    packed->add(weight.id(), first,
                kernels::PackedMatrix::pack(weight.value().data() + first * in, count, in, false, format));
  };
  const auto whole = [&](const Parameter<float>& weight) { rows(weight, 0, weight.shape()[0]); };
  const auto feed_forward = [&](const FeedForward<float>& network) {
    whole(network.linear1.weight);
    whole(network.linear2.weight);
  };
  for (const auto& layer : model.transformer.encoder.layers) {
    whole(layer.self_attn.in_proj_weight);
    whole(layer.self_attn.out_proj.weight);
    feed_forward(layer.feed_forward);
  }
  for (const auto& layer : model.transformer.decoder.layers) {
    whole(layer.self_attn.in_proj_weight);
    whole(layer.self_attn.out_proj.weight);
    // Queries come from the target, keys and values from the memory: two products.
    const Parameter<float>& memory = layer.multihead_attn.in_proj_weight;
    const index_t d = layer.multihead_attn.options.d_model;
    rows(memory, 0, d);
    rows(memory, d, 2 * d);
    whole(layer.multihead_attn.out_proj.weight);
    feed_forward(layer.feed_forward);
  }
  whole(model.projection_weight());
  return packed;
}

/// Gives back the memory of a model's weights that are packed: from now on it decodes with them and cannot be trained,
/// saved or copied. The embeddings that are tied to the projection stay.
inline void release_packed_weights(Seq2SeqTransformer<float>& model, const kernels::PackedWeights& packed) {
  std::unordered_set<std::uint64_t> kept = {model.source_embedding.weight.id(), model.target_embedding().weight.id()};
  for_each_parameter(model, [&](const std::string&, Parameter<float>& p) {
    if (kept.count(p.id()) == 0 && packed.contains(p.id())) p.value() = Tensor<float>::without_storage(p.shape());
  });
}

}  // namespace eigenformer
