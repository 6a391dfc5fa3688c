#pragma once

#include "eigenformer/kernels/attention/attention_problem.hpp"

namespace eigenformer::detail::kernels {

/// Elements of the state of one sequence and head: head_dim x value_dim sums of features times values, then
/// head_dim sums of features.
inline index_t linear_attention_state_size(index_t head_dim, index_t value_dim) {
  return head_dim * (value_dim + 1);
}

/// state[sequence of keys][head] += the sums over its keys, of a size that does not depend on their number.
///
/// k of the problem: *features* (all positive), v: values. state: (keys->batch(), heads,
/// linear_attention_state_size).
template <class T>
void linear_attention_accumulate(const AttentionProblem<T>& problem, T* state);

/// out = sum over keys of <q, k> v / (sum of <q, k> + 1e-6), for each query and head, from the keys' state,
/// which is only read. Katharopoulos et al. 2020, eq. 5; the mask, scale and dropout of the problem are
/// ignored.
///
/// Causal (each query attends to keys up to its own position): eq. 9 to 12, in one pass with a state of
/// constant size. Queries and keys have the same layout. state: (queries->batch(), heads,
/// linear_attention_state_size), the sums over earlier keys; on return it includes these.
///
/// q of the problem: features; out: (queries->rows(), heads * value_dim), rows out_stride apart; padding gets
/// zeros.
template <class T>
void linear_attention_forward(const AttentionProblem<T>& problem, bool causal, T* state, T* out,
                              index_t out_stride);

/// Gradients of both, for dout, given their output (from a state of zeros). Eq. 13 to 15, with the
/// normaliser. gradients are those of features and values; padding gets zeros.
template <class T>
void linear_attention_backward(const AttentionProblem<T>& problem, bool causal, const T* out, const T* dout,
                               index_t out_stride, const AttentionGradients<T>& gradients);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// Keeps the quotient finite where features underflow.
inline constexpr double linear_attention_eps = 1e-6;

/// One sequence's rows of one head, and the sizes that all share. sums: (head_dim, value_dim), then norm:
/// (head_dim).
template <class T>
struct LinearAttentionRows {
  const T* q;
  index_t q_stride;
  const T* k;
  index_t k_stride;
  const T* v;
  index_t v_stride;
  index_t head_dim, value_dim;
};

/// The sums of a sequence and head.
template <class T, int Bytes>
struct LinearAttentionSums {
  using W = Simd<T, Bytes>;
  using V = typename W::V;
  T* sums;
  index_t head_dim, value_dim;

  EIGENFORMER_ALWAYS_INLINE T* norm() const { return sums + head_dim * value_dim; }

  /// sums += features (x) values, norm += features * weight.
  EIGENFORMER_ALWAYS_INLINE void add(const T* features, const T* values, T weight) const {
    for (index_t c = 0; c < value_dim; c += W::lanes) {
      V value;
      W::load(value, values + c, value_dim - c);
      for (index_t i = 0; i < head_dim; ++i) {
        V s;
        W::load(s, sums + i * value_dim + c, value_dim - c);
        s += features[i] * value;
        W::store(sums + i * value_dim + c, value_dim - c, s);
      }
    }
    for (index_t i = 0; i < head_dim; ++i) norm()[i] += features[i] * weight;
  }

  /// 1 / (<features, norm> + eps).
  EIGENFORMER_ALWAYS_INLINE T inverse(const T* features) const {
    T total = T(linear_attention_eps);
    for (index_t i = 0; i < head_dim; ++i) total += features[i] * norm()[i];
    return T(1) / total;
  }

  /// out = beta * out + factor * features^T sums.
  EIGENFORMER_ALWAYS_INLINE void read(const T* features, T factor, T beta, T* out) const {
    for (index_t c = 0; c < value_dim; c += W::lanes) {
      V total{};
      for (index_t i = 0; i < head_dim; ++i) {
        V s;
        W::load(s, sums + i * value_dim + c, value_dim - c);
        total += features[i] * s;
      }
      total *= factor;
      W::store_sum(out + c, value_dim - c, total, beta);
    }
  }

