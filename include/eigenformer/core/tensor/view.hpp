#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer {

/// The end of a dimension, for slice() and range().
inline constexpr index_t slice_end = std::numeric_limits<index_t>::max();

namespace detail {

/// What indices are: int32_t or int64_t.
template <class I>
concept IndexNumber = std::same_as<I, std::int32_t> || std::same_as<I, std::int64_t>;

/// The entries begin, begin + step, ... before end: NumPy's begin:end:step. range() makes it.
struct IndexRange {
  index_t begin = 0;        ///< the first entry; negative counts from the end
  index_t end = slice_end;  ///< one past the last one; negative counts from the end
  index_t step = 1;         ///< not zero; negative walks towards the front
};

/// What the index `all` is.
struct EveryEntry {};
/// The type of newaxis.
struct NewAxis {};
/// The type of ellipsis.
struct Ellipsis {};

}  // namespace detail

/// The entries begin .. end - 1 of a dimension in steps, as an index. As in NumPy, bounds outside the
/// dimension are moved to its ends, and slice_end leaves one out: range(slice_end, slice_end, -1) is ::-1.
constexpr detail::IndexRange range(index_t begin, index_t end = slice_end, index_t step = 1) noexcept {
  return {begin, end, step};
}
/// Every entry of a dimension, as an index: x(ef::all, 0) is NumPy's x[:, 0]. The function itself is the
/// index, so that `all` can be the name of a reduction, too.
constexpr detail::EveryEntry all() noexcept { return {}; }
/// A new dimension of size 1, as an index.
inline constexpr detail::NewAxis newaxis;
/// Every entry of all dimensions that the other indices do not name: NumPy's "...".
inline constexpr detail::Ellipsis ellipsis;

/// One index of x(...): a number, which removes the dimension; all; range(); newaxis; ellipsis.
class Index {
 public:
  /// The kinds of an index.
  enum class Kind {
    absent,    ///< none: the place of an index that was not given
    number,    ///< one entry
    range,     ///< some entries
    new_axis,  ///< a new dimension
    rest       ///< the dimensions that no other index names
  };

  /// No index.
  constexpr Index() = default;
  /// One entry; negative counts from the end.
  template <std::integral I>
  requires(!std::same_as<I, bool>) constexpr Index(I i)  // NOLINT(google-explicit-constructor)
      : range{static_cast<index_t>(i), 0, 1}, kind(Kind::number) {}
  /// Some entries.
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Index(detail::IndexRange r) : range(r), kind(Kind::range) {}
  /// Every entry.
  constexpr Index(detail::EveryEntry (*)() noexcept)
      : kind(Kind::range) {}  // NOLINT(google-explicit-constructor)
  /// A new dimension.
  constexpr Index(detail::NewAxis) : kind(Kind::new_axis) {}  // NOLINT(google-explicit-constructor)
  /// The remaining dimensions.
  constexpr Index(detail::Ellipsis) : kind(Kind::rest) {}  // NOLINT(google-explicit-constructor)

  detail::IndexRange range;  ///< of a range; a number is in `begin`
  Kind kind = Kind::absent;  ///< what it is
};

