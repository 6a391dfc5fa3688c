#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/nn/decoding/decoder_state.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/module/rows.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"

namespace eigenformer {

/// The attention weights of every layer and head, before dropout.
template <class T>
struct Seq2SeqMaps {
  std::vector<Var<T>> source;  ///< of the encoder, (B, H, S, S) for each layer
  DecoderMaps<T> decoder;      ///< of the decoder, (B, H, T, T) and (B, H, T, S) for each layer
};

/// The complete Transformer of Vaswani et al. 2017: tokens in, logits over the target vocabulary out.
///
///     ef::Seq2SeqTransformer<float> model(
///         {.source_vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto logits = model(ctx, source, target);  // ids (B, S) and (B, T) -> (B, T, 23)
///
/// Target ids begin with the begin symbol; row t of the logits predicts token t + 1. Parameter names are
/// PyTorch's (encoder.layers.0.self_attn.in_proj_weight, ...), with source_embedding, target_embedding and
/// projection.
///
/// The layers are template arguments. A derived model may override the virtual functions (encode,
/// run_decoder, readout, token_loss, loss); training, search and sampling then use its versions.
template <class T = float, class EncoderLayerType = EncoderLayer<T>, class DecoderLayerType = DecoderLayer<T>>
struct Seq2SeqTransformer {
  using value_type = T;                     ///< element type, float or double
  using Tokens = Tensor<std::int32_t>;      ///< token ids
  using Options = Seq2SeqOptions;           ///< what the model is constructed from
  using Input = std::vector<std::int32_t>;  ///< what begin() takes: source ids with the end symbol
  /// The model type recorded in the options.json of a model folder.
  static constexpr const char* format = "eigenformer-translation";

  Embedding<T> source_embedding;  ///< (source_vocab_size, D)
  detail::OptionalModule<Embedding<T>>
      own_target_embedding;                               ///< absent if all are tied; see target_embedding()
  detail::PositionalEncoding<T> source_positions;         ///< added to source embeddings
  detail::PositionalEncoding<T> target_positions;         ///< added to target embeddings
  detail::OptionalModule<Norm<T>> source_embedding_norm;  ///< with embedding_norm
  detail::OptionalModule<Norm<T>> target_embedding_norm;  ///< with embedding_norm
  Transformer<T, EncoderLayerType, DecoderLayerType> transformer;  ///< encoder and decoder
  Parameter<T> own_projection;   ///< (V, D); absent if tied; see projection_weight()
  Parameter<T> projection_bias;  ///< (V); absent without projection_bias
  Seq2SeqOptions options;        ///< as given, with target_vocab_size filled in

  /// Throws ValueError that names the invalid field.
  Seq2SeqTransformer(const Seq2SeqOptions& given, RandomGenerator& rng);

  /// A model of a given encoder and decoder, for layers whose options are not LayerOptions. Throws ValueError
  /// that names the invalid field, or if the stacks' d_model is not given.layer.d_model.
  Seq2SeqTransformer(const Seq2SeqOptions& given, Stack<EncoderLayerType> encoder,
                     Stack<DecoderLayerType> decoder, RandomGenerator& rng);

  virtual ~Seq2SeqTransformer();
  /// An independent copy; its parameters have new ids (see Parameter).
  Seq2SeqTransformer(const Seq2SeqTransformer&) = default;
  /// Moves keep the parameters' ids, so gradients and optimizers stay valid.
  Seq2SeqTransformer(Seq2SeqTransformer&&) noexcept = default;
  /// Copies the values; parameters keep their ids.
  Seq2SeqTransformer& operator=(const Seq2SeqTransformer&) = default;
  /// Takes over the other model's parameters with their ids.
  Seq2SeqTransformer& operator=(Seq2SeqTransformer&&) noexcept = default;

