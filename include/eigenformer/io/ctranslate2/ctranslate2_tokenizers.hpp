#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/io/shared/foreign_tokenizers.hpp"

namespace eigenformer::detail {

/// The path and the tokens of a vocabulary.
using Ct2Vocabulary = std::pair<std::filesystem::path, std::vector<std::string>>;

/// Reads CTranslate2's vocabulary `name`.json (a list) or `name`.txt (one token per line); its path is empty
/// when there is neither file. Throws IoError for a file that is not such a list.
EIGENFORMER_IO_FUNCTION Ct2Vocabulary read_ctranslate2_vocabulary(const std::filesystem::path& folder,
                                                                  const std::string& name);

/// Makes the tokenizers of a CTranslate2 folder for embeddings of the sizes in description.model, and sets
/// the conventions and tokenizer of the description. zero_start: whether the last id of the target is a begin
/// symbol that the vocabularies do not have.
EIGENFORMER_IO_FUNCTION TokenizerPair ctranslate2_tokenizers(const std::filesystem::path& folder,
                                                             const JsonFile& config,
                                                             const ImportOptions& options,
                                                             ModelDescription& description, bool zero_start);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION Ct2Vocabulary read_ctranslate2_vocabulary(const std::filesystem::path& folder,
                                                                  const std::string& name) {
  std::vector<std::string> tokens;
  std::filesystem::path path = folder / (name + ".json");
  const auto refuse = [&](std::initializer_list<MessagePart> what) {
    return IoError("import", {"'", path.string(), "' ", join(what)});
  };
  if (file_exists(path)) {
    const nlohmann::json json = parse_json(read_text_file(path));
    if (json.is_discarded()) throw refuse({"is truncated or not JSON"});
    if (!json.is_array()) throw refuse({"is not a list of tokens"});
    for (const nlohmann::json& token : json) {
      if (!token.is_string())
        throw refuse({"has ", token.dump(), " as token ", tokens.size(), ", expected a string"});
      tokens.push_back(token.get<std::string>());
    }
    return {path, std::move(tokens)};
  }
  path = folder / (name + ".txt");
  if (!file_exists(path)) return {};
  const std::string text = read_text_file(path);
  if (const auto bad = find_invalid_utf8(text)) throw refuse({"has invalid UTF-8 at byte ", *bad});
  const auto lines = parts_between(text, "\n");
  return {path, {lines.begin(), lines.end()}};
}

// find_language() among those tokens of a vocabulary that are spelled as languages: CTranslate2's files do
// not tell special tokens from pieces.
EIGENFORMER_IO_FUNCTION std::int32_t find_spelled_language(const Ct2Vocabulary& vocabulary,
                                                           const std::string& language) {
  const auto& [path, tokens] = vocabulary;
  std::vector<TargetLanguage> known;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_spelled_as_language(tokens[i])) known.push_back({tokens[i], static_cast<std::int32_t>(i)});
  }
  return find_language(path, known, language);
}

// The tokens that config.json names, or their defaults.
struct Ct2Tokens {
  explicit Ct2Tokens(const JsonFile& config)
      : begin(config.get<std::string>("bos_token", "<s>")),
        end(config.get<std::string>("eos_token", "</s>")),
        unknown(config.get<std::string>("unk_token", "<unk>")),
        start(config.get<std::string>("decoder_start_token", begin)) {}

  std::string begin, end, unknown, start;
};

