#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/io/huggingface/huggingface_models.hpp"
#include "eigenformer/io/huggingface/huggingface_tokenizers.hpp"
#include "eigenformer/io/huggingface/huggingface_weights.hpp"

namespace eigenformer {

namespace detail {

/// The row of a config.json's model_type. Throws IoError when there is none.
EIGENFORMER_IO_FUNCTION const HuggingFaceFamily& find_family(const JsonFile& config);

/// config.json, generation_config.json and tokenizer_config.json; for search settings the second has
/// priority.
struct HuggingFaceConfig {
  explicit HuggingFaceConfig(const std::filesystem::path& folder)
      : model(JsonFile::open(folder / "config.json")),
        generation(JsonFile::open_if_exists(folder / "generation_config.json")),
        tokenizer(JsonFile::open_if_exists(folder / "tokenizer_config.json")) {}

  /// The file with the search settings: generation_config.json, or config.json in older models.
  const JsonFile& search_file() const { return generation.json().empty() ? model : generation; }
  /// The file that has a setting: generation_config.json if it does, else config.json.
  const JsonFile& file_of(const std::string& name) const { return generation.has(name) ? generation : model; }

  /// A token id, or the first of a list; -1 when there is none. Throws IoError unless it is below `size`.
  std::int32_t id(const std::string& name, index_t size) const;
  /// Returns an id of a file's setting `name`. Throws IoError unless it is from 0 to size - 1.
  static std::int32_t token_id(const JsonFile& file, const std::string& name, index_t size, std::int64_t id) {
    if (id >= 0 && id < size) return static_cast<std::int32_t>(id);
    throw file.refuse({"sets ", name, " to ", file.json().at(name).dump(),
                       ", expected ids of the vocabulary, 0 to ", size - 1});
  }
  /// As id(), but throws IoError when there is none.
  std::int32_t require_id(const std::string& name, index_t size) const {
    const std::int32_t found = id(name, size);
    if (found < 0) throw model.refuse({"has no '", name, "'"});
    return found;
  }

