#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/attention/attention_problem.hpp"

namespace eigenformer::detail::kernels {

/// out (queries->rows(), heads * value_dim) = attention. Rows of padding, and queries that may attend to
/// nothing, become zero. log_sum_exp (heads, queries->rows()), or nullptr: the logarithm of each softmax's
/// denominator, for backward.
///
/// No Lq x Lk matrix is stored: keys are processed in tiles with a running maximum and sum (Dao et al. 2022,
/// algorithm 1). Tiles begin at fixed keys, so a row's result depends on its own sequence alone, not on the
/// other queries of the call. Throws ValueError for invalid sizes, rates and sequence numbers, ShapeError
/// for a mask that does not fit.
template <class T>
void attention_forward(const AttentionProblem<T>& problem, T* out, index_t out_stride, T* log_sum_exp,
                       const AttentionDistanceWeights<T>& by_distance = {});

/// The gradients for dout, from the out and log_sum_exp that attention_forward wrote; dropout masks are
/// computed again. by_distance.gradient, if given, is the gradient of the sums of weights by distance; out
/// must then be the whole output, to which these sums contribute linearly. Throws as attention_forward does,
/// and ValueError if key_rows is given.
template <class T>
void attention_backward(const AttentionProblem<T>& problem, const T* out, index_t out_stride, const T* dout,
                        index_t dout_stride, const T* log_sum_exp, const AttentionGradients<T>& gradients,
                        const AttentionDistanceWeights<T>& by_distance = {});

/// weights (batch, heads, queries->max_length(), keys->max_length()): the softmax before dropout, zero
/// outside the sequences. log_sum_exp as attention_forward wrote it. Throws as attention_forward does.
template <class T>
void attention_weights(const AttentionProblem<T>& problem, const T* log_sum_exp, T* weights);

/// The gradients of queries, keys and bias for dweights, from the weights that attention_weights wrote, of
/// the same shape; dv is not written. Throws as attention_backward does.
template <class T>
void attention_weights_backward(const AttentionProblem<T>& problem, const T* weights, const T* dweights,
                                const AttentionGradients<T>& gradients);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <cmath>
#include <limits>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/attention/attention_backward.hpp"
#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/attention/attention_product.hpp"
#include "eigenformer/kernels/attention/attention_softmax.hpp"
#include "eigenformer/kernels/attention/attention_tiles.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

// Sequences of one query each, as in decoding: all heads of a query in one call. For a single query the calls
// that process a block of queries would have little work each.

/// One query of all heads, and its keys.
template <class T>
struct AttentionSingleCall {
  const T* q;
  AttentionRows<T> k, v;
  index_t keys;
  index_t heads, shared;  ///< of queries; of these for one of keys
  index_t head_dim, value_dim;
  T scale;
  T* log_sum_exp;  ///< of the first head, the others `log_sum_exp_stride` apart; or nullptr
  index_t log_sum_exp_stride;
};

/// out (heads * value_dim) = the result of attention_forward_block for a block of one query, by the same
/// steps and bit-identical. Four heads at a time, because a step of the softmax takes as long for one row as
/// for four.
template <class T>
struct AttentionSingle {
  static constexpr index_t widest = 4 * attention_width;  ///< features of a head

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const AttentionSingleCall<T>* call, T* out) {
    const AttentionSingleCall<T> p = *call;
    for (index_t h = 0; h < p.heads; h += 4) four<Bytes>(p, h, std::min<index_t>(4, p.heads - h), out);
  }

