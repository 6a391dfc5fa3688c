#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
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
#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The sides of a pair whose segmentation is sampled.
enum class SampledSides {
  both,    ///< source and target
  source,  ///< only the source
  target   ///< only the target
};

EIGENFORMER_ENUM_NAMES(SampledSides, "both", "source", "target")

/// Options of sampled subword segmentation, a regularisation for training. Only the rate for the tokenizer's
/// kind of model may be above 0.
struct SubwordSampling {
  /// Byte pair encoding: the probability in [0, 1) that a possible merge is left out in a step (Provilkov et
  /// al. 2020, algorithm 1; 0.1 in the paper). 0: the plain segmentation.
  double bpe_dropout = 0;
  /// Unigram models: segmentations are sampled in proportion to their probability to this power, from all of
  /// them (Kudo 2018, section 3.2; 0.1 to 0.5 in the paper). 0: the best one.
  double unigram_alpha = 0;
  SampledSides sides = SampledSides::both;  ///< which sides of a pair are sampled

  /// Calls visit(OptionField, field) for each field.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"bpe_dropout",
                      "BPE-dropout: probability of skipping a merge, drawn anew for each pair and epoch",
                      Allowed::rate},
          self.bpe_dropout);
    visit(
        OptionField{
            "unigram_alpha",
            "sample segmentations of a unigram model by their probability to this power; 0: use the best one",
            Allowed::not_negative},
        self.unigram_alpha);
    visit(OptionField{"sampled_sides", "sides whose segmentation is sampled"}, self.sides);
  }

  /// Whether segmentations are sampled at all: one of the rates is above 0.
  bool on() const noexcept { return bpe_dropout > 0 || unigram_alpha > 0; }

  /// Throws ValueError that names an invalid field, and when both rates are above 0.
  void validate() const;
};

namespace detail {

/// Throws ValueError for invalid options, and when a rate above 0 belongs to the other kind of model.
EIGENFORMER_FUNCTION void require_rate_of(bool bpe, const SubwordSampling& sampling);

}  // namespace detail

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
  virtual std::int32_t unknown_id() const { return SpecialIds::unknown; }

  /// Writes the tokenizer to a file in `directory`, called `name` with the extension of its kind. Throws
  /// IoError.
  virtual void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const = 0;

 protected:
  Tokenizer() = default;
  /// Copying is for derived classes, so that a tokenizer is not sliced.
  Tokenizer(const Tokenizer&) = default;
  /// See the copy constructor.
  Tokenizer& operator=(const Tokenizer&) = default;

  /// An unknown token in decoded text: the double question mark, U+2047.
  static constexpr const char* unknown_text = "\xE2\x81\x87";

  /// Whether an id is Vocabulary's pad, begin or end, which decoding skips.
  static bool is_control(std::int32_t id) {
    return id == SpecialIds::pad || id == SpecialIds::begin || id == SpecialIds::end;
  }
};

/// The tokenizers of both languages; a joint one is the same object twice.
struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source;  ///< tokenizer of the source language
  std::shared_ptr<const Tokenizer> target;  ///< tokenizer of the target language

  /// Whether both sides share one tokenizer object.
  bool joint() const noexcept { return source == target; }
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
/// Derived::for_each_token(text, f) calls f(token) for each token of a UTF-8 text.
template <class Derived>
class VocabularyTokenizer : public Tokenizer {
 public:
  /// Makes a tokenizer with the tokens of UTF-8 sentences. Throws ValueError as Vocabulary::from_counts().
  static Derived train(std::span<const std::string> sentences, const VocabularyOptions& options = {}) {
    TokenCounts counts;
    for (const std::string& sentence : sentences)
      Derived::for_each_token(sentence, [&](std::string_view token) { ++counts[std::string(token)]; });
    return Derived(Vocabulary::from_counts(counts, options));
  }

  /// Loads `directory/name.vocab`. Throws IoError.
  static Derived load(const std::filesystem::path& directory, const std::string& name = "tokenizer") {
    return Derived(Vocabulary::load(directory / (name + ".vocab")));
  }

  /// The vocabulary that was passed to the constructor.
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  index_t vocabulary_size() const override { return vocabulary_.size(); }
  std::string token(std::int32_t id) const override { return vocabulary_.token(id); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    Derived::for_each_token(text, [&](std::string_view token) { ids.push_back(vocabulary_.id(token)); });
    return ids;
  }

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
class CharacterTokenizer final : public detail::VocabularyTokenizer<CharacterTokenizer> {
 public:
  /// vocabulary: code points, each in UTF-8; other entries are never produced from text.
  explicit CharacterTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {}

