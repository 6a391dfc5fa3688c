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

/// The same in chunks, with progress on a terminal. task: its description.
inline WholeLines translate_whole(const SentenceTranslator& translator, std::span<const std::string> lines,
                                  const char* task) {
  LineProgress progress(lines.size(), 0, true, task);
  if (!progress.shown()) return translate_whole(translator, lines);
  const auto chunk = static_cast<std::size_t>(translator.options().batching.batch_size) * 8;
  WholeLines all;
  for (std::size_t done = 0; done < lines.size();) {
    const std::size_t count = std::min(chunk, lines.size() - done);
    WholeLines part = translate_whole(translator, lines.subspan(done, count), done);
    for (auto& of_line : part.translations) all.translations.push_back(std::move(of_line));
    all.num_split += part.num_split;
    progress.add(done += count);
  }
  return all;
}

/// The scores of pairs of lines, in chunks with progress on a terminal.
inline std::vector<ef::Translation> score_whole(const SentenceTranslator& translator,
                                                std::span<const std::string> sources,
                                                std::span<const std::string> targets, const char* task) {
  LineProgress progress(sources.size(), 0, true, task);
  const auto chunk = progress.shown() ? static_cast<std::size_t>(translator.options().batching.batch_size) * 8
                                      : sources.size();
  std::vector<ef::Translation> all;
  for (std::size_t done = 0; done < sources.size();) {
    const std::size_t count = std::min(chunk, sources.size() - done);
    for (ef::Translation& pair : translator.score(sources.subspan(done, count), targets.subspan(done, count)))
      all.push_back(std::move(pair));
    progress.add(done += count);
  }
  return all;
}

}  // namespace translator
