#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>

#include "eigenformer/io/models/option_values_json.hpp"
#include "eigenformer/nn/options/layer.hpp"

/// @file
/// Conversion of options structs to and from JSON by their lists of fields. The object is flat: fields of
/// nested structs and of the chosen alternative of a variant are on the same level as the other fields.
/// Options that differ for one stack of a model are in an object "encoder" or "decoder".
///
/// The format is compatible with version 0.1.0, which has a single field `positions` for positions that are
/// added to inputs or act in attention, and two fields for an optional norm: query_key_norm, whether there is
/// one, and query_key_norm_kind. `attention_positions` is written only together with added positions, and
/// `self_mixing` only when it is not attention; 0.1.0 cannot read either.
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

// Stores both kinds of positions under one name when only one of them is present.
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

// The inverse of join_positions(). Throws ValueError when both names give positions that act in attention.
template <class Options>
nlohmann::json split_positions(nlohmann::json json) {
  if (!fields_to_json(Options{}).contains(attention_positions_name)) return json;
  const auto added = json.find(added_positions_name);
  if (added == json.end() || !(added->is_string() || added->is_null())) return json;
  if (is_attention_position(*added)) {
    if (json.contains(attention_positions_name)) {
      throw ValueError(
          "options", "positions is " + added->dump() + " and attention_positions is " +
                         json.at(attention_positions_name).dump() +
                         "; with attention_positions, expected positions to be sinusoidal, learned or none");
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

/// Whether options need version 6 of the folder's format: layers without self-attention, or an embedding row
/// that is not trained (constant_id).
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

// A group as an object: the fields of the stack's own layer that differ from the model's, and the stack's own
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

/// Converts options to a JSON object with every field under its name; enums and kinds of positions are words.
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

/// Reads options from the result of options_to_json(). Missing fields keep their values in `options`, those
/// of a stack's own object the values of the model. Throws ValueError for an unknown name and for a value of
/// the wrong type; validate() is not called.
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
    // With positions in attention, none are added to inputs unless "positions" requests them.
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