// Sets the conventions of a description.
EIGENFORMER_IO_FUNCTION void set_conventions(const Ct2Vocabulary& source, const Ct2Vocabulary& target,
                                             const Ct2Tokens& names, const JsonFile& config,
                                             const ImportOptions& options, bool zero_start,
                                             ModelDescription& description) {
  const auto require = [](const Ct2Vocabulary& vocabulary, const std::string& token, const char* key) {
    if (const auto id = find_token(vocabulary.second, token)) return *id;
    throw IoError("import", {"'", vocabulary.first.string(), "' has no token '", token,
                             "', which is config.json's ", key, " or, if it names none, the default"});
  };
  ModelConventions& text = description.text;
  // Older folders have no config.json, and start with the begin symbol.
  const bool start_is_named =
      !config.json().contains("decoder_start_token") || config.has("decoder_start_token");
  text.source_text = options.source_text;
  text.source_suffix.clear();
  if (config.get("add_source_bos", false))
    text.source_prefix.push_back(require(source, names.begin, "bos_token"));
  if (!options.source_language.empty())
    text.source_prefix.push_back(find_spelled_language(source, options.source_language));
  // Models converted from transformers need the end symbol, but expect it from the caller's tokenizer; they
  // do not start with the begin symbol, which of T5's is the padding.
  const bool t5 = std::holds_alternative<RelativeBiasPositions>(description.model.layer.attention.positions);
  // As in huggingface_tokenizers().
  if (t5) text.lines_are_sentences = text.source_text.starts_with("translate ");
  if (config.get("add_source_eos", false) || names.start != names.begin || !start_is_named || t5 ||
      !options.source_language.empty()) {
    text.source_suffix.push_back(require(source, names.end, "eos_token"));
  }
  text.end_id = require(target, names.end, "eos_token");
  if (!options.target_language.empty())
    text.target_prefix.push_back(find_spelled_language(target, options.target_language));
  if (zero_start) {
    text.begin_id = static_cast<std::int32_t>(description.model.target_size() - 1);
  } else if (start_is_named) {
    text.begin_id = require(target, names.start, "decoder_start_token");
  } else if (!text.target_prefix.empty()) {
    text.begin_id = text.target_prefix.front();
    text.target_prefix.clear();
  } else {
    throw ValueError("import", {"'", config.path().string(),
                                "' has no decoder_start_token, so the target language must be the first "
                                "token: give target_language"});
  }
  text.forbidden_ids.clear();
  text.search["rule"] = "ctranslate2";
  if (text.target_prefix.empty()) text.search["min_length"] = 1;  // a forced prefix counts
}

// The vocabularies of a folder.
struct Ct2Vocabularies {
  Ct2Vocabularies(const std::filesystem::path& folder, const Seq2SeqOptions& model) {
    source = target = read_ctranslate2_vocabulary(folder, "shared_vocabulary");
    shared = !source.first.empty() && model.source_vocab_size == model.target_size();
    if (source.first.empty()) {
      source = read_ctranslate2_vocabulary(folder, "source_vocabulary");
      target = read_ctranslate2_vocabulary(folder, "target_vocabulary");
      if (source.first.empty() || target.first.empty()) {
        throw IoError("import", {"'", folder.string(),
                                 "' has no vocabulary: expected shared_vocabulary.json or .txt, or ",
                                 "source_vocabulary and target_vocabulary"});
      }
    }
    fit_vocabulary(source.first, source.second, model.source_vocab_size, "source");
    fit_vocabulary(target.first, target.second, model.target_size(), "target");
  }

  Ct2Vocabulary source, target;
  bool shared = false;  // one vocabulary, and embeddings of one size
};

EIGENFORMER_IO_FUNCTION TokenizerPair ctranslate2_tokenizers(const std::filesystem::path& folder,
                                                             const JsonFile& config,
                                                             const ImportOptions& options,
                                                             ModelDescription& description, bool zero_start) {
  Ct2Vocabularies read(folder, description.model);
  const Ct2Tokens names(config);
  const ModelConventions& text = description.text;
  set_conventions(read.source, read.target, names, config, options, zero_start, description);

  const auto vocabulary = [&](std::vector<std::string>& tokens, const std::vector<std::int32_t>& added) {
    ForeignVocabulary v{std::move(tokens), -1, added};
    v.unknown_id = find_token(v.tokens, names.unknown).value_or(-1);
    for (const std::string& name :
         {names.begin, names.end, names.start, std::string("<pad>"), std::string("<blank>")}) {
      if (const auto id = find_token(v.tokens, name)) v.special_ids.push_back(*id);
    }
    return v;
  };
  std::vector<std::int32_t> target_languages = text.target_prefix;
  target_languages.push_back(text.begin_id);
  const std::filesystem::path source_model = find_sentencepiece(folder, "source"),
                              target_model = find_sentencepiece(folder, "target");
  if (source_model.empty() != target_model.empty()) {
    throw IoError("import", {"'", folder.string(),
                             "' has a SentencePiece model for one language and none for the other"});
  }
  const bool codes = std::any_of(read.source.second.begin(), read.source.second.end(),
                                 [](const std::string& t) { return t.starts_with(">>"); });
  TokenizerPair pair;
  const auto make = [&](const std::filesystem::path& model,
                        ForeignVocabulary v) -> std::shared_ptr<const Tokenizer> {
    if (model.empty()) return std::make_shared<TokenTokenizer>(std::move(v));
    return sentencepiece_tokenizer(model, std::move(v), codes);
  };
  pair.source = make(source_model, vocabulary(read.source.second, text.source_prefix));
  pair.target = read.shared && source_model == target_model
                    ? pair.source
                    : make(target_model, vocabulary(read.target.second, target_languages));
  description.tokenizer = pair.source->kind();
  description.joint = pair.joint();
  return pair;
}

}  // namespace eigenformer::detail

#endif
