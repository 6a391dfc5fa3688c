#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/nn/decoding/decoder_state.hpp"
#include "eigenformer/nn/models/text_embedding.hpp"
#include "eigenformer/nn/module/prefix.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"

namespace eigenformer {

/// Everything that fixes a LanguageModel's shape and behaviour. What GPT-2 is: learned positions, norm_first,
/// tied, gelu_tanh, no scale_embedding, no projection_bias.
struct LanguageModelOptions {
  index_t vocab_size = 0;  ///< must be given
  index_t num_layers = defaults::num_layers;
  LayerOptions layer{};
  bool final_norm = true;                     ///< a norm after the last layer
  std::optional<InputPositions> positions{};  ///< left out: sinusoidal, unless layer.positions has some
  index_t max_length = 1024;                  ///< tokens; the size of learned positions' table
  std::optional<double> embedding_dropout{};  ///< on embedding + position; left out: layer.dropout.rate
  bool embedding_norm = false;                ///< a norm of embedding + position, before its dropout
  bool scale_embedding = true;                ///< embeddings times sqrt(d_model)
  double logit_scale = 1;                     ///< the last layer's output times this is projected
  bool tied = false;  ///< embedding and projection are one matrix (Press and Wolf 2017)
  bool projection_bias = true;
  index_t padding_index = SpecialIds::pad;  ///< trailing ones are padding where no layout is given; -1: none

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

  TextEmbeddingOptions embedding() const {
    return {.vocab_size = vocab_size,
            .d_model = layer.d_model,
            .dropout = embedding_dropout.value_or(layer.dropout.rate),
            .scale = scale_embedding,
            .positions = input_positions(positions, layer),
            .max_length = max_length,
            .padding_index = padding_index};
  }
  StackOptions<LayerOptions> stack() const {
    StackOptions<LayerOptions> options{num_layers, final_norm, layer};
    if (auto* bias = std::get_if<RelativeBiasPositions>(&options.layer.positions)) {
      bias->bidirectional = bias->bidirectional.value_or(false);
    }
    return options;
  }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    validate_fields(op, *this);
    stack().validate(op);
    embedding().validate(op);
  }
};

/// A decoder alone: tokens in, logits of the next token out, each seeing itself and those before it. Radford
/// et al. 2018, with the layers that the options say.
///
///     ef::LanguageModel<float> model({.vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto logits = model(ctx, ids);                // (B, L) -> (B, L, 23)
///     auto loss = model.loss(ctx, input, output);   // output is input one token later
///
/// Names: embedding.weight, positions.weight, embedding_norm, decoder.layers.0.self_attn..., decoder.norm,
/// projection.weight, projection.bias.
template <class T = float, class LayerType = EncoderLayer<T>>
struct LanguageModel {
  using value_type = T;
  using Tokens = Tensor<std::int32_t>;
  using Options = LanguageModelOptions;
  using Input = std::vector<std::int32_t>;  ///< of begin(): a prompt
  /// What the options.json of its model folder says that it is.
  static constexpr const char* format = "eigenformer-language-model";

  TextEmbedding<T> embedding;
  Stack<LayerType> decoder;      ///< of layers without a memory
  Parameter<T> own_projection;   ///< (V, D); absent when tied
  Parameter<T> projection_bias;  ///< (V)
  LanguageModelOptions options;

  /// Throws ValueError that names an impossible field.
  LanguageModel(const LanguageModelOptions& given, RandomGenerator& rng)
      : embedding(name, validated(given).embedding(), make_norm(given), rng),
        decoder(stack_of(given), rng),
        options(given) {
    if (!options.tied) {
      own_projection =
          Parameter<T>(init::xavier_uniform<T>({options.vocab_size, options.layer.d_model}, rng));
    }
    if (options.projection_bias) projection_bias = Parameter<T>(Tensor<T>::zeros({options.vocab_size}));
    name_parameters(*this);
  }

