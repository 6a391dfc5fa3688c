#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer::detail {

/// JSON of foreign files: messages print values, and nlohmann-json does so by recursion. Files of checkpoints
/// are nested 8 deep; the largest, tokenizer.json, have some 40 MB.
inline constexpr std::size_t deepest_json = 64, longest_json = 100'000'000;

/// The value of a text in JSON; is_discarded() if it is invalid, too long, or nested too deeply.
EIGENFORMER_IO_FUNCTION nlohmann::json parse_json(std::string_view text);

/// The same. Throws ValueError for an object that has a name twice, of which parse_json() keeps the last
/// value.
EIGENFORMER_IO_FUNCTION nlohmann::json parse_unique_json(std::string_view text);

/// Whether a value is this string. `json == "text"` allocates in a function that is noexcept: it ends the
/// process when memory runs out.
inline bool is_text(const nlohmann::json& json, std::string_view text) {
  const auto* own = json.get_ptr<const std::string*>();
  return own != nullptr && *own == text;
}

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

// Whether a text, JSON or not, opens more than `most` arrays and objects within each other.
EIGENFORMER_IO_FUNCTION bool is_nested_deeper(std::string_view text, std::size_t most) {
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

EIGENFORMER_IO_FUNCTION nlohmann::json parse_json(std::string_view text) {
  if (text.size() > longest_json || is_nested_deeper(text, deepest_json))
    return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

/// Builds a value from the events of nlohmann::json::sax_parse(), in time linear in the text up to the
/// logarithm of the names in one object; json::parse() with a callback passes over all of an object's members
/// at the end of each. Throws ValueError for an object that has a name twice, of which parse_json() keeps the
/// last value, for a text nested more than `depth` deep, and for one of more than `items` names and values.
class UniqueJson {
 public:
  UniqueJson(std::size_t depth, std::size_t items) : most_depth_(depth), items_left_(items), items_(items) {}

  /// The value; is_discarded() before the end of a valid text.
  nlohmann::json value = nlohmann::json(nlohmann::json::value_t::discarded);
  /// nlohmann's message about a text that is not JSON.
  std::string error{};

  // The functions that sax_parse() calls; those that it calls for other formats, too.
  bool null() { return add(nullptr); }
  bool boolean(bool b) { return add(b); }
  bool number_integer(nlohmann::json::number_integer_t n) { return add(n); }
  bool number_unsigned(nlohmann::json::number_unsigned_t n) { return add(n); }
  bool number_float(nlohmann::json::number_float_t n, const std::string&) { return add(n); }
  bool string(std::string& text) { return add(std::move(text)); }
  bool binary(nlohmann::json::binary_t& bytes) { return add(std::move(bytes)); }
  bool start_object(std::size_t) { return open(nlohmann::json::object()); }
  bool start_array(std::size_t) { return open(nlohmann::json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    count();
    const auto [at, added] = open_.back()->get_ref<nlohmann::json::object_t&>().try_emplace(name);
    if (!added) throw ValueError("json", {"has the name '", name, "' twice in one object, expected it once"});
    member_ = &at->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& exception) {
    error = exception.what();
    value = nlohmann::json(nlohmann::json::value_t::discarded);
    return false;
  }

 private:
  void count() {
    if (items_left_-- == 0) throw ValueError("json", {"has more than ", items_, " names and values"});
  }
  // Stays where it is until the array or object around it is closed.
  nlohmann::json& place(nlohmann::json&& item) {
    count();
    if (open_.empty()) return value = std::move(item);
    if (!open_.back()->is_array()) return *member_ = std::move(item);
    auto& items = open_.back()->get_ref<nlohmann::json::array_t&>();
    items.push_back(std::move(item));
    return items.back();
  }
  bool add(nlohmann::json&& item) {
    place(std::move(item));
    return true;
  }
  bool open(nlohmann::json&& item) {
    if (open_.size() == most_depth_) throw ValueError("json", {"is nested more than ", most_depth_, " deep"});
    open_.push_back(&place(std::move(item)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::size_t most_depth_, items_left_, items_;
  std::vector<nlohmann::json*> open_{};  // the arrays and objects around the next value, outermost first
  nlohmann::json* member_ = nullptr;     // the value of the last name
};

EIGENFORMER_IO_FUNCTION nlohmann::json parse_unique_json(std::string_view text) {
  UniqueJson json(deepest_json, longest_json);
  if (text.size() <= longest_json && !is_nested_deeper(text, deepest_json))
    nlohmann::json::sax_parse(text, &json);
  return std::move(json.value);
}

}  // namespace eigenformer::detail

#endif
