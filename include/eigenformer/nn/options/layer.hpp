#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>

#include "eigenformer/kernels/elementwise/activation.hpp"
#include "eigenformer/kernels/normalization/layer_norm.hpp"
#include "eigenformer/nn/options/positions.hpp"

namespace eigenformer {

/// The names of the values of Activation.
template <>
struct EnumNames<Activation> {
  /// In the order of the enum's values.
  static constexpr std::array names = detail::activation_names;
};
EIGENFORMER_ENUM_NAMES(LayerNormFormula, "pytorch", "teaching")

/// How attention computes its weights.
enum class AttentionKind {
  softmax,  ///< Vaswani et al. 2017
  linear,   ///< Katharopoulos et al. 2020: cost and memory are linear in the length, not quadratic
};
EIGENFORMER_ENUM_NAMES(AttentionKind, "softmax", "linear")

/// How a decoder layer combines a token with earlier ones.
enum class SelfMixing {
  attention,  ///< self-attention
  ssru,       ///< a Simpler Simple Recurrent Unit, whose state has a constant size (Kim et al. 2019)
};
EIGENFORMER_ENUM_NAMES(SelfMixing, "attention", "ssru")

/// Normalisation of each row.
enum class NormKind {
  layer_norm,  ///< Ba et al. 2016
  rms_norm,    ///< Zhang and Sennrich 2019: no mean, no bias
};
EIGENFORMER_ENUM_NAMES(NormKind, "layer_norm", "rms_norm")

/// The default sizes and rates of all options, those of PyTorch's nn.Transformer (the base model of Vaswani
/// et al. 2017).

namespace defaults {

inline constexpr index_t d_model = 512;           ///< width of the model
inline constexpr index_t num_heads = 8;           ///< attention heads
inline constexpr index_t num_layers = 6;          ///< layers of a stack
inline constexpr index_t dim_feedforward = 2048;  ///< width inside feed-forward networks
inline constexpr double dropout = 0.1;            ///< dropout rate
inline constexpr double layer_norm_eps = 1e-5;    ///< added to the variance in norms

}  // namespace defaults

/// The dropout rates of a layer, used in training contexts only. `.dropout = {0}` turns all off.
struct DropoutOptions {
  double rate = defaults::dropout;       ///< for those that are unset
  std::optional<double> attention{};     ///< of the attention weights; unset: rate
  std::optional<double> feed_forward{};  ///< after the feed-forward network's activation; unset: rate
  std::optional<double> residual{};      ///< of each sub-layer's output; unset: rate

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"dropout", "dropout rate", Allowed::rate}, self.rate);
    visit(OptionField{"attention_dropout", "dropout rate of attention weights; not given: dropout",
                      Allowed::rate},
          self.attention);
    visit(OptionField{"feed_forward_dropout", "dropout rate inside feed-forward networks; not given: dropout",
                      Allowed::rate},
          self.feed_forward);
    visit(OptionField{"residual_dropout", "dropout rate of each sub-layer's output; not given: dropout",
                      Allowed::rate},
          self.residual);
  }
  /// Whether all fields are equal.
  friend bool operator==(const DropoutOptions&, const DropoutOptions&) = default;
};

/// How the norms of a layer or model are computed; part of LayerOptions.
struct NormStyle {
  NormKind kind = NormKind::layer_norm;   ///< layer norm or RMS norm
  double eps = defaults::layer_norm_eps;  ///< added to the variance (teaching formula: to the deviation) or
                                          ///< mean square
  LayerNormFormula formula = LayerNormFormula::pytorch;  ///< layer_norm only
  bool scalar_gain = false;  ///< layer_norm only: one gain and one bias for all features

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"norm", "type of all norms"}, self.kind);
    visit(OptionField{"layer_norm_eps", "epsilon of all norms, added to the variance", Allowed::not_negative},
          self.eps);
    visit(
        OptionField{
            "layer_norm_formula",
            "pytorch, or teaching: division by the unbiased standard deviation + epsilon, as in tutorials"},
        self.formula);
    visit(OptionField{"layer_norm_scalar_gain", "a single gain and bias shared by all features"},
          self.scalar_gain);
  }
  /// Whether all fields are equal.
  friend bool operator==(const NormStyle&, const NormStyle&) = default;
};

