#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace eigenformer::detail {

/// JSON of foreign files: messages print values, and nlohmann-json does so by recursion. Files of checkpoints
/// are nested 8 deep; the largest, tokenizer.json, have some 40 MB.
inline constexpr std::size_t deepest_json = 64, longest_json = 100'000'000;

/// Whether a text, JSON or not, opens more than `most` arrays and objects within each other.
inline bool is_nested_deeper(std::string_view text, std::size_t most) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

/// The value of a text in JSON; is_discarded() if it is invalid, too long, or nested too deeply.
inline nlohmann::json parse_json(std::string_view text) {
  if (text.size() > longest_json || is_nested_deeper(text, deepest_json))
    return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

/// The same. Throws ValueError for an object that has a name twice, of which parse_json() keeps the last
/// value.
inline nlohmann::json parse_unique_json(std::string_view text) {
  if (text.size() > longest_json || is_nested_deeper(text, deepest_json))
    return nlohmann::json(nlohmann::json::value_t::discarded);
  std::vector<std::set<std::string>> names;
  const auto check = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(value.get<std::string>()).second) {
      throw ValueError(
          "json", "has the name '" + value.get<std::string>() + "' twice in one object, expected it once");
    }
    return true;
  };
  return nlohmann::json::parse(text, check, false);
}

/// parse_unique_json() of a file. Throws IoError, as `op`, for a file that cannot be read and for a name that
/// occurs twice.
inline nlohmann::json read_unique_json(const char* op, const std::filesystem::path& path) {
  try {
    return parse_unique_json(read_text_file(path));
  } catch (const ValueError& error) {
    throw IoError(op, "'" + path.string() + "' " + message_of(error));
  }
}

}  // namespace eigenformer::detail
