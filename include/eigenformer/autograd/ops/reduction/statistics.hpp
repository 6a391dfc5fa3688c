#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/rows.hpp"
#include "eigenformer/autograd/ops/shape/reduce.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

// Reductions over any axes beside those of ops/shape/reduce.hpp, which has sum, mean and max.

namespace eigenformer {

namespace detail {

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

template <class T>
Tensor<T> unary_of(kernels::UnaryOp f, const Tensor<T>& x) {
  Tensor<T> y(x.shape());
  kernels::unary<T>(f, x.data(), y.data(), x.numel());
  return y;
}

template <class T>
Var<T> product_over(const Var<T>& x, const std::vector<index_t>& axes, bool keepdims) {
  const OpScope scope = scope_of("prod", x);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  kernels::reduce_prod<T>(x.value().data(), x.shape(), axes, y.data());
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  const RowOrder order = row_order(x.shape(), axes);
  const Var<T> v = as_rows(x, order);
  // dx[i] = dy * (product of all x but x[i]), from the products before and after i: right for zeros, too.
  return record_one("prod", std::move(y), v, SavedTensors(v),
                    [x = v.value(), rows = order.rows, n = order.n](const auto& dx, const Tensor<T>& dy) {
                      if (x.numel() == 0) return;
                      parallel_for(rows, std::max<index_t>(1, (1 << 13) / n),
                                   [&](index_t begin, index_t end) {
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
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // var: dx = 2 (x - mean) dy / (n - correction); std: the same with dy / (2 y), which is 0 where y is 0.
  return record_one(op, y, x, SavedTensors(x).add_if(root, y),
                    [x = x.value(), mean, kept, factor, root, y = root ? y : Tensor<T>()](
                        const auto& dx, const Tensor<T>& dy) {
                      Tensor<T> scale = dy.reshape(kept).clone();
                      for (index_t i = 0; i < scale.numel(); ++i) {
                        T& s = scale.data()[i];
                        s *= root ? factor : 2 * factor;
                        if (root) s = y.data()[i] == T(0) ? T(0) : s / y.data()[i];
                      }
                      const Tensor<T> d = binary<kernels::BinaryOp::subtract>("var", x, mean);
                      broadcast_product_into(dx, d, scale);
                    });
}

template <class T>
Var<T> norm_over(const Var<T>& x, const std::vector<index_t>& axes, bool keepdims, double p) {
  const OpScope scope = scope_of("norm", x);
  const bool one = p == 1, largest = p == std::numeric_limits<double>::infinity();
  if (!one && !largest && p != 2) {
    throw ValueError("norm", {"p is ", p, ", must be 1, 2 or infinity"});
  }
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  {
    using kernels::UnaryOp;
    if (one || largest) {
      const Tensor<T> each = unary_of(UnaryOp::absolute, x.value());
      if (largest && x.numel() == 0 && y.numel() > 0) refuse_no_entries("norm", x.shape());
      if (largest) {
        kernels::reduce_max<T>(each.data(), x.shape(), axes, y.data());
      } else {
        kernels::reduce_sum<T>(each.data(), x.shape(), axes, y.data(), T(1), T(0));
      }
    } else {
      kernels::reduce_square_sum<T>(x.value().data(), x.shape(), axes, y.data());
      kernels::unary<T>(UnaryOp::sqrt, y.data(), y.data(), y.numel());
    }
  }
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // p = 1: dx = sign(x) dy. p = infinity: the same, shared by the entries with |x| = y, 0 elsewhere.
  // p = 2: dx = x dy / y, 0 where y is 0.
  return record_one("norm", y, x, SavedTensors(x).add_if(!one, y),
                    [x = x.value(), y = one ? Tensor<T>() : y, axes, kept, one, largest](
                        const auto& dx, const Tensor<T>& dy) {
                      if (!one && !largest) {
                        Tensor<T> scale = dy.reshape(kept).clone();
                        for (index_t i = 0; i < scale.numel(); ++i) {
                          T& s = scale.data()[i];
                          s = y.data()[i] == T(0) ? T(0) : s / y.data()[i];
                        }
                        return broadcast_product_into(dx, x, scale);
                      }
                      Tensor<T> g(x.shape());
                      if (one) {
                        kernels::broadcast_to<T>(dy.data(), kept, g.data(), x.shape(), T(1), T(0));
                      } else {
                        const Tensor<T> each = unary_of(kernels::UnaryOp::absolute, x);
                        kernels::reduce_max_backward<T>(each.data(), x.shape(), axes, y.data(), dy.data(),
                                                        g.data(), T(0));
                      }
                      kernels::unary_backward<T>(kernels::UnaryOp::absolute, x.data(), nullptr, g.data(),
                                                 dx.data, dx.beta, x.numel());
                    });
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
  {
    Tensor<T> e = binary<kernels::BinaryOp::subtract>("logsumexp", x.value(), largest);
    kernels::unary<T>(kernels::UnaryOp::exp, e.data(), e.data(), e.numel());
    kernels::reduce_sum<T>(e.data(), x.shape(), axes, y.data(), T(1), T(0));
  }
  kernels::unary<T>(kernels::UnaryOp::log, y.data(), y.data(), y.numel());
  kernels::add<T>(y.data(), largest.data(), y.data(), y.numel());
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // dx = exp(x - y) dy; 0 where y is -inf.
  return record_one("logsumexp", y, x, SavedTensors(x, y),
                    [x = x.value(), y, kept](const auto& dx, const Tensor<T>& dy) {
                      Tensor<T> shift = y.reshape(kept).clone();
                      for (T& s : shift.span()) {
                        if (s == -std::numeric_limits<T>::infinity()) s = T(0);
                      }
                      Tensor<T> e = binary<kernels::BinaryOp::subtract>("logsumexp", x, shift);
                      kernels::unary<T>(kernels::UnaryOp::exp, e.data(), e.data(), e.numel());
                      broadcast_product_into(dx, e, dy.reshape(kept));
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
