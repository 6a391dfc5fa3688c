#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

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

/// The vocabulary of a checkpoint from elsewhere, with any ids for special tokens.
struct ForeignVocabulary {
  std::vector<std::string> tokens{};        ///< by id; an empty one is an unused id
  std::int32_t unknown_id = -1;             ///< id of unknown tokens; -1: they are left out when encoding
  std::vector<std::int32_t> special_ids{};  ///< left out when decoding: padding, begin, end, languages
};

/// A token that is matched in a text before the text is cut into pieces, such as "<mask>" or a language's
/// name.
struct AddedToken {
  std::string text{};        ///< the text that is matched, in UTF-8; an empty one never matches
  std::int32_t id = 0;       ///< its id in the vocabulary
  bool strip_left = false;   ///< a match includes the white space before it
  bool strip_right = false;  ///< a match includes the white space after it
  bool single_word = false;  ///< does not match next to a character of a word
  bool normalized = false;   ///< matched in the normalised text instead of the original one

  /// Compares all fields.
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// Base class of the tokenizers of other libraries' checkpoints. All ids are those of the checkpoint, those
/// of pad, begin and end too; TextConventions names them.
class ForeignTokenizer : public Tokenizer {
 public:
  index_t vocabulary_size() const override { return static_cast<index_t>(vocabulary_.tokens.size()); }

  std::string token(std::int32_t id) const override {
    require_token_id("tokenizer", id, vocabulary_size());
    return vocabulary_.tokens[static_cast<std::size_t>(id)];
  }

  std::int32_t unknown_id() const override { return vocabulary_.unknown_id; }

  /// The id of a token as spelled in the vocabulary, special tokens included; nothing for an unknown one.
  std::optional<std::int32_t> find(std::string_view token) const { return find_id(ids_, token); }

  /// Writes `directory/name.tokenizer`. Throws IoError.
  EIGENFORMER_FUNCTION void save(const std::filesystem::path& directory,
                                 const std::string& name = "tokenizer") const override;

 protected:
  /// Throws ValueError for a special id outside the vocabulary. A repeated token is encoded by its first id.
  explicit ForeignTokenizer(ForeignVocabulary vocabulary);

  /// Adds the parts that save() writes beside kind and vocabulary.
  virtual void add_parts(TokenizerParts&) const {}

  /// Returns make(parts) with what save() of the same kind wrote. Throws IoError that names the file, also
  /// for another kind, and for a ValueError of make(), about invalid contents.
  template <class F>
  static auto made_of_parts(const char* kind, const std::filesystem::path& directory, const std::string& name,
                            F&& make) {
    const TokenizerParts parts = TokenizerParts::load(directory / (name + ".tokenizer"));
    if (parts.get("kind") != kind)
      throw parts.refuse({"is of kind '", parts.get("kind"), "', expected '", kind, "'"});
    try {
      return make(parts);
    } catch (const ValueError& error) {
      throw parts.refuse({"is damaged: ", error.what()});
    }
  }
  /// The vocabulary that save() wrote. Throws IoError for missing or damaged parts.
  static ForeignVocabulary read_vocabulary(const TokenizerParts& parts) {
    ForeignVocabulary vocabulary{parts.list("tokens"), -1, parts.ids("special")};
    const std::vector<std::int32_t> unknown = parts.ids("unknown");
    if (unknown.size() == 1) vocabulary.unknown_id = unknown[0];
    return vocabulary;
  }

  /// Appends the id of a piece; for an unknown piece unknown_id, or nothing when that is -1.
  void append(std::vector<std::int32_t>& ids, std::string_view piece) const {
    const std::int32_t id = find(piece).value_or(vocabulary_.unknown_id);
    if (id >= 0) ids.push_back(id);
  }

  /// The tokens of ids, without special ones; unknown_id becomes U+2047. Throws IndexError for an id outside
  /// the vocabulary.
  std::vector<std::string> pieces(std::span<const std::int32_t> ids) const;

  /// The vocabulary that was passed to the constructor.
  const ForeignVocabulary& vocabulary() const noexcept { return vocabulary_; }

 private:
  ForeignVocabulary vocabulary_;
  std::vector<bool> special_;  // ids that decoding leaves out: special and unused ones
  TokenIds ids_;
};

/// A tokenizer for text that is already tokenized: tokens are separated by spaces.
class TokenTokenizer final : public ForeignTokenizer {
 public:
  /// Throws ValueError for a special id outside the vocabulary.
  explicit TokenTokenizer(ForeignVocabulary given) : ForeignTokenizer(std::move(given)) {}

  /// Loads `directory/name.tokenizer`. Throws IoError.
  static TokenTokenizer load(const std::filesystem::path& directory, const std::string& name = "tokenizer") {
    return made_of_parts("tokens", directory, name,
                         [](const TokenizerParts& parts) { return TokenTokenizer(read_vocabulary(parts)); });
  }

  std::string kind() const override { return "tokens"; }

  EIGENFORMER_FUNCTION std::vector<std::int32_t> encode(std::string_view text) const override;

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::string& piece : pieces(ids)) text += (text.empty() ? "" : " ") + piece;
    return text;
  }
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

EIGENFORMER_FUNCTION void ForeignTokenizer::save(const std::filesystem::path& directory,
                                                 const std::string& name) const {
  TokenizerParts parts;
  parts.set("kind", kind());
  parts.set_list("tokens", vocabulary_.tokens);
  parts.set_ids("unknown", {vocabulary_.unknown_id});
  parts.set_ids("special", vocabulary_.special_ids);
  add_parts(parts);
  parts.save(directory / (name + ".tokenizer"));
}

EIGENFORMER_FUNCTION ForeignTokenizer::ForeignTokenizer(ForeignVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)) {
  special_.resize(vocabulary_.tokens.size());
  for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    if (vocabulary_.tokens[i].empty()) {
      special_[i] = true;
    } else {
      ids_.emplace(vocabulary_.tokens[i], static_cast<std::int32_t>(i));
    }
  }
  std::vector<std::int32_t> ids = vocabulary_.special_ids;
  if (vocabulary_.unknown_id != -1) ids.push_back(vocabulary_.unknown_id);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) {
      throw ValueError("tokenizer",
                       {"the special id ", id, " is outside the vocabulary of size ", vocabulary_size()});
    }
  }
  for (const std::int32_t id : vocabulary_.special_ids) special_[static_cast<std::size_t>(id)] = true;
}

EIGENFORMER_FUNCTION std::vector<std::string> ForeignTokenizer::pieces(
    std::span<const std::int32_t> ids) const {
  std::vector<std::string> found;
  for (const std::int32_t id : ids) {
    require_token_id("tokenizer", id, vocabulary_size());
    if (id == vocabulary_.unknown_id) {
      found.emplace_back(unknown_text);
    } else if (!special_[static_cast<std::size_t>(id)]) {
      found.push_back(vocabulary_.tokens[static_cast<std::size_t>(id)]);
    }
  }
  return found;
}

EIGENFORMER_FUNCTION std::vector<std::int32_t> TokenTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const std::string_view token : parts_between(text, " ")) {
    if (!token.empty()) append(ids, token);
  }
  return ids;
}

}  // namespace eigenformer::detail

#endif
