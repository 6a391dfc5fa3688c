#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/permute.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

// y = factor * sum over axes: dx = factor * dy, repeated along the axes.
template <class T>
Var<T> scaled_sum(const char* op, const Var<T>& x, const std::vector<index_t>& axes, bool keepdims,
                  bool mean) {
  const OpScope scope = scope_of(op, x);
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  const T factor = mean ? static_cast<T>(kept.numel()) / static_cast<T>(x.numel()) : T(1);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  kernels::reduce_sum<T>(x.value().data(), x.shape(), axes, y.data(), factor, T(0));
  if (detail::not_recorded(y, x)) return y;
  return record_one(op, std::move(y), x, SavedTensors(), [kept, factor](const auto& dx, const Tensor<T>& dy) {
    kernels::broadcast_to<T>(dy.data(), kept, dx.data, dx.shape, factor, dx.beta);
  });
}

[[noreturn]] EIGENFORMER_NOINLINE inline void refuse_no_entries(const char* op, const Shape& shape) {
  throw ValueError(op, {"input of shape ", shape, " has no entries, must have at least one"});
}

// The axes of a reduction over one of them, or over all.
inline std::vector<index_t> axes_of(std::optional<index_t> axis) {
  return axis ? std::vector<index_t>{*axis} : std::vector<index_t>();
}

// The op whose result y is the largest, smallest or middle entry of x over the axes.
template <class T>
Var<T> record_chosen(const char* op, const Var<T>& x, const std::vector<index_t>& axes, const Tensor<T>& y) {
  if (not_recorded(y, x)) return y;
  // dx = dy / (number of entries equal to y) where x = y (or both are NaN), 0 elsewhere, as in PyTorch.
  return record_one(
      op, y, x, SavedTensors(x, y), [x = x.value(), y, axes](const auto& dx, const Tensor<T>& dy) {
        kernels::reduce_max_backward<T>(x.data(), x.shape(), axes, y.data(), dy.data(), dx.data, dx.beta);
      });
}

// The largest or smallest entries, which `reduce` finds.
template <class T, class F>
Var<T> extremes_over(const char* op, const F& reduce, const Var<T>& x, const std::vector<index_t>& axes,
                     bool keepdims) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  if (x.numel() == 0 && y.numel() > 0) refuse_no_entries(op, x.shape());
  reduce(x.value().data(), x.shape(), axes, y.data());
  return record_chosen(op, x, axes, y);
}

}  // namespace detail

/// Sum over the given axes (negative counts from the end; none means all). With keepdims they remain, with
/// size 1. Throws IndexError for an axis outside the rank and ShapeError for one named twice.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sum(const X& x, const std::vector<index_t>& axes = {},
                                    bool keepdims = false) {
  return detail::scaled_sum<element_t<X>>("sum", x, axes, keepdims, false);
}

/// Mean over the given axes (none means all); NaN over no elements. Arguments and errors as for sum().
template <Operand X>
[[nodiscard]] Var<element_t<X>> mean(const X& x, const std::vector<index_t>& axes = {},
                                     bool keepdims = false) {
  return detail::scaled_sum<element_t<X>>("mean", x, axes, keepdims, true);
}

/// Largest entry over the given axes (none means all), NaN if one of them is NaN. Equal largest entries share
/// the gradient evenly, as in PyTorch's amax. Throws as sum(), and ValueError when an axis has no entries.
template <Operand X>
[[nodiscard]] Var<element_t<X>> max(const X& x, const std::vector<index_t>& axes = {},
                                    bool keepdims = false) {
  using T = element_t<X>;
  return detail::extremes_over<T>("max", detail::kernels::reduce_max<T>, x, axes, keepdims);
}

