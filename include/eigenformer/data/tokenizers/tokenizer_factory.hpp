#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/corpus/conventions.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
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

/// Which tokenizer, and how large.
struct TokenizerOptions {
  std::string kind = "subword";    ///< char, word or subword
  index_t vocabulary_size = 8000;  ///< at most; the four special ids included
  index_t min_count = 1;           ///< char and word: rarer tokens are unknown
  bool joint = true;               ///< one vocabulary for both languages, which tied embeddings need
  /// Entries that no text is cut into, such as "<2de>", a target language's tag; of the source side.
  std::vector<std::string> reserved{};
};

/// The tokenizers of both languages; a joint one is the same object twice.
struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source;
  std::shared_ptr<const Tokenizer> target;

  bool joint() const noexcept { return source == target; }
};

/// encode_corpus() with the tokenizers and the conventions of a model folder or an import: what its `text`
/// puts around token ids is Batcher's part.
inline EncodedCorpus encode_corpus(const ParallelCorpus& corpus, const TokenizerPair& tokenizers,
                                   const TextConventions& text, index_t max_length = 0) {
  if (tokenizers.source == nullptr || tokenizers.target == nullptr)
    throw ValueError("encode_corpus", "the model has no tokenizers, must have one for either side");
  return encode_corpus(corpus, *tokenizers.source, *tokenizers.target, max_length, text.source_text);
}

namespace detail {

/// Reads what save(directory, name) of a tokenizer wrote.
using LoadTokenizer = std::shared_ptr<const Tokenizer>(const std::filesystem::path& directory,
                                                       const std::string& name);

template <class T>
std::shared_ptr<const Tokenizer> load_shared(const std::filesystem::path& directory,
                                             const std::string& name) {
  return std::make_shared<T>(T::load(directory, name));
}

/// What needs SentencePiece.
struct SentencePieceFunctions {
  std::shared_ptr<const Tokenizer> (*train)(std::span<const std::string> sentences, index_t vocabulary_size,
                                            const std::vector<std::string>& reserved);
  LoadTokenizer *load_subword, *load_sentencepiece;
  /// A SentencePieceTokenizer of a model's bytes.
  std::shared_ptr<const Tokenizer> (*make)(std::string model, ForeignVocabulary vocabulary,
                                           bool language_codes);
  std::vector<std::string> (*pieces)(const std::string& model);
};

/// What needs ICU.
struct IcuFunctions {
  LoadTokenizer *load_byte_bpe, *load_metaspace, *load_wordpiece;
  std::shared_ptr<const Tokenizer> (*make_byte_bpe)(ForeignVocabulary vocabulary,
                                                    std::vector<std::string> merges);
  std::shared_ptr<const Tokenizer> (*make_wordpiece)(ForeignVocabulary vocabulary, bool lower_case);
};

#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
inline std::shared_ptr<const Tokenizer> train_subword(std::span<const std::string> sentences,
                                                      index_t vocabulary_size,
                                                      const std::vector<std::string>& reserved) {
  return std::make_shared<SubwordTokenizer>(
      SubwordTokenizer::train(sentences, {.vocabulary_size = vocabulary_size, .reserved = reserved}));
}
inline std::shared_ptr<const Tokenizer> make_sentencepiece(std::string model, ForeignVocabulary vocabulary,
                                                           bool language_codes) {
  return std::make_shared<SentencePieceTokenizer>(std::move(model), std::move(vocabulary), language_codes);
}
inline constexpr SentencePieceFunctions sentencepiece_functions{
    &train_subword, &load_shared<SubwordTokenizer>, &load_shared<SentencePieceTokenizer>, &make_sentencepiece,
    &SentencePieceTokenizer::model_pieces};
inline const bool sentencepiece_is_linked = link(sentencepiece_functions);
#endif

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline std::shared_ptr<const Tokenizer> make_byte_bpe(ForeignVocabulary vocabulary,
                                                      std::vector<std::string> merges) {
  return std::make_shared<ByteBpeTokenizer>(std::move(vocabulary), std::move(merges));
}
inline std::shared_ptr<const Tokenizer> make_wordpiece(ForeignVocabulary vocabulary, bool lower_case) {
  return std::make_shared<WordPieceTokenizer>(std::move(vocabulary), lower_case);
}
inline constexpr IcuFunctions icu_functions{&load_shared<ByteBpeTokenizer>, &load_shared<MetaspaceTokenizer>,
                                            &load_shared<WordPieceTokenizer>, &make_byte_bpe,
                                            &make_wordpiece};
inline const bool icu_is_linked = link(icu_functions);
#endif

/// The functions of SentencePiece. Throws ValueError in a program without it.
inline const SentencePieceFunctions& require_sentencepiece(const std::string& op, const std::string& what) {
  if (const auto* found = find_linked<SentencePieceFunctions>()) return *found;
  throw ValueError(op, what + " needs SentencePiece, which this program was built without");
}

/// The functions of ICU. Throws ValueError in a program without it.
inline const IcuFunctions& require_icu(const std::string& op, const std::string& what) {
  if (const auto* found = find_linked<IcuFunctions>()) return *found;
  throw ValueError(op, what + " needs ICU, which this program was built without");
}

}  // namespace detail

