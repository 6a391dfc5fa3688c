#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/module/prefix.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"

namespace eigenformer {

/// The attention weights of every layer and head: the encoder's, (B, H, S, S), and the decoder's.
template <class T>
struct Seq2SeqMaps {
  std::vector<Var<T>> source;
  DecoderMaps<T> decoder;
};

/// The whole Transformer of Vaswani et al. 2017: tokens in, logits over the target vocabulary out.
///
///     ef::Seq2SeqTransformer<float> model({.source_vocab_size = 23, .d_model = 12, .num_heads = 3}, rng);
///     auto logits = model(ctx, source, target);   // ids (B, S) and (B, T) -> (B, T, V)
///
/// Target ids begin with the begin symbol and are what the model has seen so far; row t of the logits is
/// about token t + 1. Names as PyTorch's: encoder.layers.0.self_attn.in_proj_weight, ..., and
/// source_embedding, target_embedding, projection.
template <class T = float>
struct Seq2SeqTransformer {
  using value_type = T;
  using Tokens = Tensor<std::int32_t>;

  Embedding<T> source_embedding;
  OptionalModule<Embedding<T>> own_target_embedding;  ///< absent when all embeddings are tied
  SinusoidalPositionalEncoding<T> sinusoids;          ///< used with sinusoidal positions only
  OptionalModule<LearnedPositionalEmbedding<T>> source_positions;
  OptionalModule<LearnedPositionalEmbedding<T>> target_positions;
  OptionalModule<Norm<T>> source_embedding_norm;  ///< with embedding_norm
  OptionalModule<Norm<T>> target_embedding_norm;
  Transformer<T> transformer;
  Parameter<T> own_projection;   ///< (V, D); absent when tied
  Parameter<T> projection_bias;  ///< (V)
  Seq2SeqOptions options;

  /// Throws ValueError that names an impossible field.
  Seq2SeqTransformer(const Seq2SeqOptions& given, RandomGenerator& rng)
      : source_embedding({validated(given).source_vocab_size, given.d_model, given.padding_index}, rng),
        own_target_embedding(make_target_embedding(given, rng)),
        sinusoids(given.d_model,
                  given.positions == Positions::sinusoidal ? given.sinusoid : SinusoidOptions{}),
        source_positions(make_positions(given, rng)),
        target_positions(make_positions(given, rng)),
        source_embedding_norm(make_embedding_norm(given)),
        target_embedding_norm(make_embedding_norm(given)),
        transformer(given.transformer(), rng),
        options(given) {
    options.target_vocab_size = options.target_size();
    if (options.tying == Tying::none) {
      own_projection =
          Parameter<T>(init::xavier_uniform<T>({options.target_vocab_size, options.d_model}, rng));
    }
    if (options.projection_bias)
      projection_bias = Parameter<T>(Tensor<T>::zeros({options.target_vocab_size}));
    name_parameters(*this);
  }

  /// Logits (B, T, V) for source ids (B, S) and target ids (B, T); trailing ids equal to padding_index are
  /// padding. Throws ShapeError for other ranks, IndexError for an id outside its vocabulary.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& source, const Tokens& target) const {
    return (*this)(ctx, source, token_layout(name, source, options.padding_index), target,
                   token_layout(name, target, options.padding_index));
  }