namespace detail {

// A reduction over any axes as one over the rows of a matrix.

// The order of dimensions that puts those that are reduced last, and whether the elements move by it.
struct RowOrder {
  std::vector<index_t> order;
  bool moves = false;
  index_t rows = 1;  // elements of the result
  index_t n = 1;     // elements that are combined into each of them
};

// Errors as for sum().
EIGENFORMER_NOINLINE inline RowOrder row_order(const Shape& shape, const std::vector<index_t>& axes) {
  (void)kernels::reduced_shape(shape, axes, true);  // checks the axes
  const std::vector<bool> reduced = named_axes("reduce", axes, shape);
  RowOrder r;
  for (const bool last : {false, true}) {
    for (index_t d = 0; d < shape.rank(); ++d) {
      if (reduced[static_cast<std::size_t>(d)] != last) continue;
      // Dimensions of size 1 may change places.
      for (const index_t before : r.order) r.moves |= before > d && shape[before] != 1 && shape[d] != 1;
      r.order.push_back(d);
      (last ? r.n : r.rows) *= shape[d];
    }
  }
  return r;
}

// A tensor whose elements in memory are those rows: x itself where they need not move.
template <class T>
Tensor<T> as_rows(const Tensor<T>& x, const RowOrder& r) {
  if (!r.moves || x.numel() == 0) return x;
  const StridedView whole = whole_view(x.shape());
  StridedView from{kernels::permuted_shape(x.shape(), r.order)};
  for (std::size_t i = 0; i < r.order.size(); ++i)
    from.strides[i] = whole.strides[static_cast<std::size_t>(r.order[i])];
  Tensor<T> rows(from.shape);
  copy_view(rows.data(), whole_view(from.shape), x.data(), from);
  return rows;
}
template <class T>
Var<T> as_rows(const Var<T>& x, const RowOrder& r) {
  return r.moves ? permute(x, r.order) : x;
}

// y[r] = the parts of row r of x (rows, n), each part(first, count), joined in their order by join(a, b):
// parts of a fixed size, so that the result does not depend on the number of threads.
template <class T, class R, class Part, class Join>
void fold_rows(const T* x, index_t rows, index_t n, R* y, const Part& part, const Join& join) {
  constexpr index_t size = 1 << 14;
  const index_t parts = std::max<index_t>(1, (n + size - 1) / size);
  Tensor<R> each(Shape{parts > 1 ? rows * parts : 0});
  R* to = parts > 1 ? each.data() : y;
  parallel_each(rows * parts, size / std::max<index_t>(1, n), [&](index_t i) {
    const index_t first = i % parts * size;
    to[i] = part(x + i / parts * n + first, std::min(size, n - first));
  });
  if (parts == 1) return;
  for (index_t r = 0; r < rows; ++r) {
    y[r] = to[r * parts];
    for (index_t p = 1; p < parts; ++p) y[r] = join(y[r], to[r * parts + p]);
  }
}

// Adds a * b to a gradient of the shape to which a and b broadcast.
template <class T>
void broadcast_product_into(const GradientSlot<T>& slot, const Tensor<T>& a, const Tensor<T>& b) {
  using kernels::BinaryOp;
  if (slot.beta == T(0)) {
    kernels::binary<BinaryOp::multiply, T>(a.data(), a.shape(), b.data(), b.shape(), slot.data);
  } else {
    const Tensor<T> g = binary<BinaryOp::multiply>("reduce", a, b);
    kernels::axpby<T>(T(1), g.data(), slot.beta, slot.data, g.numel());
  }
}

// factor dy / y, and 0 where y is 0, in another shape.
template <class T>
Tensor<T> divided(const Tensor<T>& dy, const Tensor<T>& y, const Shape& shape, T factor) {
  Tensor<T> q(shape);
  for (index_t i = 0; i < q.numel(); ++i)
    q.data()[i] = y.data()[i] == T(0) ? T(0) : dy.data()[i] * factor / y.data()[i];
  return q;
}

template <class T>
Var<T> product_over(const Var<T>& x, const std::vector<index_t>& axes, bool keepdims) {
  const OpScope scope = scope_of("prod", x);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  kernels::reduce_prod<T>(x.value().data(), x.shape(), axes, y.data());
  if (not_recorded(y, x)) return y;
  const RowOrder order = row_order(x.shape(), axes);
  const Var<T> v = as_rows(x, order);
  // dx[i] = dy * (product of all x but x[i]), from the products before and after i: right for zeros, too.
  return record_one("prod", std::move(y), v, SavedTensors(v),
                    [x = v.value(), rows = order.rows, n = order.n](const auto& dx, const Tensor<T>& dy) {
                      if (x.numel() == 0) return;
                      parallel_for(rows, (1 << 13) / n, [&](index_t begin, index_t end) {
                        std::vector<T> before(static_cast<std::size_t>(n));
                        for (index_t r = begin; r < end; ++r) {
                          const T* row = x.data() + r * n;
                          T* to = dx.data + r * n;
                          T product = T(1);
                          for (index_t i = 0; i < n; ++i) {
                            before[static_cast<std::size_t>(i)] = product;
                            product *= row[i];
                          }
                          product = dy.data()[r];
                          for (index_t i = n; i-- > 0;) {
                            const T g = before[static_cast<std::size_t>(i)] * product;
                            to[i] = dx.beta == T(0) ? g : dx.beta * to[i] + g;
                            product *= row[i];
                          }
                        }
                      });
                    });
}

// The variance, or with `root` its square root.
template <class T>
Var<T> variance_over(const char* op, const Var<T>& x, const std::vector<index_t>& axes, bool keepdims,
                     double correction, bool root) {
  const OpScope scope = scope_of(op, x);
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  const double n = kept.numel() > 0 ? static_cast<double>(x.numel() / kept.numel()) : 0;
  const T factor = static_cast<T>(1 / std::max(0.0, n - correction));
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims)), mean(kept);
  kernels::reduce_sum<T>(x.value().data(), x.shape(), axes, mean.data(), static_cast<T>(1 / n), T(0));
  {
    Tensor<T> d = binary<kernels::BinaryOp::subtract>(op, x.value(), mean);
    kernels::unary<T>(kernels::UnaryOp::square, d.data(), d.data(), d.numel());
    kernels::reduce_sum<T>(d.data(), x.shape(), axes, y.data(), T(1), T(0));
    for (T& v : y.span()) v *= factor;  // after the sum: 0 * inf over one element is NaN
  }
  if (root) kernels::unary<T>(kernels::UnaryOp::sqrt, y.data(), y.data(), y.numel());
  if (not_recorded(y, x)) return y;
  // var: dx = 2 (x - mean) dy / (n - correction); std: the same with dy / (2 y), which is 0 where y is 0.
  return record_one(op, y, x, SavedTensors(x).add_if(root, y),
                    [x = x.value(), mean, kept, factor, root, y = root ? y : Tensor<T>()](
                        const auto& dx, const Tensor<T>& dy) {
                      const Tensor<T> d = binary<kernels::BinaryOp::subtract>("var", x, mean);
                      if (root) return broadcast_product_into(dx, d, divided(dy, y, kept, factor));
                      Tensor<T> scale(kept);
                      kernels::axpby<T>(2 * factor, dy.data(), T(0), scale.data(), scale.numel());
                      broadcast_product_into(dx, d, scale);
                    });
}

