#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/nn/options/layer.hpp"

// JSON of single option values; options_json.hpp converts whole options structs.
namespace eigenformer::detail {

template <class X>
concept OptionWord = std::is_enum_v<X>;

template <class X>
nlohmann::json option_to_json(const X& x) {
  if constexpr (OptionWord<X>) {
    return word_of(x);
  } else {
    return x;
  }
}
template <class X>
nlohmann::json option_to_json(const std::optional<X>& x) {
  return x ? option_to_json(*x) : nlohmann::json(nullptr);
}

EIGENFORMER_IO_FUNCTION ValueError refused_option(const std::string& name, const nlohmann::json& json,
                                                  const std::string& expected);

/// Whether X can hold a whole number of JSON.
template <std::integral X>
bool is_in_range(const nlohmann::json& number) {
  return number.is_number_unsigned() ? std::in_range<X>(number.get<std::uint64_t>())
                                     : std::in_range<X>(number.get<std::int64_t>());
}

/// Whether a value can be the id of a token.
inline bool is_id(const nlohmann::json& id) {
  return id.is_number_integer() && is_in_range<std::int32_t>(id);
}

/// Reads one option from JSON; `name` is for the message. Throws ValueError for a value of another type.
template <class X>
void option_from_json(const std::string& name, const nlohmann::json& json, X& x) {
  if constexpr (OptionWord<X>) {
    std::string known;
    for (std::size_t i = 0; i < EnumNames<X>::names.size(); ++i) {
      const char* word = EnumNames<X>::names[i];
      if (is_text(json, word)) {
        x = static_cast<X>(i);
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(word);
    }
    throw refused_option(name, json, "one of " + known);
  } else if constexpr (std::same_as<X, bool>) {
    if (!json.is_boolean()) throw refused_option(name, json, "true or false");
    x = json.get<bool>();
  } else if constexpr (std::integral<X>) {
    if (!json.is_number_integer() || (std::is_unsigned_v<X> && !json.is_number_unsigned()))
      throw refused_option(name, json, "a whole number");
    if (!is_in_range<X>(json)) {
      throw refused_option(name, json,
                           "a whole number from " + std::to_string(std::numeric_limits<X>::min()) + " to " +
                               std::to_string(std::numeric_limits<X>::max()));
    }
    x = json.get<X>();
  } else if constexpr (std::floating_point<X>) {
    if (!json.is_number()) throw refused_option(name, json, "a number");
    x = json.get<X>();
  } else if constexpr (std::same_as<X, std::vector<std::int32_t>>) {
    if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_id))
      throw refused_option(name, json, "a list of ids");
    x = json.get<X>();
  } else {
    if (!json.is_string()) throw refused_option(name, json, "a string");
    x = json.get<X>();
  }
}
template <class X>
void option_from_json(const std::string& name, const nlohmann::json& json, std::optional<X>& x) {
  x.reset();
  if (!json.is_null()) option_from_json(name, json, x.emplace());
}

inline std::string kind_name(const std::string& name) { return name + "_kind"; }

/// Writes options field by field into an object.
struct OptionsWriter {
  nlohmann::json& json;

  template <class X>
  void operator()(const OptionField& field, const X& x) const {
    json[field.name] = option_to_json(x);
  }
  template <OptionWord E>
  void operator()(const OptionField& field, const std::optional<E>& x) const {
    json[field.name] = x.has_value();
    if (x) json[kind_name(field.name)] = option_to_json(*x);
  }
  template <class... A>
  void operator()(const OptionField& field, const std::variant<A...>& x) const {
    json[field.name] = chosen_word(x);
    std::visit([this](const auto& chosen) { std::remove_cvref_t<decltype(chosen)>::fields(chosen, *this); },
               x);
  }
  template <class... A>
  void operator()(const OptionField& field, const std::optional<std::variant<A...>>& x) const {
    json[field.name] = nullptr;
    if (x) (*this)(field, *x);
  }
  template <class Group>
  void operator()(const OptionGroup&, const Group&) const {}  // options_to_json() writes them
};

