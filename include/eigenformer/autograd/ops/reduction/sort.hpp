#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

// Ops along one axis whose results depend on the order of its entries.

namespace eigenformer {

/// What sort() and topk() return.
template <class T>
struct Sorted {
  Var<T> values;                 ///< the entries in order
  Tensor<std::int64_t> indices;  ///< where they were along the axis
};

namespace detail {

// A whole number for each value, which ascends (or descends) as the values do; NaN is above all.
template <class T>
auto rank_of(T x, bool descending) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr Bits top = Bits{1} << (8 * sizeof(Bits) - 1);
  Bits bits = std::bit_cast<Bits>(x);
  bits = bits == top ? Bits{0} : bits;  // -0 equals 0
  bits = x == x ? bits ^ ((bits & top) != 0 ? ~Bits{0} : top) : ~Bits{0};
  return descending ? static_cast<Bits>(~bits) : bits;
}

// An entry: first its rank, then its place, so that equal values stay in their order.
using LongEntry = std::pair<std::uint64_t, index_t>;
// The same in one number, for ranks and places of 32 bits.
using ShortEntry = std::uint64_t;

template <class Entry>
Entry entry_of(std::uint64_t rank, index_t place) {
  if constexpr (std::is_same_v<Entry, LongEntry>) {
    return {rank, place};
  } else {
    return rank << 32 | static_cast<std::uint64_t>(place);
  }
}
inline index_t place_of(const LongEntry& e) { return e.second; }
inline index_t place_of(ShortEntry e) { return static_cast<index_t>(e & 0xffffffffu); }

template <class Entry, class T>
void order_places(const T* x, std::int64_t* y, const AxisView& view, index_t k, bool descending) {
  const index_t n = view.n, inner = view.inner;
  parallel_for(view.outer * inner, (1 << 10) / n, [&](index_t begin, index_t end) {
    // A heap of the first k passes over most entries of a long row with one comparison each.
    const bool few = k <= n / 8;
    std::vector<Entry> entries(static_cast<std::size_t>(few ? k : n));
    for (index_t r = begin; r < end; ++r) {
      const index_t o = r / inner, c = r % inner;
      const auto value = [&](index_t i) { return x[(o * n + i) * inner + c]; };
      const auto entry = [&](index_t i) { return entry_of<Entry>(rank_of(value(i), descending), i); };
      const auto filled = static_cast<index_t>(entries.size());
      for (index_t i = 0; i < filled; ++i) entries[static_cast<std::size_t>(i)] = entry(i);
      if (few) {
        std::make_heap(entries.begin(), entries.end());
        T last = value(place_of(entries.front()));
        for (index_t i = k; i < n; ++i) {
          if (descending ? value(i) <= last : value(i) >= last) continue;  // true for most, and not for NaN
          const Entry next = entry(i);
          if (next > entries.front()) continue;
          std::pop_heap(entries.begin(), entries.end());
          entries.back() = next;
          std::push_heap(entries.begin(), entries.end());
          last = value(place_of(entries.front()));
        }
        std::sort_heap(entries.begin(), entries.end());
      } else {
        if (k < n) std::nth_element(entries.begin(), entries.begin() + k, entries.end());
        std::sort(entries.begin(), entries.begin() + k);
      }
      for (index_t i = 0; i < k; ++i) {
        y[(o * k + i) * inner + c] = place_of(entries[static_cast<std::size_t>(i)]);
      }
    }
  });
}

// Where the first k entries along an axis are, in ascending or descending order.
template <class T>
Tensor<std::int64_t> places_in_order(const char* op, const Tensor<T>& x, index_t axis, index_t k,
                                     bool descending) {
  const OpScope scope = scope_of(op);
  const AxisView view(x.shape(), axis);
  Tensor<std::int64_t> y(x.shape().with(axis, k));
  if (y.numel() == 0) return y;
  if (sizeof(T) == 4 && view.n >> 32 == 0) {
    order_places<ShortEntry>(x.data(), y.data(), view, k, descending);
  } else {
    order_places<LongEntry>(x.data(), y.data(), view, k, descending);
  }
  return y;
}

}  // namespace detail

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
  const Var<element_t<X>>& v = x;
  detail::require_defined("sort", v);
  const index_t a = detail::axis_of("sort", axis, v.shape());
  const auto places = detail::places_in_order("sort", v.value(), a, v.dim(a), descending);
  return {gather(v, a, places), places};
}