  JsonFile model, generation, tokenizer;
};

/// Adds the settings of transformers' generate() to a model's conventions, whose ids are already set, and
/// passes each unsupported setting that affects the results of generate() to options.warn. Throws IoError for
/// an invalid setting and for ids that are not below target_size.
EIGENFORMER_IO_FUNCTION void read_search(const HuggingFaceConfig& config, const ImportOptions& options,
                                         index_t target_size, ModelConventions& text);

/// Makes the tokenizers of these families, and sets the conventions and tokenizer of the description.
EIGENFORMER_IO_FUNCTION TokenizerPair huggingface_tokenizers(const std::filesystem::path& folder,
                                                             const HuggingFaceFamily& family,
                                                             const HuggingFaceConfig& config,
                                                             const ImportOptions& options,
                                                             ModelDescription& description);

}  // namespace detail

/// Imports a folder saved by Hugging Face's transformers (config.json, model.safetensors, the tokenizer's
/// files): MarianMT (OPUS-MT), BART, mBART, M2M100, NLLB, T5 and mT5. Weights of any floating-point type are
/// converted to T; search and scores are those of transformers' generate(). Lines are sentences
/// (TextConventions) except for BART, and for T5 without a source_text "translate ...".
///
///     auto model = ef::import_huggingface("opus-mt-en-de");
///     auto lines = ef::translate(model, {"I am reading a book."});     // search/text/text_translator.hpp
///
/// Throws IoError that names the file and what is wrong: missing, truncated, another architecture, a
/// tokenizer that does not match the weights; ValueError for a missing, unknown or superfluous language, and
/// for a tokenizer that needs a library that this program was built without.
template <class T = float>
TranslationModel<T> import_huggingface(const std::filesystem::path& folder,
                                       const ImportOptions& options = {}) {
  const detail::HuggingFaceConfig config(folder);
  const detail::HuggingFaceFamily& family = detail::find_family(config.model);
  const bool t5 = family.positions == detail::HuggingFaceFamily::Positions::relative;
  const auto weights = detail::HuggingFaceWeights::open(folder);
  try {
    ModelDescription description;
    description.model = t5 ? detail::t5_options(family, config.model, weights)
                           : detail::bart_options(family, config.model, weights);
    Seq2SeqTransformer<T> model = t5 ? detail::t5_model<T>(description.model, weights)
                                     : detail::bart_model<T>(description.model, weights);
    TokenizerPair tokenizers = detail::huggingface_tokenizers(folder, family, config, options, description);
    return {std::move(description), std::move(tokenizers), std::move(model)};
  } catch (const ShapeError& error) {
    throw config.model.refuse({"describes a model that is too large for memory: ", error.what()});
  }
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION const HuggingFaceFamily& find_family(const JsonFile& config) {
  const auto type = config.require<std::string>("model_type");
  std::string known;
  for (const HuggingFaceFamily& family : huggingface_families) {
    if (type == family.type) return family;
    append_listed(known, family.type);
  }
  throw config.refuse({"holds a model of type '", type, "', expected one of ", known});
}

EIGENFORMER_IO_FUNCTION std::int32_t HuggingFaceConfig::id(const std::string& name, index_t size) const {
  const JsonFile& file = file_of(name);
  if (!file.has(name)) return -1;
  const nlohmann::json& value = file.json().at(name);
  const bool list = value.is_array() && !value.empty() && value.front().is_number_integer();
  return token_id(file, name, size,
                  list ? value.front().get<std::int64_t>() : file.get<std::int64_t>(name, -1));
}

// A warning about a setting of a file.
EIGENFORMER_IO_FUNCTION void warn_of(const ImportOptions& options, const JsonFile& file,
                                     const std::string& name, const std::string& what) {
  if (!options.warn) return;
  options.warn("'" + file.path().string() + "' sets " + name + " to " + file.json().at(name).dump() + ": " +
               what);
}

// Forbids the single tokens that the settings forbid.
EIGENFORMER_IO_FUNCTION void forbid_tokens(const HuggingFaceConfig& config, const ImportOptions& options,
                                           index_t target_size, ModelConventions& text) {
  for (const char* name : {"bad_words_ids", "suppress_tokens"}) {
    const JsonFile& found = config.file_of(name);
    if (!found.has(name)) continue;
    if (!found.json().at(name).is_array())
      throw found.refuse({"sets ", name, " to ", found.json().at(name).dump(), ", expected a list"});
    for (const nlohmann::json& word : found.json().at(name)) {
      const nlohmann::json& token = word.is_array() && word.size() == 1 ? word.front() : word;
      if (token.is_number_integer() && token.get<std::int64_t>() >= 0) {
        // generate() leaves the end symbol out of words: without it, no hypothesis would end.
        if (word.is_array() && token == text.end_id) continue;
        text.forbidden_ids.push_back(
            HuggingFaceConfig::token_id(found, name, target_size, token.get<std::int64_t>()));
      } else if (options.warn) {
        options.warn("'" + found.path().string() + "' forbids " + word.dump() + " in " + name +
                     ": only single tokens are forbidden");
      }
    }
  }
}

// Settings that are supported, warned of by warn_of_settings(), or without effect. Any other that is no
// setting of the model is listed in a warning.
inline constexpr std::array<std::string_view, 62> known_settings = {
    "max_length", "max_new_tokens", "min_length", "min_new_tokens", "early_stopping", "num_beams",
    "length_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id", "force_bos_token_to_be_generated", "pad_token_id", "bos_token_id", "eos_token_id",
    "decoder_start_token_id", "begin_suppress_tokens", "forced_decoder_ids", "force_words_ids", "constraints",
    "exponential_decay_length_penalty", "sequence_bias", "stop_strings", "max_time", "dola_layers",
    "watermarking_config", "cache_implementation",
    // of do_sample, which the warning lists itself
    "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    // how fast, in what memory, and what comes with the result
    "use_cache", "cache_config", "max_cache_len", "compile_config", "disable_compile", "prefill_chunk_size",
    "low_memory", "continuous_batching_config", "output_attentions", "output_hidden_states", "output_scores",
    "output_logits", "return_dict_in_generate", "transformers_version",
    // guesses of several tokens, which the model itself accepts
    "use_mtp", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size",
    "assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight",
    "speculation_type"};

// Warns of settings that change the result and are not supported.
EIGENFORMER_IO_FUNCTION void warn_of_settings(const HuggingFaceConfig& config, const ImportOptions& options,
                                              bool force_end) {
  const JsonFile& file = config.search_file();
  const auto warn = [&](const std::string& name, const std::string& what) {
    warn_of(options, file, name, what);
  };
  // Settings that change the result unless they have this value.
  struct Neutral {
    const char* name;
    nlohmann::json value;
  };
  const std::array neutral = {Neutral{"num_return_sequences", 1},
                              Neutral{"token_healing", false},
                              Neutral{"do_sample", false},
                              Neutral{"num_beam_groups", 1},
                              Neutral{"diversity_penalty", 0.0},
                              Neutral{"repetition_penalty", 1.0},
                              Neutral{"encoder_repetition_penalty", 1.0},
                              Neutral{"encoder_no_repeat_ngram_size", 0},
                              Neutral{"renormalize_logits", false},
                              Neutral{"remove_invalid_values", false},
                              Neutral{"guidance_scale", 1.0},
                              Neutral{"penalty_alpha", 0.0}};
  for (const auto& [name, value] : neutral) {
    if (file.has(name) && file.json().at(name) != value)
      warn(name, "this is not supported and has no effect");
  }
  for (const char* name : {"begin_suppress_tokens", "forced_decoder_ids", "force_words_ids", "constraints",
                           "exponential_decay_length_penalty", "sequence_bias", "stop_strings", "max_time",
                           "dola_layers", "watermarking_config"}) {
    if (file.has(name) && !file.json().at(name).empty())
      warn(name, "this is not supported and has no effect");
  }
  if (file.has("cache_implementation") && is_text(file.json().at("cache_implementation"), "quantized")) {
    warn("cache_implementation", "the key-value cache is not quantised");
  }
  if (file.has("eos_token_id") && file.json().at("eos_token_id").is_array() &&
      file.json().at("eos_token_id").size() > 1) {
    warn("eos_token_id", "only the first id ends a sentence");
  }
  if (file.has("forced_eos_token_id") && !force_end)
    warn("forced_eos_token_id", "it is not the end symbol and is not forced");

  if (&file != &config.generation) return;
  for (const auto& entry : file.json().items()) {
    const std::string& name = entry.key();
    const bool told_of =
        std::any_of(neutral.begin(), neutral.end(), [&](const Neutral& n) { return name == n.name; });
    if (told_of || entry.value().is_null() || name.starts_with('_')) continue;
    if (std::find(known_settings.begin(), known_settings.end(), name) == known_settings.end())
      warn(name, "this setting is unknown and has no effect");
  }
}

EIGENFORMER_IO_FUNCTION void read_search(const HuggingFaceConfig& config, const ImportOptions& options,
                                         index_t target_size, ModelConventions& text) {
  const JsonFile& file = config.search_file();
  const auto prefix = static_cast<index_t>(text.target_prefix.size());
  nlohmann::json& search = text.search;
  search["rule"] = "huggingface";
  search["length_penalty"] = file.get("length_penalty", 1.0);
  // A number of the file, which must be in a range; 0 when it is absent.
  const auto number = [&](const char* name, index_t least, index_t most) {
    if (!file.has(name)) return index_t{0};
    const auto value = file.get<index_t>(name, 0);
    if (value >= least && value <= most) return value;
    throw file.refuse(
        {"sets ", name, " to ", file.json().at(name).dump(), ", expected ", least, " to ", most});
  };
  constexpr index_t longest = std::numeric_limits<std::int32_t>::max(), most_beams = 4096;
  const auto set = [&](const char* name, index_t value) {
    if (value > 0) search[name] = value;
  };
  set("no_repeat_ngram_size", number("no_repeat_ngram_size", 0, longest));
  set("beam_size", number("num_beams", 1, most_beams));
  const index_t least = std::max<index_t>(
      {0, number("min_length", 0, longest) - 1 - prefix, number("min_new_tokens", 0, longest) - prefix});
  set("min_length", least);
  // max_length counts the token that the decoder starts with, max_new_tokens does not.
  index_t most = 0;
  if (const index_t all = number("max_length", 1, longest); all > 0) most = std::max<index_t>(1, all - 1);
  if (const index_t added = number("max_new_tokens", 1, longest); added > 0) most = added;
  if (most > 0) set("max_length", std::max(most, least + prefix));
  if (file.has("early_stopping")) {
    const bool never = is_text(file.json().at("early_stopping"), "never");
    if (!never && file.get("early_stopping", false)) search["early_stopping"] = true;
    if (never) warn_of(options, file, "early_stopping", "it is read as false");
  }

  const bool force_end = config.id("forced_eos_token_id", target_size) == text.end_id;
  if (force_end) search["force_end"] = true;
  forbid_tokens(config, options, target_size, text);
  warn_of_settings(config, options, force_end);
}

// Reads the special tokens that the tokenizer's class in transformers matches in a text. has_map: whether the
// folder has a vocab.json, as M2M100 and not NLLB.
EIGENFORMER_IO_FUNCTION void read_class_tokens(HuggingFaceVocabulary& vocabulary,
                                               const HuggingFaceFamily& family, bool has_map) {
  vocabulary.read_class_tokens({{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}});
  if (!family.begin_and_mask) return;
  vocabulary.read_class_tokens({{"bos_token", "<s>"}});
  const bool codes = family.implied == HuggingFaceFamily::Implied::language_codes;
  if (!codes || !has_map) vocabulary.read_class_tokens({{"mask_token", "<mask>", true}});
}

// Reads the vocabulary from vocab.json, or from the pieces of the SentencePiece models.
EIGENFORMER_IO_FUNCTION void read_vocabulary_files(HuggingFaceVocabulary& vocabulary,
                                                   const HuggingFaceFamily& family,
                                                   const std::filesystem::path& source_model,
                                                   const std::filesystem::path& target_model) {
  using Vocabulary = HuggingFaceFamily::Vocabulary;
  const std::filesystem::path& folder = vocabulary.folder();
  const bool has_map = file_exists(folder / "vocab.json");
  const bool by_bytes = family.vocabulary == Vocabulary::bytes;
  if (by_bytes || (family.vocabulary != Vocabulary::pieces && has_map)) vocabulary.read_map("vocab.json");
  if (!by_bytes && (source_model.empty() || target_model.empty())) {
    throw IoError("import",
                  {"'", folder.string(), "' has no SentencePiece model: expected tokenizer.json, or ",
                   family.tokenizer_files});
  }
  // Names the file that is missing.
  if (family.vocabulary == Vocabulary::map && !has_map) vocabulary.read_map("vocab.json");
  if (family.vocabulary == Vocabulary::either && !has_map)
    vocabulary.put(source_model, fairseq_pieces(source_model));
  if (family.vocabulary == Vocabulary::pieces)
    vocabulary.put(source_model, sentencepiece_pieces(source_model));
}

// Adds the tokens that the class of a SentencePiece tokenizer in transformers has without listing them.
EIGENFORMER_IO_FUNCTION void add_implied(HuggingFaceVocabulary& vocabulary, const HuggingFaceFamily& family,
                                         bool has_map, const JsonFile& tokenizer) {
  using Implied = HuggingFaceFamily::Implied;
  const auto of_class = tokenizer.get<std::string>("tokenizer_class", "");
  if (family.implied == Implied::language_codes && has_map) {
    const auto codes = tokenizer.get<std::string>("language_codes", "m2m100");
    if (codes != "m2m100" && codes != "wmt21")
      throw tokenizer.refuse({"has the language_codes '", codes, "', expected m2m100 or wmt21"});
    vocabulary.imply(implied_languages(codes));
  } else if (family.implied == Implied::mbart_languages) {
    std::vector<std::string> tokens =
        implied_languages(of_class.starts_with("MBart50") ? "mbart50" : "mbart");
    tokens.push_back("<mask>");
    vocabulary.imply(tokens);
  } else if (family.implied == Implied::sentinels) {
    vocabulary.imply_sentinels(tokenizer.get<index_t>("extra_ids", 100));
  }
}

// Sets the tokens of both languages. around: what tokenizer.json puts around a text, if the folder has one.
EIGENFORMER_IO_FUNCTION void set_languages(const std::filesystem::path& folder,
                                           const HuggingFaceFamily& family, const HuggingFaceConfig& config,
                                           const ImportOptions& options,
                                           const HuggingFaceVocabulary& vocabulary,
                                           const std::optional<TokenizerJson::Template>& around,
                                           ModelConventions& text) {
  const std::int32_t end = text.end_id;
  if (options.source_language.empty() || options.target_language.empty()) {
    throw ValueError("import", {"'", folder.string(),
                                "' is a model of several languages; expected source_language and "
                                "target_language as its vocabulary spells them, such as eng_Latn, en_XX "
                                "or en"});
  }
  const std::vector<TargetLanguage> known = vocabulary.languages();
  const std::int32_t from = find_language(folder, known, options.source_language),
                     to = find_language(folder, known, options.target_language);
  const auto tokenizer_class = config.tokenizer.get<std::string>("tokenizer_class", "");
  const bool first_mbart = family.implied == HuggingFaceFamily::Implied::mbart_languages &&
                           !tokenizer_class.starts_with("MBart50");
  const bool suffix = config.tokenizer.get("legacy_behaviour", false) || first_mbart;
  if (around && around->before.size() + around->after.size() == 2) {
    // The file has the language that it was saved with.
    text.source_prefix = around->before;
    text.source_suffix = around->after;
    for (auto* ids : {&text.source_prefix, &text.source_suffix}) {
      std::replace_if(
          ids->begin(), ids->end(), [&](std::int32_t id) { return id != end; }, from);
    }
  } else if (suffix) {
    text.source_suffix = {end, from};
  } else {
    text.source_prefix = {from};
  }
  if (first_mbart) {
    text.begin_id = to;  // it starts with the language itself
    text.target_prefix.clear();
  } else {
    text.target_prefix = {to};
  }
}

// Makes the tokenizers of a folder without a tokenizer.json. models: the SentencePiece models of both sides.
EIGENFORMER_IO_FUNCTION TokenizerPair tokenizers_of_files(
    const HuggingFaceFamily& family, const HuggingFaceVocabulary& vocabulary, ForeignVocabulary v,
    const std::pair<std::filesystem::path, std::filesystem::path>& models,
    const ModelDescription& description) {
  const auto& [source_model, target_model] = models;
  const std::filesystem::path& folder = vocabulary.folder();
  const ModelConventions& text = description.text;
  TokenizerPair pair;
  if (family.vocabulary == HuggingFaceFamily::Vocabulary::bytes) {
    pair.source = byte_bpe_tokenizer(folder, std::move(v), vocabulary.matched());
    pair.target = pair.source;
  } else {
    const bool codes = family.vocabulary == HuggingFaceFamily::Vocabulary::map;
    pair.source = sentencepiece_tokenizer(source_model, v, codes, vocabulary.matched());
    if (file_exists(folder / "target_vocab.json") && description.model.target_size() > 0) {
      HuggingFaceVocabulary target(folder, description.model.target_size());
      target.read_map("target_vocab.json");
      pair.target =
          sentencepiece_tokenizer(target_model, target.finish("<unk>", {text.begin_id, text.end_id}), codes);
    } else if (description.model.tying == Tying::target) {
      throw IoError("import", {"'", folder.string(), "' has no target_vocab.json: expected one, because ",
                               "config.json's share_encoder_decoder_embeddings is false"});
    } else {
      pair.target = source_model == target_model
                        ? pair.source
                        : sentencepiece_tokenizer(target_model, std::move(v), codes, vocabulary.matched());
    }
  }
  return pair;
}

// Sets the ids that config.json gives special tokens.
EIGENFORMER_IO_FUNCTION void set_special_ids(const HuggingFaceConfig& config, index_t rows,
                                             index_t target_rows, ModelConventions& text) {
  const std::int32_t end = config.require_id("eos_token_id", std::min(rows, target_rows));
  text.source_suffix = {end};
  text.end_id = end;
  text.begin_id = config.id("decoder_start_token_id", target_rows);
  if (text.begin_id < 0) text.begin_id = end;
  text.unknown = UnknownTokens::drop;
  text.forbidden_ids.clear();
  // An old name for forcing the begin symbol.
  const bool force_begin = config.search_file().get("force_bos_token_to_be_generated", false);
  const std::int32_t forced = config.id(force_begin ? "bos_token_id" : "forced_bos_token_id", target_rows);
  if (forced >= 0) text.target_prefix = {forced};
}

// The folder's tokenizer.json, if there is one; throws IoError when it has no tokenizer.
EIGENFORMER_IO_FUNCTION std::optional<TokenizerJson> open_tokenizer_json(const std::filesystem::path& folder,
                                                                         const HuggingFaceFamily& family) {
  if (!file_exists(folder / "tokenizer.json")) return std::nullopt;
  JsonFile file = JsonFile::open(folder / "tokenizer.json");
  if (!file.has("model")) {
    const bool by_bytes = family.vocabulary == HuggingFaceFamily::Vocabulary::bytes;
    throw IoError("import", {"'", file.path().string(), "' has no 'model', and the folder has no ",
                             (by_bytes ? family.tokenizer_files : "SentencePiece model"), " to use instead"});
  }
  return TokenizerJson(std::move(file));
}

EIGENFORMER_IO_FUNCTION TokenizerPair huggingface_tokenizers(const std::filesystem::path& folder,
                                                             const HuggingFaceFamily& family,
                                                             const HuggingFaceConfig& config,
                                                             const ImportOptions& options,
                                                             ModelDescription& description) {
  const bool by_bytes = family.vocabulary == HuggingFaceFamily::Vocabulary::bytes;
  const index_t rows = description.model.source_vocab_size, target_rows = description.model.target_size();
  ModelConventions& text = description.text;
  set_special_ids(config, rows, target_rows, text);
  text.source_text = options.source_text;
  if (!family.languages) require_no_languages(folder, options);

  HuggingFaceVocabulary vocabulary(folder, rows);
  std::filesystem::path source_model = find_sentencepiece(folder, "source"),
                        target_model = find_sentencepiece(folder, "target");
  const bool has_map = file_exists(folder / "vocab.json");
  const bool complete = by_bytes ? has_map && file_exists(folder / "merges.txt")
                                 : !source_model.empty() && !target_model.empty();
  const auto json = complete ? std::nullopt : open_tokenizer_json(folder, family);
  if (json) {
    vocabulary.read(*json);
  } else {
    read_vocabulary_files(vocabulary, family, source_model, target_model);
    add_implied(vocabulary, family, has_map, config.tokenizer);
  }
  vocabulary.read_added();
  if (!json) read_class_tokens(vocabulary, family, has_map);
  const auto around = json ? json->text_template() : std::nullopt;

  if (family.languages) {
    set_languages(folder, family, config, options, vocabulary, around, text);
  } else if (around) {
    text.source_prefix = around->before;
    text.source_suffix = around->after;
  } else if (by_bytes) {
    text.source_prefix = {config.require_id("bos_token_id", rows)};
  }
  read_search(config, options, target_rows, text);
  // T5's translation tasks have sentences.
  if (family.texts_of_many_sentences) text.lines_are_sentences = text.source_text.starts_with("translate ");

  std::vector<std::int32_t> meant = {text.begin_id, text.end_id};
  for (const auto* ids : {&text.source_prefix, &text.source_suffix, &text.target_prefix}) {
    meant.insert(meant.end(), ids->begin(), ids->end());
  }
  ForeignVocabulary v =
      vocabulary.finish(json ? json->unknown() : vocabulary.role("unk_token", "<unk>"), meant);
  TokenizerPair pair;
  if (json) {
    pair.source = json->tokenizer(std::move(v));
    pair.target = pair.source;
  } else {
    pair = tokenizers_of_files(family, vocabulary, std::move(v), {source_model, target_model}, description);
  }
  description.tokenizer = pair.source->kind();
  description.joint = pair.joint();
  return pair;
}

}  // namespace eigenformer::detail

#endif