  /// Logits (B, T, V) for source ids (B, S) and target ids (B, T). Trailing ids equal to padding_index are
  /// padding. Throws ShapeError for other ranks, IndexError for an id outside its vocabulary, ValueError for
  /// padding between tokens.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& source, const Tokens& target) const {
    return (*this)(ctx, source, token_layout(name, source, options.padding_index), target,
                   token_layout(name, target, options.padding_index));
  }

  /// The same for rows in the given layouts: ids (B, L) padded, or (rows) packed; logits (B, T, V) or (rows,
  /// V). maps, if not null, receives the attention weights, which are differentiable.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& source,
                                  const SequenceLayout& source_layout, const Tokens& target,
                                  const SequenceLayout& target_layout, Seq2SeqMaps<T>* maps = nullptr) const {
    const Memory<T> memory(encode(ctx, source, source_layout, {}, maps == nullptr ? nullptr : &maps->source),
                           source_layout);
    return logits(ctx,
                  decode(ctx, target, target_layout, memory, {}, maps == nullptr ? nullptr : &maps->decoder));
  }

  /// The encoder's output for source ids: (B, S) -> (B, S, D), (rows) -> (rows, D). mask is joined with the
  /// layout's padding; maps, if not null, receives each layer's attention weights (B, H, S, S). Throws
  /// ShapeError if ids or mask do not match the layout, IndexError for an id outside the vocabulary.
  [[nodiscard]] virtual Var<T> encode(const Context<T>& ctx, const Tokens& source,
                                      const SequenceLayout& layout, const AttentionMask& mask = {},
                                      std::vector<Var<T>>* maps = nullptr) const;

  /// The decoder's output for target ids: (B, T) -> (B, T, D), (rows) -> (rows, D). masks are joined with the
  /// causal mask if options.causal is set, but a target mask with an AttentionMask::prefix replaces it. Calls
  /// run_decoder(). Throws as encode() does.
  [[nodiscard]] virtual Var<T> decode(const Context<T>& ctx, const Tokens& target,
                                      const SequenceLayout& layout, const Memory<T>& memory,
                                      DecoderMasks masks = {}, DecoderMaps<T>* maps = nullptr) const final {
    if (options.causal) masks.target = masks.target.within_causal();
    SequencePass<T> pass(layout, std::move(masks.target), {memory}, std::move(masks.memory));
    pass.collect(maps);
    return run_decoder(ctx, target, pass);
  }

  /// Target embedding and decoder on a pass, over whole sentences or with a cache: target ids (B, T) or
  /// (rows), in the layout of the pass. Returns (..., D).
  [[nodiscard]] virtual Var<T> run_decoder(const Context<T>& ctx, const Tokens& target,
                                           LayerPass<T>& pass) const;

  /// The state for decoding token by token for an encoded source: one sequence for each sequence of memory,
  /// or for each entry of memory.key_sequence. The model must outlive it. Throws ValueError for a context
  /// that records.
  [[nodiscard]] DecoderState<T> begin(const Context<T>& ctx, const Memory<T>& memory) const& {
    if (!options.causal) {
      throw ValueError(
          "decode",
          "options.causal is false, so each target token depends on later ones; expected a model "
          "with a causal decoder to generate token by token");
    }
    const auto sequences = memory.key_sequence.empty() ? memory.layout.batch()
                                                       : static_cast<index_t>(memory.key_sequence.size());
    return {ctx, sequences, {memory}, [this](const Context<T>& c, const Tokens& ids, LayerPass<T>& pass) {
              return run_decoder(c, ids, pass);
            }};
  }
  /// The same for source sentences, which are encoded first. Throws IndexError for an id outside the
  /// vocabulary, too.
  [[nodiscard]] DecoderState<T> begin(const Context<T>& ctx, std::span<const Input> sources) const& {
    return begin(ctx, encode_sentences(ctx, sources));
  }
  DecoderState<T> begin(const Context<T>&, const Memory<T>&) const&& = delete;
  DecoderState<T> begin(const Context<T>&, std::span<const Input>) const&& = delete;

  /// Encodes source sentences as one batch: (tokens, D), packed. Throws IndexError for an id outside the
  /// vocabulary.
  [[nodiscard]] Memory<T> encode_sentences(const Context<T>& ctx, std::span<const Input> sources) const {
    std::vector<std::int32_t> ids;
    std::vector<index_t> lengths;
    for (const Input& source : sources) {
      ids.insert(ids.end(), source.begin(), source.end());
      lengths.push_back(static_cast<index_t>(source.size()));
    }
    const SequenceLayout layout = SequenceLayout::packed(lengths);
    return {encode(ctx, Tokens::from(Shape{static_cast<index_t>(ids.size())}, ids), layout), layout};
  }

  /// The input of the projection: the decoder's output (..., D) times logit_scale. Returns the same shape.
  [[nodiscard]] virtual Var<T> readout(const Context<T>&, const Var<T>& decoded) const {
    return options.logit_scale == 1 ? decoded : multiply(decoded, static_cast<T>(options.logit_scale));
  }
  /// Logits (..., V) for the decoder's output (..., D). Calls readout().
  [[nodiscard]] virtual Var<T> logits(const Context<T>& ctx, const Var<T>& decoded) const final;
  /// The cross entropy of targets (rows) given the decoder's output (rows, D), as loss_options say; the
  /// logits are never stored as a whole. Calls readout().
  [[nodiscard]] virtual Var<T> token_loss(const Context<T>& ctx, const Var<T>& decoded, const Tokens& targets,
                                          const CrossEntropyOptions& loss_options) const;

  /// Number of ids of the target vocabulary.
  index_t vocabulary_size() const noexcept { return options.target_size(); }

  /// Log probabilities in nats, log_softmax(logits), for the decoder's output: (..., D) -> (..., V).
  [[nodiscard]] Var<T> log_probabilities(const Context<T>& ctx, const Var<T>& decoded) const {
    return log_softmax(logits(ctx, decoded));
  }

  /// The cross entropy of target_out given source and target_in, in nats, averaged over tokens unless
  /// loss_options say otherwise. Padding is removed first, and the logits are never stored as a whole.
  ///
  /// source: (B, S) or (rows); target_in, target_out: (B, T) or (rows), target_out being target_in one token
  /// later. target_prefix: the number of first tokens of each target that see one another in both directions,
  /// as in LanguageModel::loss; empty: none. Throws ShapeError if ids, layouts and prefixes do not match,
  /// IndexError for an id outside its vocabulary.
  [[nodiscard]] virtual Var<T> loss(const Context<T>& ctx, const Tokens& source,
                                    const SequenceLayout& source_layout, const Tokens& target_in,
                                    const SequenceLayout& target_layout, const Tokens& target_out,
                                    const CrossEntropyOptions& loss_options = {},
                                    const std::vector<index_t>& target_prefix = {}) const;
  /// The same for ids (B, S) and (B, T): trailing ids equal to padding_index are padding (target_in
  /// determines the targets' layout), and targets equal to it do not count.
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& source, const Tokens& target_in,
                            const Tokens& target_out, const CrossEntropyOptions& loss_options = {}) const;

  /// Embedding, positions and dropout of source ids (B, S) or (rows): (..., D).
  [[nodiscard]] Var<T> embed_source(const Context<T>& ctx, const Tokens& ids,
                                    const SequenceLayout& layout) const {
    return embed(ctx, "source", source_embedding, source_positions, source_embedding_norm, ids, layout);
  }
  /// The same for target ids.
  [[nodiscard]] Var<T> embed_target(const Context<T>& ctx, const Tokens& ids,
                                    const SequenceLayout& layout) const {
    return embed(ctx, "target", target_embedding(), target_positions, target_embedding_norm, ids, layout);
  }

  /// The embedding of target ids, source_embedding if all are tied.
  const Embedding<T>& target_embedding() const noexcept {
    return own_target_embedding ? *own_target_embedding : source_embedding;
  }
  /// The weight of the output projection (V, D), the target embedding's if tied.
  const Parameter<T>& projection_weight() const noexcept { return projection_of(*this); }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    // A tied parameter is listed under each of its names, first where it is stored.
    visit("source_embedding", self.source_embedding);
    visit("target_embedding", self.own_target_embedding ? *self.own_target_embedding : self.source_embedding);
    visit("source_positions", self.source_positions);
    visit("target_positions", self.target_positions);
    visit("source_embedding_norm", self.source_embedding_norm);
    visit("target_embedding_norm", self.target_embedding_norm);
    visit("", self.transformer);
    visit("projection.weight", projection_of(self));
    visit("projection.bias", self.projection_bias);
  }
  /// Calls visit(weight, {rows}) for the output projection, which pack_weights() packs in addition to the
  /// modules' matrices.
  static void products(auto& self, auto&& visit) {
    auto& weight = projection_of(self);
    visit(weight, {weight.shape()[0]});
  }

 private:
  static constexpr const char* name = "seq2seq_transformer";

  Var<T> embed(const Context<T>& ctx, const char* what, const Embedding<T>& table,
               const detail::PositionalEncoding<T>& positions, const detail::OptionalModule<Norm<T>>& norm,
               const Tokens& ids, const SequenceLayout& layout) const;

  // make_transformer() draws the weights of the stacks, after those of the embeddings.
  template <class F>
  Seq2SeqTransformer(const Seq2SeqOptions& given, RandomGenerator& rng, const F& make_transformer)
      : source_embedding(
            {detail::validated(name, given).source_vocab_size, given.layer.d_model, given.padding_index},
            rng),
        own_target_embedding(make_target_embedding(given, rng)),
        source_positions(given, rng),
        target_positions(given, rng),
        source_embedding_norm(detail::optional_norm<T>(given.embedding_norm, given.layer)),
        target_embedding_norm(detail::optional_norm<T>(given.embedding_norm, given.layer)),
        transformer(make_transformer()),
        options(given) {
    options.target_vocab_size = options.target_size();
    if (options.constant_id >= 0) {
      source_embedding.padding_index = options.constant_id;
      if (own_target_embedding) own_target_embedding->padding_index = options.constant_id;
    }
    if (options.tying == Tying::none) {
      own_projection =
          Parameter<T>(init::xavier_uniform<T>({options.target_vocab_size, options.layer.d_model}, rng));
    }
    if (options.projection_bias)
      projection_bias = Parameter<T>(Tensor<T>::zeros({options.target_vocab_size}));
    name_parameters(*this);
  }

  static detail::OptionalModule<Embedding<T>> make_target_embedding(const Seq2SeqOptions& o,
                                                                    RandomGenerator& rng) {
    if (o.tying == Tying::all) return {};
    return Embedding<T>({o.target_size(), o.layer.d_model, o.padding_index}, rng);
  }
  static auto& projection_of(auto& self) noexcept {
    if (self.own_projection.defined()) return self.own_projection;
    return self.own_target_embedding ? self.own_target_embedding->weight : self.source_embedding.weight;
  }
};

