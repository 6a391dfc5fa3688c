#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/nn/decoding/decoder_state.hpp"
#include "eigenformer/nn/models/text_embedding.hpp"
#include "eigenformer/nn/module/rows.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"

namespace eigenformer {

/// Options of a LanguageModel: its shape and behaviour. GPT-2 has learned positions, norm_first, tied,
/// gelu_tanh, no scale_embedding and no projection_bias.
struct LanguageModelOptions {
  index_t vocab_size = 0;                     ///< ids are below it; required
  index_t num_layers = defaults::num_layers;  ///< at least 1
  LayerOptions layer{};                       ///< of every layer
  bool final_norm = true;                     ///< a norm after the last layer
  std::optional<InputPositions>
      positions{};  ///< unset: sinusoidal, or none if layer.attention.positions has some
  /// Most tokens of a sequence; enforced only for learned positions, as their table's size.
  index_t max_length = 1024;
  std::optional<double> embedding_dropout{};  ///< on embedding + position; unset: layer.dropout.rate
  bool embedding_norm = false;                ///< a norm of embedding + position, before its dropout
  bool scale_embedding = true;                ///< embeddings times sqrt(d_model)
  double logit_scale = 1;                     ///< factor of the last layer's output before the projection
  bool tied = false;            ///< embedding and projection are one matrix (Press and Wolf 2017)
  bool projection_bias = true;  ///< a bias of the output projection
  /// Id whose embedding starts at zero and gets no gradient from lookups; trailing ones are padding if no
  /// layout is given; -1: none.
  index_t padding_index = SpecialIds::pad;

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"vocab_size", "vocabulary size", Allowed::positive}, self.vocab_size);
    visit(OptionField{"num_layers", "number of layers", Allowed::positive}, self.num_layers);
    LayerOptions::fields(self.layer, visit);
    visit(OptionField{"final_norm", "norm after the last layer"}, self.final_norm);
    detail::visit_tokens(self, visit);
    visit(OptionField{"tied", "share one matrix between embedding and output projection"}, self.tied);
    visit(OptionField{"projection_bias", "bias in the output projection"}, self.projection_bias);
    visit(OptionField{"logit_scale",
                      "factor that the last layer's output is multiplied by before the output projection",
                      Allowed::finite},
          self.logit_scale);
  }

  /// Options of the model's TextEmbedding.
  TextEmbeddingOptions embedding() const {
    return {.vocab_size = vocab_size,
            .d_model = layer.d_model,
            .dropout = embedding_dropout.value_or(layer.dropout.rate),
            .scale = scale_embedding,
            .positions = detail::input_positions(positions, layer),
            .max_length = max_length,
            .padding_index = padding_index};
  }
  /// Options of the model's Stack; a relative bias is for earlier keys only, unless set otherwise.
  StackOptions<LayerOptions> stack() const {
    return detail::with_directions({num_layers, final_norm, layer}, false);
  }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void LanguageModelOptions::validate(const char* op) const {
  validate_fields(op, *this);
  stack().validate(op);
  embedding().validate(op);
}

#endif

/// A decoder without an encoder: tokens in, logits of the next token out; each token sees itself and those
/// before it. Radford et al. 2018, with the layers that the options choose.
///
///     ef::LanguageModel<float> model({.vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto logits = model(ctx, ids);                // (B, L) -> (B, L, 23)
///     auto loss = model.loss(ctx, input, output);   // output is input one token later
///
/// Names: embedding.weight, positions.weight, embedding_norm, decoder.layers.0.self_attn..., decoder.norm,
/// projection.weight, projection.bias.
template <class T = float, class LayerType = EncoderLayer<T>>
struct LanguageModel {
  using value_type = T;                     ///< element type, float or double
  using Tokens = Tensor<std::int32_t>;      ///< token ids
  using Options = LanguageModelOptions;     ///< what the model is constructed from
  using Input = std::vector<std::int32_t>;  ///< what begin() takes: the tokens of a prompt
  /// The model type recorded in the options.json of a model folder.
  static constexpr const char* format = "eigenformer-language-model";

  TextEmbedding<T> embedding;    ///< ids -> (..., D)
  Stack<LayerType> decoder;      ///< layers without a memory
  Parameter<T> own_projection;   ///< (V, D); absent when tied
  Parameter<T> projection_bias;  ///< (V); absent without projection_bias
  LanguageModelOptions options;  ///< as given

  /// Throws ValueError that names the invalid field.
  LanguageModel(const LanguageModelOptions& given, RandomGenerator& rng)
      : embedding(name, detail::validated(name, given).embedding(),
                  detail::optional_norm<T>(given.embedding_norm, given.layer), rng),
        decoder(detail::options_for<LayerType>(given.stack()), rng),
        options(given) {
    if (!options.tied) {
      own_projection =
          Parameter<T>(init::xavier_uniform<T>({options.vocab_size, options.layer.d_model}, rng));
    }
    if (options.projection_bias) projection_bias = Parameter<T>(Tensor<T>::zeros({options.vocab_size}));
    name_parameters(*this);
  }

