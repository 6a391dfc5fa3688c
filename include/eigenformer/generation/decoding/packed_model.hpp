#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>

#include "eigenformer/kernels/gemm/packed_weights.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"

namespace eigenformer {

namespace detail {

template <class F>
void each_feed_forward_weight(const FeedForward<float>& network, F&& f) {
  f(network.linear1.weight);
  f(network.linear2.weight);
  if (network.linear3) f(network.linear3->weight);
}
template <class F>
void each_encoder_weight(const Encoder<float>& encoder, F&& f) {
  for (const auto& layer : encoder.layers) {
    f(layer.self_attn.in_proj_weight);
    f(layer.self_attn.out_proj.weight);
    each_feed_forward_weight(layer.feed_forward, f);
  }
}

// Calls f(weight, counts) for every matrix of a model that is packed: decoding multiplies by so many of its
// rows at a time. Embeddings that are no one's projection stay tables in float32, where packing would save
// nothing.
template <class F>
void for_each_packed_weight(const Seq2SeqTransformer<float>& model, WeightFormat format, F&& f) {
  const auto whole = [&](const Parameter<float>& weight) { f(weight, {weight.shape()[0]}); };
  each_encoder_weight(model.transformer.encoder, whole);
  for (const auto& layer : model.transformer.decoder.layers) {
    whole(layer.self_attn.in_proj_weight);
    whole(layer.self_attn.out_proj.weight);
    // Queries come from the target, keys and values from the memory: two products.
    const MultiHeadAttentionOptions& memory = layer.multihead_attn.options;
    f(layer.multihead_attn.in_proj_weight, {memory.query_width(), 2 * memory.key_width()});
    whole(layer.multihead_attn.out_proj.weight);
    each_feed_forward_weight(layer.feed_forward, whole);
  }
  const Parameter<float>& projection = model.projection_weight();
  whole(projection);
  if (format == WeightFormat::float32) return;
  const Parameter<float>&source = model.source_embedding.weight, &target = model.target_embedding().weight;
  if (source.id() != projection.id()) whole(source);
  if (target.id() != projection.id() && target.id() != source.id()) whole(target);
}
template <class F>
void for_each_packed_weight(const LanguageModel<float>& model, WeightFormat format, F&& f) {
  const auto whole = [&](const Parameter<float>& weight) { f(weight, {weight.shape()[0]}); };
  each_encoder_weight(model.decoder, whole);
  whole(model.projection_weight());
  if (format != WeightFormat::float32 && model.own_projection.defined())
    whole(model.embedding.embedding.weight);
}
template <class F>
void for_each_packed_weight(const TextEncoder<float>& model, WeightFormat format, F&& f) {
  const auto whole = [&](const Parameter<float>& weight) { f(weight, {weight.shape()[0]}); };
  each_encoder_weight(model.encoder, whole);
  if (format != WeightFormat::float32) whole(model.embedding.embedding.weight);
}

/// The models whose weights can be packed.
template <class Model>
concept Packable = std::same_as<Model, Seq2SeqTransformer<float>> ||
    std::same_as<Model, LanguageModel<float>> || std::same_as<Model, TextEncoder<float>>;

inline void pack_weight(kernels::PackedWeights& packed, const Parameter<float>& weight,
                        std::initializer_list<index_t> counts, WeightFormat format) {
  require_memory("pack_weights", weight);
  const index_t in = weight.shape()[1];
  index_t first = 0;
  for (const index_t count : counts) {
    try {
      packed.add(weight.id(), first,
                 kernels::PackedMatrix::pack(weight.value().data() + first * in, count, in, false, format));
    } catch (const ValueError& error) {
      throw ValueError("pack_weights", "'" + weight.name() + "' from row " + std::to_string(first) +
                                           " on cannot be packed: " + error.what());
    }
    first += count;
  }
}

}  // namespace detail

/// The linear weights of a Seq2SeqTransformer, a LanguageModel or a TextEncoder, packed once for inference:
/// hand them to Context::with_packed_weights.
///
///     auto ctx = ef::Context<float>::inference().with_packed_weights(ef::pack_weights(model,
///     ef::WeightFormat::int8)); auto sentences = ef::generate(model, ctx, sources);
///
/// They are a copy of the parameters' values now; pack again after training on. In bf16 and int8 embeddings
/// are packed, too; vectors stay as they are. Throws ValueError for int8 weights that are not finite and for
/// a model whose weights' memory was given back.
template <detail::Packable Model>
std::shared_ptr<const kernels::PackedWeights> pack_weights(const Model& model,
                                                           WeightFormat format = WeightFormat::float32) {
  auto packed = std::make_shared<kernels::PackedWeights>();
  detail::for_each_packed_weight(model, format,
                                 [&](const Parameter<float>& weight, std::initializer_list<index_t> counts) {
                                   detail::pack_weight(*packed, weight, counts, format);
                                 });
  return packed;
}

/// Gives the memory of a model's packed weights back to the Runtime's pool: from now on the model decodes
/// with them and cannot be trained, saved or copied, which throws ValueError. An embedding
/// that is tied to the projection is then looked up in its packed weights.
template <detail::Packable Model>
void release_packed_weights(Model& model, const kernels::PackedWeights& packed) {
  for_each_parameter(model, [&](const std::string&, Parameter<float>& p) {
    if (packed.contains(p.id())) p.value() = Tensor<float>::without_storage(p.shape());
  });
}

/// pack_weights and release_packed_weights at once, matrix by matrix, so that never more than one matrix is
/// held twice; what the pool then caches goes back to the operating system. Throws as pack_weights does; the
/// model may then be packed in part and is of no more use.
template <detail::Packable Model>
std::shared_ptr<const kernels::PackedWeights> pack_weights_in_place(
    Model& model, WeightFormat format = WeightFormat::float32) {
  auto packed = std::make_shared<kernels::PackedWeights>();
  detail::for_each_packed_weight(model, format,
                                 [&](const Parameter<float>& weight, std::initializer_list<index_t> counts) {
                                   detail::pack_weight(*packed, weight, counts, format);
                                   weight.handle()->value = Tensor<float>::without_storage(weight.shape());
                                   Runtime::instance().pool().trim();
                                 });
  return packed;
}

}  // namespace eigenformer
