#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/io/shared/import_tools.hpp"
#include "eigenformer/io/shared/languages.hpp"

namespace eigenformer::detail {

/// The id of a token; nothing when the vocabulary does not have it or it is empty.
inline std::optional<std::int32_t> find_token(const std::vector<std::string>& tokens,
                                              std::string_view token) {
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  if (found == tokens.end() || token.empty()) return std::nullopt;
  return static_cast<std::int32_t>(found - tokens.begin());
}

/// find_language() among those tokens of a vocabulary, of the file at `path`, that are spelled as languages:
/// CTranslate2's files do not tell special tokens from pieces.
inline std::int32_t find_spelled_language(const std::filesystem::path& path,
                                          const std::vector<std::string>& tokens,
                                          const std::string& language) {
  std::vector<TargetLanguage> known;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_spelled_as_language(tokens[i])) known.push_back({tokens[i], static_cast<std::int32_t>(i)});
  }
  return find_language(path, known, language);
}

/// The path of the SentencePiece model for one side ("source" or "target") in a folder; empty when there is
/// none.
inline std::filesystem::path find_sentencepiece(const std::filesystem::path& folder,
                                                const std::string& side) {
  for (const std::string& name :
       {side + ".spm", std::string("sentencepiece.bpe.model"), std::string("spiece.model"),
        std::string("sentencepiece.model"), std::string("spm.model"), std::string("tokenizer.model")}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder / name, ignored)) return folder / name;
  }
  return {};
}

/// Makes a SentencePiece tokenizer from a file. Throws IoError, ValueError in a program built without
/// SentencePiece.
inline std::shared_ptr<const Tokenizer> sentencepiece_tokenizer(const std::filesystem::path& path,
                                                                ForeignVocabulary vocabulary,
                                                                bool language_codes,
                                                                std::vector<AddedToken> added = {}) {
  const SentencePieceFunctions& functions = require_sentencepiece("import", "'" + path.string() + "'");
  try {
    return functions.make(read_text_file(path), std::move(vocabulary), language_codes, std::move(added));
  } catch (const ValueError& error) {
    throw IoError("import", "'" + path.string() + "': " + error.what());
  }
}

/// The pieces of a SentencePiece file in the order of its own ids. Throws as sentencepiece_tokenizer().
inline std::vector<std::string> sentencepiece_pieces(const std::filesystem::path& path) {
  const SentencePieceFunctions& functions = require_sentencepiece("import", "'" + path.string() + "'");
  try {
    return functions.pieces(read_text_file(path));
  } catch (const ValueError& error) {
    throw IoError("import", "'" + path.string() + "': " + error.what());
  }
}

/// Extends a vocabulary with empty tokens to the rows of an embedding. Throws IoError when it has more tokens
/// than rows.
inline void fit_vocabulary(const std::filesystem::path& path, std::vector<std::string>& tokens, index_t rows,
                           const char* side) {
  if (static_cast<index_t>(tokens.size()) > rows) {
    throw IoError("import", "'" + path.string() + "' does not fit the weights: it has " +
                                std::to_string(tokens.size()) + " tokens, the " + side + " embedding has " +
                                std::to_string(rows) + " rows");
  }
  tokens.resize(static_cast<std::size_t>(rows));
}

}  // namespace eigenformer::detail
