#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace eigenformer {

/// The parts of a tokenizer that came from somewhere else, in one file: a line that says what it is, then for
/// each part its name, its number of bytes, and the bytes.
class TokenizerParts {
 public:
  void set(const std::string& name, std::string bytes) { parts_[name] = std::move(bytes); }
  void set_list(const std::string& name, const std::vector<std::string>& items) {
    std::string bytes;
    for (const std::string& item : items) bytes += std::to_string(item.size()) + ' ' + item + '\n';
    set(name, std::move(bytes));
  }
  void set_ids(const std::string& name, const std::vector<std::int32_t>& ids) {
    std::vector<std::string> items;
    for (const std::int32_t id : ids) items.push_back(std::to_string(id));
    set_list(name, items);
  }

  /// Whether there is such a part.
  bool contains(const std::string& name) const { return parts_.count(name) > 0; }

  /// A part's bytes. Throws IoError where there is none, as do the others.
  const std::string& get(const std::string& name) const {
    const auto found = parts_.find(name);
    if (found == parts_.end()) throw refuse("has no part '" + name + "'");
    return found->second;
  }
  std::vector<std::string> list(const std::string& name) const {
    std::string_view rest = get(name);
    std::vector<std::string> items;
    while (!rest.empty()) {
      const std::size_t size = take_number(rest, ' ', name);
      if (rest.size() <= size || rest[size] != '\n') throw refuse("is damaged in its part '" + name + "'");
      items.emplace_back(rest.substr(0, size));
      rest.remove_prefix(size + 1);
    }
    return items;
  }
  std::vector<std::int32_t> ids(const std::string& name) const {
    std::vector<std::int32_t> ids;
    for (const std::string& item : list(name)) ids.push_back(number(name, item));
    return ids;
  }

  /// An item of a list that is a whole number.
  std::int32_t number(const std::string& name, const std::string& item) const {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size()) {
      throw refuse("has '" + item + "' in its part '" + name + "', expected a whole number");
    }
    return value;
  }

  /// Writes `path`. Throws IoError.
  void save(const std::filesystem::path& path) const {
    std::string bytes = std::string(magic);
    for (const auto& [name, part] : parts_)
      bytes += name + ' ' + std::to_string(part.size()) + '\n' + part + '\n';
    write_file(path, bytes);
  }

  /// Reads what save() wrote. Throws IoError for anything else, naming the file.
  static TokenizerParts load(const std::filesystem::path& path) {
    TokenizerParts parts;
    parts.path_ = path;
    const std::string bytes = read_text_file(path);
    std::string_view rest = bytes;
    if (rest.substr(0, magic.size()) != magic) throw parts.refuse("is not a tokenizer of this library");
    rest.remove_prefix(magic.size());
    while (!rest.empty()) {
      const std::size_t space = rest.find(' ');
      if (space == std::string_view::npos || space > 64) throw parts.refuse("is damaged");
      const std::string name(rest.substr(0, space));
      rest.remove_prefix(space + 1);
      const std::size_t size = parts.take_number(rest, '\n', name);
      if (rest.size() <= size || rest[size] != '\n')
        throw parts.refuse("is truncated in its part '" + name + "'");
      parts.set(name, std::string(rest.substr(0, size)));
      rest.remove_prefix(size + 1);
    }
    return parts;
  }

  /// An error about this file.
  IoError refuse(const std::string& what) const {
    return IoError("tokenizer", "'" + path_.string() + "' " + what);
  }

 private:
  static constexpr std::string_view magic = "eigenformer-tokenizer 1\n";

  std::size_t take_number(std::string_view& rest, char after, const std::string& name) const {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != after) {
      throw refuse("is damaged before or in its part '" + name + "'");
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 1);
    return number;
  }

  std::filesystem::path path_;
  std::map<std::string, std::string> parts_;
};

}  // namespace eigenformer