/// The k largest (or smallest) entries of an axis, sorted, and where they were. NaN is the largest; the first
/// of equal entries are taken. Throws as sort(), and ValueError unless k is 0 to the number of entries.
template <Operand X>
[[nodiscard]] Sorted<element_t<X>> topk(const X& x, index_t k, index_t axis = -1, bool largest = true) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("topk", v);
  const index_t a = detail::axis_of("topk", axis, v.shape());
  if (k < 0 || k > v.dim(a)) {
    throw ValueError("topk", {"k is ", k, ", must be 0 to ", v.dim(a), ", the entries of axis ", axis,
                              " of shape ", v.shape()});
  }
  const auto places = detail::places_in_order("topk", v.value(), a, k, largest);
  return {gather(v, a, places), places};
}

namespace detail {

// Where the median of each line of an axis is: the lower one of two, the first NaN if there is one. The
// axis remains, with size 1.
template <class T>
Tensor<std::int64_t> median_places(const Tensor<T>& x, index_t axis) {
  const AxisView view(x.shape(), axis);
  Tensor<std::int64_t> y(x.shape().with(axis, 1));
  if (y.numel() == 0) return y;
  const index_t n = view.n, inner = view.inner;
  if (n == 0) refuse_no_entries("median", x.shape());
  parallel_for(y.numel(), (1 << 12) / n, [&](index_t begin, index_t end) {
    std::vector<index_t> order(static_cast<std::size_t>(n));
    for (index_t r = begin; r < end; ++r) {
      const T* line = x.data() + r / inner * n * inner + r % inner;
      index_t found = -1;
      for (index_t i = 0; i < n && found < 0; ++i) {
        order[static_cast<std::size_t>(i)] = i;
        if (std::isnan(line[i * inner])) found = i;
      }
      if (found < 0) {
        const auto middle = order.begin() + (n - 1) / 2;
        std::nth_element(order.begin(), middle, order.end(), [line, inner](index_t a, index_t b) {
          return line[a * inner] < line[b * inner] || (line[a * inner] == line[b * inner] && a < b);
        });
        found = *middle;
      }
      y.data()[r] = found;
    }
  });
  return y;
}

// The quantiles q: unless q is a number, their number is the first axis of the result.
template <class T>
Var<T> quantiles(const Var<T>& given, const Tensor<T>& q, std::optional<index_t> axis, bool keepdims) {
  constexpr const char* op = "quantile";
  require_defined(op, given, q);
  const Var<T> x = axis ? given : reshaped(op, given, Shape{given.numel()});
  const index_t a = axis_of(op, axis.value_or(0), x.shape()), n = x.dim(a), m = q.numel();
  if (q.rank() > 1) {
    throw ShapeError(op, {"q of shape ", q.shape(), " must be a number or of rank 1"}, {q.shape()});
  }
  for (const T value : q.span()) {
    if (!(value >= T(0) && value <= T(1))) {
      throw ValueError(op, {"q is ", value, ", must be in [0, 1]"});
    }
  }
  if (n == 0) refuse_no_entries(op, x.shape());
  const Var<T> sorted = sort(x, a).values;
  const AxisView view(x.shape(), a);
  const Shape shape = x.shape().with(a, m);
  Tensor<std::int64_t> below(shape), above(shape), nearer(shape);
  Tensor<T> weight(shape);
  for (index_t i = 0; i < shape.numel(); ++i) {
    const index_t outer = i / view.inner / m, inner = i % view.inner;
    // NaN is the last.
    const bool nan = std::isnan(sorted.value().data()[(outer * n + n - 1) * view.inner + inner]);
    const double last = static_cast<double>(n - 1);
    const double rank = nan ? last : static_cast<double>(q.data()[i / view.inner % m]) * last;
    below.data()[i] = static_cast<std::int64_t>(std::floor(rank));
    above.data()[i] = std::min<std::int64_t>(n - 1, static_cast<std::int64_t>(std::ceil(rank)));
    // From the nearer one, as PyTorch's lerp: beside an infinity the result is not NaN.
    const double share = rank - std::floor(rank);
    const bool up = share >= 0.5;
    nearer.data()[i] = up ? above.data()[i] : below.data()[i];
    weight.data()[i] = static_cast<T>(up ? share - 1 : share);
  }
  const Var<T> span = subtract_vars<T>(gather(sorted, a, above), gather(sorted, a, below));
  const Var<T> y = add_vars<T>(gather(sorted, a, nearer), multiply_vars<T>(span, Var<T>(weight)));
  const Shape rest = kernels::reduced_shape(given.shape(), axes_of(axis), keepdims);
  if (q.rank() == 0) return reshaped(op, y, rest);
  std::vector<index_t> order = {a};
  for (index_t d = 0; d < x.rank(); ++d) {
    if (d != a) order.push_back(d);
  }
  return reshaped(op, a == 0 ? y : permute(y, order), rest.inserted(0, m));
}

}  // namespace detail