template <class T>
Var<T> norm_over(const Var<T>& x, const std::vector<index_t>& axes, bool keepdims, double p) {
  const OpScope scope = scope_of("norm", x);
  const bool largest = p == std::numeric_limits<double>::infinity();
  if (p == 1 || largest) {
    const Var<T> each = unary<T>("norm", kernels::UnaryOp::absolute, x, Saves::x);
    return largest ? extremes_over<T>("norm", kernels::reduce_max<T>, each, axes, keepdims)
                   : scaled_sum<T>("norm", each, axes, keepdims, false);
  }
  if (p != 2) throw ValueError("norm", {"p is ", p, ", must be 1, 2 or infinity"});
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  kernels::reduce_square_sum<T>(x.value().data(), x.shape(), axes, y.data());
  kernels::unary<T>(kernels::UnaryOp::sqrt, y.data(), y.data(), y.numel());
  if (not_recorded(y, x)) return y;
  // dx = x dy / y, 0 where y is 0.
  return record_one("norm", y, x, SavedTensors(x, y),
                    [x = x.value(), y, kept](const auto& dx, const Tensor<T>& dy) {
                      broadcast_product_into(dx, x, divided(dy, y, kept, T(1)));
                    });
}

template <class T>
Tensor<T> exp_of_difference(const Tensor<T>& x, const Tensor<T>& shift) {
  Tensor<T> e = binary<kernels::BinaryOp::subtract>("logsumexp", x, shift);
  kernels::unary<T>(kernels::UnaryOp::exp, e.data(), e.data(), e.numel());
  return e;
}

