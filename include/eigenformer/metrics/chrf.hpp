#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/metrics/signature.hpp"

namespace eigenformer {

/// How corpus_chrf() computes, in sacreBLEU's notation; the version is this library's.
inline std::string chrf_signature() {
  return "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|" + detail::version_field();
}

namespace detail {

/// All n-grams of code points of one order, sorted.
inline std::vector<std::u32string> sorted_ngrams(const std::u32string& text, std::size_t n) {
  std::vector<std::u32string> ngrams;
  for (std::size_t i = 0; i + n <= text.size(); ++i) ngrams.push_back(text.substr(i, n));
  std::sort(ngrams.begin(), ngrams.end());
  return ngrams;
}

inline std::u32string without_spaces(std::string_view text) {
  std::u32string out;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    if (!is_space(c)) out += c;
  });
  return out;
}

}  // namespace detail

/// Corpus chrF2 (Popović 2015), 0 to 100, equal to sacreBLEU's default: character 1- to 6-grams without
/// spaces, recall weighted by beta = 2. Throws ValueError for unequal or zero numbers of sentences.
inline double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  detail::require_pairs("corpus_chrf", hypotheses.size(), references.size());
  constexpr std::size_t order = 6;
  constexpr double beta2 = 4;
  std::array<index_t, order> in_hypotheses{}, in_references{}, common{};
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::u32string hypothesis = detail::without_spaces(hypotheses[i]);
    const std::u32string reference = detail::without_spaces(references[i]);
    for (std::size_t n = 0; n < order; ++n) {
      const auto h = detail::sorted_ngrams(hypothesis, n + 1);
      const auto r = detail::sorted_ngrams(reference, n + 1);
      // Where the reference has no n-gram of this order, the hypothesis's ones do not count.
      if (!r.empty()) in_hypotheses[n] += static_cast<index_t>(h.size());
      in_references[n] += static_cast<index_t>(r.size());
      common[n] += detail::common_count(h, r);
    }
  }
  double precision = 0, recall = 0;
  int orders = 0;
  for (std::size_t n = 0; n < order; ++n) {
    if (in_hypotheses[n] == 0 || in_references[n] == 0) continue;
    precision += static_cast<double>(common[n]) / static_cast<double>(in_hypotheses[n]);
    recall += static_cast<double>(common[n]) / static_cast<double>(in_references[n]);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + beta2) * precision * recall / (beta2 * precision + recall);
}

}  // namespace eigenformer