/// Whether this program was built with SentencePiece, which subword and sentencepiece need.
inline bool has_subword_tokenizer() noexcept {
  return detail::find_linked<detail::SentencePieceFunctions>() != nullptr;
}

/// Whether this program was built with ICU, which byte_bpe, metaspace and wordpiece need.
inline bool has_icu_tokenizers() noexcept { return detail::find_linked<detail::IcuFunctions>() != nullptr; }

/// A tokenizer for these sentences. Throws ValueError for an impossible option or a kind that is unknown or
/// not built in.
inline std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                        std::span<const std::string> sentences) {
  const auto train = [&]<class T>() -> std::shared_ptr<const Tokenizer> {
    return std::make_shared<T>(T::train(
        sentences,
        {.max_size = options.vocabulary_size, .min_count = options.min_count, .reserved = options.reserved}));
  };
  if (options.kind == "char") return train.template operator()<CharacterTokenizer>();
  if (options.kind == "word") return train.template operator()<WordTokenizer>();
  if (options.kind == "subword")
    return detail::require_sentencepiece("tokenizer", "kind 'subword'")
        .train(sentences, options.vocabulary_size, options.reserved);
  throw ValueError("tokenizer", "kind is '" + options.kind + "', expected char, word or subword");
}

/// Tokenizers for the sentences of both languages. Throws as train_tokenizer() does.
inline TokenizerPair train_tokenizers(const TokenizerOptions& options, const ParallelCorpus& corpus) {
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

/// Reads the tokenizer that save(directory, name) of the same kind wrote: one of those that are trained here,
/// or tokens, sentencepiece, metaspace, byte_bpe or wordpiece, which come with other libraries' checkpoints.
/// Throws IoError, and ValueError for a kind that is unknown or not built in.
inline std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& kind,
                                                       const std::filesystem::path& directory,
                                                       const std::string& name = "tokenizer") {
  using namespace detail;
  const std::string what = "kind '" + kind + "'";
  if (kind == "char") return load_shared<CharacterTokenizer>(directory, name);
  if (kind == "word") return load_shared<WordTokenizer>(directory, name);
  if (kind == "tokens") return load_shared<TokenTokenizer>(directory, name);
  if (kind == "subword") return require_sentencepiece("tokenizer", what).load_subword(directory, name);
  if (kind == "sentencepiece")
    return require_sentencepiece("tokenizer", what).load_sentencepiece(directory, name);
  if (kind == "byte_bpe") return require_icu("tokenizer", what).load_byte_bpe(directory, name);
  if (kind == "metaspace") return require_icu("tokenizer", what).load_metaspace(directory, name);
  if (kind == "wordpiece") return require_icu("tokenizer", what).load_wordpiece(directory, name);
  throw ValueError("tokenizer", "kind is '" + kind +
                                    "', expected char, word, subword, tokens, sentencepiece, byte_bpe, "
                                    "metaspace or wordpiece");
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
