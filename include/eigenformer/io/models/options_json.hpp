#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>

#include "eigenformer/io/models/option_values_json.hpp"
#include "eigenformer/nn/options/layer.hpp"

/// Options as JSON, made of their own lists of fields. The names are flat: those of a nested struct stand
/// beside its owner's, those of a variant's alternatives beside its word. What differs in one stack of a
/// model is an object of its own under "encoder" or "decoder".
///
/// Files of version 0.1.0 have one `positions` for those added to inputs and those that act in attention, and
/// say of an optional norm whether there is one (query_key_norm) and which (query_key_norm_kind). Both are
/// read and written so; `attention_positions` stands in a file only beside added positions, which 0.1.0 does
/// not know, and `self_mixing` where it is not attention.
namespace eigenformer {

namespace detail {

inline constexpr const char* added_positions_name = "positions";
inline constexpr const char* attention_positions_name = "attention_positions";
inline constexpr const char* self_mixing_name = "self_mixing";
inline constexpr const char* constant_id_name = "constant_id";

inline bool is_attention_position(const nlohmann::json& word) {
  bool found = false;
  for_each_alternative<AttentionPositions>(
      [&]<class A>(std::type_identity<A>) { found |= word == A::word && !std::same_as<A, NoPositions>; });
  return found;
}

// Puts both kinds of positions under one name where only one of them is there.
inline void join_positions(nlohmann::json& json) {
  if (!json.contains(added_positions_name) || !json.contains(attention_positions_name)) return;
  nlohmann::json& added = json.at(added_positions_name);
  const nlohmann::json attention = json.at(attention_positions_name);
  if (attention == NoPositions::word) {
    if (added.is_null())
      OptionsWriter{json}(OptionField{added_positions_name, ""}, InputPositions{SinusoidalPositions{}});
  } else if (added.is_null() || added == NoPositions::word) {
    added = attention;
  } else {
    return;
  }
  json.erase(attention_positions_name);
}

// The opposite. Throws ValueError where one name says what the other does.
template <class Options>
nlohmann::json split_positions(nlohmann::json json) {
  if (!fields_to_json(Options{}).contains(attention_positions_name)) return json;
  const auto added = json.find(added_positions_name);
  if (added == json.end() || !(added->is_string() || added->is_null())) return json;
  if (is_attention_position(*added)) {
    if (json.contains(attention_positions_name)) {
      throw ValueError("options", "positions is " + added->dump() + " and attention_positions is " +
                                      json.at(attention_positions_name).dump() +
                                      ", expected positions that are added to the inputs beside the latter");
    }
    json[attention_positions_name] = *added;
    json[added_positions_name] = NoPositions::word;
  } else if (added->is_string()) {
    InputPositions ignored;
    std::string words;
    if (!choose_alternative(ignored, added->get<std::string>(), &words)) {
      for_each_alternative<AttentionPositions>([&]<class A>(std::type_identity<A>) {
        if (!std::same_as<A, NoPositions>) words += ", " + std::string(A::word);
      });
      throw refused_option(added_positions_name, *added, "one of " + words);
    }
  }
  return json;
}

/// Whether a model has what came with version 6 of the folder's format: something else than self-attention
/// in a stack's layers, or an embedding that stays as it is.
inline bool is_of_version_6(const nlohmann::json& json) {
  if (json.contains(self_mixing_name) || json.contains(constant_id_name)) return true;
  for (const auto& item : json.items()) {
    if (item.value().is_object() && item.value().contains(self_mixing_name)) return true;
  }
  return false;
}

/// Whether version 0.1.0 can read these options.
inline bool is_readable_by_0_1_0(const nlohmann::json& json) {
  if (json.contains(attention_positions_name) || is_of_version_6(json)) return false;
  for (const auto& item : json.items()) {
    if (item.value().is_object()) return false;  // a stack's own options
  }
  return true;
}

// A group as an object: what the stack's own layer has otherwise than the model's, and the stack's own
// fields.
template <class Options, class Group>
nlohmann::json group_to_json(const Options& options, const Group& group) {
  nlohmann::json json = nlohmann::json::object();
  if constexpr (requires {
                  group.layer->d_model;
                  options.layer.d_model;
                }) {
    if (group.layer) {
      const nlohmann::json common = fields_to_json(options.layer);
      const nlohmann::json own = fields_to_json(*group.layer);
      for (const auto& [name, value] : own.items()) {
        if (!common.contains(name) || common.at(name) != value) json[name] = value;
      }
    }
  }
  const nlohmann::json own = fields_to_json(group);
  for (const auto& [name, value] : own.items()) {
    if (!value.is_null()) json[name] = value;
  }
  return json;
}

inline void refuse_unknown(const nlohmann::json& json, const std::set<std::string>& known,
                           const std::string& where = {}) {
  for (const auto& [name, value] : json.items()) {
    if (known.count(name) == 0) throw ValueError("options", "'" + where + name + "' is not an option");
  }
}

template <class Options, class Group>
void group_from_json(const char* name, const nlohmann::json& json, const Options& options, Group& group) {
  std::set<std::string> of_group, of_layer;
  Group::fields(group, OptionsReader{json, of_group});
  if constexpr (requires {
                  group.layer->d_model;
                  options.layer.d_model;
                }) {
    auto layer = options.layer;
    decltype(layer)::fields(layer, OptionsReader{json, of_layer});
    group.layer.reset();
    if (!(layer == options.layer)) group.layer = layer;
  }
  of_group.merge(of_layer);
  refuse_unknown(json, of_group, std::string(name) + ".");
}

}  // namespace detail

/// Options as a JSON object, every field under its name, enums and the kinds of positions as words.
template <OptionsStruct Options>
nlohmann::json options_to_json(const Options& options) {
  nlohmann::json json = detail::fields_to_json(options);
  detail::join_positions(json);
  const auto mixing = json.find(detail::self_mixing_name);
  if (mixing != json.end() && *mixing == detail::option_to_json(SelfMixing::attention)) json.erase(mixing);
  const auto constant = json.find(detail::constant_id_name);
  if (constant != json.end() && *constant == -1) json.erase(constant);
  Options::fields(options, [&](const auto& field, const auto& member) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, OptionGroup>) {
      const nlohmann::json group = detail::group_to_json(options, member);
      if (!group.empty()) json[field.name] = group;
    }
  });
  return json;
}

