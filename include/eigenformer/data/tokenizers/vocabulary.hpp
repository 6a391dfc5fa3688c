#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace eigenformer {

namespace detail {

/// Lets maps with string keys be searched with a string_view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
};

/// Tokens and their ids.
using TokenIds = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

/// The id of a token, or nothing.
inline std::optional<std::int32_t> find_id(const TokenIds& ids, std::string_view token) {
  const auto found = ids.find(token);
  if (found == ids.end()) return std::nullopt;
  return found->second;
}

/// Throws IndexError for an id outside a vocabulary of this size.
inline void require_token_id(const char* op, std::int32_t id, index_t size) {
  if (id < 0 || id >= size)
    throw IndexError(op, {"token id ", id, " is outside the vocabulary of size ", size});
}

}  // namespace detail

/// How often each token occurs.
using TokenCounts = std::unordered_map<std::string, index_t, detail::StringHash, std::equal_to<>>;

/// Options of Vocabulary::from_counts().
struct VocabularyOptions {
  index_t max_size = 0;   ///< most entries, the four special ones included; 0: no limit
  index_t min_count = 1;  ///< rarer tokens are left out
  /// Entries that are never produced from text, such as "<2de>"; they come first and count towards max_size.
  std::vector<std::string> reserved{};
};

namespace detail {

/// Bytes of a file of tokens or merges, once decompressed: a gzip or zstd file can hold 1000 times its size
/// and more.
inline constexpr std::size_t most_vocabulary_bytes = 100'000'000;

}  // namespace detail

/// Tokens and their ids: 0 to 3 are always the special ones (SpecialIds), the others follow.
class Vocabulary {
 public:
  static constexpr index_t num_specials = 4;  ///< number of special entries
  /// Texts of the special entries, by id.
  static constexpr std::array<const char*, 4> special_names = {"<pad>", "<unk>", "<s>", "</s>"};

  /// Makes a vocabulary of only the special entries.
  Vocabulary() : tokens_(special_names.begin(), special_names.end()) {}

  /// Makes a vocabulary of the special entries and `tokens`, in their order, from id 4. Throws ValueError for
  /// an empty or repeated token.
  explicit Vocabulary(std::span<const std::string> tokens);

  /// Makes a vocabulary of the most frequent tokens, in descending order; equally frequent ones are ordered
  /// by their bytes, so that ids are the same on every machine. Throws ValueError for a max_size that leaves
  /// no room beside the special entries or is too small for the reserved ones, a negative min_count, and an
  /// empty or repeated reserved entry.
  static Vocabulary from_counts(const TokenCounts& counts, const VocabularyOptions& options = {});

  /// Number of entries, the special ones included.
  index_t size() const noexcept { return static_cast<index_t>(tokens_.size()); }

  /// The id of a token, or nothing. Special entries are not found by their names, so that no text can produce
  /// them.
  std::optional<std::int32_t> find(std::string_view token) const { return detail::find_id(ids_, token); }

  /// The id of a token; SpecialIds::unknown when it is not in the vocabulary.
  std::int32_t id(std::string_view token) const { return find(token).value_or(SpecialIds::unknown); }

  /// The token of an id. Throws IndexError outside the vocabulary.
  const std::string& token(std::int32_t id) const {
    detail::require_token_id("vocabulary", id, size());
    return tokens_[static_cast<std::size_t>(id)];
  }

  /// Writes one token a line in the order of the ids; `\n`, `\r` and `\\` stand for line ends and backslash.
  /// Throws IoError.
  void save(const std::filesystem::path& path) const {
    std::string text;
    for (const std::string& token : tokens_) text += escape(token) + '\n';
    detail::write_file(path, text);
  }

  /// Reads what save() wrote. Throws IoError for anything else, naming file and line.
  static Vocabulary load(const std::filesystem::path& path);

  /// Whether both have the same tokens with the same ids.
  friend bool operator==(const Vocabulary& a, const Vocabulary& b) { return a.tokens_ == b.tokens_; }

 private:
  // What a line cannot hold, and what stands for it behind a backslash.
  static constexpr std::string_view escaped = "\n\r\\", letters = "nr\\";

