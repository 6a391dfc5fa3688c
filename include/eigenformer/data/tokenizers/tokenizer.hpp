#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/subword_sampling.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"

namespace eigenformer {

/// Converts text to token ids and back. In every tokenizer that this library trains, ids 0 to 3 are pad,
/// unknown, begin and end (see Vocabulary; for checkpoints of other libraries see ForeignTokenizer), and text
/// goes through normalize_text() first: decode(encode(text)) returns the normalised text when none of it is
/// unknown. All text is UTF-8. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The kind to pass to load_tokenizer() to load what save() wrote: "char", "word", "subword" or one of
  /// another library's checkpoint.
  virtual std::string kind() const = 0;

  /// Number of ids, the special ones included; all ids are below it.
  virtual index_t vocabulary_size() const = 0;

  /// Encodes one line of text to ids, without begin and end; an empty text has none.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// As encode(), with a segmentation sampled with `rng`; equal states give equal segmentations, and rates of
  /// 0 those of encode(). Throws ValueError for a kind without subwords, and for a positive rate that belongs
  /// to another kind of model (bpe_dropout, unigram_alpha).
  virtual std::vector<std::int32_t> encode_sampled(std::string_view, const SubwordSampling&,
                                                   RandomGenerator&) const {
    throw ValueError("tokenizer",
                     {"kind '", kind(), "' has only one segmentation of a text; sampling needs subwords"});
  }

  /// Decodes ids to text; pad, begin and end are skipped, unknown becomes U+2047. Throws IndexError for an id
  /// outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// The token of one id as spelled in the vocabulary, with the tokenizer's marks for spaces or joiners.
  /// Throws IndexError for an id outside the vocabulary.
  virtual std::string token(std::int32_t id) const = 0;

  /// The id of unknown tokens; -1 when there is none.
  virtual std::int32_t unknown_id() const { return Vocabulary::unknown_id; }

  /// Writes the tokenizer to a file in `directory`, called `name` with the extension of its kind. Throws
  /// IoError.
  virtual void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const = 0;

 protected:
  Tokenizer() = default;
  /// Copying and moving are for derived classes, so that a tokenizer is not sliced.
  Tokenizer(const Tokenizer&) = default;
  /// See the copy constructor.
  Tokenizer(Tokenizer&&) = default;
  /// See the copy constructor.
  Tokenizer& operator=(const Tokenizer&) = default;
  /// See the copy constructor.
  Tokenizer& operator=(Tokenizer&&) = default;

  /// An unknown token in decoded text: the double question mark, U+2047.
  static constexpr const char* unknown_text = "\xE2\x81\x87";

  /// Whether an id is Vocabulary's pad, begin or end, which decoding skips.
  static bool is_control(std::int32_t id) {
    return id == Vocabulary::pad_id || id == Vocabulary::begin_id || id == Vocabulary::end_id;
  }
};

/// The lowest id with this spelling, such as a language tag; nothing when there is none. Searches the whole
/// vocabulary.
inline std::optional<std::int32_t> find_token(const Tokenizer& tokenizer, std::string_view spelling) {
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.token(id) == spelling) return id;
  }
  return std::nullopt;
}

namespace detail {

/// Base class of the tokenizers whose ids are those of a Vocabulary: CharacterTokenizer and WordTokenizer.
class VocabularyTokenizer : public Tokenizer {
 public:
  /// The vocabulary that was passed to the constructor.
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  index_t vocabulary_size() const override { return vocabulary_.size(); }
  std::string token(std::int32_t id) const override { return vocabulary_.token(id); }

  /// Writes `directory/name.vocab`, one token a line. Throws IoError.
  void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const override {
    vocabulary_.save(directory / (name + ".vocab"));
  }

 protected:
  /// vocabulary: the tokens, which the derived class splits text into.
  explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  Vocabulary vocabulary_;  ///< tokens and ids
};

}  // namespace detail

/// A tokenizer with one token for each code point.
class CharacterTokenizer final : public detail::VocabularyTokenizer {
 public:
  /// vocabulary: code points, each in UTF-8; other entries are never produced from text.
  explicit CharacterTokenizer(Vocabulary vocabulary) : detail::VocabularyTokenizer(std::move(vocabulary)) {}

  /// Makes a tokenizer with the code points of UTF-8 sentences. Throws ValueError as
  /// Vocabulary::from_counts().
  static CharacterTokenizer train(std::span<const std::string> sentences,
                                  const VocabularyOptions& options = {});

  /// Loads `directory/name.vocab`. Throws IoError.
  static CharacterTokenizer load(const std::filesystem::path& directory,
                                 const std::string& name = "tokenizer") {
    return CharacterTokenizer(Vocabulary::load(directory / (name + ".vocab")));
  }

