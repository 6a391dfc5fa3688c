#pragma once

#include <algorithm>
#include <utility>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/layout.hpp"

namespace eigenformer {

/// How the rows of a sequence are reduced to one.
enum class Pooling {
  mean,   ///< their average
  first,  ///< the first of them, such as BERT's [CLS]
};

/// One row for each sequence, from its tokens without padding; zeros for a sequence without tokens.
///
/// x: (rows, d) or (B, L, d), with rows as in the layout. Returns (B, d). Throws ShapeError when they do not
/// fit.
template <class T>
[[nodiscard]] Var<T> pool(const Var<T>& x, const SequenceLayout& layout, Pooling pooling = Pooling::mean) {
  const OpScope scope = detail::scope_of("pool", x);
  if (x.rank() < 2 || x.shape().rows() != layout.rows()) {
    throw ShapeError("pool",
                     {"input of shape ", x.shape(), " must have the ", layout.rows(), " rows of its layout"},
                     {x.shape()});
  }
  const index_t d = x.dim(-1);
  Tensor<T> y = Tensor<T>::zeros(Shape{layout.batch(), d});
  const auto rows_of = [pooling, layout](index_t b) {
    return pooling == Pooling::first ? std::min<index_t>(layout.length(b), 1) : layout.length(b);
  };
  for (index_t b = 0; b < layout.batch(); ++b) {
    const index_t n = rows_of(b);
    T* out = y.data() + b * d;
    for (index_t r = 0; r < n; ++r) {
      const T* in = x.value().data() + (layout.offset(b) + r) * d;
      for (index_t i = 0; i < d; ++i) out[i] += in[i];
    }
    for (index_t i = 0; i < d && n > 1; ++i) out[i] /= static_cast<T>(n);
  }
  if (detail::not_recorded(y, x)) return y;
  // dx = dy / n for each of the n rows of a mean, 0 for all others.
  return detail::record_one("pool", std::move(y), x, SavedTensors(),
                            [layout, rows_of, d](const auto& dx, const Tensor<T>& dy) {
                              dx.start_sum();
                              for (index_t b = 0; b < layout.batch(); ++b) {
                                const index_t n = rows_of(b);
                                const T* g = dy.data() + b * d;
                                for (index_t r = 0; r < n; ++r) {
                                  T* to = dx.data + (layout.offset(b) + r) * d;
                                  for (index_t i = 0; i < d; ++i) to[i] += g[i] / static_cast<T>(n);
                                }
                              }
                            });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> pool(const X& x, const SequenceLayout& layout,
                                     Pooling pooling = Pooling::mean) {
  return pool<element_t<X>>(x, layout, pooling);
}

}  // namespace eigenformer
