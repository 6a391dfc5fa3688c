#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"

namespace eigenformer::detail {

/// Encodes large amounts of text with one tokenizer. When no piece of a subword vocabulary extends beyond a
/// word, a text is encoded word by word, with a cache of the words' ids; otherwise each text is passed to the
/// tokenizer. Thread-safe.
class WordEncoder {
 public:
  explicit WordEncoder(const Tokenizer& tokenizer);

  /// Returns the same ids as the tokenizer, for a text that went through normalize_text().
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// Whether words are encoded one by one.
  bool by_word() const noexcept { return by_word_; }

 private:
  using Words = std::unordered_map<std::string, std::vector<std::int32_t>, StringHash, std::equal_to<>>;

  std::unique_ptr<Words> take_words() const;

  const Tokenizer& tokenizer_;
  const bool by_word_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Words>> free_;  // caches of words; a thread owns one while it encodes
};

}  // namespace eigenformer::detail