  static std::string escape(std::string_view token);

  static std::optional<std::string> unescape(std::string_view line);

  std::vector<std::string> tokens_;
  detail::TokenIds ids_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION Vocabulary::Vocabulary(std::span<const std::string> tokens) : Vocabulary() {
  tokens_.reserve(tokens_.size() + tokens.size());
  for (const std::string& token : tokens) {
    if (token.empty()) throw ValueError("vocabulary", {"token with id ", size(), " is empty"});
    if (!ids_.emplace(token, static_cast<std::int32_t>(size())).second) {
      throw ValueError("vocabulary", {"token '", token, "' occurs twice, expected distinct tokens"});
    }
    tokens_.push_back(token);
  }
}

EIGENFORMER_FUNCTION Vocabulary Vocabulary::from_counts(const TokenCounts& counts,
                                                        const VocabularyOptions& options) {
  if (options.max_size != 0 && options.max_size <= num_specials) {
    throw ValueError("vocabulary", {"max_size is ", options.max_size,
                                    ", must be 0 (no limit) or more than the 4 special entries"});
  }
  if (options.min_count < 0) {
    throw ValueError("vocabulary", {"min_count is ", options.min_count, ", must not be negative"});
  }
  const auto reserved_size = static_cast<index_t>(options.reserved.size());
  if (options.max_size != 0 && reserved_size > options.max_size - num_specials) {
    throw ValueError("vocabulary",
                     {"max_size is ", options.max_size, ", must be 0 (no limit) or at least ",
                      num_specials + reserved_size, ", the number of special and reserved entries"});
  }
  std::vector<std::pair<std::string, index_t>> entries;
  for (const auto& entry : counts) {
    const bool reserved =
        std::find(options.reserved.begin(), options.reserved.end(), entry.first) != options.reserved.end();
    if (entry.second >= options.min_count && !reserved) entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::size_t room = entries.size();
  if (options.max_size != 0)
    room = std::min(room, static_cast<std::size_t>(options.max_size - num_specials - reserved_size));
  std::vector<std::string> tokens = options.reserved;
  tokens.reserve(tokens.size() + room);
  for (std::size_t i = 0; i < room; ++i) tokens.push_back(std::move(entries[i].first));
  return Vocabulary(tokens);
}

EIGENFORMER_FUNCTION Vocabulary Vocabulary::load(const std::filesystem::path& path) {
  const std::vector<std::string> lines = read_lines(path, detail::most_vocabulary_bytes);
  const auto refuse = [&](std::size_t line, const std::string& what) {
    return IoError("vocabulary", "'" + path.string() + "', line " + std::to_string(line + 1) + ": " + what);
  };
  for (std::size_t i = 0; i < special_names.size(); ++i) {
    if (i >= lines.size() || lines[i] != special_names[i]) {
      throw refuse(i, "expected the special entry '" + std::string(special_names[i]) +
                          "'; this is not a vocabulary file");
    }
  }
  std::vector<std::string> tokens;
  for (std::size_t i = special_names.size(); i < lines.size(); ++i) {
    auto token = unescape(lines[i]);
    if (!token || token->empty())
      throw refuse(i, "'" + lines[i] + "' is not an escaped token, as a vocabulary file has them");
    tokens.push_back(*std::move(token));
  }
  try {
    return Vocabulary(tokens);
  } catch (const ValueError& error) {
    throw IoError("vocabulary", {"'", path.string(), "' is damaged: ", error.what()});
  }
}

EIGENFORMER_FUNCTION std::string Vocabulary::escape(std::string_view token) {
  std::string out;
  for (const char c : token) {
    const std::size_t at = escaped.find(c);
    if (at != std::string_view::npos) out += '\\';
    out += at != std::string_view::npos ? letters[at] : c;
  }
  return out;
}

EIGENFORMER_FUNCTION std::optional<std::string> Vocabulary::unescape(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    if (++i == line.size()) return std::nullopt;
    const std::size_t at = letters.find(line[i]);
    if (at == std::string_view::npos) return std::nullopt;
    out += escaped[at];
  }
  return out;
}

}  // namespace eigenformer

#endif