 private:
  // Heads `first` and on, `count` of them.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void four(const AttentionSingleCall<T>& p, index_t first, index_t count,
                                             T* out) {
    using S = Simd<T, Bytes>;
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    // Distances between parts are those of AttentionTiles.
    constexpr index_t part = widest + 16;
    alignas(64) T query[part], sums[4 * part], scores[4 * attention_width] = {};
    alignas(64) T maximum[4] = {lowest, lowest, lowest, lowest}, denominator[4] = {}, correction[4];
    for (index_t key = 0; key < p.keys; key += attention_width) {
      const index_t n = std::min(attention_width, p.keys - key);
      for (index_t r = 0; r < count; ++r) {
        const T* from = p.q + (first + r) * p.head_dim;
        for (index_t c = 0; c < p.head_dim; c += S::lanes) {
          typename S::V x;
          S::load(x, from + c, p.head_dim - c);
          S::at(query + c).v = x * p.scale;
        }
        for (index_t done = 0; done < p.head_dim; done += attention_width) {
          AttentionRowScores<T>::template run<Bytes>(
              query + done, n, p.k.from(key, (first + r) / p.shared * p.head_dim + done),
              std::min(attention_width, p.head_dim - done), scores + r * attention_width, done > 0);
        }
      }
      AttentionSoftmax<T>::template run<Bytes>(scores, count, n, maximum, denominator, correction);
      for (index_t r = 0; r < count; ++r) {
        for (index_t done = 0; done < p.value_dim; done += attention_width) {
          AttentionRowProduct<T>::template run<Bytes>(
              scores + r * attention_width, n, p.v.from(key, (first + r) / p.shared * p.value_dim + done),
              std::min(attention_width, p.value_dim - done), sums + r * part + done, correction[r],
              key == 0 ? ProductMode::overwrite : ProductMode::rescale);
        }
      }
    }
    for (index_t r = 0; r < count; ++r) {
      const index_t h = first + r;
      const bool nothing = denominator[r] == T(0);
      if (p.log_sum_exp != nullptr)
        p.log_sum_exp[h * p.log_sum_exp_stride] = nothing ? lowest : maximum[r] + std::log(denominator[r]);
      if (p.keys == 0) std::fill_n(sums + r * part, p.value_dim, T(0));
      const T factor = nothing ? T(0) : T(1) / denominator[r];
      for (index_t c = 0; c < p.value_dim; c += S::lanes)
        S::store(out + h * p.value_dim + c, p.value_dim - c, S::at(sums + r * part + c).v * factor);
    }
  }
};

/// Whether AttentionSingle can compute a problem: one query for each sequence, no mask, terms by distance,
/// rule or dropout, heads of at most `widest` features, and products by the library.
template <class T>
bool attends_singly(const AttentionProblem<T>& p) {
  return p.queries->max_length() == 1 && (p.mask == nullptr || p.mask->is_none()) && !p.distances.any() &&
         !p.has_rule() && p.dropout_rate == 0 && p.head_dim <= AttentionSingle<T>::widest &&
         p.value_dim <= AttentionSingle<T>::widest && !multiplies_by_eigen();
}

/// The attention of the query of sequence b.
template <class T>
void attention_single(const AttentionProblem<T>& p, index_t b, T* out, index_t out_stride, T* log_sum_exp) {
  if (p.queries->lengths()[b] == 0) return;
  const index_t kb = attention_keys_of(p, b), row = p.queries->offsets()[b], first = p.keys->offsets()[kb];
  const AttentionRows<T> k{p.k, p.k_stride, p.key_rows}, v{p.v, p.v_stride, p.key_rows};
  const AttentionSingleCall<T> call{p.q + row * p.q_stride,
                                    k.from(first, 0),
                                    v.from(first, 0),
                                    p.keys->lengths()[kb],
                                    p.heads,
                                    p.heads_per_key(),
                                    p.head_dim,
                                    p.value_dim,
                                    p.scale,
                                    shifted(log_sum_exp, row),
                                    p.queries->rows()};
  dispatch<AttentionSingle<T>>(&call, out + row * out_stride);
}