  /// out = beta * out + sums values + norm * weight.
  EIGENFORMER_ALWAYS_INLINE void read_transposed(const T* values, T weight, T beta, T* out) const {
    for (index_t i = 0; i < head_dim; ++i) {
      const T sum = RowReduction<T, Bytes>::dot(sums + i * value_dim, values, value_dim);
      put(out[i], sum + norm()[i] * weight, beta);
    }
  }
};

/// sums += the rows' features and values, with weights (1 where nullptr): keys with values, or queries with
/// gradients.
template <class T>
struct LinearAttentionAccumulate {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* features, index_t stride, const T* values,
                                            index_t v_stride, const T* weights, index_t rows, T* sums,
                                            index_t head_dim, index_t value_dim) {
    const LinearAttentionSums<T, Bytes> all{sums, head_dim, value_dim};
    for (index_t r = 0; r < rows; ++r)
      all.add(features + r * stride, values + r * v_stride, weights == nullptr ? T(1) : weights[r]);
  }
};

/// The output of rows of queries; causal: each row's key and value go into the sums first.
template <class T>
struct LinearAttentionForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(LinearAttentionRows<T> p, bool causal, T* sums, T* out,
                                            index_t out_stride, index_t rows) {
    const LinearAttentionSums<T, Bytes> all{sums, p.head_dim, p.value_dim};
    for (index_t r = 0; r < rows; ++r) {
      if (causal) all.add(p.k + r * p.k_stride, p.v + r * p.v_stride, T(1));
      const T* q = p.q + r * p.q_stride;
      all.read(q, all.inverse(q), T(0), out + r * out_stride);
    }
  }
};

/// With the quotient out = n / d: dn = dout / d and dd = -<dout, out> / d, which are kept, and dq = sums dn +
/// norm dd.
template <class T>
struct LinearAttentionQueryGradients {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(LinearAttentionRows<T> p, bool causal, T* sums, const T* out,
                                            const T* dout, index_t out_stride, T* dn, T* dd, T* dq,
                                            index_t dq_stride, T beta, index_t rows) {
    using W = Simd<T, Bytes>;
    const LinearAttentionSums<T, Bytes> all{sums, p.head_dim, p.value_dim};
    for (index_t r = 0; r < rows; ++r) {
      if (causal) all.add(p.k + r * p.k_stride, p.v + r * p.v_stride, T(1));
      const T factor = all.inverse(p.q + r * p.q_stride);
      const T* o = out + r * out_stride;
      const T* g = dout + r * out_stride;
      T* n = dn + r * p.value_dim;
      typename W::V product{};
      for (index_t c = 0; c < p.value_dim; c += W::lanes) {
        typename W::V a, b;
        W::load(a, g + c, p.value_dim - c);
        W::load(b, o + c, p.value_dim - c);
        product += a * b;
        a *= factor;
        W::store(n + c, p.value_dim - c, a);
      }
      dd[r] = -W::sum(product) * factor;
      if (dq != nullptr) all.read_transposed(n, dd[r], beta, dq + r * dq_stride);
    }
  }
};

/// With R the sums over queries of q (x) (dn, dd): dk = R (v, 1) and dv = k^T R. Causal: from the last row to
/// the first, each row's query going into R first.
template <class T>
struct LinearAttentionKeyGradients {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(LinearAttentionRows<T> p, bool causal, const T* dn, const T* dd,
                                            T* sums, T* dk, index_t dk_stride, T dk_beta, T* dv,
                                            index_t dv_stride, T dv_beta, index_t rows) {
    const LinearAttentionSums<T, Bytes> all{sums, p.head_dim, p.value_dim};
    for (index_t r = rows - 1; r >= 0; --r) {
      if (causal) all.add(p.q + r * p.q_stride, dn + r * p.value_dim, dd[r]);
      if (dk != nullptr) all.read_transposed(p.v + r * p.v_stride, T(1), dk_beta, dk + r * dk_stride);
      if (dv != nullptr) all.read(p.k + r * p.k_stride, T(1), dv_beta, dv + r * dv_stride);
    }
  }
};

template <class T>
LinearAttentionRows<T> linear_attention_rows(const AttentionProblem<T>& p, index_t query_row, index_t key_row,
                                             index_t head) {
  return {shifted(p.q, query_row * p.q_stride + head * p.head_dim),
          p.q_stride,
          shifted(p.k, key_row * p.k_stride + head * p.head_dim),
          p.k_stride,
          shifted(p.v, key_row * p.v_stride + head * p.value_dim),
          p.v_stride,
          p.head_dim,
          p.value_dim};
}

}  // namespace detail

