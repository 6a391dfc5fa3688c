#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"

namespace eigenformer {

/// The formula of a layer normalisation; there are trained weights for both.
enum class LayerNormFormula {
  pytorch,   ///< (x - mean) / sqrt(biased variance + eps): Ba et al. 2016 as PyTorch has it
  teaching,  ///< (x - mean) / (unbiased standard deviation + eps): The Annotated Transformer and its
             ///< descendants
};

namespace detail::kernels {

/// y = (x - mean) * rstd * gamma + beta_param over each row of x, or of s = x + dropout(r) where r is given,
/// in one pass: the "add and norm" of a post-norm sub-layer.
///
/// x, y, r, s: (rows, n); gamma, beta_param: (n), or (1) with scalar_gain, or nullptr for 1 and 0; mean,
/// rstd: (rows), kept for the backward; rstd is the factor the formula gives. mean nullptr: it counts as 0,
/// which with PyTorch's formula is RMSNorm (Zhang and Sennrich 2019, eq. 4). rstd nullptr: neither is kept,
/// and `mean`, to which nothing is written, only says whether it counts as 0. y may be x, s may be x or r.
/// dropout as in dropout_rows. With the teaching formula, n must be at least 2; throws ValueError otherwise.
template <class T>
void layer_norm_forward(const T* x, const T* gamma, const T* beta_param, T eps, LayerNormFormula formula,
                        bool scalar_gain, T* y, T* mean, T* rstd, index_t rows, index_t n,
                        const T* r = nullptr, T* s = nullptr, const RowDropout& dropout = {});

/// Gradients of layer_norm_forward, from what it normalised (x or s), mean (or nullptr) and rstd.
///
/// With h = (x - mean) * rstd and g = gamma * dy: dx = rstd * (g - mean(g) - h * mean(g * h)) (PyTorch's
/// formula; the teaching one divides by n - 1 and the plain standard deviation in the last term; RMSNorm's
/// has no mean(g)); dgamma = sum of dy * h, dbeta = sum of dy over the rows, summed in chunks of rows of
/// fixed size. dx, dgamma, dbeta may each be nullptr; beta_dx and beta_params are 0 (overwrite) or 1 (add).
/// dx may be dy.
template <class T>
void layer_norm_backward(const T* x, const T* gamma, const T* mean, const T* rstd, const T* dy,
                         LayerNormFormula formula, bool scalar_gain, T* dx, T beta_dx, T* dgamma, T* dbeta,
                         T beta_params, index_t rows, index_t n);

}  // namespace detail::kernels

}  // namespace eigenformer

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <cmath>
#include <memory>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// The arguments of a layer normalisation that all rows share.
template <class T>
struct LayerNormArguments {
  const T* gamma;
  const T* beta;
  T eps;
  bool teaching;
  bool scalar_gain;
  index_t n;
};

template <class T>
LayerNormArguments<T> layer_norm_arguments(const T* gamma, const T* beta, T eps, LayerNormFormula formula,
                                           bool scalar_gain, index_t n) {
  const bool teaching = formula == LayerNormFormula::teaching;
  if (teaching && n < 2) {
    throw ValueError("layer_norm", {"the unbiased standard deviation needs at least 2 features, got ", n});
  }
  return {gamma, beta, eps, teaching, scalar_gain, n};
}

/// s = x + r * multiplier for one row; returns the sum of s.
template <class T, int Bytes>
EIGENFORMER_ALWAYS_INLINE T add_residual(const T* x, const T* r, T* s, index_t n, const DropoutPlan<T>& plan,
                                         const RowKey& key) {
  using W = Simd<T, Bytes>;
  typename W::V total{};
  alignas(64) T multiplier[dropout_block];
  for (index_t block = 0; block * dropout_block < n; ++block) {
    const index_t begin = block * dropout_block, end = std::min(n, begin + dropout_block);
    if (plan.active()) dropout_scale_block<Bytes>(plan, key.sequence, key.position, 0, block, multiplier);
    for (index_t i = begin; i < end; i += W::lanes) {
      typename W::V a, b;
      W::load(a, x + i, end - i);
      W::load(b, r + i, end - i);
      if (plan.active()) b = b * W::at(multiplier + (i - begin)).v;
      a += b;
      W::store(s + i, end - i, a);
      total += a;
    }
  }
  return W::sum(total);
}

