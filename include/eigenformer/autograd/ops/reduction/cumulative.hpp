#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "eigenformer/autograd/ops/reduction/sort.hpp"
#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

// Sums, products, extremes and log-sums up to each entry of an axis.

namespace eigenformer {

namespace detail {

// Calls step(state, i, at) for each entry i along an axis, at the place `at` in memory, from the first to the
// last or back; each line has a state of its own. Neighbouring lines advance together.
template <bool backwards, class State, class Step>
void scan(const AxisView& view, const State& start, const Step& step) {
  const index_t n = view.n, inner = view.inner, width = std::min<index_t>(64, inner);
  if (view.outer == 0 || n == 0 || inner == 0) return;
  if (inner == 1) {  // the state stays in registers
    parallel_for(view.outer, (1 << 13) / n, [&](index_t begin, index_t end) {
      const Step each = step;  // of its own, so that it stays in registers, too
      for (index_t line = begin; line < end; ++line) {
        State state = start;
        for (index_t k = 0; k < n; ++k) {
          const index_t i = backwards ? n - 1 - k : k;
          each(state, i, line * n + i);
        }
      }
    });
    return;
  }
  const index_t blocks = (inner + width - 1) / width;
  parallel_for(view.outer * blocks, (1 << 13) / (n * width), [&](index_t begin, index_t end) {
    std::array<State, 64> states;
    for (index_t task = begin; task < end; ++task) {
      const index_t first = task % blocks * width, count = std::min(width, inner - first);
      states.fill(start);
      for (index_t k = 0; k < n; ++k) {
        const index_t i = backwards ? n - 1 - k : k;
        const index_t at = (task / blocks * n + i) * inner + first;
        for (index_t c = 0; c < count; ++c) step(states[static_cast<std::size_t>(c)], i, at + c);
      }
    }
  });
}

template <class T>
Var<T> cumulative_sum(const Var<T>& x, index_t axis) {
  const OpScope scope = scope_of("cumsum", x);
  const AxisView view(x.shape(), axis_of("cumsum", axis, x.shape()));
  Tensor<T> y(x.shape());
  scan<false>(view, 0.0, [from = x.value().data(), to = y.data()](double& sum, index_t, index_t at) {
    sum += static_cast<double>(from[at]);
    to[at] = static_cast<T>(sum);
  });
  if (not_recorded(y, x)) return y;
  // dx[i] = dy[i] + ... + dy[n - 1].
  return record_one("cumsum", std::move(y), x, SavedTensors(), [view](const auto& dx, const Tensor<T>& dy) {
    scan<true>(view, 0.0, [to = dx.data, beta = dx.beta, g = dy.data()](double& sum, index_t, index_t at) {
      sum += static_cast<double>(g[at]);
      kernels::detail::put(to[at], static_cast<T>(sum), beta);
    });
  });
}

template <class T>
Var<T> cumulative_product(const Var<T>& x, index_t axis) {
  const OpScope scope = scope_of("cumprod", x);
  const AxisView view(x.shape(), axis_of("cumprod", axis, x.shape()));
  Tensor<T> y(x.shape());
  scan<false>(view, 1.0, [from = x.value().data(), to = y.data()](double& product, index_t, index_t at) {
    product *= static_cast<double>(from[at]);
    to[at] = static_cast<T>(product);
  });
  if (not_recorded(y, x)) return y;
  // dx[i] = y[i - 1] s[i] with s[i] = dy[i] + x[i + 1] s[i + 1]: no division, so right for zeros, too.
  return record_one(
      "cumprod", y, x, SavedTensors(x, y), [x = x.value(), y, view](const auto& dx, const Tensor<T>& dy) {
        scan<true>(view, 0.0,
                   [&dx, from = x.data(), py = y.data(), g = dy.data(), step = view.inner](
                       double& rest, index_t i, index_t at) {
                     const double s = static_cast<double>(g[at]) + rest;
                     kernels::detail::put(dx.data[at],
                                          static_cast<T>(i > 0 ? static_cast<double>(py[at - step]) * s : s),
                                          dx.beta);
                     rest = static_cast<double>(from[at]) * s;
                   });
      });
}

template <class T>
Var<T> cumulative_logsumexp(const Var<T>& x, index_t axis) {
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  const OpScope scope = scope_of("logcumsumexp", x);
  const AxisView view(x.shape(), axis_of("logcumsumexp", axis, x.shape()));
  Tensor<T> y(x.shape());
  scan<false>(view, nothing, [from = x.value().data(), to = y.data()](double& total, index_t, index_t at) {
    const auto v = static_cast<double>(from[at]);
    if (std::isinf(v) && v == total) {
      // inf - inf would be NaN
    } else if (v <= total) {
      total += std::log1p(std::exp(v - total));
    } else {
      total = v + std::log1p(std::exp(total - v));
    }
    to[at] = static_cast<T>(total);
  });
  if (not_recorded(y, x)) return y;
  // dx[i] = exp(x[i] - y[i]) s[i] with s[i] = dy[i] + exp(y[i] - y[i + 1]) s[i + 1], whose exponents are at
  // most 0; 0 where x is -inf.
  return record_one("logcumsumexp", y, x, SavedTensors(x, y),
                    [x = x.value(), y, view](const auto& dx, const Tensor<T>& dy) {
                      // exp(a - b) s, without NaN where exp(a - b) is 0.
                      const auto weighted = [](T a, T b, double s) {
                        if (a == -std::numeric_limits<T>::infinity()) return 0.0;
                        const double weight = std::exp(static_cast<double>(a - b));
                        return weight == 0.0 ? 0.0 : weight * s;
                      };
                      scan<true>(view, 0.0,
                                 [&, from = x.data(), py = y.data(), g = dy.data(), n = view.n,
                                  step = view.inner](double& s, index_t i, index_t at) {
                                   s = static_cast<double>(g[at]) +
                                       (i + 1 < n ? weighted(py[at], py[at + step], s) : 0.0);
                                   kernels::detail::put(
                                       dx.data[at], static_cast<T>(weighted(from[at], py[at], s)), dx.beta);
                                 });
                    });
}

// The largest (or smallest) up to each entry; the last of equals, and each NaN, as in PyTorch.
template <class T>
Sorted<T> cumulative_extreme(const char* op, const Var<T>& x, index_t axis, bool smallest) {
  require_defined(op, x);
  const index_t a = axis_of(op, axis, x.shape());
  struct Best {
    T value;
    index_t place = 0;
  };
  Tensor<T> y(x.shape());
  Tensor<std::int64_t> places(x.shape());
  const T least = smallest ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
  scan<false>(AxisView(x.shape(), a), Best{least},
              [from = x.value().data(), values = y.data(), to = places.data(), smallest](
                  Best& best, index_t i, index_t at) {
                const T v = from[at];
                const bool worse = smallest ? v > best.value : v < best.value;
                // A number does not replace NaN, which is neither better nor worse.
                if (!worse && (best.value == best.value || v != v)) best = {v, i};
                values[at] = best.value;
                to[at] = best.place;
              });
  if (not_recorded(y, x)) return {y, places};
  return {gather(x, a, places), places};
}

}  // namespace detail

/// Sums of the entries up to each one along an axis, as doubles; axis: negative counts from the end. Throws
/// IndexError for an axis outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cumsum(const X& x, index_t axis) {
  return detail::cumulative_sum<element_t<X>>(x, axis);
}

/// Products of the entries up to each one along an axis, in double; axis: negative counts from the end.
/// Throws IndexError for an axis outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cumprod(const X& x, index_t axis) {
  return detail::cumulative_product<element_t<X>>(x, axis);
}

/// log(sum of exp) of the entries up to each one along an axis, without overflow. The gradient of -inf is 0.
/// Errors as for cumprod().
template <Operand X>
[[nodiscard]] Var<element_t<X>> logcumsumexp(const X& x, index_t axis) {
  return detail::cumulative_logsumexp<element_t<X>>(x, axis);
}

/// The largest entry up to each one along an axis, and where it is: the last of equals; the last NaN from the
/// first one on. The gradient goes to where it is. Errors as for cumprod().
template <Operand X>
[[nodiscard]] Sorted<element_t<X>> cummax(const X& x, index_t axis) {
  return detail::cumulative_extreme<element_t<X>>("cummax", x, axis, false);
}

/// The smallest entry up to each one along an axis, and where it is, as cummax().
template <Operand X>
[[nodiscard]] Sorted<element_t<X>> cummin(const X& x, index_t axis) {
  return detail::cumulative_extreme<element_t<X>>("cummin", x, axis, true);
}

}  // namespace eigenformer
