#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/data/text/sentences.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/search/alignment/token_spans.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/text/document_parts.hpp"

namespace eigenformer {

/// The search options of a model's conventions; what these do not set keeps its default. Throws ValueError
/// for an unknown name and a value of the wrong type; validate() is not called.
EIGENFORMER_IO_FUNCTION SearchOptions search_options(const ModelConventions& text);

/// The source ids of a line of text, with the prefix and suffix of the conventions; empty for a blank line
/// (is_blank()). A line of more than max_tokens tokens is cut; then *cut is set to true, else left unchanged.
/// Throws ValueError for a negative max_tokens, and when the tokenizer does.
EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> source_ids(const TextConventions& text,
                                                             const Tokenizer& tokenizer,
                                                             const std::string& line, index_t max_tokens,
                                                             bool* cut = nullptr);

namespace detail {

/// The bytes of each id of source_ids() in its line; empty for ids that the conventions add.
EIGENFORMER_IO_FUNCTION std::vector<ByteSpan> source_spans(const TextConventions& text,
                                                           const Tokenizer& tokenizer,
                                                           std::span<const std::int32_t> ids,
                                                           const std::string& line);

}  // namespace detail

/// How lines are split for a model: into sentences if its lines are sentences (TextConventions) and the
/// program was built with ICU; else only into parts that the model can read. language: of the lines, for the
/// rules and abbreviations that decide where sentences end; empty: the one that the conventions say, and
/// without it any. Throws ValueError for an unknown language.
EIGENFORMER_IO_FUNCTION DocumentOptions line_splitting(const TextConventions& text,
                                                       const Tokenizer& tokenizer, std::string language = {});

namespace detail {

// The size of a model's table of positions; without a table the largest number.
template <class Options>
index_t table_positions(const Options& o) {
  if constexpr (requires { input_positions(o.positions, o.layer); }) {
    if (std::holds_alternative<LearnedPositions>(input_positions(o.positions, o.layer))) return o.max_length;
  }
  return std::numeric_limits<index_t>::max();
}

}  // namespace detail

/// The maximum number of tokens of a sentence, without those that the conventions add; a longer one is
/// translated in parts. Unlimited for options without max_length.
template <class Options>
index_t max_source_tokens(const FolderDescription<Options>& description) {
  const TextConventions& text = description.text;
  const index_t room = detail::table_positions(description.model);
  if (room != std::numeric_limits<index_t>::max()) {
    return std::max<index_t>(
        0, room - static_cast<index_t>(text.source_prefix.size() + text.source_suffix.size()));
  }
  if constexpr (requires { description.model.max_length; }) return description.model.max_length;
  return room;
}

namespace detail {

/// The maximum number of target tokens after target_prefix, end symbol included: `wanted`, or less if the
/// model has fewer positions.
template <class Options>
index_t max_target_tokens(const FolderDescription<Options>& description, index_t wanted) {
  const index_t room = table_positions(description.model);
  const auto forced = static_cast<index_t>(description.text.target_prefix.size());
  return std::min(wanted, std::max<index_t>(1, room - forced));
}

/// The maximum number of tokens of a target text that is scored, end symbol included: as many as a line may
/// have, max_source_tokens(), or fewer if the model has fewer positions; unlimited for options without
/// max_length. Attention takes time by the square of this number.
template <class Options>
index_t max_scored_tokens(const FolderDescription<Options>& description) {
  index_t wanted = std::numeric_limits<index_t>::max();
  if constexpr (requires { description.model.max_length; }) {
    wanted = std::min<index_t>(description.model.max_length, wanted - 1) + 1;
  }
  return max_target_tokens(description, wanted);
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION SearchOptions search_options(const ModelConventions& text) {
  auto options = options_from_json<SearchOptions>(text.search);
  options.begin_id = text.begin_id;
  options.end_id = text.end_id;
  options.prefix_ids = text.target_prefix;
  options.forbidden_ids = text.forbidden_ids;
  return options;
}

EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> source_ids(const TextConventions& text,
                                                             const Tokenizer& tokenizer,
                                                             const std::string& line, index_t max_tokens,
                                                             bool* cut) {
  if (max_tokens < 0) {
    throw ValueError("source_ids", {"max_tokens is ", max_tokens, ", must not be negative"});
  }
  if (detail::is_blank(line)) return {};
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

namespace detail {

EIGENFORMER_IO_FUNCTION std::vector<ByteSpan> source_spans(const TextConventions& text,
                                                           const Tokenizer& tokenizer,
                                                           std::span<const std::int32_t> ids,
                                                           const std::string& line) {
  const std::size_t around = text.source_prefix.size() + text.source_suffix.size();
  const std::size_t own = ids.size() > around ? ids.size() - around : 0;
  std::vector<ByteSpan> spans(ids.size());
  const std::size_t before = text.source_text.size();
  std::size_t done = 0, at = std::min(text.source_prefix.size(), ids.size());
  for (const ByteSpan& span : token_spans(tokenizer, ids.subspan(at, own), text.source_text + line)) {
    const std::size_t begin = std::max(span.begin, before) - before,
                      end = std::max(span.end, before) - before;
    done = end;
    spans[at++] = {begin, end};
  }
  for (; at < spans.size(); ++at) spans[at] = {done, done};
  return spans;
}

/// The language whose token the conventions put around a source sentence, such as __en__, en_XX or eng_Latn,
/// as a code that SentenceSplitter knows; empty if there is none.
inline std::string source_language(const TextConventions& text, const Tokenizer& tokenizer) {
  for (const auto* ids : {&text.source_prefix, &text.source_suffix}) {
    for (const std::int32_t id : *ids) {
      const auto selects = [&](const TargetLanguage& target) { return target.id == id; };
      if (std::any_of(text.target_languages.begin(), text.target_languages.end(), selects)) continue;
      std::string token = tokenizer.token(id);
      if (token.starts_with("__") && token.ends_with("__") && token.size() > 4)
        token = token.substr(2, token.size() - 4);
      if (SentenceSplitter::knows(token)) return token;
    }
  }
  return {};
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION DocumentOptions line_splitting(const TextConventions& text,
                                                       const Tokenizer& tokenizer, std::string language) {
  DocumentOptions options{.layout = DocumentLayout::flow};
  if (!text.lines_are_sentences || !SentenceSplitter::available()) return options;
  if (language.empty()) language = detail::source_language(text, tokenizer);
  options.splitter =
      std::make_shared<const SentenceSplitter>(SentenceOptions{.language = std::move(language)});
  return options;
}

}  // namespace eigenformer

#endif
