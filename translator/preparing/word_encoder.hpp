#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/subword_models.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"

namespace eigenformer::detail {

/// Encodes large amounts of text with one tokenizer. When no piece of a subword vocabulary extends beyond a
/// word, a text is encoded word by word, with a cache of the words' ids; otherwise each text is passed to the
/// tokenizer. Thread-safe.
class WordEncoder {
 public:
  explicit WordEncoder(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), by_word_(has_pieces_of_words(tokenizer)) {}

  /// Returns the same ids as the tokenizer, for a text that went through normalize_text().
  std::vector<std::int32_t> encode(std::string_view text) const {
    if (!by_word_ || text.find(space_mark) != std::string_view::npos) return tokenizer_.encode(text);
    std::vector<std::int32_t> ids;
    std::unique_ptr<Words> words = take_words();
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      auto found = words->find(word);
      if (found == words->end()) {
        if (words->size() >= most_words) words->clear();
        found = words->emplace(std::string(word), tokenizer_.encode(word)).first;
      }
      ids.insert(ids.end(), found->second.begin(), found->second.end());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(words));
    return ids;
  }

  /// Whether words are encoded one by one.
  bool by_word() const noexcept { return by_word_; }

 private:
  static constexpr std::size_t most_words = 100'000;

  // The mark occurs only at the start of pieces and is a piece itself, so no piece and no run of unknown
  // characters extends beyond a word.
  static bool has_pieces_of_words(const Tokenizer& tokenizer) {
    if (tokenizer.kind() != "subword") return false;
    bool has_mark = false;
    for (index_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      const std::string piece = tokenizer.token(static_cast<std::int32_t>(id));
      if (piece.find(space_mark, 1) != std::string::npos) return false;
      has_mark = has_mark || piece == space_mark;
    }
    return has_mark;
  }

  using Words = std::unordered_map<std::string, std::vector<std::int32_t>, StringHash, std::equal_to<>>;

  std::unique_ptr<Words> take_words() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Words>();
    std::unique_ptr<Words> words = std::move(free_.back());
    free_.pop_back();
    return words;
  }

  const Tokenizer& tokenizer_;
  const bool by_word_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Words>> free_;  // caches of words; a thread owns one while it encodes
};

}  // namespace eigenformer::detail
