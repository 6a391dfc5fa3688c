#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/attention/attention_eigen.hpp"
#include "eigenformer/kernels/attention/attention_product.hpp"
#include "eigenformer/kernels/attention/attention_softmax.hpp"

// Sequences of one query each, as in decoding: all heads of a query in one call. For a single query the calls
// that process a block of queries would have little work each.

namespace eigenformer::kernels::detail {

/// One query of all heads, and its keys.
template <class T>
struct AttentionSingleCall {
  const T* q;
  const T* k;
  const T* v;
  index_t k_stride, v_stride;
  const index_t* rows;  ///< of the keys, as in AttentionPack
  index_t keys;
  index_t heads, shared;  ///< of queries; of these for one of keys
  index_t head_dim, value_dim;
  T scale;
  T* log_sum_exp;  ///< of the first head, the others `log_sum_exp_stride` apart; or nullptr
  index_t log_sum_exp_stride;
};

/// out (heads * value_dim) = the result of attention_forward_block for a block of one query, by the same
/// steps and bit-identical.
template <class T>
struct AttentionSingle {
  static constexpr index_t widest = 4 * attention_width;  ///< features of a head

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const AttentionSingleCall<T>* call, T* out) {
    using S = Simd<T, Bytes>;
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    const AttentionSingleCall<T> p = *call;
    // Distances between parts are those of AttentionTiles.
    alignas(64) T query[widest + 16], sums[widest + 16], scores[attention_width];
    for (index_t h = 0; h < p.heads; ++h) {
      for (index_t c = 0; c < p.head_dim; c += S::lanes) {
        typename S::V x;
        S::load(x, p.q + h * p.head_dim + c, p.head_dim - c);
        S::at(query + c).v = x * p.scale;
      }
      const T* const k = p.k + h / p.shared * p.head_dim;
      const T* const v = p.v + h / p.shared * p.value_dim;
      alignas(64) T maximum[4] = {lowest, lowest, lowest, lowest}, denominator[4] = {}, correction[4];
      for (index_t key = 0; key < p.keys; key += attention_width) {
        const index_t n = std::min(attention_width, p.keys - key);
        const index_t* const rows = p.rows != nullptr ? p.rows + key : nullptr;
        const T* const from = p.rows != nullptr ? k : k + key * p.k_stride;
        const T* const values = p.rows != nullptr ? v : v + key * p.v_stride;
        for (index_t done = 0; done < p.head_dim; done += attention_width) {
          AttentionRowScores<T>::template run<Bytes>(query + done, n, from + done, p.k_stride, rows,
                                                     std::min(attention_width, p.head_dim - done), scores,
                                                     done > 0);
        }
        AttentionSoftmax<T>::template run<Bytes>(scores, 1, n, maximum, denominator, correction);
        for (index_t done = 0; done < p.value_dim; done += attention_width) {
          AttentionRowProduct<T>::template run<Bytes>(
              scores, n, values + done, p.v_stride, rows, std::min(attention_width, p.value_dim - done),
              sums + done, correction[0], key == 0 ? ProductMode::overwrite : ProductMode::rescale);
        }
      }
      const bool nothing = denominator[0] == T(0);
      if (p.log_sum_exp != nullptr)
        p.log_sum_exp[h * p.log_sum_exp_stride] = nothing ? lowest : maximum[0] + std::log(denominator[0]);
      if (p.keys == 0) std::fill_n(sums, p.value_dim, T(0));
      const T factor = nothing ? T(0) : T(1) / denominator[0];
      for (index_t c = 0; c < p.value_dim; c += S::lanes)
        S::store(out + h * p.value_dim + c, p.value_dim - c, S::at(sums + c).v * factor);
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
  const bool elsewhere = p.key_rows != nullptr;
  const AttentionSingleCall<T> call{p.q + row * p.q_stride,
                                    elsewhere ? p.k : p.k + first * p.k_stride,
                                    elsewhere ? p.v : p.v + first * p.v_stride,
                                    p.k_stride,
                                    p.v_stride,
                                    elsewhere ? p.key_rows + first : nullptr,
                                    p.keys->lengths()[kb],
                                    p.heads,
                                    p.heads_per_key(),
                                    p.head_dim,
                                    p.value_dim,
                                    p.scale,
                                    log_sum_exp != nullptr ? log_sum_exp + row : nullptr,
                                    p.queries->rows()};
  dispatch<AttentionSingle<T>>(&call, out + row * out_stride);
}

}  // namespace eigenformer::kernels::detail