/// Reads the fields of options that a JSON object has, and collects the names of all fields in `known`.
struct OptionsReader {
  const nlohmann::json& json;
  std::set<std::string>& known;

  bool has(const char* name) const {
    known.insert(name);
    return json.contains(name);
  }
  /// Whether the object has any field of A.
  template <class A>
  bool has_field_of() const {
    bool found = false;
    A unused{};
    A::fields(unused,
              [&](const OptionField& field, const auto&) { found = found || json.contains(field.name); });
    return found;
  }

  template <class X>
  void operator()(const OptionField& field, X& x) const {
    if (has(field.name)) option_from_json(field.name, json.at(field.name), x);
  }
  template <OptionWord E>
  void operator()(const OptionField& field, std::optional<E>& x) const {
    const std::string kind = kind_name(field.name);
    known.insert(kind);
    bool there = x.has_value();  // a stack's own options may have only the kind
    if (has(field.name)) option_from_json(field.name, json.at(field.name), there);
    if (!there) {
      x.reset();
    } else if (E e = x.value_or(E{}); true) {
      if (json.contains(kind)) option_from_json(kind, json.at(kind), e);
      x = e;
    }
  }
  template <class... A>
  void operator()(const OptionField& field, std::variant<A...>& x) const {
    if (has(field.name)) {
      std::string known_words;
      const nlohmann::json& word = json.at(field.name);
      if (!choose_alternative(x, word.is_string() ? word.get<std::string>() : "", known_words))
        throw refused_option(field.name, word, "one of " + known_words);
    }
    (([&] {
       A unused{};
       A* chosen = std::get_if<A>(&x);
       const nlohmann::json none = nlohmann::json::object();
       A::fields(chosen != nullptr ? *chosen : unused, OptionsReader{chosen != nullptr ? json : none, known});
     }()),
     ...);
  }
  template <class... A>
  void operator()(const OptionField& field, std::optional<std::variant<A...>>& x) const {
    const bool named = has(field.name), chosen = named && !json.at(field.name).is_null();
    if (named && !chosen) x.reset();
    // Fields without the word belong to the current alternative, or to the first, which is the default.
    const bool read =
        chosen ||
        (!named && (x.has_value() || has_field_of<std::variant_alternative_t<0, std::variant<A...>>>()));
    std::variant<A...> value = x.value_or(std::variant<A...>{});
    const nlohmann::json none = nlohmann::json::object();
    OptionsReader{read ? json : none, known}(field, value);
    if (read) x = std::move(value);
  }
  template <class Group>
  void operator()(const OptionGroup& group, Group&) const {
    known.insert(group.name);  // options_from_json() reads them
  }
};

template <class Options>
nlohmann::json fields_to_json(const Options& options) {
  nlohmann::json json = nlohmann::json::object();
  Options::fields(options, OptionsWriter{json});
  return json;
}

}  // namespace eigenformer::detail