  /// Logits (B, L, V) for ids (B, L); row t predicts token t + 1. Trailing ids equal to padding_index are
  /// padding. Throws ShapeError for other ranks, IndexError for an id outside the vocabulary, ValueError for
  /// padding between tokens.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids) const {
    return (*this)(ctx, ids, token_layout(name, ids, options.padding_index));
  }
  /// The same for rows in the given layout: ids (B, L) or (rows), logits (B, L, V) or (rows, V). mask: as in
  /// decode().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                                  const AttentionMask& mask = {}) const {
    return logits(ctx, decode(ctx, ids, layout, mask));
  }

  /// The last layer's output: (B, L) -> (B, L, D), (rows) -> (rows, D). mask is joined with the causal one,
  /// or replaces it if it has an AttentionMask::prefix (prefix language model, Raffel et al. 2020). maps, if
  /// not null, receives each layer's attention weights (B, H, L, L). Throws ShapeError if ids or mask do not
  /// match the layout, IndexError for an id outside the vocabulary.
  [[nodiscard]] Var<T> decode(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                              const AttentionMask& mask = {}, std::vector<Var<T>>* maps = nullptr) const {
    return decoder(ctx, embed(ctx, ids, layout), layout, mask.within_causal(), maps);
  }

  /// Embedding and layers on a pass, over whole texts or with a cache: ids (B, L) or (rows), in the layout of
  /// the pass. Returns (..., D).
  [[nodiscard]] Var<T> run_decoder(const Context<T>& ctx, const Tokens& ids, LayerPass<T>& pass) const {
    return decoder(ctx, embed(ctx, ids, pass.layout()), pass);
  }

  /// The state for decoding token by token: one sequence for each prompt, without tokens yet; feed the
  /// prompts with DecoderState::step. The model must outlive it. Throws ValueError for a context that
  /// records.
  [[nodiscard]] DecoderState<T> begin(const Context<T>& ctx, std::span<const Input> prompts) const& {
    return begin(ctx, static_cast<index_t>(prompts.size()));
  }
  /// The same for a number of sequences.
  [[nodiscard]] DecoderState<T> begin(const Context<T>& ctx, index_t sequences) const& {
    return {ctx, sequences, {}, [this](const Context<T>& c, const Tokens& ids, LayerPass<T>& pass) {
              return run_decoder(c, ids, pass);
            }};
  }
  DecoderState<T> begin(const Context<T>&, std::span<const Input>) const&& = delete;
  DecoderState<T> begin(const Context<T>&, index_t) const&& = delete;

  /// The tokens that a generated text begins with, which is the input itself.
  static const std::vector<std::int32_t>& prompt(const Input& input) noexcept { return input; }

  /// Number of ids of the vocabulary.
  index_t vocabulary_size() const noexcept { return options.vocab_size; }

  /// Embedding, position and dropout of ids (B, L) or (rows): (..., D).
  [[nodiscard]] Var<T> embed(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout) const {
    return embedding(ctx, name, ids, layout);
  }

  /// Logits (..., V) for the last layer's output (..., D).
  [[nodiscard]] Var<T> logits(const Context<T>& ctx, const Var<T>& decoded) const {
    return linear(ctx, scaled(decoded), projection_weight(), projection_bias);
  }
  /// Log probabilities in nats, log_softmax(logits), for the last layer's output: (..., D) -> (..., V).
  [[nodiscard]] Var<T> log_probabilities(const Context<T>& ctx, const Var<T>& decoded) const {
    return log_softmax(logits(ctx, decoded));
  }

  /// The cross entropy of `output` given `input`, in nats, averaged over tokens unless loss_options say
  /// otherwise. Padding is removed first, and the logits are never stored as a whole.
  ///
  /// input, output: (B, L) or (rows), output being input one token later. prefix: the number of first tokens
  /// of each sequence that see one another in both directions (AttentionMask::prefix); the loss then covers
  /// only tokens after the prefix. Empty: none. Throws ShapeError if ids, layout or prefix do not match,
  /// IndexError for an id outside the vocabulary, ValueError for a negative prefix.
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& input, const SequenceLayout& layout,
                            const Tokens& output, const CrossEntropyOptions& loss_options = {},
                            const std::vector<index_t>& prefix = {}) const {
    detail::check_tokens(name, "input", input, layout);
    detail::check_tokens(name, "output", output, layout);
    const SequenceLayout rows = detail::packed_layout(layout);
    const Var<T> decoded = decode(ctx, detail::pack_tokens(input, layout), rows, detail::prefix_mask(prefix));
    return linear_cross_entropy(
        ctx, scaled(decoded), projection_weight(), projection_bias,
        detail::after_prefix(detail::pack_tokens(output, layout), rows, prefix, loss_options), loss_options);
  }
  /// The same for ids (B, L): trailing ids of input equal to padding_index are padding, and outputs equal to
  /// it do not count.
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& input, const Tokens& output,
                            const CrossEntropyOptions& loss_options = {},
                            const std::vector<index_t>& prefix = {}) const {
    return loss(ctx, input, token_layout(name, input, options.padding_index), output,
                detail::ignoring_padding(loss_options, options.padding_index), prefix);
  }

  /// The weight of the output projection (V, D), the embedding's if tied.
  const Parameter<T>& projection_weight() const noexcept { return projection_of(*this); }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("", self.embedding);
    visit("decoder", self.decoder);
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
  static constexpr const char* name = "language_model";

  static auto& projection_of(auto& self) noexcept {
    return self.own_projection.defined() ? self.own_projection : self.embedding.embedding.weight;
  }

  Var<T> scaled(const Var<T>& decoded) const {
    return options.logit_scale == 1 ? decoded : multiply(decoded, static_cast<T>(options.logit_scale));
  }
};

EIGENFORMER_MODULE_INSTANCES(LanguageModel)

}  // namespace eigenformer
