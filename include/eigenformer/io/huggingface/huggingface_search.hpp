#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/io/huggingface/huggingface_weights.hpp"

namespace eigenformer::detail {

/// config.json, generation_config.json and tokenizer_config.json; for search settings the second has
/// priority.
struct HuggingFaceConfig {
  explicit HuggingFaceConfig(const std::filesystem::path& folder)
      : model(JsonFile::open(folder / "config.json")),
        generation(JsonFile::open_if_exists(folder / "generation_config.json")),
        tokenizer(JsonFile::open_if_exists(folder / "tokenizer_config.json")) {}

  /// The file with the search settings: generation_config.json, or config.json in older models.
  const JsonFile& search_file() const;

  /// A token id, or the first of a list; -1 when there is none. Throws IoError unless it is below `size`.
  std::int32_t id(const std::string& name, index_t size) const;
  /// Returns an id of a file's setting `name`. Throws IoError unless it is from 0 to size - 1.
  static std::int32_t token_id(const JsonFile& file, const std::string& name, index_t size, std::int64_t id);
  /// As id(), but throws IoError when there is none.
  std::int32_t require_id(const std::string& name, index_t size) const {
    const std::int32_t found = id(name, size);
    if (found < 0) throw model.refuse("has no '" + name + "'");
    return found;
  }

  JsonFile model, generation, tokenizer;
};

/// Adds the settings of transformers' generate() to a model's conventions, whose ids are already set, and
/// passes each unsupported setting that affects the results of generate() to options.warn. Throws IoError for
/// an invalid setting and for ids that are not below target_size.
EIGENFORMER_IO_FUNCTION void read_search(const HuggingFaceConfig& config, const ImportOptions& options,
                                         index_t target_size, ModelConventions& text);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION const JsonFile& HuggingFaceConfig::search_file() const {
  return generation.json().empty() ? model : generation;
}

EIGENFORMER_IO_FUNCTION std::int32_t HuggingFaceConfig::id(const std::string& name, index_t size) const {
  const JsonFile& file = generation.has(name) ? generation : model;
  if (!file.has(name)) return -1;
  const nlohmann::json& value = file.json().at(name);
  const bool list = value.is_array() && !value.empty() && value.front().is_number_integer();
  return token_id(file, name, size,
                  list ? value.front().get<std::int64_t>() : file.get<std::int64_t>(name, -1));
}

EIGENFORMER_IO_FUNCTION std::int32_t HuggingFaceConfig::token_id(const JsonFile& file,
                                                                 const std::string& name, index_t size,
                                                                 std::int64_t id) {
  if (id >= 0 && id < size) return static_cast<std::int32_t>(id);
  throw file.refuse("sets " + name + " to " + file.json().at(name).dump() +
                    ", expected ids of the vocabulary, 0 to " + std::to_string(size - 1));
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
    const JsonFile& found = config.generation.has(name) ? config.generation : config.model;
    if (!found.has(name)) continue;
    if (!found.json().at(name).is_array())
      throw found.refuse("sets " + std::string(name) + " to " + found.json().at(name).dump() +
                         ", expected a list");
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
    throw file.refuse("sets " + std::string(name) + " to " + file.json().at(name).dump() + ", expected " +
                      std::to_string(least) + " to " + std::to_string(most));
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

}  // namespace detail
}  // namespace eigenformer

#endif
