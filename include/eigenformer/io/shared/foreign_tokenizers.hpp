#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "eigenformer/io/shared/import_tools.hpp"

namespace eigenformer::detail {

/// The languages that a tokenizer's class in transformers 4 knows without a list in its files, in the order
/// of their ids. codes: "m2m100" or "wmt21" (M2M100), "mbart" or "mbart50"; empty for others.
EIGENFORMER_IO_FUNCTION std::vector<std::string> implied_languages(std::string_view codes);

/// Whether a token of a vocabulary that does not tell special tokens from pieces is spelled as a language:
/// "__de__", ">>deu<<", "<2de>", "de_DE" or "deu_Latn".
EIGENFORMER_IO_FUNCTION bool is_spelled_as_language(std::string_view token);

/// The id of a language. known: the tokens of the languages of the model at `path`. A language is spelled as
/// its token, or as the code in "__de__" and ">>de<<". Throws ValueError that names near ones, or some, when
/// the model does not have it.
EIGENFORMER_IO_FUNCTION std::int32_t find_language(const std::filesystem::path& path,
                                                   const std::vector<TargetLanguage>& known,
                                                   const std::string& language);

/// The id of a token; nothing when the vocabulary does not have it or it is empty.
inline std::optional<std::int32_t> find_token(const std::vector<std::string>& tokens,
                                              std::string_view token) {
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  if (found == tokens.end() || token.empty()) return std::nullopt;
  return static_cast<std::int32_t>(found - tokens.begin());
}

/// The pieces of a SentencePiece file in the order of its own ids. Throws as sentencepiece_tokenizer().
EIGENFORMER_IO_FUNCTION std::vector<std::string> sentencepiece_pieces(const std::filesystem::path& path);

/// Extends a vocabulary with empty tokens to the rows of an embedding. Throws IoError when it has more tokens
/// than rows, none, or at least 128 fewer: a truncated file.
EIGENFORMER_IO_FUNCTION void fit_vocabulary(const std::filesystem::path& path,
                                            std::vector<std::string>& tokens, index_t rows, const char* side);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::vector<std::string> implied_languages(std::string_view codes) {
  const auto marked = [](std::vector<std::string> found) {
    for (std::string& code : found) code = "__" + code + "__";
    return found;
  };
  if (codes == "wmt21") return marked({"en", "ha", "is", "ja", "cs", "ru", "zh", "de"});
  if (codes == "m2m100")
    return marked({"af",  "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb",
                   "cs",  "cy", "da", "de",  "el", "en", "es", "et", "fa", "ff", "fi", "fr", "fy",
                   "ga",  "gd", "gl", "gu",  "ha", "he", "hi", "hr", "ht", "hu", "hy", "id", "ig",
                   "ilo", "is", "it", "ja",  "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln",
                   "lo",  "lt", "lv", "mg",  "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no",
                   "ns",  "oc", "or", "pa",  "pl", "ps", "pt", "ro", "ru", "sd", "si", "sk", "sl",
                   "so",  "sq", "sr", "ss",  "su", "sv", "sw", "ta", "th", "tl", "tn", "tr", "uk",
                   "ur",  "uz", "vi", "wo",  "xh", "yi", "yo", "zh", "zu"});
  std::vector<std::string> found;
  if (codes != "mbart" && codes != "mbart50") return found;
  found = {"ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN",
           "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP",
           "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN"};
  if (codes == "mbart") return found;
  found.insert(found.end(),
               {"af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH",
                "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE",
                "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"});
  return found;
}

// The code in a language's token: "de" of "__de__" and ">>de<<".
EIGENFORMER_IO_FUNCTION std::string_view language_code(std::string_view token) {
  for (const auto& [before, after] : {std::pair<std::string_view, std::string_view>{"__", "__"},
                                      std::pair<std::string_view, std::string_view>{">>", "<<"}}) {
    if (token.size() > before.size() + after.size() && token.starts_with(before) && token.ends_with(after))
      return token.substr(before.size(), token.size() - before.size() - after.size());
  }
  return token;
}

EIGENFORMER_IO_FUNCTION bool is_spelled_as_language(std::string_view token) {
  const auto all_in = [](std::string_view text, char first, char last) {
    return std::all_of(text.begin(), text.end(), [&](char c) { return c >= first && c <= last; });
  };
  if (language_code(token) != token || (token.starts_with("<2") && token.ends_with(">"))) return true;
  const std::size_t at = std::min(token.find('_'), token.size());
  const std::string_view code = token.substr(0, at), rest = token.substr(std::min(at + 1, token.size()));
  if (code.size() < 2 || code.size() > 3 || !all_in(code, 'a', 'z')) return false;
  return rest.size() == 2
             ? all_in(rest, 'A', 'Z')
             : rest.size() == 4 && all_in(rest.substr(0, 1), 'A', 'Z') && all_in(rest.substr(1), 'a', 'z');
}

EIGENFORMER_IO_FUNCTION std::int32_t find_language(const std::filesystem::path& path,
                                                   const std::vector<TargetLanguage>& known,
                                                   const std::string& language) {
  for (const TargetLanguage& l : known) {
    if (l.name == language || language_code(l.name) == language) return l.id;
  }
  const std::string what = "'" + path.string() + "' has no language '" + language + "', expected ";
  if (known.empty()) {
    throw ValueError("import", {what,
                                "one among its special tokens, but its tokenizer files list no languages; "
                                "special_tokens_map.json can, as additional_special_tokens"});
  }
  // The first part of a code in small letters: "de" of "de_DE", "deu" of "deu_Latn".
  const auto first_part = [](std::string_view code) {
    std::string part(code.substr(0, code.find_first_of("_-")));
    for (char& c : part) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return part;
  };
  const std::string wanted = first_part(language_code(language));
  std::vector<std::string> near, all;
  for (const TargetLanguage& l : known) {
    const std::string code = first_part(language_code(l.name));
    if (wanted.size() > 1 && code.size() > 1 && (code.starts_with(wanted) || wanted.starts_with(code)))
      near.push_back(l.name);
    all.push_back(l.name);
  }
  constexpr std::size_t most = 12;
  const std::vector<std::string>& shown = near.empty() ? all : near;
  std::string names;
  for (std::size_t i = 0; i < shown.size() && i < most; ++i) names += (i == 0 ? "" : ", ") + shown[i];
  const std::size_t more = all.size() - std::min(shown.size(), most);
  if (more > 0) names += " or one of " + std::to_string(more) + " others";
  throw ValueError("import", {what, names});
}

// The path of the SentencePiece model for one side ("source" or "target") in a folder; empty when there is
// none.
EIGENFORMER_IO_FUNCTION std::filesystem::path find_sentencepiece(const std::filesystem::path& folder,
                                                                 const std::string& side) {
  for (const std::string& name :
       {side + ".spm", std::string("sentencepiece.bpe.model"), std::string("spiece.model"),
        std::string("sentencepiece.model"), std::string("spm.model"), std::string("tokenizer.model")}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder / name, ignored)) return folder / name;
  }
  return {};
}

