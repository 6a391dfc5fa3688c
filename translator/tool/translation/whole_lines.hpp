#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/decoding_model.hpp"
#include "terminal/status_line.hpp"
#include "translation/line_progress.hpp"

namespace translator {

/// Translations of complete lines.
struct WholeLines {
  std::vector<std::vector<ef::Translation>> translations{};
  std::size_t num_split = 0;  ///< lines with a sentence that was split

  /// The best translation of each line.
  std::vector<std::string> texts() const {
    std::vector<std::string> texts;
    for (const auto& of_line : translations) texts.push_back(of_line.front().text);
    return texts;
  }
};

/// The warning about lines that were split; empty: none.
inline std::string split_remark(std::size_t num_split, ef::index_t max_tokens) {
  if (num_split == 0) return {};
  return counted(num_split, "line") + " with a sentence of more than " + std::to_string(max_tokens) +
         " tokens, which was translated in parts";
}

/// Translates lines. before: number of input lines before them. prefixes: empty, or the forced prefix of each
/// translation. weights: whether alignments have their attention weights.
inline WholeLines translate_whole(const SentenceTranslator& translator, std::span<const std::string> lines,
                                  std::size_t before = 0, std::span<const std::string> prefixes = {},
                                  bool weights = false) {
  WholeLines whole{translator.alternatives(lines, before, prefixes, weights)};
  for (const auto& of_line : whole.translations) whole.num_split += of_line.front().in_parts;
  return whole;
}

/// Calls f(begin, count) for chunks of `size` lines, with progress on a terminal; without one, for all at
/// once. task: a description of what is done.
template <class F>
void in_chunks(const SentenceTranslator& translator, std::size_t size, const char* task, F&& f) {
  LineProgress progress(size, 0, true, task);
  const auto chunk =
      progress.shown() ? static_cast<std::size_t>(translator.options().batching.batch_size) * 8 : size;
  for (std::size_t done = 0; done < size;) {
    const std::size_t count = std::min(chunk, size - done);
    f(done, count);
    progress.add(done += count);
  }
}

/// The same as translate_whole(), in chunks.
inline WholeLines translate_whole(const SentenceTranslator& translator, std::span<const std::string> lines,
                                  const char* task) {
  WholeLines all;
  in_chunks(translator, lines.size(), task, [&](std::size_t begin, std::size_t count) {
    WholeLines part = translate_whole(translator, lines.subspan(begin, count), begin);
    for (auto& of_line : part.translations) all.translations.push_back(std::move(of_line));
    all.num_split += part.num_split;
  });
  return all;
}

/// The scores of pairs of lines, in chunks.
inline std::vector<ef::Translation> score_whole(const SentenceTranslator& translator,
                                                std::span<const std::string> sources,
                                                std::span<const std::string> targets, const char* task) {
  std::vector<ef::Translation> all;
  in_chunks(translator, sources.size(), task, [&](std::size_t begin, std::size_t count) {
    for (ef::Translation& pair :
         translator.score(sources.subspan(begin, count), targets.subspan(begin, count)))
      all.push_back(std::move(pair));
  });
  return all;
}

}  // namespace translator