/// How an attention works, besides its width and number of heads; part of LayerOptions and
/// MultiHeadAttentionOptions.
struct AttentionOptions {
  /// linear allows no masks but causal() and key_padding(), no positions but rotary ones, and no dropout of
  /// weights, and cannot return weights.
  AttentionKind kind = AttentionKind::softmax;
  AttentionPositions positions{};  ///< positions that act in the attention
  index_t num_key_value_heads =
      0;                 ///< heads of keys and values (Ainslie et al. 2023); divides num_heads; 0: num_heads
  index_t head_dim = 0;  ///< features of a head; 0: d_model / num_heads
  double scale = 0;      ///< factor of the scores; 0: 1 / sqrt(head_dim)
  index_t window = 0;    ///< sees tokens less than this far away; 0: all
  /// A norm of each head's queries and keys (Dehghani et al. 2023); unset: none.
  std::optional<NormKind> query_key_norm{};

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"attention", "softmax, or linear, whose cost grows linearly with the length"},
          self.kind);
    visit(OptionField{"attention_positions", "position encoding inside self-attention"}, self.positions);
    visit(OptionField{"num_key_value_heads",
                      "number of key and value heads, each shared by a group of query heads; 0: num_heads",
                      Allowed::not_negative},
          self.num_key_value_heads);
    visit(OptionField{"head_dim", "features per head; 0: d_model / num_heads", Allowed::not_negative},
          self.head_dim);
    visit(OptionField{"attention_scale",
                      "factor that attention scores are multiplied by; 0: 1 / sqrt(head_dim)",
                      Allowed::not_negative},
          self.scale);
    visit(OptionField{"attention_window",
                      "self-attention attends only to tokens less than this distance away; 0: to all",
                      Allowed::not_negative},
          self.window);
    visit(OptionField{"query_key_norm", "normalise the queries and keys of each head"}, self.query_key_norm);
  }
  /// Throws ValueError (`[op] ...`) for fields that do not fit together. d_model, num_heads: of the layer.
  /// Ranges are checked with its owner's fields.
  void validate(const char* op, index_t d_model, index_t num_heads) const;

  /// Whether all fields are equal.
  friend bool operator==(const AttentionOptions&, const AttentionOptions&) = default;
};

/// Options of an encoder or decoder layer; the defaults are PyTorch's.
struct LayerOptions {
  index_t d_model = defaults::d_model;                  ///< features of a row
  index_t num_heads = defaults::num_heads;              ///< attention heads
  index_t dim_feedforward = defaults::dim_feedforward;  ///< features inside the feed-forward network
  DropoutOptions dropout{};                             ///< dropout rates
  /// Stochastic depth (Huang et al. 2016): the rate at which training skips a sub-layer for a sequence. In a
  /// stack it is the rate of the last layer; that of layer i of N is layer_drop * i / N.
  double layer_drop = 0;
  Activation activation = Activation::relu;  ///< of the feed-forward network
  bool gated = false;       ///< feed-forward of linear2(activation(linear1(x)) * linear3(x)) (Shazeer 2020)
  NormStyle norm{};         ///< how norms are computed
  bool norm_first = false;  ///< normalise a sub-layer's input (pre-norm) instead of the sum (post-norm)
  bool sandwich_norm = false;  ///< normalise a sub-layer's input and output, not the sum (Ding et al. 2021)
  bool bias = true;            ///< biases in linear layers and norms
  SelfMixing self_mixing = SelfMixing::attention;  ///< decoder layers only; encoder layers need attention
  AttentionOptions attention{};  ///< of self-attention; attention to a memory has no positions and no window

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"d_model", "width of the model", Allowed::positive}, self.d_model);
    visit(OptionField{"num_heads", "number of attention heads", Allowed::positive}, self.num_heads);
    visit(OptionField{"dim_feedforward", "width inside the feed-forward networks", Allowed::positive},
          self.dim_feedforward);
    DropoutOptions::fields(self.dropout, visit);
    visit(OptionField{"layer_drop",
                      "stochastic depth: probability of skipping the last layer, less for earlier ones",
                      Allowed::rate},
          self.layer_drop);
    visit(OptionField{"activation", "activation of the feed-forward networks"}, self.activation);
    visit(OptionField{"gated",
                      "gated feed-forward networks: SwiGLU with silu, GEGLU with gelu, GLU with sigmoid"},
          self.gated);
    NormStyle::fields(self.norm, visit);
    visit(OptionField{"norm_first", "norm before each sub-layer (pre-norm) instead of after it"},
          self.norm_first);
    visit(OptionField{"sandwich_norm", "norms both before and after each sub-layer"}, self.sandwich_norm);
    visit(OptionField{"bias", "biases in linear layers and norms"}, self.bias);
    visit(
        OptionField{
            "self_mixing",
            "decoder layers: self-attention, or ssru, a recurrent unit with a state of constant size"},
        self.self_mixing);
    AttentionOptions::fields(self.attention, visit);
  }

  /// Dropout rate of the attention weights.
  double attention_dropout() const noexcept { return dropout.attention.value_or(dropout.rate); }
  /// Dropout rate inside the feed-forward network.
  double feed_forward_dropout() const noexcept { return dropout.feed_forward.value_or(dropout.rate); }
  /// Dropout rate of each sub-layer's output.
  double residual_dropout() const noexcept { return dropout.residual.value_or(dropout.rate); }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;

  /// Whether all fields are equal.
  friend bool operator==(const LayerOptions&, const LayerOptions&) = default;
};