  std::string kind() const override { return "char"; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    const std::string normalized = detail::normalize_text(text);
    detail::for_each_code_point(
        normalized, [&](char32_t, std::string_view bytes) { ids.push_back(vocabulary_.id(bytes)); });
    return ids;
  }

  EIGENFORMER_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;
};

/// A tokenizer with words and punctuation marks as tokens. A mark without a space before or after it has a
/// joiner, U+FFED, on that side, as in `Hund ￭?` and `(￭ alt ￭)`, so that words are spelled the same
/// everywhere and decoding restores the spaces (the joiner annotation of OpenNMT's Tokenizer). A joiner in
/// the text itself becomes U+25A0.
class WordTokenizer final : public detail::VocabularyTokenizer {
 public:
  /// vocabulary: tokens as split() makes them; other entries are never produced from text.
  explicit WordTokenizer(Vocabulary vocabulary) : detail::VocabularyTokenizer(std::move(vocabulary)) {}

  /// Makes a tokenizer with the words and marks of UTF-8 sentences. Throws ValueError as
  /// Vocabulary::from_counts().
  static WordTokenizer train(std::span<const std::string> sentences, const VocabularyOptions& options = {}) {
    TokenCounts counts;
    for (const std::string& sentence : sentences) {
      for (std::string& token : split(sentence)) ++counts[std::move(token)];
    }
    return WordTokenizer(Vocabulary::from_counts(counts, options));
  }

  /// Loads `directory/name.vocab`. Throws IoError.
  static WordTokenizer load(const std::filesystem::path& directory, const std::string& name = "tokenizer") {
    return WordTokenizer(Vocabulary::load(directory / (name + ".vocab")));
  }

  std::string kind() const override { return "word"; }

  /// Splits UTF-8 text into tokens, with their joiners.
  static std::vector<std::string> split(std::string_view text);

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const std::string& token : split(text)) ids.push_back(vocabulary_.id(token));
    return ids;
  }

  EIGENFORMER_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;

 private:
  static constexpr char32_t joiner_code_point = 0xFFED;
  static constexpr std::string_view joiner = "\xEF\xBF\xAD";
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION CharacterTokenizer CharacterTokenizer::train(std::span<const std::string> sentences,
                                                                  const VocabularyOptions& options) {
  TokenCounts counts;
  for (const std::string& sentence : sentences) {
    const std::string text = detail::normalize_text(sentence);
    detail::for_each_code_point(text,
                                [&](char32_t, std::string_view bytes) { ++counts[std::string(bytes)]; });
  }
  return CharacterTokenizer(Vocabulary::from_counts(counts, options));
}

EIGENFORMER_FUNCTION std::string CharacterTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& token = vocabulary_.token(id);
    if (is_control(id)) continue;
    text += id == Vocabulary::unknown_id ? std::string(unknown_text) : token;
  }
  return text;
}

EIGENFORMER_FUNCTION std::vector<std::string> WordTokenizer::split(std::string_view text) {
  enum class Last { space, word, mark };
  std::vector<std::string> tokens;
  Last last = Last::space;
  const std::string normalized = detail::normalize_text(text);
  detail::for_each_code_point(normalized, [&](char32_t c, std::string_view bytes) {
    if (c == ' ') {
      last = Last::space;
    } else if (detail::is_punctuation(c)) {
      tokens.emplace_back(last == Last::space ? std::string_view() : joiner);
      tokens.back() += c == joiner_code_point ? std::string_view("\xE2\x96\xA0") : bytes;
      last = Last::mark;
    } else if (last == Last::word) {
      tokens.back() += bytes;
    } else {
      if (last == Last::mark) tokens.back() += joiner;
      tokens.emplace_back(bytes);
      last = Last::word;
    }
  });
  return tokens;
}

EIGENFORMER_FUNCTION std::string WordTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  bool joined = true;  // whether the next token follows without a space
  for (const std::int32_t id : ids) {
    std::string_view token = vocabulary_.token(id);
    if (is_control(id)) continue;
    if (id == Vocabulary::unknown_id) token = unknown_text;
    const bool left = token.substr(0, joiner.size()) == joiner;
    if (left) token.remove_prefix(joiner.size());
    const bool right = token.size() >= joiner.size() && token.substr(token.size() - joiner.size()) == joiner;
    if (right) token.remove_suffix(joiner.size());
    if (!joined && !left) text += ' ';
    text += token;
    joined = right;
  }
  return text;
}

}  // namespace eigenformer

#endif