// Functions defined in a class are inline and compiled in every file that uses them, although
// eigenformer::compiled contains them. The entry points of a model are therefore defined here, so that such
// files compile nothing behind them.

template <class T, class EncoderLayerType, class DecoderLayerType>
Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::Seq2SeqTransformer(const Seq2SeqOptions& given,
                                                                              RandomGenerator& rng)
    : Seq2SeqTransformer(given, rng, [&] { return decltype(transformer)(given.transformer(), rng); }) {}

template <class T, class EncoderLayerType, class DecoderLayerType>
Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::Seq2SeqTransformer(const Seq2SeqOptions& given,
                                                                              Stack<EncoderLayerType> encoder,
                                                                              Stack<DecoderLayerType> decoder,
                                                                              RandomGenerator& rng)
    : Seq2SeqTransformer(given, rng, [&] {
        decltype(transformer) made(std::move(encoder), std::move(decoder));
        if (made.d_model() == given.layer.d_model) return made;
        throw ValueError(name, {"the stacks have d_model ", made.d_model(),
                                ", must be layer.d_model, which is ", given.layer.d_model});
      }) {}

template <class T, class EncoderLayerType, class DecoderLayerType>
Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::~Seq2SeqTransformer() = default;

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::encode(const Context<T>& ctx,
                                                                         const Tokens& source,
                                                                         const SequenceLayout& layout,
                                                                         const AttentionMask& mask,
                                                                         std::vector<Var<T>>* maps) const {
  return transformer.encoder(ctx, embed_source(ctx, source, layout), layout, mask, maps);
}

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::run_decoder(const Context<T>& ctx,
                                                                              const Tokens& target,
                                                                              LayerPass<T>& pass) const {
  return transformer.decoder(ctx, embed_target(ctx, target, pass.layout()), pass);
}

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::logits(const Context<T>& ctx,
                                                                         const Var<T>& decoded) const {
  return linear(ctx, readout(ctx, decoded), projection_weight(), projection_bias);
}

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::token_loss(
    const Context<T>& ctx, const Var<T>& decoded, const Tokens& targets,
    const CrossEntropyOptions& loss_options) const {
  return linear_cross_entropy(ctx, readout(ctx, decoded), projection_weight(), projection_bias, targets,
                              loss_options);
}

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::loss(
    const Context<T>& ctx, const Tokens& source, const SequenceLayout& source_layout, const Tokens& target_in,
    const SequenceLayout& target_layout, const Tokens& target_out, const CrossEntropyOptions& loss_options,
    const std::vector<index_t>& target_prefix) const {
  detail::check_tokens(name, "source", source, source_layout);
  detail::check_tokens(name, "target", target_in, target_layout);
  detail::check_tokens(name, "target output", target_out, target_layout);
  const SequenceLayout sources = detail::packed_layout(source_layout),
                       targets = detail::packed_layout(target_layout);
  const Memory<T> memory(encode(ctx, detail::pack_tokens(source, source_layout), sources), sources);
  const Var<T> decoded = decode(ctx, detail::pack_tokens(target_in, target_layout), targets, memory,
                                {.target = detail::prefix_mask(target_prefix)});
  const Tokens asked = detail::after_prefix(detail::pack_tokens(target_out, target_layout), targets,
                                            target_prefix, loss_options);
  return token_loss(ctx, decoded, asked, loss_options);
}

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::loss(
    const Context<T>& ctx, const Tokens& source, const Tokens& target_in, const Tokens& target_out,
    const CrossEntropyOptions& loss_options) const {
  return loss(ctx, source, token_layout(name, source, options.padding_index), target_in,
              token_layout(name, target_in, options.padding_index), target_out,
              detail::ignoring_padding(loss_options, options.padding_index));
}

template <class T, class EncoderLayerType, class DecoderLayerType>
Var<T> Seq2SeqTransformer<T, EncoderLayerType, DecoderLayerType>::embed(
    const Context<T>& ctx, const char* what, const Embedding<T>& table,
    const detail::PositionalEncoding<T>& positions, const detail::OptionalModule<Norm<T>>& norm,
    const Tokens& ids, const SequenceLayout& layout) const {
  detail::check_tokens(name, what, ids, layout);
  const double scale = options.scale_embedding ? std::sqrt(static_cast<double>(options.layer.d_model)) : 1.0;
  const Var<T> placed = positions(ctx, table(ctx, ids, scale), layout);
  return dropout(ctx.for_rows(layout), norm ? (*norm)(ctx, placed) : placed, options.embedding_rate());
}

EIGENFORMER_MODULE_INSTANCES(Seq2SeqTransformer)
EIGENFORMER_INSTANCE(struct detail::ParameterList<Seq2SeqTransformer<float>>)

}  // namespace eigenformer
