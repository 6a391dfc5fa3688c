#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"

namespace eigenformer::detail {

/// The classes of characters by which AddedTokens are matched in transformers' tokenizers that are written in
/// Python; icu::AddedTokenCharacters has those of the tokenizers package.
struct AddedTokenCharacters {
  /// Whether a code point is white space for AddedToken::strip_left and strip_right.
  static bool is_white_space(char32_t c) { return is_space(c); }
  /// Whether a code point next to a token makes it a part of a word.
  static bool is_word_character(char32_t c) { return c != U' '; }
};

/// Added tokens, matched as in Hugging Face's tokenizers package: from left to right, the longest match
/// first.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// tokens: in any order; require_ids() checks their ids.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// The tokens, in the order in which they were given.
  const std::vector<AddedToken>& tokens() const noexcept { return tokens_; }

  /// Calls on_token(id) for each token in a UTF-8 text and on_text(part, byte offset) for each part between
  /// them, in the order of the text. normalized: which tokens to match, those with AddedToken::normalized or
  /// those without. Characters: as AddedTokenCharacters.
  template <class Characters, class OnToken, class OnText>
  void split(std::string_view text, bool normalized, OnToken&& on_token, OnText&& on_text) const {
    std::size_t done = 0;
    for (std::size_t i = 0; i < text.size();) {
      const AddedToken* token = find(text.substr(i), normalized);
      if (token == nullptr) {
        ++i;
        continue;
      }
      std::size_t begin = i, end = i + token->text.size();
      i = end;
      const auto is_in_word = [&](DecodedCodePoint c) { return Characters::is_word_character(c.value); };
      if (token->single_word && ((begin > 0 && is_in_word(code_point_before(text, begin))) ||
                                 (end < text.size() && is_in_word(code_point_at(text, end)))))
        continue;
      if (token->strip_left) begin = std::max(done, before_run(text, begin, Characters::is_white_space));
      if (token->strip_right) end = after_run(text, end, Characters::is_white_space);
      if (done < begin) on_text(text.substr(done, begin - done), done);
      on_token(token->id);
      done = end;
      i = std::max(i, end);
    }
    if (done < text.size()) on_text(text.substr(done), done);
  }

  /// Stores the tokens as the part "added"; nothing when there are none.
  void add_to(TokenizerParts& parts) const;
  /// Reads what add_to() stored; no tokens when there is no such part. Throws IoError for a damaged part.
  static std::vector<AddedToken> read(const TokenizerParts& parts);
  /// Throws ValueError for an id outside a vocabulary of this size.
  void require_ids(index_t size) const;

 private:
  const AddedToken* find(std::string_view rest, bool normalized) const;

  std::vector<AddedToken> tokens_;
  std::map<char, std::vector<std::size_t>> by_first_byte_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!tokens_[i].text.empty()) by_first_byte_[tokens_[i].text[0]].push_back(i);
  }
  for (auto& [byte, found] : by_first_byte_) {
    std::stable_sort(found.begin(), found.end(), [&](std::size_t a, std::size_t b) {
      return tokens_[a].text.size() > tokens_[b].text.size();
    });
  }
}

EIGENFORMER_IO_FUNCTION void AddedTokens::add_to(TokenizerParts& parts) const {
  if (tokens_.empty()) return;
  std::vector<std::string> items;
  for (const AddedToken& t : tokens_) {
    const int flags =
        (t.strip_left ? 1 : 0) + (t.strip_right ? 2 : 0) + (t.single_word ? 4 : 0) + (t.normalized ? 8 : 0);
    items.push_back(t.text);
    items.push_back(std::to_string(t.id));
    items.push_back(std::to_string(flags));
  }
  parts.set_list("added", items);
}

EIGENFORMER_IO_FUNCTION std::vector<AddedToken> AddedTokens::read(const TokenizerParts& parts) {
  std::vector<AddedToken> tokens;
  if (!parts.contains("added")) return tokens;
  const std::vector<std::string> items = parts.list("added");
  if (items.size() % 3 != 0) throw parts.refuse({"is damaged in its part 'added'"});
  for (std::size_t i = 0; i < items.size(); i += 3) {
    const std::int32_t flags = parts.number("added", items[i + 2]);
    tokens.push_back({items[i], parts.number("added", items[i + 1]), (flags & 1) != 0, (flags & 2) != 0,
                      (flags & 4) != 0, (flags & 8) != 0});
  }
  return tokens;
}

EIGENFORMER_IO_FUNCTION void AddedTokens::require_ids(index_t size) const {
  for (const AddedToken& token : tokens_) {
    if (token.id < 0 || token.id >= size) {
      throw ValueError("tokenizer", {"the added token '", token.text, "' has the id ", token.id,
                                     ", outside the vocabulary of size ", size});
    }
  }
}

EIGENFORMER_IO_FUNCTION const AddedToken* AddedTokens::find(std::string_view rest, bool normalized) const {
  const auto candidates = by_first_byte_.find(rest[0]);
  if (candidates == by_first_byte_.end()) return nullptr;
  for (const std::size_t i : candidates->second) {
    if (tokens_[i].normalized == normalized && rest.starts_with(tokens_[i].text)) return &tokens_[i];
  }
  return nullptr;
}

}  // namespace eigenformer::detail

#endif
