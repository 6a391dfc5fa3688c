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
#include "eigenformer/data/corpus/vocabulary.hpp"
#include "eigenformer/data/sampling/subword_sampling.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer {

/// Turns text into token ids and back. The ids 0 to 3 are pad, unknown, begin and end in every tokenizer that
/// this library trains (see Vocabulary; for those of other libraries' checkpoints see ForeignTokenizer). Text
/// goes through normalize_text() first; decode(encode(text)) gives that normalised text back, where all of it
/// is known.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "char", "word", "subword" or another kind that load_tokenizer() accepts, which makes such a tokenizer
  /// again.
  virtual std::string kind() const = 0;

  /// Number of ids, the special ones included.
  virtual index_t vocabulary_size() const = 0;

  /// The ids of one line of text, without begin and end.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The same with a segmentation drawn from `rng`, whose state alone it depends on; rates of 0 give
  /// encode(). Throws ValueError for a kind that has one segmentation of a text, and for the rate of another
  /// kind.
  virtual std::vector<std::int32_t> encode_sampled(std::string_view, const SubwordSampling&,
                                                   RandomGenerator&) const {
    throw ValueError("tokenizer",
                     "kind '" + kind() + "' has only one segmentation of a text; sampling needs subwords");
  }

  /// The text of ids; pad, begin and end are passed over, unknown reads U+2047. Throws IndexError for an id
  /// outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// How one id is shown to a person, with the marks the tokenizer uses. Throws IndexError for an id outside
  /// the vocabulary.
  virtual std::string token(std::int32_t id) const = 0;

  /// Writes the tokenizer to `directory`, as one file called `name` with an extension of its own. Throws
  /// IoError.
  virtual void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const = 0;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  /// What an unknown token reads as in decoded text: the double question mark, U+2047.
  static constexpr const char* unknown_text = "\xE2\x81\x87";

  static bool is_control(std::int32_t id) {
    return id == Vocabulary::pad_id || id == Vocabulary::begin_id || id == Vocabulary::end_id;
  }
};

/// The id of a token that is spelled so, such as a language's tag; nothing where there is none. Looks at all
/// of the vocabulary.
inline std::optional<std::int32_t> find_token(const Tokenizer& tokenizer, std::string_view spelling) {
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.token(id) == spelling) return id;
  }
  return std::nullopt;
}

/// A tokenizer whose ids are a Vocabulary: what the character and the word tokenizer share.
class VocabularyTokenizer : public Tokenizer {
 public:
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  index_t vocabulary_size() const override { return vocabulary_.size(); }
  std::string token(std::int32_t id) const override { return vocabulary_.token(id); }

  /// Writes `directory/name.vocab`, one token a line. Throws IoError.
  void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const override {
    vocabulary_.save(directory / (name + ".vocab"));
  }

 protected:
  explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  Vocabulary vocabulary_;
};

/// One token for each code point.
class CharacterTokenizer final : public VocabularyTokenizer {
 public:
  explicit CharacterTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {}

  /// A tokenizer for the code points of these sentences.
  static CharacterTokenizer train(std::span<const std::string> sentences,
                                  const VocabularyOptions& options = {}) {
    TokenCounts counts;
    for (const std::string& sentence : sentences) {
      const std::string text = normalize_text(sentence);
      for_each_code_point(text, [&](char32_t, std::string_view bytes) { ++counts[std::string(bytes)]; });
    }
    return CharacterTokenizer(Vocabulary::from_counts(counts, options));
  }

  /// Reads `directory/name.vocab`. Throws IoError.
  static CharacterTokenizer load(const std::filesystem::path& directory,
                                 const std::string& name = "tokenizer") {
    return CharacterTokenizer(Vocabulary::load(directory / (name + ".vocab")));
  }

  std::string kind() const override { return "char"; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    const std::string normalized = normalize_text(text);
    for_each_code_point(normalized,
                        [&](char32_t, std::string_view bytes) { ids.push_back(vocabulary_.id(bytes)); });
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      const std::string& token = vocabulary_.token(id);
      if (is_control(id)) continue;
      text += id == Vocabulary::unknown_id ? std::string(unknown_text) : token;
    }
    return text;
  }
};

/// Words and punctuation marks. A mark that touches its neighbour carries a joiner, U+FFED, on that side, as
/// in `Hund ￭?` and `(￭ alt ￭)`, so that words look the same everywhere and the text can be put together
/// again. (The idea is OpenNMT Tokenizer's joiner annotation.) A joiner in the text itself becomes U+25A0.
class WordTokenizer final : public VocabularyTokenizer {
 public:
  explicit WordTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {}

  /// A tokenizer for the words and marks of these sentences.
  static WordTokenizer train(std::span<const std::string> sentences, const VocabularyOptions& options = {}) {
    TokenCounts counts;
    for (const std::string& sentence : sentences) {
      for (std::string& token : split(sentence)) ++counts[std::move(token)];
    }
    return WordTokenizer(Vocabulary::from_counts(counts, options));
  }

  /// Reads `directory/name.vocab`. Throws IoError.
  static WordTokenizer load(const std::filesystem::path& directory, const std::string& name = "tokenizer") {
    return WordTokenizer(Vocabulary::load(directory / (name + ".vocab")));
  }

  std::string kind() const override { return "word"; }

  /// The tokens of a text, with their joiners.
  static std::vector<std::string> split(std::string_view text) {
    enum class Last { space, word, mark };
    std::vector<std::string> tokens;
    Last last = Last::space;
    const std::string normalized = normalize_text(text);
    for_each_code_point(normalized, [&](char32_t c, std::string_view bytes) {
      if (c == ' ') {
        last = Last::space;
      } else if (is_punctuation(c)) {
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

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const std::string& token : split(text)) ids.push_back(vocabulary_.id(token));
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    bool joined = true;  // whether the next token follows without a space
    for (const std::int32_t id : ids) {
      std::string_view token = vocabulary_.token(id);
      if (is_control(id)) continue;
      if (id == Vocabulary::unknown_id) token = unknown_text;
      const bool left = token.substr(0, joiner.size()) == joiner;
      if (left) token.remove_prefix(joiner.size());
      const bool right =
          token.size() >= joiner.size() && token.substr(token.size() - joiner.size()) == joiner;
      if (right) token.remove_suffix(joiner.size());
      if (!joined && !left) text += ' ';
      text += token;
      joined = right;
    }
    return text;
  }

 private:
  static constexpr char32_t joiner_code_point = 0xFFED;
  static constexpr std::string_view joiner = "\xEF\xBF\xAD";
};

}  // namespace eigenformer