namespace detail {

using Strides = std::array<index_t, static_cast<std::size_t>(Shape::max_rank)>;

// Elements of a tensor: the one at (i, j, ...) is at offset + i * strides[0] + j * strides[1] + ...
struct StridedView {
  Shape shape;
  Strides strides{};
  index_t offset = 0;
};

// All elements of a tensor.
EIGENFORMER_NOINLINE inline StridedView whole_view(const Shape& shape) {
  StridedView view{shape, {}, 0};
  index_t step = 1;
  for (index_t i = shape.rank(); i-- > 0;) {
    view.strides[static_cast<std::size_t>(i)] = step;
    step *= shape[i];
  }
  return view;
}

// A tensor of shape `from`, repeated to shape `to`. Throws ShapeError, naming op, where it does not fit.
EIGENFORMER_NOINLINE inline StridedView broadcast_view(const char* op, const Shape& from, const Shape& to) {
  const StridedView whole = whole_view(from);
  StridedView view{to, {}, 0};
  const index_t more = to.rank() - from.rank();
  bool fits = more >= 0;
  for (index_t i = 0; fits && i < from.rank(); ++i) {
    fits = from[i] == to[more + i] || from[i] == 1;
    view.strides[static_cast<std::size_t>(more + i)] =
        from[i] == 1 ? 0 : whole.strides[static_cast<std::size_t>(i)];
  }
  if (!fits) {
    throw ShapeError(op, {"shape ", from.str(), " does not broadcast to shape ", to.str()}, {from, to});
  }
  return view;
}

// The number of entries of a range in a dimension of n, and its first entry.
inline std::array<index_t, 2> entries_of(const IndexRange& r, index_t n) {
  const bool forward = r.step > 0;
  // Positions are moved to 0 .. n, walking backwards to -1 .. n - 1.
  const index_t least = forward ? 0 : -1, most = forward ? n : n - 1;
  const auto clipped = [&](index_t i) { return std::clamp(i < 0 ? i + n : i, least, most); };
  const index_t first = clipped(r.begin);
  const index_t last = r.end != slice_end ? clipped(r.end) : forward ? n : -1;
  const index_t distance = forward ? last - first : first - last;
  // Not of the step itself, which may be the smallest number.
  const auto step = forward ? static_cast<std::uint64_t>(r.step) : 0 - static_cast<std::uint64_t>(r.step);
  const index_t count =
      distance <= 0 ? 0 : static_cast<index_t>((static_cast<std::uint64_t>(distance) - 1) / step) + 1;
  return {count, first};
}

// The elements that indices choose. Throws IndexError for too many indices, a number outside its dimension
// and a second ellipsis, ValueError for a step of zero, ShapeError for too many dimensions.
EIGENFORMER_NOINLINE inline StridedView indexed_view(const Shape& shape, std::span<const Index> indices) {
  const StridedView whole = whole_view(shape);
  index_t named = 0, ellipses = 0;
  for (const Index& i : indices) {
    named += i.kind == Index::Kind::number || i.kind == Index::Kind::range;
    ellipses += i.kind == Index::Kind::rest;
  }
  if (named > shape.rank() || ellipses > 1) {
    throw IndexError("index", {named, " indices and ", ellipses, " ellipses for a tensor of shape ", shape,
                               ", expected at most ", shape.rank(), " and 1"});
  }
  StridedView view;
  std::array<index_t, static_cast<std::size_t>(Shape::max_rank)> sizes{};
  index_t rank = 0, axis = 0;
  const auto append = [&](index_t n, index_t stride) {
    if (rank == Shape::max_rank) throw ShapeError("index", "the result has more than 6 dimensions", {shape});
    sizes[static_cast<std::size_t>(rank)] = n;
    view.strides[static_cast<std::size_t>(rank++)] = stride;
  };
  const auto keep = [&](index_t count) {
    for (; count > 0; --count, ++axis) append(shape[axis], whole.strides[static_cast<std::size_t>(axis)]);
  };
  for (const Index& i : indices) {
    if (i.kind == Index::Kind::new_axis) {
      append(1, 0);
    } else if (i.kind == Index::Kind::rest) {
      keep(shape.rank() - named);
    } else if (i.kind != Index::Kind::absent) {
      const index_t n = shape[axis], stride = whole.strides[static_cast<std::size_t>(axis)];
      if (i.kind == Index::Kind::number) {
        const index_t j = i.range.begin < 0 ? i.range.begin + n : i.range.begin;
        if (j < 0 || j >= n) {
          throw IndexError("index",
                           {"index ", i.range.begin, " is outside dimension ", axis, " of shape ", shape});
        }
        view.offset += j * stride;
      } else {
        if (i.range.step == 0) throw ValueError("index", "the step of a range is 0, must not be");
        const auto [count, first] = entries_of(i.range, n);
        append(count, count > 1 ? stride * i.range.step : 0);
        view.offset += count == 0 ? 0 : first * stride;
      }
      ++axis;
    }
  }
  keep(shape.rank() - axis);
  view.shape = Shape(std::span<const index_t>(sizes.data(), static_cast<std::size_t>(rank)));
  return view;
}

/// A loop nest over up to six dimensions and its operands' strides in elements, with adjacent dimensions
/// merged if every operand allows it, so that most shapes become one or two loops. The last dimension is the
/// inner one; a nest over a single element has one dimension of size 1 with strides 0.
template <std::size_t Operands>
struct StridedLoop {
  std::array<index_t, 6> size{};
  std::array<std::array<index_t, 6>, Operands> stride{};
  int rank = 0;

