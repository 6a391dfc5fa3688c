#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
#include "eigenformer/data/tokenizers/sentencepiece/sentencepiece_tokenizer.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
#endif

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"
#include "eigenformer/data/tokenizers/metaspace_tokenizer.hpp"
#include "eigenformer/data/tokenizers/wordpiece_tokenizer.hpp"
#endif

namespace eigenformer {

/// Options of train_tokenizer() and train_tokenizers().
struct TokenizerOptions {
  std::string kind = "subword";  ///< char, word or subword
  /// Most ids, the four special ones included; 0: chosen for the text (subword), 8000 (char, word).
  index_t vocabulary_size = 0;
  index_t min_count = 1;  ///< char and word: rarer tokens are unknown
  bool joint = true;      ///< one vocabulary for both languages, which tied embeddings need
  /// Entries of the source vocabulary that are never produced from text, such as the language tag "<2de>".
  std::vector<std::string> reserved{};
};

namespace detail {

/// A hash of the kinds and all tokens of tokenizers, to tell whether ids were made by them; both sides must
/// be set. Stored in prepared corpora.
EIGENFORMER_FUNCTION std::uint64_t tokenizer_fingerprint(const TokenizerPair& tokenizers);

/// TokenizerOptions::vocabulary_size, or what is chosen for a corpus whose target side has this many bytes:
/// 2,000 to 16,000 subwords, fewer for small corpora, in which rare pieces are hardly seen. A rule of thumb:
/// other sizes were not compared. texts: both sides, or samples of them; all but rare characters take at most
/// half of the vocabulary, as far as 16,000 allow.
[[nodiscard]] EIGENFORMER_FUNCTION index_t
planned_vocabulary(const TokenizerOptions& options, double target_bytes,
                   std::initializer_list<std::span<const std::string>> texts);

/// Reads what save(directory, name) of a tokenizer wrote.
using LoadTokenizer = std::shared_ptr<const Tokenizer>(const std::filesystem::path& directory,
                                                       const std::string& name);

template <class T>
std::shared_ptr<const Tokenizer> load_shared(const std::filesystem::path& directory,
                                             const std::string& name) {
  return std::make_shared<T>(T::load(directory, name));
}
template <class T, class... Arguments>
std::shared_ptr<const Tokenizer> make_tokenizer(Arguments... arguments) {
  return std::make_shared<T>(std::move(arguments)...);
}

/// The functions that need SentencePiece.
struct SentencePieceFunctions {
  std::shared_ptr<const Tokenizer> (*train)(std::span<const std::string> sentences, index_t vocabulary_size,
                                            const std::vector<std::string>& reserved);
  LoadTokenizer *load_subword, *load_sentencepiece;
  /// Makes a SentencePieceTokenizer from the bytes of a model.
  std::shared_ptr<const Tokenizer> (*make)(std::string model, ForeignVocabulary vocabulary,
                                           bool language_codes, std::vector<AddedToken> added);
  std::vector<std::string> (*pieces)(const std::string& model);
};

/// The functions that need ICU.
struct IcuFunctions {
  LoadTokenizer *load_byte_bpe, *load_metaspace, *load_wordpiece;
  std::shared_ptr<const Tokenizer> (*make_byte_bpe)(ForeignVocabulary vocabulary,
                                                    std::vector<std::string> merges,
                                                    std::vector<AddedToken> added);
  std::shared_ptr<const Tokenizer> (*make_wordpiece)(ForeignVocabulary vocabulary, bool lower_case,
                                                     std::vector<AddedToken> added);
};

#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
inline std::shared_ptr<const Tokenizer> train_subword(std::span<const std::string> sentences,
                                                      index_t vocabulary_size,
                                                      const std::vector<std::string>& reserved) {
  return std::make_shared<SubwordTokenizer>(
      SubwordTokenizer::train(sentences, {.vocabulary_size = vocabulary_size, .reserved = reserved}));
}
inline constexpr SentencePieceFunctions sentencepiece_functions{
    &train_subword, &load_shared<SubwordTokenizer>, &load_shared<SentencePieceTokenizer>,
    &make_tokenizer<SentencePieceTokenizer>, &SentencePieceTokenizer::model_pieces};
inline const bool sentencepiece_is_linked = link(sentencepiece_functions);
#endif

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline constexpr IcuFunctions icu_functions{
    &load_shared<ByteBpeTokenizer>, &load_shared<MetaspaceTokenizer>, &load_shared<WordPieceTokenizer>,
    &make_tokenizer<ByteBpeTokenizer>, &make_tokenizer<WordPieceTokenizer>};
inline const bool icu_is_linked = link(icu_functions);
#endif

/// The functions that need SentencePiece. Throws ValueError in a program built without it.
inline const SentencePieceFunctions& require_sentencepiece(const std::string& op, const std::string& what) {
  if (const auto* found = find_linked<SentencePieceFunctions>()) return *found;
  throw ValueError(op, {what, " needs SentencePiece, which this program was built without"});
}

/// The functions that need ICU. Throws ValueError in a program built without it.
inline const IcuFunctions& require_icu(const std::string& op, const std::string& what) {
  if (const auto* found = find_linked<IcuFunctions>()) return *found;
  throw ValueError(op, {what, " needs ICU, which this program was built without"});
}

}  // namespace detail

/// Whether this program was built with SentencePiece, which the kinds subword and sentencepiece need.
inline bool has_subword_tokenizer() noexcept {
  return detail::find_linked<detail::SentencePieceFunctions>() != nullptr;
}

/// Whether this program was built with ICU, which the kinds byte_bpe, metaspace and wordpiece need.
inline bool has_icu_tokenizers() noexcept { return detail::find_linked<detail::IcuFunctions>() != nullptr; }

/// Trains a tokenizer on UTF-8 sentences. Throws ValueError for an invalid option and for a kind that is
/// unknown, cannot be trained or is not built in.
EIGENFORMER_FUNCTION std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                                      std::span<const std::string> sentences);

