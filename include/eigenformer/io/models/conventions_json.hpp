#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/io/models/options_json.hpp"

namespace eigenformer {

/// The conventions in a model's folder: the ids around its sentences, and the search that it was made for.
struct ModelConventions : TextConventions {
  /// Fields of SearchOptions under their names, such as {"rule": "marian", "beam_size": 6}; search_options()
  /// reads them. Those that are absent have their defaults.
  nlohmann::json search = nlohmann::json::object();

  /// Compares all fields.
  friend bool operator==(const ModelConventions&, const ModelConventions&) = default;
};

namespace detail {

void visit_conventions(auto& c, auto&& visit) {
  visit("source_text", c.source_text);
  visit("source_prefix", c.source_prefix);
  visit("source_suffix", c.source_suffix);
  visit("begin_id", c.begin_id);
  visit("target_prefix", c.target_prefix);
  visit("end_id", c.end_id);
  visit("forbidden_ids", c.forbidden_ids);
  visit("unknown", c.unknown);
  visit("target_languages", c.target_languages);
  visit("lines_are_sentences", c.lines_are_sentences);
}

// Target languages are stored as an object of names and ids.
template <class Field>
inline constexpr bool is_target_languages =
    std::is_same_v<std::remove_cvref_t<Field>, std::vector<TargetLanguage>>;

/// Converts conventions to a JSON object with every field under its name. Fields that older versions do not
/// know are left out where they have their defaults: target_languages, an object of names and ids, unknown,
/// and lines_are_sentences; and the search where it has no fields.
EIGENFORMER_IO_FUNCTION nlohmann::json conventions_to_json(const ModelConventions& conventions);

/// Reads conventions from the result of conventions_to_json(); missing fields keep their defaults. Throws
/// ValueError for an unknown name, a value of the wrong type, and an id that is outside its vocabulary, of
/// source_size or target_size ids (forbidden_ids are not checked). What `search` has is checked by
/// search_options().
EIGENFORMER_IO_FUNCTION ModelConventions conventions_from_json(const nlohmann::json& json,
                                                               index_t source_size, index_t target_size);

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION nlohmann::json conventions_to_json(const ModelConventions& conventions) {
  nlohmann::json json = nlohmann::json::object();
  visit_conventions(conventions, [&](const char* name, const auto& field) {
    if constexpr (is_target_languages<decltype(field)>) {
      for (const TargetLanguage& language : field) json[name][language.name] = language.id;
    } else {
      json[name] = option_to_json(field);
    }
  });
  if (conventions.lines_are_sentences) json.erase("lines_are_sentences");
  if (conventions.unknown == UnknownTokens::keep) json.erase("unknown");
  if (!conventions.search.empty()) json["search"] = conventions.search;
  return json;
}

EIGENFORMER_IO_FUNCTION ModelConventions conventions_from_json(const nlohmann::json& json,
                                                               index_t source_size, index_t target_size) {
  if (!json.is_object()) throw refused_option("text", json, "an object");
  ModelConventions conventions;
  std::set<std::string> known = {"search"};
  if (json.contains("search")) {
    conventions.search = json.at("search");
    if (!conventions.search.is_object()) throw refused_option("search", conventions.search, "an object");
  }
  visit_conventions(conventions, [&](const char* name, auto& field) {
    known.insert(name);
    if (!json.contains(name)) return;
    const nlohmann::json& value = json.at(name);
    if constexpr (is_target_languages<decltype(field)>) {
      if (!value.is_object()) throw refused_option(name, value, "an object");
      for (const auto& [language, id] : value.items()) {
        field.push_back({language, 0});
        option_from_json(name, id, field.back().id);
      }
    } else {
      option_from_json(name, value, field);
    }
  });
  for (const auto& [name, value] : json.items()) {
    if (known.count(name) == 0) throw ValueError("options", {"'", name, "' is not an option of text"});
  }
  const auto check = [](const char* name, std::int32_t id, index_t size) {
    if (id >= 0 && id < size) return;
    throw ValueError("options",
                     {name, " has the id ", id, ", expected one below the vocabulary's size ", size});
  };
  for (const std::int32_t id : conventions.source_prefix) check("source_prefix", id, source_size);
  for (const TargetLanguage& language : conventions.target_languages)
    check("target_languages", language.id, source_size);
  for (const std::int32_t id : conventions.source_suffix) check("source_suffix", id, source_size);
  for (const std::int32_t id : conventions.target_prefix) check("target_prefix", id, target_size);
  check("begin_id", conventions.begin_id, target_size);
  check("end_id", conventions.end_id, target_size);
  return conventions;
}

}  // namespace eigenformer::detail

#endif