/// @file
/// Conversion of options structs to and from JSON by their lists of fields. The object is flat: fields of
/// nested structs and of the chosen alternative of a variant are on the same level as the other fields.
/// Options that differ for one stack of a model are in an object "encoder" or "decoder".
///
/// Kinds of positions that act in attention may also be given as `positions`, as a person would write them.
namespace eigenformer {

namespace detail {

inline constexpr const char* added_positions_name = "positions";
inline constexpr const char* attention_positions_name = "attention_positions";

inline bool is_attention_position(const nlohmann::json& word) {
  bool found = false;
  for_each_alternative<AttentionPositions>([&]<class A>(std::type_identity<A>) {
    found |= is_text(word, A::word) && !std::same_as<A, NoPositions>;
  });
  return found;
}

// Names the kind of positions that are added to inputs where the options leave it open.
EIGENFORMER_IO_FUNCTION void name_added_positions(nlohmann::json& json);

// Moves positions that act in attention to their own name. Throws ValueError when both names give positions
// that act in attention.
template <class Options>
nlohmann::json split_positions(nlohmann::json json) {
  if (!fields_to_json(Options{}).contains(attention_positions_name)) return json;
  const auto added = json.find(added_positions_name);
  if (added == json.end() || !(added->is_string() || added->is_null())) return json;
  if (is_attention_position(*added)) {
    if (json.contains(attention_positions_name)) {
      throw ValueError("options",
                       {"positions is ", added->dump(), " and attention_positions is ",
                        json.at(attention_positions_name).dump(),
                        "; with attention_positions, expected positions to be sinusoidal, learned or none"});
    }
    json[attention_positions_name] = *added;
    json[added_positions_name] = NoPositions::word;
  } else if (added->is_string()) {
    InputPositions ignored;
    std::string words;
    if (!choose_alternative(ignored, added->get<std::string>(), words)) {
      for_each_alternative<AttentionPositions>([&]<class A>(std::type_identity<A>) {
        if (!std::same_as<A, NoPositions>) words += ", " + std::string(A::word);
      });
      throw refused_option(added_positions_name, *added, "one of " + words);
    }
  }
  return json;
}

template <class Options, class Group>
concept has_own_layer = requires(const Options& options, const Group& group) {
  group.layer->d_model;
  options.layer.d_model;
};

// A group as an object: the fields of the stack's own layer that differ from the model's, and the stack's own
// fields.
template <class Options, class Group>
nlohmann::json group_to_json(const Options& options, const Group& group) {
  nlohmann::json json = nlohmann::json::object();
  if constexpr (has_own_layer<Options, Group>) {
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

EIGENFORMER_IO_FUNCTION void refuse_unknown(const nlohmann::json& json, const std::set<std::string>& known,
                                            const std::string& where = {});

template <class Options, class Group>
void group_from_json(const char* name, const nlohmann::json& json, const Options& options, Group& group) {
  std::set<std::string> known;
  Group::fields(group, OptionsReader{json, known});
  if constexpr (has_own_layer<Options, Group>) {
    auto layer = options.layer;
    decltype(layer)::fields(layer, OptionsReader{json, known});
    group.layer.reset();
    if (!(layer == options.layer)) group.layer = layer;
  }
  refuse_unknown(json, known, std::string(name) + ".");
}

}  // namespace detail

/// Converts options to a JSON object with every field under its name; enums and kinds of positions are words.
template <OptionsStruct Options>
nlohmann::json options_to_json(const Options& options) {
  nlohmann::json json = detail::fields_to_json(options);
  detail::name_added_positions(json);
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
                  std::get_if<NoPositions>(&before.layer.attention.positions);
                }) {
    // With positions in attention, none are added to inputs unless "positions" requests them.
    if (!before.positions.has_value() && options.positions.has_value() &&
        !json.contains(detail::added_positions_name) &&
        !std::holds_alternative<NoPositions>(options.layer.attention.positions)) {
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

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION ValueError refused_option(const std::string& name, const nlohmann::json& json,
                                                  const std::string& expected) {
  return ValueError("options", name + " is " + json.dump() + ", expected " + expected);
}

EIGENFORMER_IO_FUNCTION void name_added_positions(nlohmann::json& json) {
  if (!json.contains(added_positions_name) || !json.contains(attention_positions_name)) return;
  if (!json.at(added_positions_name).is_null()) return;
  const bool none = !is_text(json.at(attention_positions_name), NoPositions::word);
  OptionsWriter{json}(OptionField{added_positions_name, ""},
                      none ? InputPositions{NoPositions{}} : InputPositions{SinusoidalPositions{}});
}

EIGENFORMER_IO_FUNCTION void refuse_unknown(const nlohmann::json& json, const std::set<std::string>& known,
                                            const std::string& where) {
  for (const auto& [name, value] : json.items()) {
    if (known.count(name) == 0) throw ValueError("options", {"'", where, name, "' is not an option"});
  }
}

}  // namespace eigenformer::detail

#endif