  /// Adds a dimension inside the present ones; size 1 is ignored.
  void push(index_t n, const std::array<index_t, Operands>& strides) {
    if (n == 1) return;
    const auto last = static_cast<std::size_t>(rank - 1);
    bool merges = rank > 0;
    for (std::size_t o = 0; merges && o < Operands; ++o) merges = stride[o][last] == strides[o] * n;
    if (merges) {
      size[last] *= n;
      for (std::size_t o = 0; o < Operands; ++o) stride[o][last] = strides[o];
      return;
    }
    const auto at = static_cast<std::size_t>(rank++);
    size[at] = n;
    for (std::size_t o = 0; o < Operands; ++o) stride[o][at] = strides[o];
  }

  /// Adds an inner dimension of size 1 if there is none.
  void finish() {
    if (rank == 0) size[static_cast<std::size_t>(rank++)] = 1;
  }

  index_t inner_size() const { return size[static_cast<std::size_t>(rank - 1)]; }
  index_t inner_stride(std::size_t operand) const {
    return stride[operand][static_cast<std::size_t>(rank - 1)];
  }

  /// Product of the sizes of the outer dimensions.
  index_t outer_size() const {
    index_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= size[static_cast<std::size_t>(i)];
    return n;
  }

  /// The operands' offsets at the beginning of a round of the outer dimensions, and of those after it. Only
  /// the first takes divisions, which would take longer than a short inner dimension.
  class Rounds {
   public:
    Rounds(const StridedLoop& loop, index_t round) : loop_(loop) {
      for (int i = loop.rank - 2; i >= 0; --i) {
        const auto d = static_cast<std::size_t>(i);
        place_[d] = i > 0 ? round % loop.size[d] : round;
        if (i > 0) round /= loop.size[d];
        for (std::size_t o = 0; o < Operands; ++o) offset_[o] += place_[d] * loop.stride[o][d];
      }
    }
    index_t operator[](std::size_t operand) const { return offset_[operand]; }
    void next() {
      for (int i = loop_.rank - 2; i >= 0; --i) {
        const auto d = static_cast<std::size_t>(i);
        for (std::size_t o = 0; o < Operands; ++o) offset_[o] += loop_.stride[o][d];
        if (++place_[d] < loop_.size[d] || i == 0) return;
        for (std::size_t o = 0; o < Operands; ++o) offset_[o] -= place_[d] * loop_.stride[o][d];
        place_[d] = 0;
      }
    }

