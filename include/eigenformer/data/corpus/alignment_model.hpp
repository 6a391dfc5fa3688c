#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// A translation table: for each source id, pairs of a target id and its probability, by ascending id.
using Lexicon = std::vector<std::vector<std::pair<std::int32_t, double>>>;

/// A source token and a target token that translate each other.
struct AlignmentLink {
  index_t source = 0,  ///< index of the source token in its sentence, from 0
      target = 0;      ///< index of the target token in its sentence, from 0
};

/// Computes a translation table from aligned sentence pairs: for each source id, the share of its links that
/// go to each target id. source_size: size of the source vocabulary, which is the size of the result. Throws
/// ValueError for lists of different sizes and a negative source_size, IndexError for a link outside its
/// sentences, a source id outside the vocabulary or a negative target id.
EIGENFORMER_FUNCTION Lexicon lexicon_of_alignments(std::span<const std::vector<std::int32_t>> sources,
                                                   std::span<const std::vector<std::int32_t>> targets,
                                                   std::span<const std::vector<AlignmentLink>> alignments,
                                                   index_t source_size);

/// Options of train_lexicon().
struct LexiconOptions {
  int iterations = 5;  ///< EM passes over the pairs, at least 1
  double least =
      1e-3;  ///< smaller probabilities are dropped after each pass, but not after the first of several
};

/// Estimates p(target id | source id) from sentence pairs without alignments by IBM Model 1 (Brown et al.
/// 1993, 4.1) without its empty word: every target token comes from some source token. source_size: size of
/// the source vocabulary, which is the size of the result. Throws ValueError for lists of different sizes, a
/// negative source_size and less than one iteration, IndexError for a source id outside the vocabulary or a
/// negative target id.
EIGENFORMER_FUNCTION Lexicon train_lexicon(std::span<const std::vector<std::int32_t>> sources,
                                           std::span<const std::vector<std::int32_t>> targets,
                                           index_t source_size, const LexiconOptions& options = {});

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {
namespace detail {

// Weights by source and target id.
using LexiconCounts = std::vector<std::unordered_map<std::int32_t, double>>;

inline void require_lexicon_id(const char* side, std::size_t pair, std::int32_t id, index_t size) {
  if (id >= 0 && (size < 0 || id < size)) return;
  throw IndexError("lexicon", {"the ", side, " of pair ", pair, " has the id ", id, ", must be ",
                               (id < 0 ? "at least 0" : "below " + std::to_string(size))});
}

inline void require_lexicon_sizes(std::size_t sources, std::size_t targets, index_t source_size) {
  if (sources != targets) {
    throw ValueError("lexicon",
                     {"there are ", sources, " sources and ", targets, " targets, must be equal numbers"});
  }
  if (source_size < 0)
    throw ValueError("lexicon", {"source_size is ", source_size, ", must not be negative"});
}

inline Lexicon normalised(const LexiconCounts& counts, double least) {
  Lexicon lexicon(counts.size());
  for (std::size_t s = 0; s < counts.size(); ++s) {
    double total = 0;
    for (const auto& entry : counts[s]) total += entry.second;
    for (const auto& [id, weight] : counts[s])
      if (weight > least * total) lexicon[s].emplace_back(id, weight / total);
    std::sort(lexicon[s].begin(), lexicon[s].end());
  }
  return lexicon;
}

}  // namespace detail

EIGENFORMER_FUNCTION Lexicon lexicon_of_alignments(std::span<const std::vector<std::int32_t>> sources,
                                                   std::span<const std::vector<std::int32_t>> targets,
                                                   std::span<const std::vector<AlignmentLink>> alignments,
                                                   index_t source_size) {
  detail::require_lexicon_sizes(sources.size(), targets.size(), source_size);
  detail::require_lexicon_sizes(sources.size(), alignments.size(), source_size);
  detail::LexiconCounts counts(static_cast<std::size_t>(source_size));
  for (std::size_t p = 0; p < sources.size(); ++p) {
    for (const AlignmentLink& link : alignments[p]) {
      const auto i = static_cast<std::size_t>(link.source), j = static_cast<std::size_t>(link.target);
      if (link.source < 0 || i >= sources[p].size() || link.target < 0 || j >= targets[p].size()) {
        throw IndexError("lexicon",
                         {"pair ", p, " has the link ", link.source, "-", link.target, ", must be within ",
                          sources[p].size(), " source and ", targets[p].size(), " target tokens"});
      }
      detail::require_lexicon_id("source", p, sources[p][i], source_size);
      detail::require_lexicon_id("target", p, targets[p][j], -1);
      counts[static_cast<std::size_t>(sources[p][i])][targets[p][j]] += 1;
    }
  }
  return detail::normalised(counts, 0);
}

EIGENFORMER_FUNCTION Lexicon train_lexicon(std::span<const std::vector<std::int32_t>> sources,
                                           std::span<const std::vector<std::int32_t>> targets,
                                           index_t source_size, const LexiconOptions& options) {
  detail::require_lexicon_sizes(sources.size(), targets.size(), source_size);
  if (options.iterations < 1)
    throw ValueError("lexicon", {"iterations is ", options.iterations, ", must be positive"});
  detail::LexiconCounts probability(static_cast<std::size_t>(source_size));
  for (int pass = 0; pass < options.iterations; ++pass) {
    detail::LexiconCounts counts(probability.size());
    for (std::size_t p = 0; p < sources.size(); ++p) {
      for (const std::int32_t s : sources[p]) detail::require_lexicon_id("source", p, s, source_size);
      for (const std::int32_t t : targets[p]) {
        detail::require_lexicon_id("target", p, t, -1);
        const auto likely = [&](std::int32_t s) {
          if (pass == 0) return 1.0;  // all alike
          const auto& of_source = probability[static_cast<std::size_t>(s)];
          const auto found = of_source.find(t);
          return found == of_source.end() ? 0.0 : found->second;
        };
        double total = 0;
        for (const std::int32_t s : sources[p]) total += likely(s);
        if (total <= 0) continue;
        for (const std::int32_t s : sources[p]) {
          const double share = likely(s) / total;
          if (share > 0) counts[static_cast<std::size_t>(s)][t] += share;
        }
      }
    }
    const bool last = pass + 1 == options.iterations;
    const Lexicon lexicon = detail::normalised(counts, pass == 0 && !last ? 0 : options.least);
    if (last) return lexicon;
    for (std::size_t s = 0; s < lexicon.size(); ++s) {
      probability[s].clear();
      probability[s].insert(lexicon[s].begin(), lexicon[s].end());
    }
  }
  return {};
}

}  // namespace eigenformer

#endif
