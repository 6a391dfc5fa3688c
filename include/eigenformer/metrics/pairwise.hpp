#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/metrics/chrf.hpp"

namespace eigenformer {

/// chrF2 of one sentence, 0 to 100: corpus_chrf() of a corpus of one.
inline double sentence_chrf(const std::string& hypothesis, const std::string& reference) {
  return corpus_chrf(std::span(&hypothesis, 1), std::span(&reference, 1));
}

/// BLEU of one sentence, 0 to 100, equal to sacreBLEU's sentence_bleu(): as corpus_bleu(), but with effective
/// order, so that a sentence of fewer than four words has a score.
EIGENFORMER_IO_FUNCTION double sentence_bleu(const std::string& hypothesis, const std::string& reference);

/// sentence_chrf() of every pair of texts: n x n scores, row-major, with the hypothesis as the row and the
/// reference as the column. A PairwiseUtility for minimum Bayes risk decoding.
EIGENFORMER_IO_FUNCTION std::vector<double> pairwise_chrf(std::span<const std::string> texts);

/// The same with sentence_bleu().
EIGENFORMER_IO_FUNCTION std::vector<double> pairwise_bleu(std::span<const std::string> texts);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

namespace detail {

// score(i, j) for all n x n pairs, row by row.
template <class F>
std::vector<double> all_pairs(std::size_t n, F&& score) {
  std::vector<double> scores;
  scores.reserve(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) scores.push_back(score(i, j));
  }
  return scores;
}

inline double bleu_of_numbers(std::span<const std::int32_t> hypothesis,
                              std::span<const std::int32_t> reference) {
  BleuScore bleu;
  add_bleu_counts(bleu, hypothesis, reference);
  score_bleu_counts(bleu, true);
  return bleu.score;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION double sentence_bleu(const std::string& hypothesis, const std::string& reference) {
  detail::WordNumbers numbers(detail::mostly_without_spaces(std::span(&reference, 1)));
  const std::vector<std::int32_t> words = numbers(hypothesis);
  return detail::bleu_of_numbers(words, numbers(reference));
}

EIGENFORMER_IO_FUNCTION std::vector<double> pairwise_chrf(std::span<const std::string> texts) {
  std::vector<detail::ChrfNgrams> ngrams;
  for (const std::string& text : texts) ngrams.push_back(detail::chrf_ngrams(text));
  return detail::all_pairs(texts.size(), [&](std::size_t i, std::size_t j) {
    detail::ChrfCounts counts;
    counts.add(ngrams[i], ngrams[j]);
    return counts.score();
  });
}

EIGENFORMER_IO_FUNCTION std::vector<double> pairwise_bleu(std::span<const std::string> texts) {
  detail::WordNumbers numbers(detail::mostly_without_spaces(texts));
  std::vector<std::vector<std::int32_t>> words;
  for (const std::string& text : texts) words.push_back(numbers(text));
  return detail::all_pairs(texts.size(), [&](std::size_t i, std::size_t j) {
    return detail::bleu_of_numbers(words[i], words[j]);
  });
}

}  // namespace eigenformer

#endif