/// Options of a Stack: N layers of one kind and an optional final norm. The defaults are those of PyTorch's
/// TransformerEncoder and TransformerDecoder. Layer: the layers' options.
template <class Layer = LayerOptions>
struct StackOptions {
  index_t num_layers = defaults::num_layers;  ///< at least 1
  bool final_norm = false;                    ///< a norm after the last layer
  Layer layer{};                              ///< options of every layer

  /// Calls visit(OptionField, member) for each field (see OptionField), including those of `layer` if it
  /// lists any.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"num_layers", "number of layers", Allowed::positive}, self.num_layers);
    visit(OptionField{"final_norm", "norm after the last layer"}, self.final_norm);
    if constexpr (OptionsStruct<Layer>) Layer::fields(self.layer, visit);
  }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const {
    validate_fields(op, *this);
    if constexpr (requires { layer.validate(op); }) layer.validate(op);
  }
};
using EncoderOptions = StackOptions<LayerOptions>;  ///< options of an Encoder
using DecoderOptions = StackOptions<LayerOptions>;  ///< options of a Decoder

namespace detail {

/// One stack of a model with two; what is unset is taken from the model.
struct ModelStack {
  index_t num_layers = defaults::num_layers;  ///< at least 1
  std::optional<bool> final_norm{};           ///< unset: the model's final_norm
  std::optional<LayerOptions> layer{};        ///< unset: the model's layer

  /// Calls visit(OptionField, member) for each field of the group besides the layer's; num_layers is listed
  /// by the model.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"final_norm", "norm after this stack's last layer; not given: the model's final_norm"},
          self.final_norm);
  }
};

}  // namespace detail

/// Options of a Transformer, an encoder and a decoder as in PyTorch's nn.Transformer.
struct TransformerOptions {
  LayerOptions layer{};          ///< of both stacks
  bool final_norm = true;        ///< a norm after each stack, even with post-norm layers, as in PyTorch
  detail::ModelStack encoder{};  ///< num_layers of the encoder, and what overrides the two above
  detail::ModelStack decoder{};  ///< num_layers of the decoder, and what overrides the two above

  /// The encoder's options: its own values, and the model's where they are unset. Nothing is checked.
  EncoderOptions encoder_options() const { return stack_options(encoder); }
  /// The decoder's options, likewise.
  DecoderOptions decoder_options() const { return stack_options(decoder); }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;

 private:
  StackOptions<LayerOptions> stack_options(const detail::ModelStack& stack) const {
    return {stack.num_layers, stack.final_norm.value_or(final_norm), stack.layer.value_or(layer)};
  }
};

/// Options of a MultiHeadAttention.
struct MultiHeadAttentionOptions {
  index_t d_model = defaults::d_model;      ///< features of queries and output
  index_t num_heads = defaults::num_heads;  ///< heads of queries, H
  double dropout = 0;                       ///< rate on the attention weights, in training; 0 as in PyTorch
  bool bias = true;                         ///< biases of all projections
  index_t kdim = 0;                         ///< features of the keys' input; 0: d_model
  index_t vdim = 0;                         ///< features of the values' input; 0: d_model
  AttentionOptions
      attention{};  ///< kind, positions and heads; a relative bias itself is an argument of the call
  double norm_eps = defaults::layer_norm_eps;  ///< of query_key_norm
  /// Queries come from one sequence, keys and values from another. Only affects pack_weights(), which then
  /// packs two products, one for each.
  bool cross = false;

