#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/generation/search/generate.hpp"
#include "eigenformer/generation/search/sampling.hpp"
#include "eigenformer/io/models/translation_model.hpp"

namespace eigenformer {

/// The search that a model's conventions ask for; beam_size and max_length are the defaults where they name
/// none.
inline GenerationOptions generation_options(const ModelDescription& description) {
  const TextConventions& text = description.text;
  GenerationOptions o;
  o.min_length = text.min_length;
  o.length_penalty = text.length_penalty;
  if (text.beam_size > 0) o.beam_size = text.beam_size;
  if (text.max_length > 0) o.max_length = std::max(text.max_length, o.min_length);
  o.no_repeat_ngram_size = text.no_repeat_ngram_size;
  o.rule = text.search_rule;
  o.early_stopping = text.early_stopping;
  o.force_end = text.force_end;
  o.begin_id = text.begin_id;
  o.end_id = text.end_id;
  o.prefix_ids = text.target_prefix;
  o.forbidden_ids = text.forbidden_ids;
  return o;
}

/// Sampling with what a model's conventions ask for; temperature, top_k, top_p, seed and max_length are the
/// caller's to set.
inline SamplingOptions sampling_options(const ModelDescription& description) {
  const TextConventions& text = description.text;
  SamplingOptions o;
  o.min_length = text.min_length;
  o.begin_id = text.begin_id;
  o.end_id = text.end_id;
  o.prefix_ids = text.target_prefix;
  o.forbidden_ids = text.forbidden_ids;
  return o;
}

/// The ids that the encoder reads for a line of text, with what stands around them; none for a line without a
/// word. A line of more than max_tokens tokens is cut, and *cut set. Throws ValueError where the tokenizer
/// does.
inline std::vector<std::int32_t> source_ids(const ModelDescription& description, const Tokenizer& tokenizer,
                                            const std::string& line, index_t max_tokens,
                                            bool* cut = nullptr) {
  const TextConventions& text = description.text;
  if (normalize_text(line).empty()) return {};
  std::vector<std::int32_t> ids = tokenizer.encode(text.source_text + line);
  if (ids.empty()) return ids;
  if (static_cast<index_t>(ids.size()) > max_tokens) {
    ids.resize(static_cast<std::size_t>(max_tokens));
    if (cut != nullptr) *cut = true;
  }
  ids.insert(ids.begin(), text.source_prefix.begin(), text.source_prefix.end());
  ids.insert(ids.end(), text.source_suffix.begin(), text.source_suffix.end());
  return ids;
}

/// The tokens of a line that a model has room for beside what its conventions add.
inline index_t max_source_tokens(const ModelDescription& description) {
  const TextConventions& text = description.text;
  const index_t most = description.model.max_length;
  if (description.model.positions != Positions::learned) return most;
  return std::max<index_t>(
      0, most - static_cast<index_t>(text.source_prefix.size() + text.source_suffix.size()));
}

/// The target tokens, end symbol included, that a model has room for, `wanted` at most.
inline index_t max_target_tokens(const ModelDescription& description, index_t wanted) {
  if (description.model.positions != Positions::learned) return wanted;
  const auto forced = static_cast<index_t>(description.text.target_prefix.size());
  return std::min(wanted, std::max<index_t>(1, description.model.max_length - forced));
}

/// Translates lines of text: one translation for each, empty for a line without a word. What is longer than
/// the model can read is cut.
///
///     auto model = ef::load_model_folder("en-de");
///     auto lines = ef::translate(model, {"I am reading a book."});
///
/// Throws ValueError for impossible options.
template <class T>
std::vector<std::string> translate(const TranslationModel<T>& model, const std::vector<std::string>& lines,
                                   GenerationOptions options, const BatchGenerationOptions& batching = {},
                                   const Context<T>& ctx = Context<T>::inference()) {
  const ModelDescription& d = model.description;
  options.max_length = max_target_tokens(d, options.max_length);
  std::vector<std::vector<std::int32_t>> sources;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::int32_t> ids = source_ids(d, *model.tokenizers.source, lines[i], max_source_tokens(d));
    if (ids.empty()) continue;
    sources.push_back(std::move(ids));
    places.push_back(i);
  }
  const auto found =
      generate(model.model, ctx, std::span<const std::vector<std::int32_t>>(sources), options, batching);
  std::vector<std::string> translations(lines.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    translations[places[k]] = model.tokenizers.target->decode(found[k].front().ids);
  }
  return translations;
}
/// The same as the model's conventions say.
template <class T>
std::vector<std::string> translate(const TranslationModel<T>& model, const std::vector<std::string>& lines) {
  return translate(model, lines, generation_options(model.description));
}

}  // namespace eigenformer