/// Trains tokenizers for both languages of a corpus: one on all sentences with options.joint, else one for
/// each side, of which only the source's has the reserved entries. Throws as train_tokenizer() does.
EIGENFORMER_FUNCTION TokenizerPair train_tokenizers(const TokenizerOptions& options,
                                                    const ParallelCorpus& corpus);

/// Loads the tokenizer that save(directory, name) of the same kind wrote: char, word or subword, or tokens,
/// sentencepiece, metaspace, byte_bpe or wordpiece for imported checkpoints. Throws IoError for a missing or
/// damaged file, ValueError for a kind that is unknown or not built in.
EIGENFORMER_FUNCTION std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind,
                                                                     const std::filesystem::path& directory,
                                                                     const std::string& name = "tokenizer");

/// Writes both tokenizers, which must not be null, to an existing folder: a joint one as `tokenizer`, two as
/// `source` and `target`. Throws IoError.
EIGENFORMER_FUNCTION void save_tokenizers(const TokenizerPair& tokenizers,
                                          const std::filesystem::path& directory);

/// Loads what save_tokenizers() wrote. Throws as load_tokenizer() does.
inline TokenizerPair load_tokenizers(const std::string& kind, bool joint,
                                     const std::filesystem::path& directory) {
  if (!joint) return {load_tokenizer(kind, directory, "source"), load_tokenizer(kind, directory, "target")};
  const auto tokenizer = load_tokenizer(kind, directory, "tokenizer");
  return {tokenizer, tokenizer};
}

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

