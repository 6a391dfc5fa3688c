#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/dropout_key.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/kernels/attention/rules/score_rule.hpp"

namespace eigenformer::detail::kernels {

/// Terms added to the scores that depend on the distance from query to key: the key's position minus the
/// query's.
template <class T>
struct AttentionDistances {
  /// (heads): score -= slope * |distance| (ALiBi, Press et al. 2022); nullptr: none.
  const T* slopes = nullptr;
  /// score += bias[clamp(distance, -reach, reach) + reach] (Raffel et al. 2020; Shaw et al. 2018); nullptr:
  /// none. The 2 reach + 1 numbers of head h and row r of queries begin at bias + r * row_stride + h *
  /// head_stride; row_stride 0: the same for all rows.
  const T* bias = nullptr;
  index_t reach = 0;        ///< at least 1 if there is a bias
  index_t head_stride = 0;  ///< elements between heads
  index_t row_stride = 0;   ///< elements between rows of queries

  /// Whether there are slopes or a bias.
  bool any() const noexcept { return slopes != nullptr || bias != nullptr; }
};

/// One multi-head attention, softmax(rule(scale * Q K^T + distances) + mask) V for each sequence and head
/// (Vaswani et al. 2017, eq. 1).
///
/// Head h of a row of q is q[row * q_stride + h * head_dim + 0 .. head_dim), and likewise for k and v
/// (value_dim elements), so that the three may be slices of one fused projection. Pointers and layouts must
/// outlive the call.
template <class T>
struct AttentionProblem {
  const T* q = nullptr;  ///< (queries->rows(), heads * head_dim), rows q_stride elements apart
  index_t q_stride = 0;  ///< elements between rows of q
  const T* k = nullptr;  ///< (keys->rows(), key_value_heads * head_dim)
  index_t k_stride = 0;  ///< elements between rows of k
  const T* v = nullptr;  ///< (keys->rows(), key_value_heads * value_dim)
  index_t v_stride = 0;  ///< elements between rows of v
  index_t heads = 1;     ///< heads of queries, at least 1
  /// Heads of keys and values; heads / key_value_heads consecutive heads of queries share one of them
  /// (Ainslie et al. 2023; with 1: Shazeer 2019). 0: as many as heads.
  index_t key_value_heads = 0;
  index_t head_dim = 0;                     ///< features of a head of queries and keys
  index_t value_dim = 0;                    ///< features of a head of values
  const SequenceLayout* queries = nullptr;  ///< the layout of the rows of q; required
  const SequenceLayout* keys = nullptr;     ///< the layout of the rows of k and v; required
  /// (queries->batch()): the sequence of keys to which each sequence of queries attends; nullptr: the one of
  /// the same number.
  const std::int32_t* key_sequence = nullptr;
  /// (keys->rows()): the row of k and v that holds each row of the keys' layout (for beams that are
  /// re-ordered without copying); nullptr: the row of the same number. For the forward pass only.
  const index_t* key_rows = nullptr;
  const AttentionMask* mask = nullptr;  ///< nullptr: none
  AttentionDistances<T> distances{};    ///< terms by distance
  const ScoreRule* rule = nullptr;      ///< nullptr or empty: none
  T scale = T(1);                       ///< factor of Q K^T, usually 1 / sqrt(head_dim)
  /// Dropout of the weights, rate in [0, 1). The weight of a query at position i and a key at position j
  /// takes output word i % 4 of Philox4x32-10 with counter (sequence number of the queries, head, i / 4, j).
  double dropout_rate = 0;
  DropoutKey dropout_key;  ///< selects the masks; unused with a rate of 0

  /// Whether there is a rule, and it is not empty.
  bool has_rule() const noexcept { return rule != nullptr && *rule; }
  /// Whether the gradients of the scores pass through the backward of a rule.
  bool differentiates_rule() const noexcept { return has_rule() && rule->template differentiated<T>(); }
  /// Heads of keys and values: key_value_heads, or heads if that is 0.
  index_t kv_heads() const noexcept { return key_value_heads == 0 ? heads : key_value_heads; }
  /// Heads of queries that share one of keys and values.
  index_t heads_per_key() const noexcept { return key_value_heads == 0 ? 1 : heads / key_value_heads; }
};

/// Where attention_backward writes: each gradient becomes beta * its old value + the gradient. Null: not
/// needed.
template <class T>
struct AttentionGradients {
  T* dq = nullptr;        ///< of q, with q's shape
  index_t dq_stride = 0;  ///< elements between rows of dq
  T dq_beta = T(0);       ///< 0 (dq is not read) or 1
  T* dk = nullptr;        ///< of k, with k's shape
  index_t dk_stride = 0;  ///< elements between rows of dk
  T dk_beta = T(0);       ///< 0 (dk is not read) or 1
  T* dv = nullptr;        ///< of v, with v's shape
  index_t dv_stride = 0;  ///< elements between rows of dv
  T dv_beta = T(0);       ///< 0 (dv is not read) or 1
  T* dbias = nullptr;     ///< of distances.bias, with the same strides
  T dbias_beta = T(0);    ///< 0 (dbias is not read) or 1
};

/// The sums of each query's attention weights after dropout over keys of equal clamped distance:
/// (queries->rows(), heads, 2 reach + 1), with the reach of the problem's distances or, if these have no
/// bias, the one given here.
template <class T>
struct AttentionDistanceWeights {
  T* sums = nullptr;            ///< written by attention_forward; nullptr: not needed
  const T* gradient = nullptr;  ///< the gradient of the sums, for attention_backward; nullptr: none
  index_t reach = 0;            ///< at least 1 where it is used

  /// Elements of one row of queries: heads * (2 reach + 1).
  index_t row(index_t heads) const noexcept { return heads * (2 * reach + 1); }
};

}  // namespace eigenformer::detail::kernels
