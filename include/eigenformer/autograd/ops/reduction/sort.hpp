#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

// Ops along one axis whose results depend on the order of its entries.

namespace eigenformer {

/// What sort() and topk() return.
template <class T>
struct Sorted {
  Var<T> values;                 ///< the entries in order
  Tensor<std::int64_t> indices;  ///< where they were along the axis
};

namespace detail {

// y[i] = beta * y[i] + x[0] + ... + x[i] along an axis, or with `backwards` x[n - 1] + ... + x[i]. Sums are
// doubles, as PyTorch's.
template <class T>
void cumulate(const T* x, T* y, const AxisView& view, bool backwards, T beta) {
  const index_t n = view.n, inner = view.inner, width = std::min<index_t>(64, inner);
  if (view.outer == 0 || n == 0 || inner == 0) return;
  const index_t blocks = (inner + width - 1) / width;
  parallel_for(view.outer * blocks, std::max<index_t>(1, (1 << 14) / (n * width)),
               [&](index_t begin, index_t end) {
                 for (index_t task = begin; task < end; ++task) {
                   const index_t first = task % blocks * width, count = std::min(width, inner - first);
                   if (inner == 1) {  // a sum in a register
                     double sum = 0;
                     for (index_t i = 0; i < n; ++i) {
                       const index_t at = task * n + (backwards ? n - 1 - i : i);
                       sum += static_cast<double>(x[at]);
                       y[at] = beta == T(0) ? static_cast<T>(sum) : beta * y[at] + static_cast<T>(sum);
                     }
                     continue;
                   }
                   std::array<double, 64> total{};
                   for (index_t i = 0; i < n; ++i) {
                     const index_t row = backwards ? n - 1 - i : i;
                     const index_t at = (task / blocks * n + row) * inner + first;
                     for (index_t c = 0; c < count; ++c) {
                       double& sum = total[static_cast<std::size_t>(c)];
                       sum += static_cast<double>(x[at + c]);
                       const T value = static_cast<T>(sum);
                       y[at + c] = beta == T(0) ? value : beta * y[at + c] + value;
                     }
                   }
                 }
               });
}

template <class T>
Var<T> cumulative_sum(const Var<T>& x, index_t axis) {
  const OpScope scope(Runtime::instance().profiler(), "cumsum");
  require_defined("cumsum", x);
  const AxisView view(x.shape(), axis_of("cumsum", axis, x.shape()));
  Tensor<T> y(x.shape());
  cumulate<T>(x.value().data(), y.data(), view, false, T(0));
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // dx[i] = dy[i] + ... + dy[n - 1].
  return record("cumsum", std::move(y), {x}, SavedTensors(), [view](Backward<T>& back) {
    if (const auto dx = back.grad(0)) cumulate<T>(back.dy().data(), dx.data, view, true, dx.beta);
  });
}

// Where the first k entries along an axis are, in ascending or descending order. NaN is above all, equal
// entries stay in their order.
template <class T>
Tensor<std::int64_t> places_in_order(const char* op, const Tensor<T>& x, index_t axis, index_t k,
                                     bool descending) {
  const OpScope scope(Runtime::instance().profiler(), op);
  const AxisView view(x.shape(), axis);
  Tensor<std::int64_t> y(x.shape().with(axis, k));
  if (y.numel() == 0) return y;
  const index_t n = view.n, inner = view.inner;
  parallel_for(view.outer * inner, std::max<index_t>(1, (1 << 10) / n), [&](index_t begin, index_t end) {
    struct Entry {
      T value;
      index_t place;
    };
    std::vector<Entry> entries(static_cast<std::size_t>(n));
    const auto below = [](T a, T b) { return a < b || (b != b && a == a); };
    const auto before = [&](const Entry& a, const Entry& b) {
      if (below(a.value, b.value)) return !descending;
      if (below(b.value, a.value)) return descending;
      return a.place < b.place;
    };
    for (index_t r = begin; r < end; ++r) {
      const index_t o = r / inner, c = r % inner;
      for (index_t i = 0; i < n; ++i) {
        entries[static_cast<std::size_t>(i)] = {x.data()[(o * n + i) * inner + c], i};
      }
      // A heap of the first k passes over most entries of a long row with one comparison each.
      const auto last = entries.begin() + k;
      if (k <= n / 8) {
        std::partial_sort(entries.begin(), last, entries.end(), before);
      } else {
        if (k < n) std::nth_element(entries.begin(), last, entries.end(), before);
        std::sort(entries.begin(), last, before);
      }
      for (index_t i = 0; i < k; ++i) {
        y.data()[(o * k + i) * inner + c] = entries[static_cast<std::size_t>(i)].place;
      }
    }
  });
  return y;
}

}  // namespace detail

/// Sums of the entries up to each one along an axis, as doubles; axis: negative counts from the end. Throws
/// IndexError for an axis outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cumsum(const X& x, index_t axis) {
  return detail::cumulative_sum<element_t<X>>(x, axis);
}

/// Where the entries of an axis are in ascending (or descending) order: indices that sort x. NaN is above all
/// numbers; equal entries stay in their order. Throws IndexError for an axis outside the rank.
template <Operand X>
[[nodiscard]] Tensor<std::int64_t> argsort(const X& x, index_t axis = -1, bool descending = false) {
  const auto& v = detail::tensor_of(x);
  detail::require_defined("argsort", v);
  const index_t a = detail::axis_of("argsort", axis, v.shape());
  return detail::places_in_order("argsort", v, a, v.dim(a), descending);
}

/// The entries of an axis in ascending (or descending) order, and where they were; order and errors as for
/// argsort(). The gradient of a value is that of the entry that it was.
template <Operand X>
[[nodiscard]] Sorted<element_t<X>> sort(const X& x, index_t axis = -1, bool descending = false) {
  const Var<element_t<X>>& v = detail::operand<element_t<X>>(x);
  detail::require_defined("sort", v);
  const index_t a = detail::axis_of("sort", axis, v.shape());
  const auto places = detail::places_in_order("sort", v.value(), a, v.dim(a), descending);
  return {gather(v, a, places), places};
}

/// The k largest (or smallest) entries of an axis, sorted, and where they were. NaN is the largest; the first
/// of equal entries are taken. Throws as sort(), and ValueError unless k is 0 to the number of entries.
template <Operand X>
[[nodiscard]] Sorted<element_t<X>> topk(const X& x, index_t k, index_t axis = -1, bool largest = true) {
  const Var<element_t<X>>& v = detail::operand<element_t<X>>(x);
  detail::require_defined("topk", v);
  const index_t a = detail::axis_of("topk", axis, v.shape());
  if (k < 0 || k > v.dim(a)) {
    throw ValueError("topk", {"k is ", k, ", must be 0 to ", v.dim(a), ", the entries of axis ", axis,
                              " of shape ", v.shape()});
  }
  const auto places = detail::places_in_order("topk", v.value(), a, k, largest);
  return {gather(v, a, places), places};
}

}  // namespace eigenformer
