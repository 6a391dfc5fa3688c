#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/search/beams/sampling_options.hpp"
#include "eigenformer/search/processors/processor_list.hpp"

namespace eigenformer {

/// A drawn token.
struct SampledToken {
  std::int32_t id = -1;        ///< -1: none was allowed
  double log_probability = 0;  ///< in nats, under the model's unmodified distribution
};

namespace detail {

// The allowed tokens in descending order of score, of equal ones the lower id first; sorted lazily.
template <class T>
class LikeliestFirst {
 public:
  // scores: -infinity forbids a token.
  explicit LikeliestFirst(std::span<const T> scores) {
    tokens_.reserve(scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] > -std::numeric_limits<T>::infinity())
        tokens_.push_back({scores[i], static_cast<std::int32_t>(i)});
    }
  }

  struct Token {
    T score;
    std::int32_t id;
  };
  std::size_t size() const noexcept { return tokens_.size(); }
  std::span<const Token> tokens() const noexcept { return tokens_; }

  // The i-th likeliest. Accessed in order, the first few cost one pass, all of them about one sort.
  const Token& operator[](std::size_t i) {
    if (i >= sorted_)
      sort_to(std::max(i + 1, std::min(tokens_.size(), std::max<std::size_t>(64, 8 * sorted_))));
    return tokens_[i];
  }

  // Removes all but the k likeliest.
  void keep(std::size_t k) {
    if (k >= tokens_.size()) return;
    sort_to(k);
    tokens_.resize(k);
  }

 private:
  void sort_to(std::size_t n) {
    const auto likelier = [](const Token& a, const Token& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    };
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(sorted_),
               end = tokens_.begin() + static_cast<std::ptrdiff_t>(n);
    if (end != tokens_.end()) std::nth_element(begin, end, tokens_.end(), likelier);
    std::sort(begin, end, likelier);
    sorted_ = n;
  }

  std::vector<Token> tokens_;
  std::size_t sorted_ = 0;
};

// Draws one of the tokens whose score is above -infinity, of which there must be one. See sample_token().
template <class T>
std::int32_t draw_token(std::span<const T> scores, const SamplingOptions& options, double uniform) {
  const auto likeliest =
      static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  if (options.temperature == 0) return static_cast<std::int32_t>(likeliest);
  LikeliestFirst<T> tokens(scores);
  if (options.top_k > 0) tokens.keep(static_cast<std::size_t>(options.top_k));
  const double best = static_cast<double>(scores[likeliest]);
  const auto weight = [&](T score) {
    return std::exp((static_cast<double>(score) - best) / options.temperature);
  };
  double total = 0;
  for (const auto& token : tokens.tokens()) total += weight(token.score);
  // Sums the weights of the likeliest tokens until `enough`.
  std::vector<double> sums;
  const auto sum_to = [&](auto&& enough) {
    std::size_t i = 0;
    for (;; ++i) {
      if (i == sums.size()) sums.push_back((i == 0 ? 0 : sums.back()) + weight(tokens[i].score));
      if (i + 1 == tokens.size() || enough(sums[i])) return i;
    }
  };
  if (options.top_p < 1 || options.min_p > 0) {
    const double share = options.top_p < 1 ? options.top_p * total : std::numeric_limits<double>::infinity();
    std::size_t kept = sum_to([&](double sum) {
      // The likeliest token has weight 1.
      return sum >= share ||
             (sums.size() < tokens.size() && weight(tokens[sums.size()].score) < options.min_p);
    });
    const double drawn = uniform * sums[kept];
    const auto last = sums.begin() + static_cast<std::ptrdiff_t>(kept);
    return tokens[static_cast<std::size_t>(std::upper_bound(sums.begin(), last, drawn) - sums.begin())].id;
  }
  const double drawn = uniform * total;
  return tokens[sum_to([&](double sum) { return sum > drawn; })].id;
}

// Computes log-softmax in double: logit - (highest + log(sum of exp(logit - highest))).
template <class T>
struct LogNormaliser {
  explicit LogNormaliser(std::span<const T> logits) {
    highest = static_cast<double>(logits[0]);
    for (const T x : logits) highest = std::max(highest, static_cast<double>(x));
    double sum = 0;
    for (const T x : logits) sum += std::exp(static_cast<double>(x) - highest);
    log_sum = std::log(sum);
  }
  double operator()(T logit) const { return static_cast<double>(logit) - highest - log_sum; }
  // Whether the logits contain NaN or +infinity, or only -infinity.
  bool bad() const { return std::isnan(log_sum); }

  double highest, log_sum;
};

}  // namespace detail

/// Draws a token from logits: removes forbidden_ids, divides by the temperature, truncates to top_k, then to
/// top_p and min_p, and maps `uniform`, in [0, 1), to one of the remaining tokens by their cumulative
/// probabilities, the likeliest first and of equal ones the lower id.
///
/// logits: (V). may_end: whether end_id is allowed. Processors and options that depend on earlier tokens are
/// not applied, and the options are not validated. Throws ValueError when there are no logits, when no token
/// is allowed, and for logits that are NaN or +infinity.
template <class T>
SampledToken sample_token(std::span<const T> logits, const SamplingOptions& options, double uniform,
                          bool may_end = true) {
  if (logits.empty()) throw ValueError("sampling", "there are no logits, expected one for each id");
  const detail::LogNormaliser<T> normaliser(logits);
  if (normaliser.bad()) detail::require_numbers("sampling", logits, 0, 0, false);
  std::vector<T> scores(logits.begin(), logits.end());
  for (const std::int32_t id : options.forbidden_ids) detail::forbid(std::span(scores), id);
  if (!may_end) detail::forbid(std::span(scores), options.end_id);
  if (std::none_of(scores.begin(), scores.end(), [](T x) { return x > -std::numeric_limits<T>::infinity(); }))
    throw ValueError("sampling", "every one of the " + std::to_string(logits.size()) +
                                     " ids is forbidden, expected at least one allowed");
  const std::int32_t id = detail::draw_token(std::span<const T>(scores), options, uniform);
  return {id, normaliser(logits[static_cast<std::size_t>(id)])};
}

}  // namespace eigenformer
