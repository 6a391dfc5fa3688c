#pragma once

#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer::detail {

/// Settings in the subset of YAML that Marian writes: keys with a word, a number, or a list of these. Nested
/// keys are skipped.
class MarianSettings {
 public:
  MarianSettings() = default;
  /// where: the name of the text in messages. Throws IoError for a line that is not a setting.
  MarianSettings(std::string where, std::string_view text) : where_(std::move(where)) {
    std::string key;
    for (int number = 1; !text.empty(); ++number) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      const std::string_view stripped = strip(line);
      if (stripped.empty() || stripped[0] == '#' || stripped == "---" || stripped == "...") continue;
      if (stripped[0] == '-' && (stripped.size() == 1 || stripped[1] == ' ')) {
        if (key.empty()) throw refuse(number, line);
        values_[key].push_back(unquoted(stripped.substr(1)));
        continue;
      }
      if (line[0] == ' ' || line[0] == '\t') continue;  // nested deeper
      const std::size_t colon = stripped.find(':');
      if (colon == std::string_view::npos || colon == 0) throw refuse(number, line);
      key = std::string(stripped.substr(0, colon));
      std::string_view value = strip(stripped.substr(colon + 1));
      std::vector<std::string>& list = values_[key];
      list.clear();
      if (value.size() >= 2 && value.front() == '[' && value.back() == ']') {
        value = strip(value.substr(1, value.size() - 2));
        while (!value.empty()) {
          const std::size_t comma = std::min(value.find(','), value.size());
          list.push_back(unquoted(value.substr(0, comma)));
          value.remove_prefix(std::min(comma + 1, value.size()));
        }
      } else if (!value.empty()) {
        list.push_back(unquoted(value));
      }
    }
  }

  const std::string& where() const noexcept { return where_; }
  bool has(const std::string& key) const { return values_.count(key) > 0; }

  /// The values of a key: none, one, or those of a list.
  std::vector<std::string> list(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::vector<std::string>() : found->second;
  }
  /// The single value of a key, or `missing`. Throws IoError for a list of several.
  std::string word(const std::string& key, const std::string& missing = {}) const {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.empty()) return missing;
    if (found->second.size() > 1) throw refuse_value(key, "a list", "one value");
    return found->second[0];
  }
  /// The value of a key as a number, or `missing`. Throws IoError for another value.
  double number(const std::string& key, double missing) const {
    const std::string text = word(key);
    return text.empty() ? missing : parse(key, text);
  }
  /// The i-th value of a key as a whole number. Throws IoError when there is none or it is not one.
  long whole(const std::string& key, std::size_t i = 0) const {
    const auto values = list(key);
    if (i >= values.size())
      throw IoError("marian", "'" + where_ + "' has no '" + key + "', expected a number");
    const double value = parse(key, values[i]);
    if (value != std::floor(value) || std::abs(value) > std::numeric_limits<int>::max())
      throw refuse_value(key, values[i], "a whole number");
    return static_cast<long>(value);
  }
  bool flag(const std::string& key) const {
    const std::string text = word(key, "false");
    if (text != "true" && text != "false") throw refuse_value(key, text, "true or false");
    return text == "true";
  }

  IoError refuse_value(const std::string& key, const std::string& value, const std::string& expected) const {
    return IoError("marian", "'" + where_ + "' has " + key + " " + (value.empty() ? "\"\"" : value) +
                                 ", expected " + expected);
  }

 private:
  static std::string_view strip(std::string_view text) {
    constexpr std::string_view blank = " \t\r";
    const std::size_t first = text.find_first_not_of(blank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blank) - first + 1);
  }
  static std::string unquoted(std::string_view text) {
    text = strip(text);
    if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
      text = text.substr(1, text.size() - 2);
    return std::string(text);
  }
  double parse(const std::string& key, const std::string& text) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      throw refuse_value(key, text, "a number");
    return value;
  }
  IoError refuse(int line, std::string_view text) const {
    return IoError("marian", "'" + where_ + "', line " + std::to_string(line) +
                                 ": expected 'key: value', got '" + std::string(text.substr(0, 60)) + "'");
  }

  std::string where_;
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace eigenformer::detail
