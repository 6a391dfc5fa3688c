#pragma once

#include <cstdint>

#include "eigenformer/core/config.hpp"
#include "eigenformer/core/dropout_key.hpp"
#include "eigenformer/core/layout.hpp"
#include "eigenformer/core/mask.hpp"

namespace eigenformer::kernels {

/// One multi-head attention, softmax(scale * Q K^T + mask) V for each sequence and head (Vaswani et al. 2017,
/// eq. 1).
///
/// Head h of a row of q is q[row * q_stride + h * head_dim + 0 .. head_dim), and likewise for k and v
/// (value_dim elements), so that the three may be slices of one fused projection. Pointers and layouts must
/// outlive the call.
template <class T>
struct AttentionProblem {
  const T* q = nullptr;  ///< (queries->rows(), heads * head_dim), rows q_stride elements apart
  index_t q_stride = 0;
  const T* k = nullptr;  ///< (keys->rows(), heads * head_dim)
  index_t k_stride = 0;
  const T* v = nullptr;  ///< (keys->rows(), heads * value_dim)
  index_t v_stride = 0;
  index_t heads = 1;
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
  T scale = T(1);
  /// Dropout of the weights, rate in [0, 1). The weight of a query at position i and a key at position j
  /// takes output word i % 4 of Philox4x32-10 with counter (sequence number of the queries, head, i / 4, j).
  double dropout_rate = 0;
  DropoutKey dropout_key;
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
};

}  // namespace eigenformer::kernels
