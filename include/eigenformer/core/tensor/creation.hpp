#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// The matrix (rows, cols), square without cols, with ones on diagonal k (above the main one if positive) and
/// zeros elsewhere. Throws ShapeError for a negative size.
template <class T = float>
[[nodiscard]] Tensor<T> eye(index_t rows, index_t cols = -1, index_t k = 0) {
  Tensor<T> t = Tensor<T>::zeros({rows, cols < 0 ? rows : cols});
  for (index_t i = std::max<index_t>(0, -k); i < t.dim(0) && i + k < t.dim(1); ++i) {
    t.data()[i * t.dim(1) + i + k] = T(1);
  }
  return t;
}

/// The matrix (rows, cols), square without cols, with ones on and below diagonal k and zeros above it. Throws
/// ShapeError for a negative size.
template <class T = float>
[[nodiscard]] Tensor<T> tri(index_t rows, index_t cols = -1, index_t k = 0) {
  Tensor<T> t(Shape{rows, cols < 0 ? rows : cols});
  k = std::clamp(k, -t.dim(0), t.dim(1));  // beyond, there are no further diagonals
  for (index_t i = 0, at = 0; i < t.dim(0); ++i) {
    for (index_t j = 0; j < t.dim(1); ++j, ++at) t.data()[at] = T(j <= i + k ? 1 : 0);
  }
  return t;
}

/// `count` numbers at equal distances from start to stop, which is the last one. Throws ShapeError for a
/// negative count.
template <class T = float>
[[nodiscard]] Tensor<T> linspace(double start, double stop, index_t count) {
  Tensor<T> t(Shape{count});
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  for (index_t i = 0; i < count; ++i) {
    // From the nearer end, so that both ends are exact.
    const double x = i < (count + 1) / 2 ? start + step * static_cast<double>(i)
                                         : stop - step * static_cast<double>(count - 1 - i);
    t.data()[i] = static_cast<T>(x);
  }
  return t;
}

/// The numbers start, start + step, ... before stop, ceil((stop - start) / step) of them;
/// Tensor<T>::arange(n) begins at 0. Integers are exact. Throws ValueError for a step of zero and for a
/// number that is not finite.
template <class T = float, class A, class B, class C = int>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>&& std::is_arithmetic_v<C>)
    [[nodiscard]] Tensor<T> arange(A start, B stop, C step = C(1)) {
  using N = std::common_type_t<A, B, C>;
  if (step == C(0)) throw ValueError("arange", "the step is 0, must not be");
  const double n =
      std::ceil((static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step));
  if (!(std::abs(n) < 0x1p58)) throw ValueError("arange", "start, stop and step must be finite");
  Tensor<T> t(Shape{n < 0 ? 0 : static_cast<index_t>(n)});
  for (index_t i = 0; i < t.numel(); ++i) {
    t.data()[i] = static_cast<T>(static_cast<N>(start) + static_cast<N>(i) * static_cast<N>(step));
  }
  return t;
}

/// The numbers 0, 1, ... n - 1: Tensor<T>::arange(n). Throws ShapeError for a negative n.
template <class T = float>
[[nodiscard]] Tensor<T> arange(index_t n) {
  return Tensor<T>::arange(n);
}

/// A new tensor of x's shape and type with every element set to `value`. x: a Tensor or a Var.
template <class X>
requires requires(const X& x) { x.shape(); }
[[nodiscard]] Tensor<typename X::value_type> full_like(const X& x, typename X::value_type value) {
  return Tensor<typename X::value_type>::full(x.shape(), value);
}
/// A new tensor of zeros of x's shape and type.
template <class X>
[[nodiscard]] auto zeros_like(const X& x) {
  return full_like(x, typename X::value_type(0));
}
/// A new tensor of ones of x's shape and type.
template <class X>
[[nodiscard]] auto ones_like(const X& x) {
  return full_like(x, typename X::value_type(1));
}

/// For each index a row of zeros with a one in its place: indices (...) to (..., classes). Without `classes`
/// there is one more than the largest index. Throws IndexError for an index outside 0 .. classes - 1.
template <class T = float, detail::IndexNumber I>
[[nodiscard]] Tensor<T> one_hot(const Tensor<I>& indices, index_t classes = -1) {
  if (classes < 0) {
    classes = 0;
    for (const I i : indices.span()) classes = std::max<index_t>(classes, static_cast<index_t>(i) + 1);
  }
  Tensor<T> t = Tensor<T>::zeros(indices.shape().inserted(indices.rank(), classes));
  for (index_t r = 0; r < indices.numel(); ++r) {
    const index_t i = indices.data()[r];
    if (i < 0 || i >= classes) {
      throw IndexError("one_hot", {"index ", i, " is outside 0 .. ", classes - 1});
    }
    t.data()[r * classes + i] = T(1);
  }
  return t;
}

/// The coordinates of a grid: tensor k of the result has the shape (size of the first axis, of the second,
/// ...) and repeats axis k's values along the other dimensions, as PyTorch does and NumPy with
/// indexing="ij". Throws ShapeError for an axis whose rank is not 1.
template <class T>
[[nodiscard]] std::vector<Tensor<T>> meshgrid(const std::vector<Tensor<T>>& axes) {
  std::vector<index_t> sizes;
  for (const Tensor<T>& axis : axes) {
    if (axis.rank() != 1) {
      throw ShapeError("meshgrid", {"an axis of shape ", axis.shape(), " must have rank 1"}, {axis.shape()});
    }
    sizes.push_back(axis.numel());
  }
  const Shape shape{std::span<const index_t>(sizes)};
  std::vector<Tensor<T>> grid;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    Tensor<T> t(shape);
    detail::StridedView view{shape, {}, 0};
    view.strides[k] = 1;
    detail::copy_view(t.data(), detail::whole_view(shape), axes[k].data(), view);
    grid.push_back(std::move(t));
  }
  return grid;
}

}  // namespace eigenformer
