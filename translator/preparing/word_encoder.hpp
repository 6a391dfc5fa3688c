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

#include "eigenformer/data/corpus/vocabulary.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

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
    const Lent words(*this);
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
    return ids;
  }

  /// Whether words are encoded one by one.
  bool by_word() const noexcept { return by_word_; }

 private:
  using Words = std::unordered_map<std::string, std::vector<std::int32_t>, StringHash, std::equal_to<>>;

  static constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
  static constexpr std::size_t most_words = 100'000;

  // A cache of words that one thread owns while it encodes.
  class Lent {
   public:
    explicit Lent(const WordEncoder& owner) : owner_(owner) {
      const std::lock_guard<std::mutex> lock(owner_.mutex_);
      if (owner_.free_.empty()) {
        words_ = std::make_unique<Words>();
      } else {
        words_ = std::move(owner_.free_.back());
        owner_.free_.pop_back();
      }
    }
    ~Lent() {
      const std::lock_guard<std::mutex> lock(owner_.mutex_);
      owner_.free_.push_back(std::move(words_));
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    Words* operator->() const { return words_.get(); }

   private:
    const WordEncoder& owner_;
    std::unique_ptr<Words> words_;
  };

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

  const Tokenizer& tokenizer_;
  const bool by_word_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Words>> free_;
};

}  // namespace eigenformer::detail