  /// Features of a head: head_dim, or d_model / num_heads.
  index_t head_features() const noexcept {
    return attention.head_dim != 0 ? attention.head_dim : d_model / num_heads;
  }
  /// Heads of keys and values.
  index_t key_value_heads() const noexcept {
    return attention.num_key_value_heads != 0 ? attention.num_key_value_heads : num_heads;
  }
  /// Features of all heads of queries.
  index_t query_width() const noexcept { return num_heads * head_features(); }
  /// Features of all heads of keys, and of all heads of values.
  index_t key_width() const noexcept { return key_value_heads() * head_features(); }

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"d_model", "width of queries and output", Allowed::positive}, self.d_model);
    visit(OptionField{"num_heads", "number of attention heads", Allowed::positive}, self.num_heads);
    visit(OptionField{"dropout", "dropout rate of attention weights", Allowed::rate}, self.dropout);
    visit(OptionField{"bias", "biases in the projections"}, self.bias);
    visit(OptionField{"kdim", "width of the key inputs; 0: d_model", Allowed::not_negative}, self.kdim);
    visit(OptionField{"vdim", "width of the value inputs; 0: d_model", Allowed::not_negative}, self.vdim);
    AttentionOptions::fields(self.attention, visit);
    visit(OptionField{"norm_eps", "epsilon of that norm, added to the variance", Allowed::not_negative},
          self.norm_eps);
    visit(OptionField{"cross", "cross-attention: queries from one sequence, keys and values from another"},
          self.cross);
  }
  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION void AttentionOptions::validate(const char* op, index_t d_model,
                                                     index_t num_heads) const {
  if (head_dim == 0 && d_model % num_heads != 0) {
    throw ValueError(op, {"d_model is ", d_model, ", must be divisible by num_heads, which is ", num_heads});
  }
  if (num_key_value_heads > 0 && num_heads % num_key_value_heads != 0) {
    throw ValueError(op, {"num_heads is ", num_heads, ", must be divisible by num_key_value_heads, which is ",
                          num_key_value_heads});
  }
  const index_t features = head_dim != 0 ? head_dim : d_model / num_heads;
  if (const auto* rotary = std::get_if<RotaryPositions>(&positions)) {
    const index_t dim = rotary->dim != 0 ? rotary->dim : features;
    if (dim < 2 || dim % 2 != 0 || dim > features) {
      throw ValueError(op, {"rotary_dim is ", dim, ", must be even, at least 2 and at most ", features,
                            ", the features of a head"});
    }
  }
  if (const auto* bias = std::get_if<RelativeBiasPositions>(&positions)) bias->validate(op);
  if (kind != AttentionKind::linear) return;
  // Linear attention supports none of the following.
  std::string unsupported;
  if (!std::holds_alternative<NoPositions>(positions) &&
      !std::holds_alternative<RotaryPositions>(positions)) {
    unsupported = std::string("attention_positions ") + detail::chosen_word(positions);
  } else if (num_key_value_heads != 0 && num_key_value_heads != num_heads) {
    unsupported = "num_key_value_heads other than num_heads";
  } else if (window != 0) {
    unsupported = "attention_window";
  } else if (scale != 0) {
    unsupported = "attention_scale";
  }
  if (!unsupported.empty()) throw ValueError(op, {"linear attention does not support ", unsupported});
}

EIGENFORMER_FUNCTION void LayerOptions::validate(const char* op) const {
  validate_fields(op, *this);
  attention.validate(op, d_model, num_heads);
  if (self_mixing == SelfMixing::attention) return;
  // Without self-attention, its own options must be unset.
  if (!std::holds_alternative<NoPositions>(attention.positions)) {
    throw ValueError(op, {"self_mixing is ssru, which needs attention_positions none, not ",
                          detail::chosen_word(attention.positions)});
  }
  if (attention.window != 0) {
    throw ValueError(op, {"self_mixing is ssru, which needs attention_window 0, not ", attention.window});
  }
}

EIGENFORMER_FUNCTION void TransformerOptions::validate(const char* op) const {
  layer.validate(op);
  if (encoder.layer.value_or(layer).self_mixing != SelfMixing::attention) {
    throw ValueError(
        op, "self_mixing is ssru in the encoder, must be attention; set ssru in decoder.layer alone");
  }
  for (const auto* stack : {&encoder, &decoder}) {
    const char* prefix = stack == &encoder ? "encoder" : "decoder";
    detail::require_positive(op, (std::string(prefix) + ".num_layers").c_str(), stack->num_layers);
    if (!stack->layer) continue;
    stack->layer->validate((std::string(op) + ", " + prefix + ".layer").c_str());
    if (stack->layer->d_model != layer.d_model) {
      throw ValueError(op, {prefix, ".layer.d_model is ", stack->layer->d_model,
                            ", must be layer.d_model, which is ", layer.d_model});
    }
  }
}

EIGENFORMER_FUNCTION void MultiHeadAttentionOptions::validate(const char* op) const {
  validate_fields(op, *this);
  attention.validate(op, d_model, num_heads);
}

}  // namespace eigenformer

#endif
