#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// y[r] = scale * table[ids[r]]. table: (vocab, d), ids: (rows), y: (rows, d). Throws IndexError for an id
/// outside 0 .. vocab - 1, naming it, its position and the vocabulary's size.
template <class T>
void embedding_forward(const T* table, index_t vocab, index_t d, const std::int32_t* ids, index_t rows,
                       T scale, T* y);

/// dtable = beta * dtable + scale * sum of dy[r] over the rows r with each id, in the order of the rows. dy:
/// (rows, d), ids: (rows), dtable: (vocab, d). Rows with padding_index (-1: none) contribute nothing. beta is
/// 0 (all of dtable is written) or 1. Throws IndexError as embedding_forward.
template <class T>
void embedding_backward(const T* dy, const std::int32_t* ids, index_t rows, std::int32_t padding_index,
                        T scale, T* dtable, T beta, index_t vocab, index_t d);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

inline void check_ids(const std::int32_t* ids, index_t rows, index_t vocab) {
  for (index_t r = 0; r < rows; ++r) {
    if (ids[r] < 0 || ids[r] >= vocab) {
      throw IndexError("embedding",
                       {"id ", ids[r], " at position ", r, " is outside the vocabulary of ", vocab});
    }
  }
}

template <class T>
struct EmbeddingForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* table, index_t d, const std::int32_t* ids, index_t rows,
                                            T scale, T* y) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      const T* from = table + ids[r] * d;
      T* to = y + r * d;
      for (index_t j = 0; j < d; j += W::lanes) {
        typename W::V v;
        W::load(v, from + j, d - j);
        v *= scale;
        W::store(to + j, d - j, v);
      }
    }
  }
};

template <class T>
struct EmbeddingBackward {
  /// dtable[id] += scale * dy[r] in columns first .. last - 1.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* dy, const std::int32_t* ids, index_t rows,
                                            std::int32_t padding_index, T scale, T* dtable, index_t d,
                                            index_t first, index_t last) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      if (ids[r] == padding_index) continue;
      const T* from = dy + r * d;
      T* to = dtable + ids[r] * d;
      for (index_t j = first; j < last; j += W::lanes) {
        typename W::V g, sum;
        W::load(g, from + j, last - j);
        W::load(sum, to + j, last - j);
        sum += scale * g;
        W::store(to + j, last - j, sum);
      }
    }
  }
};

}  // namespace detail

template <class T>
void embedding_forward(const T* table, index_t vocab, index_t d, const std::int32_t* ids, index_t rows,
                       T scale, T* y) {
  detail::check_ids(ids, rows, vocab);
  parallel_for(rows, row_grain(d, simple_grain), [&](index_t begin, index_t end) {
    dispatch<detail::EmbeddingForward<T>>(table, d, ids + begin, end - begin, scale, y + begin * d);
  });
}

template <class T>
void embedding_backward(const T* dy, const std::int32_t* ids, index_t rows, std::int32_t padding_index,
                        T scale, T* dtable, T beta, index_t vocab, index_t d) {
  detail::check_ids(ids, rows, vocab);
  if (beta == T(0)) {
    parallel_for(vocab, row_grain(d, simple_grain),
                 [&](index_t begin, index_t end) { std::fill(dtable + begin * d, dtable + end * d, T(0)); });
  }
  // Threads divide the columns, not the rows: rows share ids, and an id's rows are summed in their order by
  // one thread.
  const index_t width = 64, blocks = (d + width - 1) / width;
  parallel_for(blocks, row_grain(rows * width, simple_grain), [&](index_t begin, index_t end) {
    dispatch<detail::EmbeddingBackward<T>>(dy, ids, rows, padding_index, scale, dtable, d, begin * width,
                                           std::min(d, end * width));
  });
}

EIGENFORMER_KERNEL(embedding_forward)
EIGENFORMER_KERNEL(embedding_backward)

}  // namespace eigenformer::detail::kernels
#endif