/// centred false: the mean counts as 0, which is RMSNorm; `mean` is then unused.
template <class T, bool centred>
struct LayerNormForward {
  /// r nullptr: s is unused and x is normalised; otherwise s = x + dropout(r) is.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(LayerNormArguments<T> a, const T* x, const T* r,
                                            DropoutPlan<T> plan, const RowKey* keys, index_t first_row, T* s,
                                            T* y, T* mean, T* rstd, index_t rows) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    const index_t n = a.n;
    V gamma, beta;
    W::set(gamma, a.gamma != nullptr && a.scalar_gain ? *a.gamma : T(1));
    W::set(beta, a.beta != nullptr && a.scalar_gain ? *a.beta : T(0));
    const bool vector_gamma = a.gamma != nullptr && !a.scalar_gain,
               vector_beta = a.beta != nullptr && !a.scalar_gain;
    for (index_t row = 0; row < rows; ++row) {
      const T* in = x + row * n;
      T total(0);
      if (r != nullptr) {
        total = add_residual<T, Bytes>(in, r + row * n, s + row * n, n, plan, row_key(keys, first_row + row));
        in = s + row * n;
      } else if constexpr (centred) {
        total = RowReduction<T, Bytes>::sum(in, n);
      }
      const T m = centred ? total / static_cast<T>(n) : T(0);
      V squares{};
      for (index_t i = 0; i < n; i += W::lanes) {
        V v;
        W::load(v, in + i, n - i, m);
        v -= m;
        squares += v * v;
      }
      const T sum = W::sum(squares);
      const T factor = a.teaching ? T(1) / (std::sqrt(sum / static_cast<T>(n - 1)) + a.eps)
                                  : T(1) / std::sqrt(sum / static_cast<T>(n) + a.eps);
      for (index_t i = 0; i < n; i += W::lanes) {
        V v;
        W::load(v, in + i, n - i);
        if (vector_gamma) W::load(gamma, a.gamma + i, n - i);
        if (vector_beta) W::load(beta, a.beta + i, n - i);
        v = (v - m) * factor * gamma + beta;
        W::store(y + row * n + i, n - i, v);
      }
      if (rstd == nullptr) continue;
      if constexpr (centred) mean[row] = m;
      rstd[row] = factor;
    }
  }
};

template <class T, bool centred>
struct LayerNormBackward {
  /// dgamma, dbeta: (n), added to; each of them and dx may be nullptr.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(LayerNormArguments<T> a, const T* x, const T* mean, const T* rstd,
                                            const T* dy, T* dx, T beta_dx, T* dgamma, T* dbeta,
                                            index_t rows) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    const index_t n = a.n;
    V gamma;
    W::set(gamma, a.gamma != nullptr && a.scalar_gain ? *a.gamma : T(1));
    const bool vector_gamma = a.gamma != nullptr && !a.scalar_gain;
    for (index_t row = 0; row < rows; ++row, x += n, dy += n) {
      const T m = centred ? mean[row] : T(0), factor = rstd[row];
      V sum_g{}, sum_gh{}, squares{};
      for (index_t i = 0; i < n; i += W::lanes) {
        V h, g;
        W::load(h, x + i, n - i, m);
        W::load(g, dy + i, n - i);
        if (vector_gamma) W::load(gamma, a.gamma + i, n - i);
        h -= m;
        if (a.teaching) squares += h * h;
        h *= factor;
        if (dgamma != nullptr) add<Bytes>(dgamma + i, n - i, g * h);
        if (dbeta != nullptr) add<Bytes>(dbeta + i, n - i, g);
        g *= gamma;
        sum_g += g;
        sum_gh += g * h;
      }
      if (dx == nullptr) continue;
      const T mean_g = centred ? W::sum(sum_g) / static_cast<T>(n) : T(0);
      T slope = W::sum(sum_gh);
      if (a.teaching) {
        // d(1 / (std + eps)) = -rstd^2 * dstd, dstd = (x - mean) / ((n - 1) std); a constant row has no
        // slope.
        const T deviation = std::sqrt(W::sum(squares) / static_cast<T>(n - 1));
        slope = deviation > T(0) ? slope / (factor * deviation * static_cast<T>(n - 1)) : T(0);
      } else {
        slope /= static_cast<T>(n);
      }
      for (index_t i = 0; i < n; i += W::lanes) {
        V h, g;
        W::load(h, x + i, n - i);
        W::load(g, dy + i, n - i);
        if (vector_gamma) W::load(gamma, a.gamma + i, n - i);
        h = (h - m) * factor;
        g = factor * ((g * gamma - mean_g) - h * slope);
        if (beta_dx != T(0)) {
          V d;
          W::load(d, dx + i, n - i);
          g += beta_dx * d;
        }
        W::store(dx + i, n - i, g);
      }
      dx += n;
    }
  }

 private:
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void add(T* to, index_t left, const typename Simd<T, Bytes>::V& v) {
    typename Simd<T, Bytes>::V sum;
    Simd<T, Bytes>::load(sum, to, left);
    sum += v;
    Simd<T, Bytes>::store(to, left, sum);
  }
};

