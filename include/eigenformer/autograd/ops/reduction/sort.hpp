#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <type_traits>
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
struct RankedEntry {
  RankedEntry() = default;
  RankedEntry(std::uint64_t r, index_t i) : rank(r), place(i) {}
  std::uint64_t rank = 0;
  index_t place = 0;
  auto operator<=>(const RankedEntry&) const = default;
};
// The same in one number, for ranks and places of 32 bits.
struct ShortEntry {
  ShortEntry() = default;
  ShortEntry(std::uint64_t r, index_t i) : both(r << 32 | static_cast<std::uint64_t>(i)) {}
  std::uint64_t both = 0;
  auto operator<=>(const ShortEntry&) const = default;
};
inline std::int64_t place_of(const RankedEntry& e) { return e.place; }
inline std::int64_t place_of(const ShortEntry& e) { return static_cast<std::int64_t>(e.both & 0xffffffffu); }

template <class Entry, class T>
void order_places(const T* x, std::int64_t* y, const AxisView& view, index_t k, bool descending) {
  const index_t n = view.n, inner = view.inner;
  parallel_for(view.outer * inner, std::max<index_t>(1, (1 << 10) / n), [&](index_t begin, index_t end) {
    // A heap of the first k passes over most entries of a long row with one comparison each.
    const bool few = k <= n / 8;
    std::vector<Entry> entries(static_cast<std::size_t>(few ? k : n));
    for (index_t r = begin; r < end; ++r) {
      const index_t o = r / inner, c = r % inner;
      const auto value = [&](index_t i) { return x[(o * n + i) * inner + c]; };
      const auto entry = [&](index_t i) { return Entry(rank_of(value(i), descending), i); };
      const auto filled = static_cast<index_t>(entries.size());
      for (index_t i = 0; i < filled; ++i) entries[static_cast<std::size_t>(i)] = entry(i);
      if (few) {
        std::make_heap(entries.begin(), entries.end());
        T last = value(static_cast<index_t>(place_of(entries.front())));
        for (index_t i = k; i < n; ++i) {
          if (descending ? value(i) <= last : value(i) >= last) continue;  // true for most, and not for NaN
          const Entry next = entry(i);
          if (next > entries.front()) continue;
          std::pop_heap(entries.begin(), entries.end());
          entries.back() = next;
          std::push_heap(entries.begin(), entries.end());
          last = value(static_cast<index_t>(place_of(entries.front())));
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
  const OpScope scope(Runtime::instance().profiler(), op);
  const AxisView view(x.shape(), axis);
  Tensor<std::int64_t> y(x.shape().with(axis, k));
  if (y.numel() == 0) return y;
  if (sizeof(T) == 4 && view.n >> 32 == 0) {
    order_places<ShortEntry>(x.data(), y.data(), view, k, descending);
  } else {
    order_places<RankedEntry>(x.data(), y.data(), view, k, descending);
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