/// The median of all elements, the lower one of two, NaN if one of them is NaN. Equal elements share the
/// gradient evenly, as in PyTorch. Throws ValueError when there are no elements.
template <Operand X>
[[nodiscard]] Var<element_t<X>> median(const X& x) {
  using T = element_t<X>;
  const Var<T>& v = x;
  const OpScope scope = detail::scope_of("median", v);
  const auto place = detail::median_places(v.value().reshape(Shape{v.numel()}), 0);
  return detail::record_chosen<T>("median", v, {}, Tensor<T>::scalar(v.value().data()[place.item()]));
}

/// The medians along an axis and where they are, to which the gradient goes: the first of equals in a sorted
/// order, or the first NaN. With keepdims the axis remains, with size 1. Throws IndexError for an axis
/// outside the rank, ValueError for one without entries.
template <Operand X>
[[nodiscard]] Sorted<element_t<X>> median(const X& x, index_t axis, bool keepdims = false) {
  using T = element_t<X>;
  const Var<T>& v = x;
  detail::require_defined("median", v);
  const index_t a = detail::axis_of("median", axis, v.shape());
  const auto places = detail::median_places(v.value(), a);
  const Var<T> y = gather(v, a, places);
  if (keepdims) return {y, places};
  const Shape shape = v.shape().without(a);
  return {detail::reshaped("median", y, shape), places.reshape(shape)};
}

/// Quantiles along an axis, or without one of the flattened tensor: between two entries on the line through
/// them, NaN if one of the entries is NaN. q: a number in [0, 1], or a tensor (m) of them, which gives (m,
/// ...). With keepdims the axis remains, with size 1. Throws IndexError for an axis outside the rank,
/// ShapeError for a q of rank 2, ValueError for one outside [0, 1] and for an axis without entries.
template <Operand X, class Q>
requires(detail::Number<Q> || std::convertible_to<Q, Tensor<element_t<X>>>)
    [[nodiscard]] Var<element_t<X>> quantile(const X& x, const Q& q,
                                             std::optional<index_t> axis = std::nullopt,
                                             bool keepdims = false) {
  using T = element_t<X>;
  return detail::quantiles<T>(x, detail::operand<T>(q).value(), axis, keepdims);
}

}  // namespace eigenformer