template <class T>
Var<T> logsumexp_over(const Var<T>& x, const std::vector<index_t>& axes, bool keepdims) {
  const OpScope scope = scope_of("logsumexp", x);
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims)), largest(kept);
  kernels::reduce_max<T>(x.value().data(), x.shape(), axes, largest.data());
  for (T& m : largest.span()) {
    if (std::isinf(m)) m = T(0);  // inf - inf would be NaN
  }
  kernels::reduce_sum<T>(exp_of_difference(x.value(), largest).data(), x.shape(), axes, y.data(), T(1), T(0));
  kernels::unary<T>(kernels::UnaryOp::log, y.data(), y.data(), y.numel());
  kernels::add<T>(y.data(), largest.data(), y.data(), y.numel());
  if (not_recorded(y, x)) return y;
  // dx = exp(x - y) dy; 0 where y is -inf.
  return record_one("logsumexp", y, x, SavedTensors(x, y),
                    [x = x.value(), y, kept](const auto& dx, const Tensor<T>& dy) {
                      Tensor<T> shift = y.reshape(kept).clone();
                      for (T& s : shift.span()) {
                        if (s == -std::numeric_limits<T>::infinity()) s = T(0);
                      }
                      broadcast_product_into(dx, exp_of_difference(x, shift), dy.reshape(kept));
                    });
}

}  // namespace detail

/// Smallest entry over the given axes (negative counts from the end; none means all), NaN if one of them is
/// NaN. Equal smallest entries share the gradient evenly, as in PyTorch's amin. With keepdims the axes
/// remain, with size 1. Throws as sum(), and ValueError when an axis has no entries.
template <Operand X>
[[nodiscard]] Var<element_t<X>> min(const X& x, const std::vector<index_t>& axes = {},
                                    bool keepdims = false) {
  using T = element_t<X>;
  return detail::extremes_over<T>("min", detail::kernels::reduce_min<T>, x, axes, keepdims);
}

/// Product over the given axes, 1 over no elements. Arguments and errors as for sum().
template <Operand X>
[[nodiscard]] Var<element_t<X>> prod(const X& x, const std::vector<index_t>& axes = {},
                                     bool keepdims = false) {
  return detail::product_over<element_t<X>>(x, axes, keepdims);
}

/// Variance over the given axes: the sum of (x - mean)^2 divided by max(0, n - correction) for n elements, of
/// which the correction 1 is PyTorch's default and 0 is NumPy's. Arguments and errors as for sum().
template <Operand X>
[[nodiscard]] Var<element_t<X>> var(const X& x, const std::vector<index_t>& axes = {}, bool keepdims = false,
                                    double correction = 1) {
  return detail::variance_over<element_t<X>>("var", x, axes, keepdims, correction, false);
}

/// Standard deviation: the square root of var(), with a gradient of 0 where it is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> std(const X& x, const std::vector<index_t>& axes = {}, bool keepdims = false,
                                    double correction = 1) {
  return detail::variance_over<element_t<X>>("std", x, axes, keepdims, correction, true);
}

/// Vector norm over the given axes: p = 2, the root of the sum of squares; p = 1, the sum of |x|; p =
/// infinity, the largest |x|. The gradient is 0 where the norm is 0. Arguments and errors as for sum(), and
/// ValueError for another p and for the largest of no entries.
template <Operand X>
[[nodiscard]] Var<element_t<X>> norm(const X& x, const std::vector<index_t>& axes = {}, bool keepdims = false,
                                     double p = 2) {
  return detail::norm_over<element_t<X>>(x, axes, keepdims, p);
}

/// log(sum of exp(x)) over the given axes, without overflow; -inf over no elements. The gradient of entries
/// that are all -inf is 0. Arguments and errors as for sum().
template <Operand X>
[[nodiscard]] Var<element_t<X>> logsumexp(const X& x, const std::vector<index_t>& axes = {},
                                          bool keepdims = false) {
  return detail::logsumexp_over<element_t<X>>(x, axes, keepdims);
}

}  // namespace eigenformer
