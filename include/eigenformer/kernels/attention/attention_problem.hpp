#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/dropout_key.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/kernels/attention/rules/score_rule.hpp"

namespace eigenformer::kernels {

/// What is added to the scores by the distance from query to key: the key's position less the query's.
template <class T>
struct AttentionDistances {
  /// (heads): score -= slope * |distance| (ALiBi, Press et al. 2022); nullptr: none.
  const T* slopes = nullptr;
  /// score += bias[clamp(distance, -reach, reach) + reach] (Raffel et al. 2020; Shaw et al. 2018); nullptr:
  /// none. Head h of row r begins at bias + r * row_stride + h * head_stride; row_stride 0: the same for all
  /// rows.
  const T* bias = nullptr;
  index_t reach = 0;  ///< at least 1 where there is a bias
  index_t head_stride = 0;
  index_t row_stride = 0;

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
  index_t q_stride = 0;
  const T* k = nullptr;  ///< (keys->rows(), key_value_heads * head_dim)
  index_t k_stride = 0;
  const T* v = nullptr;  ///< (keys->rows(), key_value_heads * value_dim)
  index_t v_stride = 0;
  index_t heads = 1;
  /// Heads of keys and values, of which heads / key_value_heads neighbouring heads of queries share one
  /// (Ainslie et al. 2023; 1 of them: Shazeer 2019); 0: as many as heads.
  index_t key_value_heads = 0;
  index_t head_dim = 0;
  index_t value_dim = 0;
  const SequenceLayout* queries = nullptr;
  const SequenceLayout* keys = nullptr;
  /// (queries->batch()): the sequence of keys that each sequence of queries looks at; nullptr: its own
  /// number.
  const std::int32_t* key_sequence = nullptr;
  /// (keys->rows()): the row of k and v where each row of the keys' layout really is (beams re-ordered
  /// without copying); nullptr: its own number. For the forward pass only.
  const index_t* key_rows = nullptr;
  const AttentionMask* mask = nullptr;  ///< nullptr: none
  AttentionDistances<T> distances{};
  const ScoreRule* rule = nullptr;  ///< nullptr or empty: none
  T scale = T(1);
  /// Dropout of the weights, rate in [0, 1). The weight of a query at position i and a key at position j
  /// takes output word i % 4 of Philox4x32-10 with counter (sequence number of the queries, head, i / 4, j).
  double dropout_rate = 0;
  DropoutKey dropout_key;

  bool has_rule() const noexcept { return rule != nullptr && *rule; }
  /// Whether gradients of the scores go through a rule.
  bool differentiates_rule() const noexcept { return has_rule() && rule->template differentiated<T>(); }
  index_t kv_heads() const noexcept { return key_value_heads == 0 ? heads : key_value_heads; }
  /// Heads of queries that share one of keys and values.
  index_t heads_per_key() const noexcept { return key_value_heads == 0 ? 1 : heads / key_value_heads; }
};

/// Where attention_backward writes: each gradient becomes beta * itself + the new one. A null pointer is not
/// wanted.
template <class T>
struct AttentionGradients {
  T* dq = nullptr;  ///< as q of the problem, in a matrix of its own stride
  index_t dq_stride = 0;
  T dq_beta = T(0);
  T* dk = nullptr;
  index_t dk_stride = 0;
  T dk_beta = T(0);
  T* dv = nullptr;
  index_t dv_stride = 0;
  T dv_beta = T(0);
  T* dbias = nullptr;  ///< of distances.bias, with the same strides
  T dbias_beta = T(0);
};

/// The sums of each query's weights, after dropout, by clamped distance: (queries->rows(), heads, 2 reach +
/// 1), with the reach of the problem's distances or, where these have no bias, the one given here.
template <class T>
struct AttentionDistanceWeights {
  T* sums = nullptr;            ///< written by attention_forward; nullptr: not wanted
  const T* gradient = nullptr;  ///< of the sums, for attention_backward; nullptr: none
  index_t reach = 0;

  index_t row(index_t heads) const noexcept { return heads * (2 * reach + 1); }
};

}  // namespace eigenformer::kernels
