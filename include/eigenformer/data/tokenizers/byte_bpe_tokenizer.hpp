#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/data/text/icu_text.hpp"
#include "eigenformer/data/tokenizers/added_tokens.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/subword_models.hpp"

namespace eigenformer::detail {

/// Byte-level byte pair encoding (Radford et al. 2019): GPT-2, BART, RoBERTa. Text is cut into words by
/// GPT-2's pattern, with Unicode's classes; each byte is mapped to a printable character; pairs are merged in
/// the order of a list. Decoding restores valid UTF-8 exactly when all of its pieces are in the vocabulary.
class ByteBpeTokenizer final : public ForeignTokenizer {
 public:
  /// merges: lines "left right" by descending priority. Throws ValueError for a line that is not a pair, and
  /// for a special id or an added token's id outside the vocabulary.
  ByteBpeTokenizer(ForeignVocabulary given, std::vector<std::string> merges,
                   std::vector<AddedToken> added = {});

  /// Loads `directory/name.tokenizer`. Throws IoError.
  static ByteBpeTokenizer load(const std::filesystem::path& directory,
                               const std::string& name = "tokenizer") {
    return made_of_parts("byte_bpe", directory, name, [](const TokenizerParts& parts) {
      return ByteBpeTokenizer(read_vocabulary(parts), parts.list("merges"), AddedTokens::read(parts));
    });
  }

  std::string kind() const override { return "byte_bpe"; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    RandomGenerator unused;
    return encode(text, 0, unused);
  }

  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    require_rate_of(true, sampling);
    return encode(text, sampling.bpe_dropout, rng);
  }

  EIGENFORMER_IO_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;

  /// Splits UTF-8 text into words by GPT-2's pattern: contractions; runs of letters, of numbers or of other
  /// characters, each with one space before it; other white space. Their concatenation is valid_utf8(text).
  static std::vector<std::string> split(const std::string& text);

 protected:
  void add_parts(TokenizerParts& parts) const override {
    parts.set_list("merges", merges_);
    added_.add_to(parts);
  }

 private:
  enum class Class { space, letter, number, other };

  static Class class_of(char32_t c) {
    if (icu::is_letter(c)) return Class::letter;
    if (icu::is_number(c)) return Class::number;
    return icu::is_white_space(c) ? Class::space : Class::other;
  }

  static std::size_t word_end(const std::u32string& text, std::size_t begin);

  std::vector<std::int32_t> encode(std::string_view text, double dropout, RandomGenerator& rng) const;

  std::vector<std::string> merges_;
  AddedTokens added_;
  std::unordered_map<std::string, std::size_t> ranks_;
  std::array<std::string, 256> spelled_;
  std::unordered_map<char32_t, char> bytes_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION ByteBpeTokenizer::ByteBpeTokenizer(ForeignVocabulary given,
                                                           std::vector<std::string> merges,
                                                           std::vector<AddedToken> added)
    : ForeignTokenizer(std::move(given)), merges_(std::move(merges)), added_(std::move(added)) {
  added_.require_ids(vocabulary_size());
  for (std::size_t i = 0; i < merges_.size(); ++i) {
    const std::size_t space = merges_[i].find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merges_[i].size() ||
        merges_[i].find(' ', space + 1) != std::string::npos) {
      throw ValueError("tokenizer", {"merge ", i + 1, " is '", merges_[i], "', expected two tokens"});
    }
    ranks_.emplace(merges_[i], i);
  }
  for (std::uint32_t byte = 0, other = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const char32_t c = visible ? byte : 256 + other++;
    spelled_[byte] = utf8_of(c);
    bytes_[c] = static_cast<char>(byte);
  }
}

EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> ByteBpeTokenizer::encode(std::string_view text,
                                                                           double dropout,
                                                                           RandomGenerator& rng) const {
  using Merge = PossibleMerge<std::string>;
  const auto possible_merge = [&](const std::string& left, const std::string& right) -> std::optional<Merge> {
    const auto found = ranks_.find(left + ' ' + right);
    if (found == ranks_.end()) return std::nullopt;
    return Merge{static_cast<double>(found->second), left + right};
  };
  std::vector<std::int32_t> ids;
  const auto put = [&](std::int32_t id) { ids.push_back(id); };
  const auto put_words = [&](std::string_view part, std::size_t) {
    for (const std::string& word : split(std::string(part))) {
      std::vector<std::string> symbols;
      for (const char c : word) symbols.push_back(spelled_[static_cast<std::uint8_t>(c)]);
      merge_with_dropout(symbols, dropout, rng, possible_merge);
      for (const std::string& piece : symbols) append(ids, piece);
    }
  };
  // There is no normalisation, so tokens to match in normalised text are matched in the same text.
  added_.split<icu::AddedTokenCharacters>(
      valid_utf8(text), false, put, [&](std::string_view part, std::size_t) {
        added_.split<icu::AddedTokenCharacters>(part, true, put, put_words);
      });
  return ids;
}

EIGENFORMER_IO_FUNCTION std::string ByteBpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::string& piece : pieces(ids)) {
    for_each_code_point(piece, [&](char32_t c, std::string_view spelling) {
      const auto byte = bytes_.find(c);
      if (byte == bytes_.end()) {
        text += spelling;
      } else {
        text += byte->second;
      }
    });
  }
  return valid_utf8(text);
}

EIGENFORMER_IO_FUNCTION std::vector<std::string> ByteBpeTokenizer::split(const std::string& text) {
  const std::u32string points = icu::code_points(text);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < points.size();) {
    const std::size_t end = word_end(points, i);
    std::string& word = words.emplace_back();
    for (; i < end; ++i) word += utf8_of(points[i]);
  }
  return words;
}

EIGENFORMER_IO_FUNCTION std::size_t ByteBpeTokenizer::word_end(const std::u32string& text,
                                                               std::size_t begin) {
  const auto run = [&](std::size_t i) {
    const Class kind = class_of(text[i]);
    while (i < text.size() && class_of(text[i]) == kind) ++i;
    return i;
  };
  if (text[begin] == U'\'') {
    for (const std::u32string_view tail : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
      if (std::u32string_view(text).substr(begin + 1, tail.size()) == tail) return begin + 1 + tail.size();
    }
  }
  if (class_of(text[begin]) != Class::space) return run(begin);
  if (text[begin] == U' ' && begin + 1 < text.size() && class_of(text[begin + 1]) != Class::space)
    return run(begin + 1);
  // The last of several spaces belongs to the next word.
  const std::size_t end = run(begin);
  return end < text.size() && end - begin > 1 ? end - 1 : end;
}

}  // namespace eigenformer::detail

#endif