   private:
    const StridedLoop& loop_;
    std::array<index_t, 6> place_{};
    std::array<index_t, Operands> offset_{};
  };
  Rounds offsets(index_t round) const { return Rounds(*this, round); }
};

/// The loop over the elements of `out` in order, with the strides of operands that are broadcast to it.
template <std::size_t Operands>
StridedLoop<Operands> broadcast_loop(const Shape& out, const std::array<const Shape*, Operands>& operands) {
  std::array<Strides, Operands> strides{};
  for (std::size_t o = 0; o < Operands; ++o) strides[o] = broadcast_view("loop", *operands[o], out).strides;
  StridedLoop<Operands> loop;
  for (index_t d = 0; d < out.rank(); ++d) {
    std::array<index_t, Operands> here{};
    for (std::size_t o = 0; o < Operands; ++o) here[o] = strides[o][static_cast<std::size_t>(d)];
    loop.push(out[d], here);
  }
  loop.finish();
  return loop;
}

/// Calls f(begin, end, skip, n) for rounds [begin, end) of a loop, in each the n elements from `skip` on:
/// whole rounds, or parts of the inner dimension if there is only one round.
template <std::size_t Operands, class F>
void for_rounds(const StridedLoop<Operands>& loop, index_t grain, F&& f) {
  const index_t n = loop.inner_size(), outer = loop.outer_size();
  if (outer == 1) {
    parallel_for(n, grain,
                 [&](index_t begin, index_t end) { f(index_t{0}, index_t{1}, begin, end - begin); });
  } else if (n > 0) {
    parallel_for(outer, (grain + n - 1) / n,
                 [&](index_t begin, index_t end) { f(begin, end, index_t{0}, n); });
  }
}

// f(position in a, position in b, step in a, step in b, count) for the rows of two views of one shape, in
// parallel. (By StridedLoop, which merges dimensions, adding a column to a matrix took 1.7 times as long.)
template <class F>
void for_each_row(const StridedView& to, const StridedView& from, const F& f) {
  if (to.shape.numel() == 0) return;
  index_t rank = to.shape.rank();
  while (rank > 1 && to.shape[rank - 1] == 1) --rank;  // or rows would have one element
  const auto last = static_cast<std::size_t>(std::max<index_t>(0, rank - 1));
  const index_t n = rank > 0 ? to.shape[rank - 1] : 1, sa = to.strides[last], sb = from.strides[last];
  parallel_for(to.shape.numel() / n, std::max<index_t>(1, (1 << 15) / n), [&](index_t begin, index_t end) {
    Strides at{};  // of the row in the outer dimensions
    index_t x = to.offset, y = from.offset, rest = begin;
    const auto move = [&](std::size_t d, index_t by) {
      at[d] += by;
      x += by * to.strides[d];
      y += by * from.strides[d];
    };
    for (std::size_t d = last; d-- > 0; rest /= to.shape.dims()[d]) move(d, rest % to.shape.dims()[d]);
    for (index_t r = begin; r < end; ++r) {
      f(x, y, sa, sb, n);
      for (std::size_t d = last; d-- > 0; move(d, -at[d])) {
        move(d, 1);
        if (at[d] < to.shape.dims()[d]) break;
      }
    }
  });
}

// f(a[i], b[i]) for all elements of two views of one shape, rows in parallel: no two elements of `a` may be
// one.
template <class A, class B, class F>
void for_each_pair(A* a, const StridedView& to, B* b, const StridedView& from, const F& f) {
  for_each_row(to, from, [&](index_t x, index_t y, index_t sa, index_t sb, index_t n) {
    if (sa == 1 && sb == 1) {
      for (index_t i = 0; i < n; ++i) f(a[x + i], b[y + i]);
    } else {
      for (index_t i = 0; i < n; ++i) f(a[x + i * sa], b[y + i * sb]);
    }
  });
}

// Copies n elements, many of them by way of a buffer: a read close behind a write to an address that is equal
// modulo a page waits for it, as all do in a copy to a place that is some elements further in its page.
template <class T>
void copy_elements(const T* x, index_t n, T* y) {
  constexpr index_t part = 1024 / sizeof(T);
  T buffer[part];
  for (; n > part; n -= part, x += part, y += part) {
    std::copy_n(x, part, buffer);
    std::copy_n(buffer, part, y);
  }
  std::copy_n(x, n, y);
}

// Writes x[n - 1], ..., x[0] to y.
template <class T>
void copy_reversed(const T* x, index_t n, T* y) {
  index_t i = 0;
  if constexpr (sizeof(T) == 4) {
    typedef std::uint32_t Four __attribute__((vector_size(16)));
    const auto reversed = [](const T* from, T* to) {
      Four v;
      __builtin_memcpy(&v, from, sizeof(v));
#if defined(__clang__)
      v = __builtin_shufflevector(v, v, 3, 2, 1, 0);
#else
      v = __builtin_shuffle(v, Four{3, 2, 1, 0});
#endif
      __builtin_memcpy(to, &v, sizeof(v));
    };
    for (; i + 16 <= n; i += 16) {
      reversed(x + n - 4 - i, y + i);
      reversed(x + n - 8 - i, y + i + 4);
      reversed(x + n - 12 - i, y + i + 8);
      reversed(x + n - 16 - i, y + i + 12);
    }
  }
  for (; i < n; ++i) y[i] = x[n - 1 - i];
}

// a[i] = b[i] for all elements of two views of one shape, rows in parallel: no two elements of `a` may be
// one.
template <class T>
void copy_view(T* a, const StridedView& to, const T* b, const StridedView& from) {
  for_each_row(to, from, [&](index_t x, index_t y, index_t sa, index_t sb, index_t n) {
    if (sa == 1 && sb == 1) {
      copy_elements(b + y, n, a + x);
    } else if (sa == 1 && sb == -1) {
      copy_reversed(b + y - (n - 1), n, a + x);
    } else {
      for (index_t i = 0; i < n; ++i) a[x + i * sa] = b[y + i * sb];
    }
  });
}

}  // namespace detail

}  // namespace eigenformer
