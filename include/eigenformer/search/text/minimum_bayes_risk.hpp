#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// A function that scores each of n texts against each as the reference: n x n utilities, row-major,
/// hypotheses as rows; higher is better. pairwise_chrf() and pairwise_bleu() in metrics/ are such functions.
using PairwiseUtility = std::function<std::vector<double>(std::span<const std::string> texts)>;

/// The expected utility of each candidate with all candidates as weighted references (Eikema & Aziz 2020, eq.
/// 6); the candidate with the highest has minimum Bayes risk.
///
/// weights: one per candidate, not negative, not all 0; empty: equal weights, which is right for samples.
/// Repeated texts add their weights. Throws ValueError for invalid weights, for a wrong number of weights or
/// utilities, and what the utility throws.
inline std::vector<double> expected_utilities(std::span<const std::string> candidates,
                                              std::span<const double> weights,
                                              const PairwiseUtility& utility) {
  if (!weights.empty() && weights.size() != candidates.size()) {
    throw ValueError("minimum_bayes_risk", "there are " + std::to_string(weights.size()) +
                                               " weights, must be " + std::to_string(candidates.size()) +
                                               ", one for each candidate, or none");
  }
  // Repeated texts are compared once.
  std::vector<std::string> texts;
  std::vector<double> mass;
  std::vector<std::size_t> text_of;
  double total = 0;
  // A power of two, which does not round, so that the sum of the largest weights does not overflow.
  const bool large = std::any_of(weights.begin(), weights.end(), [](double w) { return w > 1e280; });
  const double unit = large ? 0x1p-64 : 1;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw ValueError("minimum_bayes_risk", "weight " + std::to_string(i) + " is " + std::to_string(weight) +
                                                 ", must be finite and not negative");
    }
    const auto at =
        static_cast<std::size_t>(std::find(texts.begin(), texts.end(), candidates[i]) - texts.begin());
    if (at == texts.size()) {
      texts.push_back(candidates[i]);
      mass.push_back(0);
    }
    mass[at] += weight * unit;
    total += weight * unit;
    text_of.push_back(at);
  }
  if (candidates.empty()) return {};
  if (!(total > 0))
    throw ValueError("minimum_bayes_risk", "all weights are 0, at least one must be positive");
  const std::vector<double> values = utility(texts);
  const std::size_t n = texts.size();
  if (values.size() != n * n) {
    throw ValueError("minimum_bayes_risk", "the utility returned " + std::to_string(values.size()) +
                                               " numbers for " + std::to_string(n) + " texts, must be " +
                                               std::to_string(n * n));
  }
  std::vector<double> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) expected[i] += mass[j] / total * values[i * n + j];
  }
  std::vector<double> of_candidates;
  for (const std::size_t t : text_of) of_candidates.push_back(expected[t]);
  return of_candidates;
}

}  // namespace eigenformer
