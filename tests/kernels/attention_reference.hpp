#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/kernels/attention/attention.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "isa.hpp"

// Attention as plain loops in double, and the kernel run on the same numbers.

namespace eigenformer::testing {

/// One problem: sizes, layouts, and what is added to a score (the mask once more, as a formula: -inf
/// forbids).
struct AttentionCase {
  index_t heads = 3;
  index_t key_value_heads = 0;  // 0: heads
  index_t head_dim = 12;
  index_t value_dim = 7;
  SequenceLayout queries;
  SequenceLayout keys;
  std::vector<std::int32_t> key_sequence;
  AttentionMask mask;
  std::function<double(index_t b, index_t kb, index_t h, index_t i, index_t j)> bias;
  ScoreRule rule;
  /// What the rule makes of a score, and its derivative there.
  std::function<std::pair<double, double>(double score, index_t h, index_t distance)> by_rule;
  double slope = 0;     // of head h: slope / (h + 1)
  index_t reach = 0;    // of a bias by distance, which is random; 0: none
  bool by_row = false;  // that bias differs from row to row
  bool sums = false;    // sums of weights by distance are wanted; these need a reach
  double scale = 0.37;
  double rate = 0;
  detail::DropoutKey key{11, 5, 3};

  index_t keys_of(index_t b) const {
    return key_sequence.empty() ? b : key_sequence[static_cast<std::size_t>(b)];
  }
  index_t kv_heads() const { return key_value_heads == 0 ? heads : key_value_heads; }
  index_t kv_head(index_t h) const { return h * kv_heads() / heads; }
  index_t entries() const { return 2 * reach + 1; }
  /// Rows of the bias by distance.
  index_t bias_rows() const { return reach == 0 ? 0 : by_row ? queries.rows() : 1; }
  index_t distance(index_t b, index_t kb, index_t i, index_t j) const {
    return keys.position(kb) + j - queries.position(b) - i;
  }
  /// Where the bias of a score is.
  std::size_t bias_at(index_t b, index_t kb, index_t h, index_t i, index_t j) const {
    const index_t row = by_row ? queries.offset(b) + i : 0;
    const index_t entry = std::clamp(distance(b, kb, i, j), -reach, reach) + reach;
    return static_cast<std::size_t>((row * heads + h) * entries() + entry);
  }
  /// The same of sums by distance, which always differ from row to row.
  std::size_t sums_at(index_t b, index_t kb, index_t h, index_t i, index_t j) const {
    const index_t entry = std::clamp(distance(b, kb, i, j), -reach, reach) + reach;
    return static_cast<std::size_t>(((queries.offset(b) + i) * heads + h) * entries() + entry);
  }
  index_t q_stride() const { return heads * head_dim + 3; }
  index_t k_stride() const { return kv_heads() * head_dim + 5; }
  index_t v_stride() const { return kv_heads() * value_dim + 2; }
  index_t out_stride() const { return heads * value_dim + 1; }
};

template <class T>
struct AttentionNumbers {
  std::vector<T> q, k, v, dout, bias = {}, dsums = {}, slopes = {};
};

/// Random inputs for a case, the same for the same seed.
template <class T>
AttentionNumbers<T> random_numbers(const AttentionCase& c, std::uint64_t seed = 1) {
  RandomGenerator rng(seed);
  const auto make = [&](index_t n) {
    std::vector<T> x(static_cast<std::size_t>(n));
    rng.fill_normal(x.data(), n, 0.0, 1.0);
    // Numbers that float holds, so that float and double tests see the same problem.
    for (T& value : x) value = static_cast<T>(static_cast<float>(value));
    return x;
  };
  AttentionNumbers<T> n;
  n.q = make(c.queries.rows() * c.q_stride());
  n.k = make(c.keys.rows() * c.k_stride());
  n.v = make(c.keys.rows() * c.v_stride());
  n.dout = make(c.queries.rows() * c.out_stride());
  n.bias = make(c.bias_rows() * c.heads * c.entries());
  n.dsums = make(c.sums ? c.queries.rows() * c.heads * c.entries() : 0);
  for (index_t h = 0; h < c.heads; ++h)
    n.slopes.push_back(static_cast<T>(static_cast<float>(c.slope / static_cast<double>(h + 1))));
  return n;
}

template <class T>
struct AttentionResult {
  std::vector<T> out, log_sum_exp, weights;
  std::vector<T> dq, dk, dv;
  std::vector<T> sums, dbias;