template <class T>
void linear_attention_accumulate(const AttentionProblem<T>& p, T* state) {
  const index_t size = linear_attention_state_size(p.head_dim, p.value_dim);
  parallel_each(p.keys->batch() * p.heads, 1, [&](index_t i) {
    const index_t b = i / p.heads, h = i % p.heads;
    const auto rows = detail::linear_attention_rows(p, 0, p.keys->offset(b), h);
    dispatch<detail::LinearAttentionAccumulate<T>>(rows.k, rows.k_stride, rows.v, rows.v_stride, nullptr,
                                                   p.keys->length(b), state + i * size, p.head_dim,
                                                   p.value_dim);
  });
}

template <class T>
void linear_attention_forward(const AttentionProblem<T>& p, bool causal, T* state, T* out,
                              index_t out_stride) {
  const index_t size = linear_attention_state_size(p.head_dim, p.value_dim);
  detail::zero_padding(*p.queries, out, out_stride, p.heads * p.value_dim);
  parallel_each(p.queries->batch() * p.heads, 1, [&](index_t i) {
    const index_t b = i / p.heads, h = i % p.heads, row = p.queries->offset(b);
    T* const sums = state + (causal ? i : detail::attention_keys_of(p, b) * p.heads + h) * size;
    dispatch<detail::LinearAttentionForward<T>>(detail::linear_attention_rows(p, row, causal ? row : 0, h),
                                                causal, sums, out + row * out_stride + h * p.value_dim,
                                                out_stride, p.queries->length(b));
  });
}

template <class T>
void linear_attention_backward(const AttentionProblem<T>& p, bool causal, const T* out, const T* dout,
                               index_t out_stride, const AttentionGradients<T>& g) {
  const index_t size = linear_attention_state_size(p.head_dim, p.value_dim);
  const index_t width = p.value_dim + 1, rows = p.queries->rows();
  detail::zero_padding(p, g);
  const auto kept = pool_array<T>(p.heads * rows * width);
  const auto all_sums = pool_array<T>(p.keys->batch() * p.heads * 2 * size);
  // By sequence of keys and head, which share no data.
  parallel_each(p.keys->batch() * p.heads, 1, [&](index_t i) {
    const index_t kb = i / p.heads, h = i % p.heads, key_row = p.keys->offset(kb), keys = p.keys->length(kb);
    T* const sums = all_sums.get() + i * 2 * size;
    T* const query_sums = sums + size;
    std::fill_n(sums, 2 * size, T(0));
    T* const dn = kept.get() + h * rows * width;
    T* const dd = dn + rows * p.value_dim;
    const auto of_keys = detail::linear_attention_rows(p, 0, key_row, h);
    if (!causal) {
      dispatch<detail::LinearAttentionAccumulate<T>>(of_keys.k, of_keys.k_stride, of_keys.v, of_keys.v_stride,
                                                     nullptr, keys, sums, p.head_dim, p.value_dim);
    }
    for (index_t b = 0; b < p.queries->batch(); ++b) {
      if (detail::attention_keys_of(p, b) != kb) continue;
      const index_t row = p.queries->offset(b), n = p.queries->length(b),
                    at = row * out_stride + h * p.value_dim;
      const auto of_queries = detail::linear_attention_rows(p, row, key_row, h);
      dispatch<detail::LinearAttentionQueryGradients<T>>(
          of_queries, causal, sums, out + at, dout + at, out_stride, dn + row * p.value_dim, dd + row,
          shifted(g.dq, row * g.dq_stride + h * p.head_dim), g.dq_stride, g.dq_beta, n);
      if (!causal) {
        dispatch<detail::LinearAttentionAccumulate<T>>(of_queries.q, of_queries.q_stride,
                                                       dn + row * p.value_dim, p.value_dim, dd + row, n,
                                                       query_sums, p.head_dim, p.value_dim);
      }
    }
    if (g.dk == nullptr && g.dv == nullptr) return;
    const index_t row = causal ? p.queries->offset(kb) : 0;
    dispatch<detail::LinearAttentionKeyGradients<T>>(
        detail::linear_attention_rows(p, row, key_row, h), causal, dn + row * p.value_dim, dd + row,
        query_sums, shifted(g.dk, key_row * g.dk_stride + h * p.head_dim), g.dk_stride, g.dk_beta,
        shifted(g.dv, key_row * g.dv_stride + h * p.value_dim), g.dv_stride, g.dv_beta, keys);
  });
}

EIGENFORMER_KERNEL(linear_attention_accumulate)
EIGENFORMER_KERNEL(linear_attention_forward)
EIGENFORMER_KERNEL(linear_attention_backward)

}  // namespace eigenformer::detail::kernels
#endif
