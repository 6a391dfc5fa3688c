#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
#include "eigenformer/data/tokenizers/sentencepiece_tokenizer.hpp"
#include "eigenformer/data/tokenizers/subword_tokenizer.hpp"
#endif

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"
#include "eigenformer/data/tokenizers/metaspace_tokenizer.hpp"
#include "eigenformer/data/tokenizers/wordpiece_tokenizer.hpp"
#endif

namespace eigenformer {

/// Which tokenizer, and how large.
struct TokenizerOptions {
  std::string kind = "subword";    ///< char, word or subword
  index_t vocabulary_size = 8000;  ///< at most; the four special ids included
  index_t min_count = 1;           ///< char and word: rarer tokens are unknown
  bool joint = true;               ///< one vocabulary for both languages, which tied embeddings need
};

/// The tokenizers of both languages; a joint one is the same object twice.
struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source;
  std::shared_ptr<const Tokenizer> target;

  bool joint() const noexcept { return source == target; }
};

/// Whether this program was built with SentencePiece.
constexpr bool has_subword_tokenizer() noexcept {
#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
  return true;
#else
  return false;
#endif
}

/// Whether this program was built with ICU, which byte_bpe, metaspace and wordpiece need.
constexpr bool has_icu_tokenizers() noexcept {
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
  return true;
#else
  return false;
#endif
}

namespace detail {

/// Calls f.template operator()<TokenizerType>() for the type of a kind. Throws ValueError for a kind that is
/// unknown or not built in.
template <class F>
std::shared_ptr<const Tokenizer> with_tokenizer_type(const std::string& kind, F&& f) {
  if (kind == "char") return f.template operator()<CharacterTokenizer>();
  if (kind == "word") return f.template operator()<WordTokenizer>();
  if (kind != "subword") {
    throw ValueError("tokenizer", "kind is '" + kind + "', expected char, word or subword");
  }
#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
  return f.template operator()<SubwordTokenizer>();
#else
  throw ValueError(
      "tokenizer",
      "kind 'subword' needs SentencePiece, which this program was built without; expected char or word");
#endif
}

}  // namespace detail

/// A tokenizer for these sentences. Throws ValueError for an impossible option or a kind that is unknown or
/// not built in.
inline std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                        std::span<const std::string> sentences) {
  return detail::with_tokenizer_type(options.kind, [&]<class T>() -> std::shared_ptr<const Tokenizer> {
    if constexpr (std::is_base_of_v<VocabularyTokenizer, T>) {
      return std::make_shared<T>(
          T::train(sentences, {.max_size = options.vocabulary_size, .min_count = options.min_count}));
    } else {
      return std::make_shared<T>(T::train(sentences, {.vocabulary_size = options.vocabulary_size}));
    }
  });
}

/// Tokenizers for the sentences of both languages. Throws as train_tokenizer() does.
inline TokenizerPair train_tokenizers(const TokenizerOptions& options, const ParallelCorpus& corpus) {
  if (!options.joint)
    return {train_tokenizer(options, corpus.source), train_tokenizer(options, corpus.target)};
  std::vector<std::string> both = corpus.source;
  both.insert(both.end(), corpus.target.begin(), corpus.target.end());
  const auto tokenizer = train_tokenizer(options, both);
  return {tokenizer, tokenizer};
}

/// Reads the tokenizer that save(directory, name) of the same kind wrote: one of those that are trained here,
/// or tokens, sentencepiece, metaspace, byte_bpe or wordpiece, which come with other libraries' checkpoints.
/// Throws IoError, and ValueError for a kind that is unknown or not built in.
inline std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind,
                                                       const std::filesystem::path& directory,
                                                       const std::string& name = "tokenizer") {
  if (kind == "tokens") return std::make_shared<TokenTokenizer>(TokenTokenizer::load(directory, name));
  if (kind == "sentencepiece") {
#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
    return std::make_shared<SentencePieceTokenizer>(SentencePieceTokenizer::load(directory, name));
#else
    throw ValueError("tokenizer",
                     "kind 'sentencepiece' needs SentencePiece, which this program was built without");
#endif
  }
  if (kind == "byte_bpe" || kind == "metaspace" || kind == "wordpiece") {
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
    if (kind == "byte_bpe")
      return std::make_shared<ByteBpeTokenizer>(ByteBpeTokenizer::load(directory, name));
    if (kind == "metaspace")
      return std::make_shared<MetaspaceTokenizer>(MetaspaceTokenizer::load(directory, name));
    return std::make_shared<WordPieceTokenizer>(WordPieceTokenizer::load(directory, name));
#else
    throw ValueError("tokenizer", "kind '" + kind + "' needs ICU, which this program was built without");
#endif
  }
  return detail::with_tokenizer_type(kind, [&]<class T>() -> std::shared_ptr<const Tokenizer> {
    return std::make_shared<T>(T::load(directory, name));
  });
}

/// Writes both tokenizers to a folder: a joint one as `tokenizer`, two as `source` and `target`. Throws
/// IoError.
inline void save_tokenizers(const TokenizerPair& tokenizers, const std::filesystem::path& directory) {
  if (tokenizers.joint()) {
    tokenizers.source->save(directory, "tokenizer");
  } else {
    tokenizers.source->save(directory, "source");
    tokenizers.target->save(directory, "target");
  }
}

/// Reads what save_tokenizers() wrote. Throws as load_tokenizer() does.
inline TokenizerPair load_tokenizers(const std::string& kind, bool joint,
                                     const std::filesystem::path& directory) {
  if (!joint) return {load_tokenizer(kind, directory, "source"), load_tokenizer(kind, directory, "target")};
  const auto tokenizer = load_tokenizer(kind, directory, "tokenizer");
  return {tokenizer, tokenizer};
}

}  // namespace eigenformer