  AttentionResult() = default;
  explicit AttentionResult(const AttentionCase& c)
      : out(size(c.queries.rows() * c.out_stride())),
        log_sum_exp(size(c.heads * c.queries.rows())),
        weights(size(c.queries.batch() * c.heads * c.queries.max_length() * c.keys.max_length())),
        dq(size(c.queries.rows() * c.q_stride())),
        dk(size(c.keys.rows() * c.k_stride())),
        dv(size(c.keys.rows() * c.v_stride())),
        sums(size(c.sums ? c.queries.rows() * c.heads * c.entries() : 0)),
        dbias(size(c.bias_rows() * c.heads * c.entries())) {}

  static std::size_t size(index_t n) { return static_cast<std::size_t>(n); }
};

template <class T>
detail::kernels::AttentionProblem<T> problem_of(const AttentionCase& c, const AttentionNumbers<T>& n) {
  detail::kernels::AttentionProblem<T> p;
  p.q = n.q.data();
  p.q_stride = c.q_stride();
  p.k = n.k.data();
  p.k_stride = c.k_stride();
  p.v = n.v.data();
  p.v_stride = c.v_stride();
  p.heads = c.heads;
  p.key_value_heads = c.key_value_heads;
  if (c.slope != 0) p.distances.slopes = n.slopes.data();
  if (c.reach > 0) {
    p.distances.bias = n.bias.data();
    p.distances.reach = c.reach;
    p.distances.head_stride = c.entries();
    p.distances.row_stride = c.by_row ? c.heads * c.entries() : 0;
  }
  p.rule = &c.rule;
  p.head_dim = c.head_dim;
  p.value_dim = c.value_dim;
  p.queries = &c.queries;
  p.keys = &c.keys;
  p.key_sequence = c.key_sequence.empty() ? nullptr : c.key_sequence.data();
  p.mask = c.mask.is_none() ? nullptr : &c.mask;
  p.scale = static_cast<T>(c.scale);
  p.dropout_rate = c.rate;
  p.dropout_key = c.key;
  return p;
}

template <class T>
detail::kernels::AttentionGradients<T> gradients_of(const AttentionCase& c, AttentionResult<T>& r,
                                                    double beta = 0) {
  const T b = static_cast<T>(beta);
  T* const bias = c.reach > 0 ? r.dbias.data() : nullptr;
  return {r.dq.data(), c.q_stride(), b, r.dk.data(), c.k_stride(), b, r.dv.data(), c.v_stride(), b, bias, b};
}

/// Everything the kernel computes.
template <class T>
AttentionResult<T> run_kernel(const AttentionCase& c, const AttentionNumbers<T>& n) {
  AttentionResult<T> r(c);
  const auto p = problem_of(c, n);
  detail::kernels::AttentionDistanceWeights<T> sums;
  if (c.sums) sums = {r.sums.data(), n.dsums.data(), c.reach};
  detail::kernels::attention_forward(p, r.out.data(), c.out_stride(), r.log_sum_exp.data(), sums);
  detail::kernels::attention_weights(p, r.log_sum_exp.data(), r.weights.data());
  // Sums by distance go into the output with a matrix whose columns are dsums: <dO, O> takes that in.
  auto out = r.out;
  for (index_t row = 0; row < c.queries.rows() && c.sums; ++row) {
    for (index_t h = 0; h < c.heads; ++h) {
      T dot = 0;
      for (index_t e = 0; e < c.entries(); ++e) {
        const auto at = static_cast<std::size_t>((row * c.heads + h) * c.entries() + e);
        dot += r.sums[at] * n.dsums[at];
      }
      const auto first = static_cast<std::size_t>(row * c.out_stride() + h * c.value_dim);
      out[first] += dot / n.dout[first];
    }
  }
  detail::kernels::attention_backward(p, out.data(), c.out_stride(), n.dout.data(), c.out_stride(),
                                      r.log_sum_exp.data(), gradients_of(c, r), sums);
  return r;
}

/// Dropout's multiplier of one weight, by its definition.
inline double multiplier_of(const AttentionCase& c, index_t b, index_t kb, index_t h, index_t i, index_t j) {
  if (c.rate == 0) return 1;
  const auto query = static_cast<std::uint32_t>(c.queries.position(b) + i);
  const auto key = static_cast<std::uint32_t>(c.keys.position(kb) + j);
  const auto words = detail::Philox4x32::generate(
      {c.queries.sequence_number(b), static_cast<std::uint32_t>(h), query / 4, key}, c.key.philox_key());
  return words[query % 4] >= static_cast<std::uint32_t>(c.rate * 4294967296.0 + 0.5) ? 1 / (1 - c.rate) : 0;
}

/// The same by plain loops in double: softmax(scale q k + bias) v, and the chain rule backwards.
template <class T>
AttentionResult<double> run_reference(const AttentionCase& c, const AttentionNumbers<T>& n) {
  AttentionResult<double> r(c);
  const auto at = [](const std::vector<T>& x, index_t i) {
    return static_cast<double>(x[static_cast<std::size_t>(i)]);
  };
  const auto scale = static_cast<double>(static_cast<T>(c.scale));
  constexpr double lowest = -std::numeric_limits<double>::infinity();
  std::fill(r.log_sum_exp.begin(), r.log_sum_exp.end(), lowest);
  for (index_t b = 0; b < c.queries.batch(); ++b) {
    const index_t kb = c.keys_of(b), length = c.keys.length(kb);
    for (index_t h = 0; h < c.heads; ++h) {
      for (index_t i = 0; i < c.queries.length(b); ++i) {
        const index_t row = c.queries.offset(b) + i;
        const index_t q0 = row * c.q_stride() + h * c.head_dim, o0 = row * c.out_stride() + h * c.value_dim;
        const auto k0 = [&](index_t j) {
          return (c.keys.offset(kb) + j) * c.k_stride() + c.kv_head(h) * c.head_dim;
        };
        const auto v0 = [&](index_t j) {
          return (c.keys.offset(kb) + j) * c.v_stride() + c.kv_head(h) * c.value_dim;
        };
        std::vector<double> s(static_cast<std::size_t>(length)), p(s.size()), dp(s.size()),
            derivative(s.size(), 1.0);
        double maximum = lowest, sum = 0, mean = 0;
        for (index_t j = 0; j < length; ++j) {
          double x = 0;
          for (index_t d = 0; d < c.head_dim; ++d) x += at(n.q, q0 + d) * at(n.k, k0(j) + d);
          const index_t distance = c.distance(b, kb, i, j);
          double score = scale * x - at(n.slopes, h) * std::abs(static_cast<double>(distance));
          if (c.reach > 0) score += at(n.bias, static_cast<index_t>(c.bias_at(b, kb, h, i, j)));
          if (c.by_rule)
            std::tie(score, derivative[static_cast<std::size_t>(j)]) = c.by_rule(score, h, distance);
          const double bias = c.bias ? c.bias(b, kb, h, i, j) : 0;
          s[static_cast<std::size_t>(j)] = bias == lowest ? lowest : score + bias;
          maximum = std::max(maximum, s[static_cast<std::size_t>(j)]);
        }
        if (maximum == lowest) continue;
        for (const double x : s) sum += std::exp(x - maximum);
        r.log_sum_exp[static_cast<std::size_t>(h * c.queries.rows() + row)] = maximum + std::log(sum);
        for (index_t j = 0; j < length; ++j) {
          const auto sj = static_cast<std::size_t>(j);
          p[sj] = std::exp(s[sj] - maximum) / sum;
          r.weights[static_cast<std::size_t>(
              ((b * c.heads + h) * c.queries.max_length() + c.queries.leading(b) + i) * c.keys.max_length() +
              c.keys.leading(kb) + j)] = p[sj];
          if (p[sj] == 0) continue;
          const double z = multiplier_of(c, b, kb, h, i, j);
          for (index_t e = 0; e < c.value_dim; ++e) {
            r.out[static_cast<std::size_t>(o0 + e)] += p[sj] * z * at(n.v, v0(j) + e);
            r.dv[static_cast<std::size_t>(v0(j) + e)] += p[sj] * z * at(n.dout, o0 + e);
            dp[sj] += z * at(n.dout, o0 + e) * at(n.v, v0(j) + e);
          }
          if (c.sums) {
            const std::size_t s_at = c.sums_at(b, kb, h, i, j);
            r.sums[s_at] += p[sj] * z;
            dp[sj] += z * static_cast<double>(n.dsums[s_at]);
          }
          mean += p[sj] * dp[sj];
        }
        for (index_t j = 0; j < length; ++j) {
          const auto sj = static_cast<std::size_t>(j);
          if (p[sj] == 0) continue;
          const double dscore = p[sj] * (dp[sj] - mean) * derivative[sj];
          if (c.reach > 0) r.dbias[c.bias_at(b, kb, h, i, j)] += dscore;
          const double ds = dscore * scale;
          for (index_t d = 0; d < c.head_dim; ++d) {
            r.dq[static_cast<std::size_t>(q0 + d)] += ds * at(n.k, k0(j) + d);
            r.dk[static_cast<std::size_t>(k0(j) + d)] += ds * at(n.q, q0 + d);
          }
        }
      }
    }
  }
  return r;
}

/// The largest |a - b| / max(1, |b|) over two vectors; NaN counts as infinite, and so do infinities that
/// differ.
template <class T>
double largest_error(const std::vector<T>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    if (x == b[i]) continue;
    const double error = std::abs(x - b[i]) / std::max(1.0, std::abs(b[i]));
    worst = error < std::numeric_limits<double>::infinity() ? std::max(worst, error)
                                                            : std::numeric_limits<double>::infinity();
  }
  return worst;
}

