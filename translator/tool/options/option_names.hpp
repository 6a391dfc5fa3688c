#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace translator {

/// A short flag for a field, which help lists before the one with the field's full name.
struct ShortName {
  std::string_view field, name;
};

inline constexpr std::array<ShortName, 11> training_short_names = {{
    {"num_heads", "heads"},
    {"dim_feedforward", "ff"},
    {"norm_first", "pre_norm"},
    {"num_key_value_heads", "kv_heads"},
    {"attention_window", "window"},
    {"query_key_norm", "qk_norm"},
    {"query_key_norm_kind", "qk_norm_kind"},
    {"tying", "tie"},
    {"clip_norm", "clip"},
    {"frozen", "freeze"},
    {"max_minutes", "minutes"},
}};
inline constexpr std::array<ShortName, 4> decoding_short_names = {{
    {"beam_size", "beam"},
    {"no_repeat_ngram_size", "no_repeat_ngram"},
    {"num_beam_groups", "beam_groups"},
    {"num_hypotheses", "n_best"},
}};

/// The short name of a field; empty: none.
inline std::string_view short_name(std::string_view field) {
  for (const std::span<const ShortName> names :
       {std::span<const ShortName>(training_short_names), std::span<const ShortName>(decoding_short_names)}) {
    for (const ShortName& entry : names) {
      if (entry.field == field) return entry.name;
    }
  }
  return {};
}

/// "d_model" -> "--d-model"; for the encoder: "--encoder-d-model".
inline std::string flag_of_name(std::string_view name, std::string_view group = {}) {
  std::string flag = group.empty() ? std::string() : std::string(group) + "-";
  flag += name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return "--" + flag;
}

/// The flag of a field in messages: the short one if there is one.
inline std::string flag_of_field(std::string_view field, std::string_view group = {}) {
  const std::string_view name = group.empty() ? short_name(field) : std::string_view();
  return flag_of_name(name.empty() ? field : name, group);
}

/// Fields of Seq2SeqOptions without a flag: they follow from the corpus and its vocabularies, or from other
/// flags.
inline constexpr std::array<std::string_view, 6> model_fields_without_flag = {
    "source_vocab_size", "target_vocab_size", "max_length", "padding_index", "causal", "constant_id"};
/// Fields of SearchOptions without a flag: they follow from the model's folder or the command.
inline constexpr std::array<std::string_view, 7> decoding_fields_without_flag = {
    "begin_id", "end_id", "prefix_ids", "prefix_length", "forbidden_ids", "attention", "token_scores"};

inline bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace translator
