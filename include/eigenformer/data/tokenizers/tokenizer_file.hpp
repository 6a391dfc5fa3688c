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

namespace eigenformer::detail {

/// The named parts of an imported tokenizer in one file: a line with magic and version, then for each part
/// its name, its number of bytes, and the bytes.
class TokenizerParts {
 public:
  /// Adds or replaces a part. name: without spaces and line ends, at most 64 bytes.
  void set(const std::string& name, std::string bytes) { parts_[name] = std::move(bytes); }
  /// Adds or replaces a part that is a list of texts, which may hold any bytes.
  void set_list(const std::string& name, const std::vector<std::string>& items) {
    std::string bytes;
    for (const std::string& item : items) bytes += std::to_string(item.size()) + ' ' + item + '\n';
    set(name, std::move(bytes));
  }
  /// Adds or replaces a part that is a list of whole numbers.
  void set_ids(const std::string& name, const std::vector<std::int32_t>& ids) {
    std::vector<std::string> items;
    for (const std::int32_t id : ids) items.push_back(std::to_string(id));
    set_list(name, items);
  }

  /// Whether there is a part with this name.
  bool contains(const std::string& name) const { return parts_.count(name) > 0; }

  /// The bytes of a part. Throws IoError when there is none with this name.
  const std::string& get(const std::string& name) const {
    const auto found = parts_.find(name);
    if (found == parts_.end()) throw refuse({"has no part '", name, "'"});
    return found->second;
  }
  /// The texts of a part written by set_list(). Throws IoError when it is missing or damaged.
  std::vector<std::string> list(const std::string& name) const;
  /// The numbers of a part written by set_ids(). Throws IoError when it is missing or damaged.
  std::vector<std::int32_t> ids(const std::string& name) const {
    std::vector<std::int32_t> ids;
    for (const std::string& item : list(name)) ids.push_back(number(name, item));
    return ids;
  }

  /// Parses an item of the part `name` as a whole number. Throws IoError when it is not one.
  std::int32_t number(const std::string& name, const std::string& item) const;

  /// Writes all parts to a file. Throws IoError.
  void save(const std::filesystem::path& path) const {
    std::string bytes = std::string(magic);
    for (const auto& [name, part] : parts_)
      bytes += name + ' ' + std::to_string(part.size()) + '\n' + part + '\n';
    write_file(path, bytes);
  }

  /// Reads what save() wrote. Throws IoError for anything else, naming the file.
  static TokenizerParts load(const std::filesystem::path& path);

  /// Makes an error about this file; `what` continues a sentence that begins with its name.
  IoError refuse(std::initializer_list<MessagePart> what) const {
    return IoError("tokenizer", {"'", path_.string(), "' ", join(what)});
  }

 private:
  static constexpr std::string_view magic = "eigenformer-tokenizer 1\n";

  std::size_t take_number(std::string_view& rest, char after, const std::string& name) const;

  std::filesystem::path path_;
  std::map<std::string, std::string> parts_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_FUNCTION std::vector<std::string> TokenizerParts::list(const std::string& name) const {
  std::string_view rest = get(name);
  std::vector<std::string> items;
  while (!rest.empty()) {
    const std::size_t size = take_number(rest, ' ', name);
    if (rest.size() <= size || rest[size] != '\n') throw refuse({"is damaged in its part '", name, "'"});
    items.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size + 1);
  }
  return items;
}

EIGENFORMER_FUNCTION std::int32_t TokenizerParts::number(const std::string& name,
                                                         const std::string& item) const {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
  if (error != std::errc() || end != item.data() + item.size())
    throw refuse({"has '", item, "' in its part '", name, "', expected a whole number"});
  return value;
}

EIGENFORMER_FUNCTION TokenizerParts TokenizerParts::load(const std::filesystem::path& path) {
  TokenizerParts parts;
  parts.path_ = path;
  const std::string bytes = read_text_file(path);
  std::string_view rest = bytes;
  if (rest.substr(0, magic.size()) != magic) throw parts.refuse({"is not a tokenizer of this library"});
  rest.remove_prefix(magic.size());
  while (!rest.empty()) {
    const std::size_t space = rest.find(' ');
    if (space == std::string_view::npos || space > 64) throw parts.refuse({"is damaged"});
    const std::string name(rest.substr(0, space));
    rest.remove_prefix(space + 1);
    const std::size_t size = parts.take_number(rest, '\n', name);
    if (rest.size() <= size || rest[size] != '\n')
      throw parts.refuse({"is truncated in its part '", name, "'"});
    parts.set(name, std::string(rest.substr(0, size)));
    rest.remove_prefix(size + 1);
  }
  return parts;
}

EIGENFORMER_FUNCTION std::size_t TokenizerParts::take_number(std::string_view& rest, char after,
                                                             const std::string& name) const {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != after)
    throw refuse({"is damaged before or in its part '", name, "'"});
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 1);
  return number;
}

}  // namespace eigenformer::detail

#endif