  /// The same for rows as the layouts say: ids (B, L) padded, or (rows) packed; logits (B, T, V) or (rows,
  /// V). maps, when given, receives the attention weights, which are differentiable.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& source,
                                  const SequenceLayout& source_layout, const Tokens& target,
                                  const SequenceLayout& target_layout, Seq2SeqMaps<T>* maps = nullptr) const {
    const Memory<T> memory(encode(ctx, source, source_layout, {}, maps == nullptr ? nullptr : &maps->source),
                           source_layout);
    return logits(ctx,
                  decode(ctx, target, target_layout, memory, {}, maps == nullptr ? nullptr : &maps->decoder));
  }

  /// The encoder's output for source ids: (B, S) -> (B, S, D), (rows) -> (rows, D).
  /// mask is joined with the layout's padding; maps, when given, receives each layer's attention weights (B,
  /// H, S, S).
  [[nodiscard]] Var<T> encode(const Context<T>& ctx, const Tokens& source, const SequenceLayout& layout,
                              const AttentionMask& mask = {}, std::vector<Var<T>>* maps = nullptr) const {
    return transformer.encoder(ctx, embed_source(ctx, source, layout), layout, mask, maps);
  }

  /// The decoder's output for target ids: (B, T) -> (B, T, D), (rows) -> (rows, D). Causal unless the options
  /// say otherwise; masks are joined with that, but a target mask with an AttentionMask::prefix stands in its
  /// place.
  [[nodiscard]] Var<T> decode(const Context<T>& ctx, const Tokens& target, const SequenceLayout& layout,
                              const Memory<T>& memory, DecoderMasks masks = {},
                              DecoderMaps<T>* maps = nullptr) const {
    if (options.causal) masks.target = masks.target.within_causal();
    return transformer.decoder(ctx, embed_target(ctx, target, layout), layout, memory, masks, maps);
  }

  /// (..., D) of the decoder -> (..., V).
  [[nodiscard]] Var<T> logits(const Context<T>& ctx, const Var<T>& decoded) const {
    return linear(ctx, scaled(decoded), projection_weight(), projection_bias);
  }
  /// log_softmax(logits): log probabilities in nats.
  [[nodiscard]] Var<T> log_probabilities(const Context<T>& ctx, const Var<T>& decoded) const {
    return log_softmax(logits(ctx, decoded));
  }

  /// The cross entropy of target_out given source and target_in, in nats, averaged over tokens unless the
  /// options say otherwise. Padding is dropped before anything is computed, so no work is spent on it; the
  /// logits are never stored.
  ///
  /// source: (B, S) or (rows); target_in, target_out: (B, T) or (rows), target_out being target_in one token
  /// later. target_prefix: of each target, the first tokens that see one another in both directions, as
  /// LanguageModel::loss has it; empty: none. Throws ShapeError where ids, layouts and prefixes do not fit,
  /// IndexError for an id outside its vocabulary.
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& source, const SequenceLayout& source_layout,
                            const Tokens& target_in, const SequenceLayout& target_layout,
                            const Tokens& target_out, const CrossEntropyOptions& loss_options = {},
                            const std::vector<index_t>& target_prefix = {}) const {
    check_tokens(name, "source", source, source_layout);
    check_tokens(name, "target", target_in, target_layout);
    check_tokens(name, "target output", target_out, target_layout);
    const SequenceLayout sources = packed_layout(source_layout), targets = packed_layout(target_layout);
    const Memory<T> memory(encode(ctx, pack_tokens(source, source_layout), sources), sources);
    const Var<T> decoded = decode(ctx, pack_tokens(target_in, target_layout), targets, memory,
                                  {.target = prefix_mask(target_prefix)});
    const Tokens asked =
        after_prefix(pack_tokens(target_out, target_layout), targets, target_prefix, loss_options);
    return linear_cross_entropy(ctx, scaled(decoded), projection_weight(), projection_bias, asked,
                                loss_options);
  }
  /// The same for ids (B, S) and (B, T), where trailing ids equal to padding_index are padding (in
  /// target_in's layout).
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& source, const Tokens& target_in,
                            const Tokens& target_out, const CrossEntropyOptions& loss_options = {}) const {
    return loss(ctx, source, token_layout(name, source, options.padding_index), target_in,
                token_layout(name, target_in, options.padding_index), target_out, loss_options);
  }

  /// Embedding, position and dropout of source ids (B, S) or (rows): (..., D).
  [[nodiscard]] Var<T> embed_source(const Context<T>& ctx, const Tokens& ids,
                                    const SequenceLayout& layout) const {
    return embed(ctx, "source", source_embedding, source_positions, source_embedding_norm, ids, layout);
  }
  /// The same of target ids.
  [[nodiscard]] Var<T> embed_target(const Context<T>& ctx, const Tokens& ids,
                                    const SequenceLayout& layout) const {
    return embed(ctx, "target", target_embedding(), target_positions, target_embedding_norm, ids, layout);
  }

  const Embedding<T>& target_embedding() const noexcept {
    return own_target_embedding ? *own_target_embedding : source_embedding;
  }
  const Parameter<T>& projection_weight() const noexcept {
    return own_projection.defined() ? own_projection : target_embedding().weight;
  }

  static void fields(auto& self, auto&& visit) {
    // A tied parameter is listed under each of its names; the first is where it lives.
    auto& target_table = self.own_target_embedding ? *self.own_target_embedding : self.source_embedding;
    visit("source_embedding", self.source_embedding);
    visit("target_embedding", target_table);
    visit("source_positions", self.source_positions);
    visit("target_positions", self.target_positions);
    visit("source_embedding_norm", self.source_embedding_norm);
    visit("target_embedding_norm", self.target_embedding_norm);
    visit("", self.transformer);
    visit("projection.weight", self.own_projection.defined() ? self.own_projection : target_table.weight);
    visit("projection.bias", self.projection_bias);
  }

 private:
  static constexpr const char* name = "seq2seq_transformer";

  Var<T> embed(const Context<T>& ctx, const char* what, const Embedding<T>& table,
               const OptionalModule<LearnedPositionalEmbedding<T>>& learned,
               const OptionalModule<Norm<T>>& norm, const Tokens& ids, const SequenceLayout& layout) const {
    check_tokens(name, what, ids, layout);
    const double scale = options.scale_embedding ? std::sqrt(static_cast<double>(options.d_model)) : 1.0;
    const Var<T> embedded = table(ctx, ids, scale);
    const Var<T> placed = learned                                      ? (*learned)(ctx, embedded, layout)
                          : options.positions == Positions::sinusoidal ? sinusoids(ctx, embedded, layout)
                                                                       : embedded;
    return dropout(ctx.for_rows(layout), norm ? (*norm)(ctx, placed) : placed, options.embedding_rate());
  }

  Var<T> scaled(const Var<T>& decoded) const {
    return options.logit_scale == 1 ? decoded : multiply(decoded, static_cast<T>(options.logit_scale));
  }

  static const Seq2SeqOptions& validated(const Seq2SeqOptions& options) {
    options.validate(name);
    return options;
  }
  static OptionalModule<Embedding<T>> make_target_embedding(const Seq2SeqOptions& o, RandomGenerator& rng) {
    if (o.tying == Tying::all) return {};
    return Embedding<T>({o.target_size(), o.d_model, o.padding_index}, rng);
  }
  static OptionalModule<Norm<T>> make_embedding_norm(const Seq2SeqOptions& o) {
    if (!o.embedding_norm) return {};
    return Norm<T>(detail::norm_options(o.transformer().layer()));
  }
  static OptionalModule<LearnedPositionalEmbedding<T>> make_positions(const Seq2SeqOptions& o,
                                                                      RandomGenerator& rng) {
    if (o.positions != Positions::learned) return {};
    return LearnedPositionalEmbedding<T>({o.max_length, o.d_model, o.learned_position_offset}, rng);
  }
};

static_assert(std::is_nothrow_move_constructible_v<Seq2SeqTransformer<float>>);

EIGENFORMER_MODULE_INSTANCES(Seq2SeqTransformer)

}  // namespace eigenformer
