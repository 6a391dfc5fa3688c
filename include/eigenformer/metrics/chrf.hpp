#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/metrics/bleu.hpp"

namespace eigenformer {

/// The signature of corpus_chrf() in sacreBLEU's notation, with this library's version.
inline std::string chrf_signature() {
  return "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|" + detail::version_field();
}

namespace detail {

/// Up to six code points, 21 bits each.
using CharacterNgram = std::array<std::uint64_t, 2>;

/// The character n-grams of a text without its spaces, by their order less 1, sorted.
using ChrfNgrams = std::array<std::vector<CharacterNgram>, 6>;

EIGENFORMER_IO_FUNCTION ChrfNgrams chrf_ngrams(std::string_view text);

/// Sums n-gram counts over sentences and computes the score.
class ChrfCounts {
 public:
  void add(const ChrfNgrams& hypothesis, const ChrfNgrams& reference);

  double score() const;

 private:
  std::array<index_t, 6> in_hypotheses_{}, in_references_{}, common_{};
};

}  // namespace detail

/// Corpus chrF2 (Popović 2015), 0 to 100, equal to sacreBLEU's default: character 1- to 6-grams without
/// spaces, recall weighted by beta = 2. Throws ValueError when the two spans differ in size or are empty.
inline double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  detail::require_pairs("corpus_chrf", hypotheses.size(), references.size());
  detail::ChrfCounts counts;
  for (std::size_t i = 0; i < hypotheses.size(); ++i)
    counts.add(detail::chrf_ngrams(hypotheses[i]), detail::chrf_ngrams(references[i]));
  return counts.score();
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION ChrfNgrams chrf_ngrams(std::string_view text) {
  std::u32string characters;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    if (!is_space(c)) characters += c;
  });
  ChrfNgrams ngrams;
  for (std::size_t n = 1; n <= ngrams.size(); ++n) {
    for (std::size_t i = 0; i + n <= characters.size(); ++i) {
      CharacterNgram& ngram = ngrams[n - 1].emplace_back();
      for (std::size_t k = 0; k < n; ++k) ngram[k / 3] = ngram[k / 3] << 21 | characters[i + k];
    }
    std::sort(ngrams[n - 1].begin(), ngrams[n - 1].end());
  }
  return ngrams;
}

EIGENFORMER_IO_FUNCTION void ChrfCounts::add(const ChrfNgrams& hypothesis, const ChrfNgrams& reference) {
  for (std::size_t n = 0; n < common_.size(); ++n) {
    const auto &h = hypothesis[n], &r = reference[n];
    // As in sacreBLEU: n-grams of the hypothesis count only where the reference has some of that order.
    if (!r.empty()) in_hypotheses_[n] += static_cast<index_t>(h.size());
    in_references_[n] += static_cast<index_t>(r.size());
    common_[n] += common_count(h, r);
  }
}

EIGENFORMER_IO_FUNCTION double ChrfCounts::score() const {
  constexpr double beta2 = 4;
  double precision = 0, recall = 0;
  int orders = 0;
  for (std::size_t n = 0; n < common_.size(); ++n) {
    if (in_hypotheses_[n] == 0 || in_references_[n] == 0) continue;
    precision += static_cast<double>(common_[n]) / static_cast<double>(in_hypotheses_[n]);
    recall += static_cast<double>(common_[n]) / static_cast<double>(in_references_[n]);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + beta2) * precision * recall / (beta2 * precision + recall);
}

}  // namespace eigenformer::detail

#endif