/// Options from what options_to_json() gave; a field that is left out keeps its value in `options`, in a
/// stack's own object the model's. Throws ValueError for an unknown name and a value of the wrong kind.
template <OptionsStruct Options>
Options options_from_json(const nlohmann::json& given, Options options = {}) {
  if (!given.is_object()) throw ValueError("options", "expected an object of options");
  const nlohmann::json json = detail::split_positions<Options>(given);
  nlohmann::json groups = nlohmann::json::object();
  Options::fields(options, [&](const auto& field, const auto& member) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, OptionGroup>)
      groups[field.name] = detail::group_to_json(options, member);
  });
  std::set<std::string> known;
  const Options before = options;
  Options::fields(options, detail::OptionsReader{json, known});
  detail::refuse_unknown(json, known);
  if constexpr (requires {
                  before.positions.has_value();
                  std::get_if<NoPositions>(&before.layer.positions);
                }) {
    // Positions that attention has make those of inputs absent, unless they are asked for by their word.
    if (!before.positions.has_value() && options.positions.has_value() &&
        !json.contains(detail::added_positions_name) &&
        !std::holds_alternative<NoPositions>(options.layer.positions)) {
      options.positions.reset();
    }
  }
  Options::fields(options, [&](const auto& field, auto& member) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, OptionGroup>) {
      nlohmann::json& group = groups[field.name];
      if (json.contains(field.name)) {
        const nlohmann::json& own = json.at(field.name);
        if (!own.is_object()) throw detail::refused_option(field.name, own, "an object of options");
        group.update(own);
      }
      detail::group_from_json(field.name, group, options, member);
    }
  });
  return options;
}

}  // namespace eigenformer