// Makes a SentencePiece tokenizer from a file. Throws IoError, ValueError in a program built without
// SentencePiece.
EIGENFORMER_IO_FUNCTION std::shared_ptr<const Tokenizer> sentencepiece_tokenizer(
    const std::filesystem::path& path, ForeignVocabulary vocabulary, bool language_codes,
    std::vector<AddedToken> added = {}) {
  const SentencePieceFunctions& functions = require_sentencepiece("import", "'" + path.string() + "'");
  return made_of_file(path, [&] {
    return functions.make(read_text_file(path), std::move(vocabulary), language_codes, std::move(added));
  });
}

EIGENFORMER_IO_FUNCTION std::vector<std::string> sentencepiece_pieces(const std::filesystem::path& path) {
  const SentencePieceFunctions& functions = require_sentencepiece("import", "'" + path.string() + "'");
  return made_of_file(path, [&] { return functions.pieces(read_text_file(path)); });
}

EIGENFORMER_IO_FUNCTION void fit_vocabulary(const std::filesystem::path& path,
                                            std::vector<std::string>& tokens, index_t rows,
                                            const char* side) {
  if (static_cast<index_t>(tokens.size()) > rows) {
    throw IoError("import", {"'", path.string(), "' does not fit the weights: it has ", tokens.size(),
                             " tokens, the ", side, " embedding has ", rows, " rows"});
  }
  // Embeddings are padded to multiples of up to 128 rows; more are missing from a truncated file.
  if (tokens.empty() || rows - static_cast<index_t>(tokens.size()) >= 128) {
    throw IoError("import",
                  {"'", path.string(), "' is incomplete: it has ", tokens.size(), " tokens, the ", side,
                   " embedding has ", rows, " rows, expected one for each but at most 127 of padding"});
  }
  tokens.resize(static_cast<std::size_t>(rows));
}

}  // namespace eigenformer::detail

#endif