/// Whether two results of one attention, whose rows were divided among tiles in other ways, agree: bit by bit
/// by this library's tiles; to rounding by Eigen, whose order of summation depends on a tile's sizes.
template <class T>
bool same_results(const std::vector<T>& a, const std::vector<T>& b) {
  if (detail::kernels::multiplies_by_eigen())
    return largest_error(a, std::vector<double>(b.begin(), b.end())) < (sizeof(T) == 4 ? 1e-4 : 1e-12);
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
bool same_results(const AttentionResult<T>& a, const AttentionResult<T>& b) {
  return same_results(a.out, b.out) && same_results(a.log_sum_exp, b.log_sum_exp) &&
         same_results(a.weights, b.weights) && same_results(a.dq, b.dq) && same_results(a.dk, b.dk) &&
         same_results(a.dv, b.dv);
}

/// A case's numbers and the plain loops' results for them, which take longer than the kernel: computed once
/// for all instruction sets.
template <class T>
class ExpectedAttention {
 public:
  explicit ExpectedAttention(const AttentionCase& c, std::uint64_t seed = 1)
      : case_(c), numbers_(random_numbers<T>(c, seed)), expected_(run_reference(c, numbers_)) {}

  /// The largest error of everything that the kernel computes.
  double error() const {
    const auto got = run_kernel(case_, numbers_);
    return std::max({largest_error(got.out, expected_.out),
                     largest_error(got.log_sum_exp, expected_.log_sum_exp),
                     largest_error(got.weights, expected_.weights), largest_error(got.dq, expected_.dq),
                     largest_error(got.dk, expected_.dk), largest_error(got.dv, expected_.dv),
                     largest_error(got.sums, expected_.sums), largest_error(got.dbias, expected_.dbias)});
  }

 private:
  AttentionCase case_;
  AttentionNumbers<T> numbers_;
  AttentionResult<double> expected_;
};

/// CHECKs the kernel in float and double on the instruction set in use.
inline void check_attention(const AttentionCase& c, double in_float = 2e-5, double in_double = 1e-12) {
  CHECK(ExpectedAttention<float>(c).error() < in_float);
  CHECK(ExpectedAttention<double>(c).error() < in_double);
}

/// The same on every path that is here.
inline void check_attention_on_every_path(const AttentionCase& c, double in_float = 2e-5,
                                          double in_double = 1e-12) {
  const ExpectedAttention<float> floats(c);
  const ExpectedAttention<double> doubles(c);
  for_each_isa([&] {
    CHECK(floats.error() < in_float);
    CHECK(doubles.error() < in_double);
  });
}

}  // namespace eigenformer::testing
