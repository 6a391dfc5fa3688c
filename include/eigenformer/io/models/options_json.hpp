#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/models/sequence_regressor_options.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"

namespace eigenformer {

namespace detail {

/// The words that stand for an enum's values in a file, in the order of the values.
template <class E>
struct EnumNames;
template <>
struct EnumNames<Activation> {
  static constexpr std::array names = {"none",    "relu", "gelu",         "gelu_tanh",   "silu",
                                       "sigmoid", "tanh", "relu_squared", "elu_plus_one"};
};
template <>
struct EnumNames<LayerNormFormula> {
  static constexpr std::array names = {"pytorch", "teaching"};
};
template <>
struct EnumNames<AttentionKind> {
  static constexpr std::array names = {"softmax", "linear"};
};
template <>
struct EnumNames<NormKind> {
  static constexpr std::array names = {"layer_norm", "rms_norm"};
};
template <>
struct EnumNames<Tying> {
  static constexpr std::array names = {"none", "target", "all"};
};
template <>
struct EnumNames<Positions> {
  static constexpr std::array names = {"sinusoidal",    "learned", "rotary", "alibi",
                                       "relative_bias", "shaw",    "none"};
};
template <>
struct EnumNames<RotaryPairing> {
  static constexpr std::array names = {"adjacent", "halves"};
};
template <>
struct EnumNames<Pooling> {
  static constexpr std::array names = {"mean", "first"};
};
template <>
struct EnumNames<SinusoidOrder> {
  static constexpr std::array names = {"interleaved", "concatenated"};
};
template <>
struct EnumNames<SinusoidExponent> {
  static constexpr std::array names = {"paper", "tensor2tensor"};
};

template <class X>
nlohmann::json option_to_json(const X& x) {
  if constexpr (std::is_enum_v<X>) {
    return EnumNames<X>::names[static_cast<std::size_t>(x)];
  } else {
    return x;
  }
}
template <class X>
nlohmann::json option_to_json(const std::optional<X>& x) {
  return x ? option_to_json(*x) : nlohmann::json(nullptr);
}

/// Reads one option from JSON; `name` is for the message. Throws ValueError for a value of another kind.
template <class X>
void option_from_json(const std::string& name, const nlohmann::json& json, X& x) {
  const auto refuse = [&](const std::string& expected) {
    return ValueError("options", name + " is " + json.dump() + ", expected " + expected);
  };
  if constexpr (std::is_enum_v<X>) {
    std::string known;
    for (std::size_t i = 0; i < EnumNames<X>::names.size(); ++i) {
      const char* word = EnumNames<X>::names[i];
      if (json == word) {
        x = static_cast<X>(i);
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(word);
    }
    throw refuse("one of " + known);
  } else if constexpr (std::same_as<X, bool>) {
    if (!json.is_boolean()) throw refuse("true or false");
    x = json.get<bool>();
  } else if constexpr (std::integral<X>) {
    if (!json.is_number_integer() || (std::is_unsigned_v<X> && !json.is_number_unsigned()))
      throw refuse("a whole number");
    x = json.get<X>();
  } else if constexpr (std::floating_point<X>) {
    if (!json.is_number()) throw refuse("a number");
    x = json.get<X>();
  } else {
    if (!json.is_string()) throw refuse("a string");
    x = json.get<X>();
  }
}
template <class X>
void option_from_json(const std::string& name, const nlohmann::json& json, std::optional<X>& x) {
  x.reset();
  if (!json.is_null()) option_from_json(name, json, x.emplace());
}

// The options of layers, which every model's options have under the same names: `o` is LayerOptions, or flat
// options that have its fields.
void visit_layer_options(auto& o, auto&& visit) {
  visit("d_model", o.d_model);
  visit("num_heads", o.num_heads);
  visit("dim_feedforward", o.dim_feedforward);
  visit("dropout", o.dropout);
  visit("attention_dropout", o.attention_dropout);
  visit("feed_forward_dropout", o.feed_forward_dropout);
  visit("residual_dropout", o.residual_dropout);
  visit("layer_drop", o.layer_drop);
  visit("activation", o.activation);
  visit("attention", o.attention);
  visit("gated", o.gated);
  visit("norm_first", o.norm_first);
  visit("norm", o.norm);
  visit("sandwich_norm", o.sandwich_norm);
  visit("layer_norm_eps", o.layer_norm_eps);
  visit("layer_norm_formula", o.layer_norm_formula);
  visit("layer_norm_scalar_gain", o.layer_norm_scalar_gain);
  visit("bias", o.bias);
  visit("positions", o.positions);
  visit("rotary_base", o.rotary.base);
  visit("rotary_dim", o.rotary.dim);
  visit("rotary_pairing", o.rotary.pairing);
  visit("relative_bias_buckets", o.relative_bias.buckets);
  visit("relative_bias_max_distance", o.relative_bias.max_distance);
  visit("relative_bias_bidirectional", o.relative_bias.bidirectional);
  visit("shaw_max_distance", o.shaw_max_distance);
  visit("num_key_value_heads", o.num_key_value_heads);
  visit("head_dim", o.head_dim);
  visit("attention_scale", o.attention_scale);
  visit("attention_window", o.attention_window);
  visit("query_key_norm", o.query_key_norm);
  visit("query_key_norm_kind", o.query_key_norm_kind);
}

// Those around the layers.
void visit_model_options(auto& o, auto&& visit) {
  visit("embedding_dropout", o.embedding_dropout);
  visit("final_norm", o.final_norm);
  visit("sinusoid_base", o.sinusoid.base);
  visit("sinusoid_order", o.sinusoid.order);
  visit("sinusoid_exponent", o.sinusoid.exponent);
  visit("sinusoid_first_position", o.sinusoid.first_position);
  visit("max_length", o.max_length);
  visit("learned_position_offset", o.learned_position_offset);
}

// And those of models of text.
void visit_text_options(auto& o, auto&& visit) {
  visit_model_options(o, visit);
  visit("embedding_norm", o.embedding_norm);
  visit("scale_embedding", o.scale_embedding);
  visit("padding_index", o.padding_index);
}

}  // namespace detail

/// Calls visit(name, field) for every option that is saved with a model. Other options structs can be written
/// too, with such a function in their own namespace.
void visit_options(auto& o,
                   auto&& visit) requires std::same_as<std::remove_cvref_t<decltype(o)>, Seq2SeqOptions> {
  detail::visit_layer_options(o, visit);
  detail::visit_text_options(o, visit);
  visit("source_vocab_size", o.source_vocab_size);
  visit("target_vocab_size", o.target_vocab_size);
  visit("num_encoder_layers", o.num_encoder_layers);
  visit("num_decoder_layers", o.num_decoder_layers);
  visit("projection_bias", o.projection_bias);
  visit("tying", o.tying);
  visit("logit_scale", o.logit_scale);
  visit("causal", o.causal);
}
void visit_options(
    auto& o, auto&& visit) requires std::same_as<std::remove_cvref_t<decltype(o)>, LanguageModelOptions> {
  detail::visit_layer_options(o.layer, visit);
  detail::visit_text_options(o, visit);
  visit("vocab_size", o.vocab_size);
  visit("num_layers", o.num_layers);
  visit("tied", o.tied);
  visit("projection_bias", o.projection_bias);
  visit("logit_scale", o.logit_scale);
}
void visit_options(auto& o,
                   auto&& visit) requires std::same_as<std::remove_cvref_t<decltype(o)>, TextEncoderOptions> {
  detail::visit_layer_options(o.layer, visit);
  detail::visit_text_options(o, visit);
  visit("vocab_size", o.vocab_size);
  visit("num_layers", o.num_layers);
  visit("num_token_types", o.num_token_types);
  visit("pooling", o.pooling);
}

void visit_options(
    auto& o, auto&& visit) requires std::same_as<std::remove_cvref_t<decltype(o)>, SequenceRegressorOptions> {
  detail::visit_layer_options(o, visit);
  detail::visit_model_options(o, visit);
  visit("source_features", o.source_features);
  visit("target_features", o.target_features);
  visit("output_features", o.output_features);
  visit("num_encoder_layers", o.num_encoder_layers);
  visit("num_decoder_layers", o.num_decoder_layers);
  visit("causal", o.causal);
  visit("output_activation", o.output_activation);
}

/// Options as a JSON object, every field under its name, enums as words.
template <class Options>
nlohmann::json options_to_json(const Options& options) {
  nlohmann::json json = nlohmann::json::object();
  visit_options(options,
                [&](const char* name, const auto& field) { json[name] = detail::option_to_json(field); });
  return json;
}

/// Options from what options_to_json() gave; a field that is left out keeps its default. Throws ValueError
/// for an unknown name and a value of the wrong kind.
template <class Options>
Options options_from_json(const nlohmann::json& json) {
  if (!json.is_object()) throw ValueError("options", "expected an object of options");
  Options options;
  std::set<std::string> known;
  visit_options(options, [&](const char* name, auto& field) {
    known.insert(name);
    if (json.contains(name)) detail::option_from_json(name, json.at(name), field);
  });
  for (const auto& [name, value] : json.items()) {
    if (known.count(name) == 0) throw ValueError("options", "'" + name + "' is not an option");
  }
  return options;
}

}  // namespace eigenformer