/// Rows whose parameter gradients are summed together; the sums of these chunks are added in order.
inline constexpr index_t layer_norm_chunk = 64;

/// out = beta * out + the sums of the chunks, in order, for n columns from `first` of partial: (chunks, 2 n);
/// for a scalar parameter also over the columns.
template <class T>
void sum_partials(const T* partial, index_t first, index_t chunks, index_t n, bool scalar, T* out, T beta) {
  if (out == nullptr) return;
  T whole = 0;
  for (index_t j = 0; j < n; ++j) {
    T total = 0;
    for (index_t c = 0; c < chunks; ++c) total += partial[c * 2 * n + first + j];
    whole += total;
    if (!scalar) put(out[j], total, beta);
  }
  if (scalar) put(*out, whole, beta);
}

}  // namespace detail

template <class T>
void layer_norm_forward(const T* x, const T* gamma, const T* beta_param, T eps, LayerNormFormula formula,
                        bool scalar_gain, T* y, T* mean, T* rstd, index_t rows, index_t n, const T* r, T* s,
                        const RowDropout& dropout) {
  const auto a = detail::layer_norm_arguments(gamma, beta_param, eps, formula, scalar_gain, n);
  const DropoutPlan<T> plan(dropout.key, dropout.rate);
  const auto run = mean == nullptr ? dispatch<detail::LayerNormForward<T, false>>
                                   : dispatch<detail::LayerNormForward<T, true>>;
  parallel_for(rows, row_grain(n, simple_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * n;
    run(a, x + at, shifted(r, at), plan, dropout.rows, begin, shifted(s, at), y + at, shifted(mean, begin),
        shifted(rstd, begin), end - begin);
  });
}

template <class T>
void layer_norm_backward(const T* x, const T* gamma, const T* mean, const T* rstd, const T* dy,
                         LayerNormFormula formula, bool scalar_gain, T* dx, T beta_dx, T* dgamma, T* dbeta,
                         T beta_params, index_t rows, index_t n) {
  const auto a = detail::layer_norm_arguments<T>(gamma, nullptr, T(0), formula, scalar_gain, n);
  const auto run = mean == nullptr ? dispatch<detail::LayerNormBackward<T, false>>
                                   : dispatch<detail::LayerNormBackward<T, true>>;
  const index_t chunk = detail::layer_norm_chunk, chunks = (rows + chunk - 1) / chunk;
  const bool parameters = dgamma != nullptr || dbeta != nullptr;
  std::shared_ptr<T[]> partial;
  if (parameters && chunks > 0) partial = pool_array<T>(chunks * 2 * n);
  parallel_each(chunks, row_grain(n * chunk, simple_grain), [&](index_t c) {
    const index_t row = c * chunk, at = row * n;
    T* sums = shifted(partial.get(), c * 2 * n);
    if (parameters) std::fill(sums, sums + 2 * n, T(0));
    run(a, x + at, shifted(mean, row), rstd + row, dy + at, shifted(dx, at), beta_dx,
        dgamma == nullptr ? dgamma : sums, dbeta == nullptr ? dbeta : sums + n, std::min(chunk, rows - row));
  });
  detail::sum_partials<T>(partial.get(), 0, chunks, n, scalar_gain, dgamma, beta_params);
  detail::sum_partials<T>(partial.get(), n, chunks, n, scalar_gain, dbeta, beta_params);
}

EIGENFORMER_KERNEL(layer_norm_forward)
EIGENFORMER_KERNEL(layer_norm_backward)

}  // namespace eigenformer::detail::kernels
#endif