namespace detail {

EIGENFORMER_FUNCTION std::uint64_t tokenizer_fingerprint(const TokenizerPair& tokenizers) {
  Hash64 hash;
  for (const auto& tokenizer : {tokenizers.source, tokenizers.target}) {
    hash.add(tokenizer->kind() + '\n');
    for (index_t id = 0; id < tokenizer->vocabulary_size(); ++id)
      hash.add(tokenizer->token(static_cast<std::int32_t>(id)) + '\n');
    if (tokenizers.joint()) break;
  }
  return hash.value();
}

EIGENFORMER_FUNCTION index_t planned_vocabulary(const TokenizerOptions& options, double target_bytes,
                                                std::initializer_list<std::span<const std::string>> texts) {
  if (options.vocabulary_size != 0) return options.vocabulary_size;
  if (options.kind != "subword") return 8000;
  CharacterCounts characters;
  for (const auto& text : texts) {
    for (const std::string& sentence : text) characters.add(sentence);
  }
  constexpr double coverage = 0.9995;  // SentencePiece's, of languages with many characters
  const index_t pieces = target_bytes < 4e5   ? 2000
                         : target_bytes < 2e6 ? 4000
                         : target_bytes < 5e7 ? 8000
                                              : 16000;
  const index_t room = (2 * characters.covering(coverage) + 999) / 1000 * 1000;
  return std::max(pieces, std::min<index_t>(room, 16000));
}

inline double bytes_of_text(std::span<const std::string> sentences) {
  double bytes = 0;
  for (const std::string& sentence : sentences) bytes += static_cast<double>(sentence.size());
  return bytes;
}

}  // namespace detail

EIGENFORMER_FUNCTION std::shared_ptr<const Tokenizer> train_tokenizer(
    const TokenizerOptions& options, std::span<const std::string> sentences) {
  const index_t size = detail::planned_vocabulary(options, detail::bytes_of_text(sentences), {sentences});
  const auto train = [&]<class T>() -> std::shared_ptr<const Tokenizer> {
    return std::make_shared<T>(T::train(
        sentences, {.max_size = size, .min_count = options.min_count, .reserved = options.reserved}));
  };
  if (options.kind == "char") return train.template operator()<CharacterTokenizer>();
  if (options.kind == "word") return train.template operator()<WordTokenizer>();
  if (options.kind == "subword")
    return detail::require_sentencepiece("tokenizer", "kind 'subword'")
        .train(sentences, size, options.reserved);
  throw ValueError("tokenizer", {"kind is '", options.kind, "', expected char, word or subword"});
}

EIGENFORMER_FUNCTION TokenizerPair train_tokenizers(const TokenizerOptions& given,
                                                    const ParallelCorpus& corpus) {
  TokenizerOptions options = given;
  options.vocabulary_size = detail::planned_vocabulary(options, detail::bytes_of_text(corpus.target),
                                                       {corpus.source, corpus.target});
  if (!options.joint) {
    TokenizerOptions of_target = options;
    of_target.reserved.clear();
    return {train_tokenizer(options, corpus.source), train_tokenizer(of_target, corpus.target)};
  }
  std::vector<std::string> both = corpus.source;
  both.insert(both.end(), corpus.target.begin(), corpus.target.end());
  const auto tokenizer = train_tokenizer(options, both);
  return {tokenizer, tokenizer};
}

EIGENFORMER_FUNCTION std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind,
                                                                     const std::filesystem::path& directory,
                                                                     const std::string& name) {
  using namespace detail;
  const std::string what = "kind '" + kind + "'";
  if (kind == "char") return load_shared<CharacterTokenizer>(directory, name);
  if (kind == "word") return load_shared<WordTokenizer>(directory, name);
  if (kind == "tokens") return load_shared<detail::TokenTokenizer>(directory, name);
  if (kind == "subword") return require_sentencepiece("tokenizer", what).load_subword(directory, name);
  if (kind == "sentencepiece")
    return require_sentencepiece("tokenizer", what).load_sentencepiece(directory, name);
  if (kind == "byte_bpe") return require_icu("tokenizer", what).load_byte_bpe(directory, name);
  if (kind == "metaspace") return require_icu("tokenizer", what).load_metaspace(directory, name);
  if (kind == "wordpiece") return require_icu("tokenizer", what).load_wordpiece(directory, name);
  throw ValueError("tokenizer", {"kind is '", kind,
                                 "', expected char, word, subword, tokens, sentencepiece, byte_bpe, "
                                 "metaspace or wordpiece"});
}

EIGENFORMER_FUNCTION void save_tokenizers(const TokenizerPair& tokenizers,
                                          const std::filesystem::path& directory) {
  if (tokenizers.joint()) {
    tokenizers.source->save(directory, "tokenizer");
  } else {
    tokenizers.source->save(directory, "source");
    tokenizers.target->save(directory, "target");
  }
}

}  // namespace eigenformer

#endif
