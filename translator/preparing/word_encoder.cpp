#include "translator/preparing/word_encoder.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "eigenformer/data/tokenizers/subword_models.hpp"

namespace eigenformer::detail {

namespace {

constexpr std::size_t most_words = 100'000;

// The mark occurs only at the start of pieces and is a piece itself, so no piece and no run of unknown
// characters extends beyond a word.
bool has_pieces_of_words(const Tokenizer& tokenizer) {
  if (tokenizer.kind() != "subword") return false;
  bool has_mark = false;
  for (index_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string piece = tokenizer.token(static_cast<std::int32_t>(id));
    if (piece.find(space_mark, 1) != std::string::npos) return false;
    has_mark = has_mark || piece == space_mark;
  }
  return has_mark;
}

}  // namespace

// A cache of words that one thread owns while it encodes.
class WordEncoder::Lent {
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

WordEncoder::WordEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), by_word_(has_pieces_of_words(tokenizer)) {}

std::vector<std::int32_t> WordEncoder::encode(std::string_view text) const {
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

}  // namespace eigenformer::detail