  std::string kind() const override { return "char"; }

  EIGENFORMER_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;

 private:
  friend VocabularyTokenizer;

  template <class F>
  static void for_each_token(std::string_view text, F&& f) {
    detail::for_each_code_point(detail::normalize_text(text),
                                [&](char32_t, std::string_view bytes) { f(bytes); });
  }
};

/// A tokenizer with words and punctuation marks as tokens. A mark without a space before or after it has a
/// joiner, U+FFED, on that side, as in `Hund ￭?` and `(￭ alt ￭)`, so that words are spelled the same
/// everywhere and decoding restores the spaces (the joiner annotation of OpenNMT's Tokenizer). A joiner in
/// the text itself becomes U+25A0.
class WordTokenizer final : public detail::VocabularyTokenizer<WordTokenizer> {
 public:
  /// vocabulary: tokens as split() makes them; other entries are never produced from text.
  explicit WordTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {}

  std::string kind() const override { return "word"; }

  /// Splits UTF-8 text into tokens, with their joiners.
  static std::vector<std::string> split(std::string_view text);

  EIGENFORMER_FUNCTION std::string decode(std::span<const std::int32_t> ids) const override;

 private:
  friend VocabularyTokenizer;

  template <class F>
  static void for_each_token(std::string_view text, F&& f) {
    for (const std::string& token : split(text)) f(token);
  }

  static constexpr char32_t joiner_code_point = 0xFFED;
  static constexpr std::string_view joiner = "\xEF\xBF\xAD";
};

namespace detail {

/// A tokenizer whose decode() leaves unknown tokens out; in all else the given one.
class UnknownDroppingTokenizer final : public Tokenizer {
 public:
  explicit UnknownDroppingTokenizer(std::shared_ptr<const Tokenizer> given) : given_(std::move(given)) {}

  std::string kind() const override { return given_->kind(); }
  index_t vocabulary_size() const override { return given_->vocabulary_size(); }
  std::vector<std::int32_t> encode(std::string_view text) const override { return given_->encode(text); }
  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    return given_->encode_sampled(text, sampling, rng);
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<std::int32_t> known(ids.begin(), ids.end());
    std::erase(known, given_->unknown_id());
    return given_->decode(known);
  }
  std::string token(std::int32_t id) const override { return given_->token(id); }
  std::int32_t unknown_id() const override { return given_->unknown_id(); }
  void save(const std::filesystem::path& directory, const std::string& name) const override {
    given_->save(directory, name);
  }

 private:
  std::shared_ptr<const Tokenizer> given_;
};

/// The tokenizer, which must not be null and must keep unknown tokens, as loaded and trained ones do; or one
/// that leaves them out when decoding.
inline std::shared_ptr<const Tokenizer> with_unknown_tokens(std::shared_ptr<const Tokenizer> tokenizer,
                                                            UnknownTokens unknown) {
  if (unknown == UnknownTokens::keep) return tokenizer;
  return std::make_shared<UnknownDroppingTokenizer>(std::move(tokenizer));
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION void SubwordSampling::validate() const {
  validate_fields("subword_sampling", *this);
  if (bpe_dropout > 0 && unigram_alpha > 0) {
    throw ValueError(
        "subword_sampling",
        "bpe_dropout and unigram_alpha are both above 0, expected only the one for the tokenizer's kind");
  }
}

namespace detail {

EIGENFORMER_FUNCTION void require_rate_of(bool bpe, const SubwordSampling& sampling) {
  sampling.validate();
  if (bpe && sampling.unigram_alpha > 0) {
    throw ValueError("subword_sampling",
                     "unigram_alpha is for unigram models, and this tokenizer uses byte pair encoding; "
                     "expected bpe_dropout");
  }
  if (!bpe && sampling.bpe_dropout > 0) {
    throw ValueError("subword_sampling",
                     "bpe_dropout is for byte pair encoding, and this tokenizer has a unigram model; "
                     "expected unigram_alpha");
  }
}

}  // namespace detail

EIGENFORMER_FUNCTION std::string CharacterTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& token = vocabulary_.token(id);
    if (is_control(id)) continue;
    text += id == SpecialIds::unknown ? std::string(unknown_text) : token;
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
    if (id == SpecialIds::unknown) token = unknown_text;
    const bool left = token.starts_with(joiner);
    if (left) token.remove_prefix(joiner.size());
    const bool right = token.ends_with(joiner);
    if (right) token.remove_suffix(joiner.size());
    if (!joined && !left) text += ' ';
    text += token;
    joined = right;
  }
  return text;
}

}  // namespace eigenformer

#endif
