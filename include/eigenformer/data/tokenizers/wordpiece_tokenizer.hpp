#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/text/icu_text.hpp"
#include "eigenformer/data/tokenizers/added_tokens.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"

namespace eigenformer::detail {

/// BERT's tokenizer (Devlin et al. 2019): text is cleaned, optionally lower-cased and stripped of accents,
/// cut at spaces, punctuation and CJK characters, and each word is cut into pieces from the left, the longest
/// first; pieces inside a word begin with "##".
class WordPieceTokenizer final : public ForeignTokenizer {
 public:
  /// lower_case: lower-case the text and remove accents, as uncased models need. Throws ValueError for an
  /// added token that is matched in normalised text, and for ids outside the vocabulary.
  explicit WordPieceTokenizer(ForeignVocabulary given, bool lower_case = true,
                              std::vector<AddedToken> added = {});

  /// Loads `directory/name.tokenizer`. Throws IoError.
  static WordPieceTokenizer load(const std::filesystem::path& directory,
                                 const std::string& name = "tokenizer") {
    return made_of_parts("wordpiece", directory, name, [](const TokenizerParts& parts) {
      return WordPieceTokenizer(read_vocabulary(parts), parts.contains("lower_case"),
                                AddedTokens::read(parts));
    });
  }

  std::string kind() const override { return "wordpiece"; }

  EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> encode(std::string_view text) const override;

  EIGENFORMER_IO_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;

  /// Splits UTF-8 text into words and punctuation marks, as code points, after cleaning and lower-casing.
  std::vector<std::u32string> split(std::string_view text) const;

 protected:
  void add_parts(TokenizerParts& parts) const override {
    if (lower_case_) parts.set("lower_case", "");
    added_.add_to(parts);
  }

 private:
  static constexpr std::size_t longest_word = 100;

  // The blocks of CJK ideographs, each of which is a word of its own for BERT.
  static bool is_cjk(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B820 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  // A word with a part that is in no piece is unknown as a whole.
  void append_word(std::vector<std::int32_t>& ids, const std::u32string& word) const;

  bool lower_case_;
  AddedTokens added_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION WordPieceTokenizer::WordPieceTokenizer(ForeignVocabulary given, bool lower_case,
                                                               std::vector<AddedToken> added)
    : ForeignTokenizer(std::move(given)), lower_case_(lower_case), added_(std::move(added)) {
  added_.require_ids(vocabulary_size());
  for (const AddedToken& token : added_.tokens()) {
    if (token.normalized) {
      throw ValueError("tokenizer", {"the added token '", token.text,
                                     "' is matched in normalised text, which WordPiece does not support"});
    }
  }
}

EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> WordPieceTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  added_.split<icu::AddedTokenCharacters>(
      text, false, [&](std::int32_t id) { ids.push_back(id); },
      [&](std::string_view part, std::size_t) {
        for (const std::u32string& word : split(part)) append_word(ids, word);
      });
  return ids;
}

EIGENFORMER_IO_FUNCTION std::string WordPieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::string& piece : pieces(ids)) {
    if (piece.starts_with("##")) {
      text += piece.substr(2);
    } else {
      text += (text.empty() ? "" : " ") + piece;
    }
  }
  return text;
}

EIGENFORMER_IO_FUNCTION std::vector<std::u32string> WordPieceTokenizer::split(std::string_view text) const {
  std::vector<std::u32string> words;
  bool inside = false;  // a word that goes on
  const auto put = [&](char32_t c) {
    if (icu::is_white_space(c)) {
      inside = false;
    } else if (icu::is_punctuation_mark(c)) {
      words.emplace_back(1, c);
      inside = false;
    } else {
      if (!inside) words.emplace_back();
      words.back() += c;
      inside = true;
    }
  };
  for (const char32_t c : icu::code_points(text)) {
    if (c == 0 || c == 0xFFFD || (icu::is_other(c) && c != '\t' && c != '\n' && c != '\r')) continue;
    if (is_cjk(c)) {
      words.push_back(lower_case_ ? icu::decompose(c) : std::u32string(1, c));
      inside = false;
    } else if (!lower_case_) {
      put(c);
    } else {
      for (const char32_t part : icu::decompose(c)) {
        if (!icu::is_nonspacing_mark(part)) put(icu::to_lower(part));
      }
    }
  }
  return words;
}

EIGENFORMER_IO_FUNCTION void WordPieceTokenizer::append_word(std::vector<std::int32_t>& ids,
                                                             const std::u32string& word) const {
  std::vector<std::int32_t> found;
  for (std::size_t begin = 0; begin < word.size() && word.size() <= longest_word;) {
    std::optional<std::int32_t> id;
    std::size_t end = word.size();
    for (; end > begin; --end) {
      std::string piece = begin == 0 ? "" : "##";
      for (std::size_t i = begin; i < end; ++i) piece += utf8_of(word[i]);
      if ((id = find(piece))) break;
    }
    if (!id) {
      found.clear();
      break;
    }
    found.push_back(*id);
    begin = end;
  }
  if (found.empty() && vocabulary().unknown_id >= 0) found.push_back(vocabulary().unknown_id);
  ids.insert(ids.end(), found.begin(), found.end());
}

}  // namespace eigenformer::detail

#endif