/// The output of a block of queries of one head: for each tile of keys, O = correction O + exp(S - maximum)
/// V.
template <class T>
EIGENFORMER_NOINLINE void attention_forward_block(const AttentionProblem<T>& p, const AttentionPlace& at,
                                                  index_t first, index_t count, T* out, index_t out_stride,
                                                  T* log_sum_exp,
                                                  const AttentionDistanceWeights<T>& by_distance) {
  using Tiles = AttentionTiles<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const index_t panels = attention_panels(p.value_dim);
  Tiles t(p, panels * (Tiles::key_panel + Tiles::query_panel) + 3 * attention_block);
  T* const values = t.take(panels * Tiles::key_panel);
  T* const sums = t.take(panels * Tiles::query_panel);
  T* const maximum = t.take(attention_block);
  T* const denominator = t.take(attention_block);
  T* const correction = t.take(attention_block);
  std::fill_n(maximum, attention_padded(count), lowest);
  std::fill_n(denominator, attention_padded(count), T(0));
  bool started[attention_block / attention_rows] = {};
  t.pack_queries(at, first, count);
  // This block's sums of weights by distance, a row for each query.
  const index_t distances = 2 * by_distance.reach + 1, sums_stride = by_distance.row(p.heads);
  T* const by_row =
      by_distance.sums == nullptr
          ? nullptr
          : by_distance.sums + (p.queries->offsets()[at.b] + first) * sums_stride + at.h * distances;
  for (index_t i = 0; i < count && by_row != nullptr; ++i)
    std::fill_n(by_row + i * sums_stride, distances, T(0));
  t.keys_in_place = count == 1;
  const AttentionRange range = attention_key_range(p, at.b, at.kb, first, count);
  for (index_t key = range.begin / Tiles::width * Tiles::width; key < range.end; key += Tiles::width) {
    const index_t n = std::min(Tiles::width, range.end - key);
    if (!t.admits({at, first, count, key, n})) continue;
    if (!t.keys_in_place) t.pack_keys_transposed(at, key, n);
    const bool finite = count == 1 || t.pack_values(at, key, n, values);
    for (index_t row = 0; row < count; row += attention_rows) {
      const index_t m = std::min(attention_rows, count - row);
      const AttentionRectangle r{at, first + row, m, key, n};
      if (!t.score(r, row)) continue;
      dispatch<AttentionSoftmax<T>>(t.scores, m, n, maximum + row, denominator + row, correction + row);
      if (const T* multipliers = t.drop(r); multipliers != nullptr)
        dispatch<AttentionMultiply<T>>(t.scores, multipliers, m, n);
      if (by_row != nullptr) {
        T* to = by_row + row * sums_stride;
        dispatch<AttentionScaleRows<T>>(to, m, distances, sums_stride, correction + row);
        dispatch<AttentionDistanceSums<T>>(t.scores, m, n, to, sums_stride, by_distance.reach, t.distance(r));
      }
      bool& seen = started[row / attention_rows];
      const ProductMode mode = seen ? ProductMode::rescale : ProductMode::overwrite;
      if (count == 1) {
        t.weigh_values_once(at, key, n, sums, correction[0], mode);
      } else {
        t.weigh(t.scores, m, n, values, finite, p.value_dim, sums + row * Tiles::width, Tiles::query_panel,
                correction + row, mode);
      }
      seen = true;
    }
  }
  const index_t row = p.queries->offsets()[at.b] + first;
  for (index_t i = 0; i < count; ++i) {
    const bool nothing = denominator[i] == T(0);
    if (!started[i / attention_rows]) {
      for (index_t c = 0; c < panels; ++c)
        std::fill_n(sums + c * Tiles::query_panel + i * Tiles::width, Tiles::width, T(0));
    }
    if (log_sum_exp != nullptr) {
      log_sum_exp[at.h * p.queries->rows() + row + i] =
          nothing ? lowest : maximum[i] + std::log(denominator[i]);
    }
    correction[i] = nothing ? T(0) : T(1) / denominator[i];
  }
  if (by_row != nullptr) dispatch<AttentionScaleRows<T>>(by_row, count, distances, sums_stride, correction);
  dispatch<AttentionStore<T>>(sums, Tiles::query_panel, count, p.value_dim, correction, T(1),
                              out + row * out_stride + at.h * p.value_dim, out_stride, T(0));
}

/// A block of rows of weights = exp(S - log_sum_exp); scores that a rule excludes are not written.
template <class T>
EIGENFORMER_NOINLINE void attention_weights_block(const AttentionProblem<T>& p, const AttentionPlace& at,
                                                  index_t first, index_t count, const T* log_sum_exp,
                                                  T* weights) {
  using Tiles = AttentionTiles<T>;
  Tiles t(p, attention_block);
  T* const shift = t.take(attention_block);
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T* given = log_sum_exp + at.h * p.queries->rows() + p.queries->offsets()[at.b] + first;
  for (index_t i = 0; i < count; ++i) shift[i] = given[i] == -infinity ? infinity : given[i];
  t.pack_queries(at, first, count);
  const AttentionRange range = attention_key_range(p, at.b, at.kb, first, count);
  const index_t ld = p.keys->max_length();
  for (index_t key = range.begin / Tiles::width * Tiles::width; key < range.end; key += Tiles::width) {
    const index_t n = std::min(Tiles::width, range.end - key);
    if (!t.admits({at, first, count, key, n})) continue;
    t.pack_keys_transposed(at, key, n);
    for (index_t row = 0; row < count; row += attention_rows) {
      const index_t m = std::min(attention_rows, count - row);
      if (!t.score({at, first + row, m, key, n}, row)) continue;
      T* to = weights + attention_weight_index(p, at, first + row, key);
      dispatch<AttentionWeights<T>>(t.scores, m, n, shift + row, to, ld);
    }
  }
}