  /// Logits (B, L, V) for ids (B, L): row t is about token t + 1. Trailing ids equal to padding_index are
  /// padding. Throws ShapeError for other ranks, IndexError for an id outside the vocabulary.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids) const {
    return (*this)(ctx, ids, token_layout(name, ids, options.padding_index));
  }
  /// The same for rows as the layout says: ids (B, L) or (rows), logits (B, L, V) or (rows, V). mask: as in
  /// decode().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                                  const AttentionMask& mask = {}) const {
    return logits(ctx, decode(ctx, ids, layout, mask));
  }

  /// The last layer's output: (B, L) -> (B, L, D), (rows) -> (rows, D). mask is joined with the causal one,
  /// or stands in its place where it has an AttentionMask::prefix (prefix language model, Raffel et al.
  /// 2020); maps, when given, receives each layer's attention weights (B, H, L, L).
  [[nodiscard]] Var<T> decode(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                              const AttentionMask& mask = {}, std::vector<Var<T>>* maps = nullptr) const {
    SequencePass<T> pass(layout, mask.within_causal());
    DecoderMaps<T> collected;
    if (maps != nullptr) pass.collect(&collected);
    Var<T> decoded = run_decoder(ctx, ids, pass);
    if (maps != nullptr) *maps = std::move(collected.target);
    return decoded;
  }

  /// The model up to its last layer on a pass, over whole texts or against a cache: ids (B, L) or (rows), as
  /// pass.layout() says. Returns (..., D).
  [[nodiscard]] Var<T> run_decoder(const Context<T>& ctx, const Tokens& ids, LayerPass<T>& pass) const {
    return decoder(ctx, embed(ctx, ids, pass.layout()), pass);
  }

  /// The state of decoding token by token: one sequence for each prompt, of no token yet. The model must
  /// outlive it. Throws ValueError for a context that records.
  [[nodiscard]] DecoderState<T> begin(const Context<T>& ctx, std::span<const Input> prompts) const& {
    return begin(ctx, static_cast<index_t>(prompts.size()));
  }
  [[nodiscard]] DecoderState<T> begin(const Context<T>& ctx, index_t sequences) const& {
    return {ctx, sequences, {}, [this](const Context<T>& c, const Tokens& ids, LayerPass<T>& pass) {
              return run_decoder(c, ids, pass);
            }};
  }
  DecoderState<T> begin(const Context<T>&, std::span<const Input>) const&& = delete;
  DecoderState<T> begin(const Context<T>&, index_t) const&& = delete;

  /// The tokens that a text begins with: its input is its prompt.
  static const std::vector<std::int32_t>& prompt(const Input& input) noexcept { return input; }

  index_t vocabulary_size() const noexcept { return options.vocab_size; }

  /// Embedding, position and dropout of ids (B, L) or (rows): (..., D).
  [[nodiscard]] Var<T> embed(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout) const {
    return embedding(ctx, name, ids, layout);
  }

  /// (..., D) of the last layer -> (..., V).
  [[nodiscard]] Var<T> logits(const Context<T>& ctx, const Var<T>& decoded) const {
    return linear(ctx, scaled(decoded), projection_weight(), projection_bias);
  }
  /// log_softmax(logits): log probabilities in nats.
  [[nodiscard]] Var<T> log_probabilities(const Context<T>& ctx, const Var<T>& decoded) const {
    return log_softmax(logits(ctx, decoded));
  }

  /// The cross entropy of `output` given `input`, in nats, averaged over tokens unless the options say
  /// otherwise. Padding is dropped before anything is computed; the logits are never stored.
  ///
  /// input, output: (B, L) or (rows), output being input one token later. prefix: the tokens at the beginning
  /// of each sequence that see one another in both directions (AttentionMask::prefix); what such a token sees
  /// is not asked of it, so the loss is of the tokens after the prefix. Empty: none. Throws ShapeError where
  /// ids, layout or prefix do not fit, IndexError for an id outside the vocabulary, ValueError for a negative
  /// prefix.
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& input, const SequenceLayout& layout,
                            const Tokens& output, const CrossEntropyOptions& loss_options = {},
                            const std::vector<index_t>& prefix = {}) const {
    check_tokens(name, "input", input, layout);
    check_tokens(name, "output", output, layout);
    const SequenceLayout rows = packed_layout(layout);
    const Var<T> decoded = decode(ctx, pack_tokens(input, layout), rows, prefix_mask(prefix));
    return linear_cross_entropy(ctx, scaled(decoded), projection_weight(), projection_bias,
                                after_prefix(pack_tokens(output, layout), rows, prefix, loss_options),
                                loss_options);
  }
  /// The same for ids (B, L), where trailing ids of input equal to padding_index are padding and outputs
  /// equal to it do not count.
  [[nodiscard]] Var<T> loss(const Context<T>& ctx, const Tokens& input, const Tokens& output,
                            const CrossEntropyOptions& loss_options = {},
                            const std::vector<index_t>& prefix = {}) const {
    return loss(ctx, input, token_layout(name, input, options.padding_index), output,
                ignoring_padding(loss_options, options.padding_index), prefix);
  }

  const Parameter<T>& projection_weight() const noexcept {
    return own_projection.defined() ? own_projection : embedding.embedding.weight;
  }

  static void fields(auto& self, auto&& visit) {
    visit("", self.embedding);
    visit("decoder", self.decoder);
    visit("projection.weight",
          self.own_projection.defined() ? self.own_projection : self.embedding.embedding.weight);
    visit("projection.bias", self.projection_bias);
  }
  /// The matrices of inference beside the modules' own, and how many of their rows are one product.
  static void products(auto& self, auto&& visit) {
    auto& weight = self.own_projection.defined() ? self.own_projection : self.embedding.embedding.weight;
    visit(weight, {weight.shape()[0]});
  }

 private:
  static constexpr const char* name = "language_model";

  Var<T> scaled(const Var<T>& decoded) const {
    return options.logit_scale == 1 ? decoded : multiply(decoded, static_cast<T>(options.logit_scale));
  }
  static StackOptions<typename LayerType::Options> stack_of(const LanguageModelOptions& o) {
    const StackOptions<LayerOptions> stack = o.stack();
    return {stack.num_layers, stack.final_norm, typename LayerType::Options(stack.layer)};
  }
  static const LanguageModelOptions& validated(const LanguageModelOptions& options) {
    options.validate(name);
    return options;
  }
  static OptionalModule<Norm<T>> make_norm(const LanguageModelOptions& o) {
    if (!o.embedding_norm) return {};
    return Norm<T>(detail::norm_options(o.layer));
  }
};

static_assert(std::is_nothrow_move_constructible_v<LanguageModel<float>>);

EIGENFORMER_MODULE_INSTANCES(LanguageModel)

}  // namespace eigenformer