/// The problem of which a call's sums of weights by distance are: with the reach of its bias, if it has one.
template <class T>
AttentionDistanceWeights<T> checked_distance_weights(const AttentionProblem<T>& p,
                                                     AttentionDistanceWeights<T> given) {
  if (p.distances.bias != nullptr) given.reach = p.distances.reach;
  if (given.sums != nullptr || given.gradient != nullptr)
    check_attention_size("reach of the weights by distance", given.reach);
  return given;
}

template <class T>
void check_attention_backward(const AttentionProblem<T>& p) {
  check_attention(p);
  if (p.key_rows != nullptr)
    throw ValueError("attention", "key_rows is given, but backward does not support it; expected none");
}

}  // namespace detail

template <class T>
void attention_forward(const AttentionProblem<T>& problem, T* out, index_t out_stride, T* log_sum_exp,
                       const AttentionDistanceWeights<T>& by_distance) {
  detail::check_attention(problem);
  detail::count_attention(problem, problem.head_dim + problem.value_dim);
  const AttentionDistanceWeights<T> wanted = detail::checked_distance_weights(problem, by_distance);
  const index_t row = wanted.row(problem.heads);
  detail::zero_padding(*problem.queries, wanted.sums, row, row);
  detail::zero_padding(*problem.queries, out, out_stride, problem.heads * problem.value_dim);
  if (log_sum_exp != nullptr && problem.queries->tokens() < problem.queries->rows()) {
    std::fill_n(log_sum_exp, problem.heads * problem.queries->rows(), -std::numeric_limits<T>::infinity());
  }
  if (wanted.sums == nullptr && detail::attends_singly(problem)) {
    detail::each_attention_unit(problem, problem.queries->batch(), [&](index_t b) {
      detail::attention_single(problem, b, out, out_stride, log_sum_exp);
    });
    return;
  }
  detail::each_query_block(problem, [&](const detail::AttentionPlace& at, index_t first, index_t count) {
    detail::attention_forward_block(problem, at, first, count, out, out_stride, log_sum_exp, wanted);
  });
}

template <class T>
void attention_backward(const AttentionProblem<T>& problem, const T* out, index_t out_stride, const T* dout,
                        index_t dout_stride, const T* log_sum_exp, const AttentionGradients<T>& gradients,
                        const AttentionDistanceWeights<T>& by_distance) {
  detail::check_attention_backward(problem);
  // S again, dP, and the three gradients.
  detail::count_attention(problem, 3 * problem.head_dim + 2 * problem.value_dim);
  detail::AttentionBackwardCall<T> call{out,         out_stride,
                                        dout,        dout_stride,
                                        log_sum_exp, detail::checked_distance_weights(problem, by_distance)};
  detail::attention_backward_all(problem, call, gradients);
}

template <class T>
void attention_weights(const AttentionProblem<T>& problem, const T* log_sum_exp, T* weights) {
  detail::check_attention(problem);
  const index_t rows = problem.queries->batch() * problem.heads * problem.queries->max_length();
  std::fill_n(weights, rows * problem.keys->max_length(), T(0));
  detail::each_query_block(problem, [&](const detail::AttentionPlace& at, index_t first, index_t count) {
    detail::attention_weights_block(problem, at, first, count, log_sum_exp, weights);
  });
}

template <class T>
void attention_weights_backward(const AttentionProblem<T>& problem, const T* weights, const T* dweights,
                                const AttentionGradients<T>& gradients) {
  detail::check_attention_backward(problem);
  AttentionGradients<T> wanted = gradients;
  wanted.dv = nullptr;
  detail::AttentionBackwardCall<T> call;
  call.weights = weights;
  call.dweights = dweights;
  detail::attention_backward_all(problem, call, wanted);
}

EIGENFORMER_KERNEL(attention_forward)
EIGENFORMER_KERNEL(attention_backward)
EIGENFORMER_KERNEL(attention_weights)
EIGENFORMER_KERNEL(attention_weights_backward)

}  // namespace eigenformer::detail::kernels
#endif
