#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/axes.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/view.hpp"

// Ops that copy elements to other places.

namespace eigenformer {

/// What pad() writes beside the elements.
enum class PadMode {
  constant,  ///< one value
  reflect,   ///< the elements mirrored at the first and last one, which are not repeated
  edge       ///< the first and the last element; PyTorch's "replicate"
};

namespace detail {

// The elements that a view names, none of them twice.
template <class T>
Var<T> viewed(const char* op, const Var<T>& x, const StridedView& view) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y(view.shape);
  copy_view(y.data(), whole_view(view.shape), x.value().data(), view);
  if (not_recorded(y, x)) return y;
  // dx = dy at the elements of the view, 0 elsewhere.
  return record_one(op, std::move(y), x, SavedTensors(), [view](const auto& dx, const Tensor<T>& dy) {
    dx.start_sum();
    for_each_pair(dx.data, view, dy.data(), whole_view(view.shape), [](T& to, const T& from) { to += from; });
  });
}

// A tensor of `fill` with x at the elements that a view names, none of them twice.
template <class T>
Var<T> placed(const char* op, const Var<T>& x, const StridedView& view, const Shape& shape, T fill) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y = Tensor<T>::full(shape, fill);
  copy_view(y.data(), view, x.value().data(), whole_view(view.shape));
  if (not_recorded(y, x)) return y;
  // dx = dy at the elements of the view.
  return record_one(op, std::move(y), x, SavedTensors(), [view](const auto& dx, const Tensor<T>& dy) {
    if (dx.beta == T(0)) {
      copy_view(dx.data, whole_view(view.shape), dy.data(), view);
    } else {
      for_each_pair(dx.data, whole_view(view.shape), dy.data(), view,
                    [](T& to, const T& from) { to += from; });
    }
  });
}

// Entries of an axis: those from `from` on go to `to` and on.
struct Run {
  index_t from, to, count;
};

EIGENFORMER_NOINLINE inline std::vector<Run> runs_of(const std::vector<index_t>& entries) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!runs.empty() && entries[i] == runs.back().from + runs.back().count) {
      ++runs.back().count;
    } else {
      runs.push_back({entries[i], static_cast<index_t>(i), 1});
    }
  }
  return runs;
}

// Entries of an axis (counted from the front) in any order, which may repeat them.
template <class T>
Var<T> selected(const char* op, const Var<T>& x, index_t axis, const std::vector<index_t>& entries) {
  const OpScope scope = scope_of(op, x);
  const AxisView view(x.shape(), axis);
  const auto taken = static_cast<index_t>(entries.size());
  const auto runs = std::make_shared<const std::vector<Run>>(runs_of(entries));
  const auto count = static_cast<index_t>(runs->size());
  Tensor<T> y(x.shape().with(axis, taken));
  const index_t block = count == 0 ? 1 : taken * view.inner / count;
  const T* from = x.value().data();
  T* to = y.data();
  if (block < 8 && view.inner == 1) {  // single elements
    parallel_each(view.outer, (1 << 15) / std::max<index_t>(1, taken), [&](index_t o) {
      for (index_t i = 0; i < taken; ++i) {
        to[o * taken + i] = from[o * view.n + entries[static_cast<std::size_t>(i)]];
      }
    });
  } else {
    const index_t grain = (1 << 15) / std::max<index_t>(1, block);
    parallel_for(view.outer * count, grain, [&](index_t begin, index_t end) {
      index_t o = begin / count, k = begin % count;
      for (index_t i = begin; i < end; ++i) {
        const Run& run = (*runs)[static_cast<std::size_t>(k)];
        copy_elements(from + (o * view.n + run.from) * view.inner, run.count * view.inner,
                      to + (o * taken + run.to) * view.inner);
        if (++k == count) k = 0, ++o;
      }
    });
  }
  if (not_recorded(y, x)) return y;
  // dx = sum of dy over the places that an entry was taken to.
  return record_one(op, std::move(y), x, SavedTensors(),
                    [view, taken, runs](const auto& dx, const Tensor<T>& dy) {
                      dx.start_sum();
                      const index_t work = std::max<index_t>(1, taken * view.inner);
                      parallel_each(view.outer, (1 << 15) / work, [&](index_t o) {
                        for (const Run& run : *runs) {
                          T* sum = dx.data + (o * view.n + run.from) * view.inner;
                          const T* g = dy.data() + (o * taken + run.to) * view.inner;
                          for (index_t i = 0; i < run.count * view.inner; ++i) sum[i] += g[i];
                        }
                      });
                    });
}

template <class T>
Var<T> repeated(const Var<T>& x, const std::vector<index_t>& counts, index_t axis) {
  require_defined("repeat", x);
  const index_t a = axis_of("repeat", axis, x.shape());
  if (counts.size() != 1 && static_cast<index_t>(counts.size()) != x.dim(a)) {
    throw ShapeError(
        "repeat",
        {counts.size(), " counts, must be 1 or one for each of the ", x.dim(a), " entries of axis ", axis},
        {x.shape()});
  }
  std::vector<index_t> entries;
  for (index_t i = 0; i < x.dim(a); ++i) {
    const index_t count = counts[counts.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    if (count < 0) throw ValueError("repeat", {"count ", count, " must not be negative"});
    entries.insert(entries.end(), static_cast<std::size_t>(count), i);
  }
  return selected("repeat", x, a, entries);
}

template <class T>
Var<T> tiled(const Var<T>& x, std::vector<index_t> counts) {
  require_defined("tile", x);
  const auto rank = std::max(static_cast<std::size_t>(x.rank()), counts.size());
  counts.insert(counts.begin(), rank - counts.size(), 1);
  Shape shape = x.shape();
  while (static_cast<std::size_t>(shape.rank()) < rank) shape = shape.inserted(0, 1);
  Var<T> y = reshaped("tile", x, shape);
  for (std::size_t a = rank; a-- > 0;) {
    if (counts[a] < 0) throw ValueError("tile", {"count ", counts[a], " must not be negative"});
    if (counts[a] == 1) continue;
    const index_t n = y.dim(static_cast<index_t>(a));
    std::vector<index_t> entries;
    for (index_t i = 0; i < n * counts[a]; ++i) entries.push_back(i % n);
    y = selected("tile", y, static_cast<index_t>(a), entries);
  }
  return y;
}

template <class T>
Var<T> rolled(const Var<T>& x, const std::vector<index_t>& shifts, const std::vector<index_t>& axes) {
  require_defined("roll", x);
  if (shifts.size() != axes.size()) {
    throw ValueError("roll", {shifts.size(), " shifts of ", axes.size(), " axes, expected one for each"});
  }
  Var<T> y = x;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const index_t a = axis_of("roll", axes[k], x.shape()), n = x.dim(a);
    if (n == 0) continue;
    std::vector<index_t> entries(static_cast<std::size_t>(n));
    std::iota(entries.begin(), entries.end(), index_t{0});
    std::rotate(entries.begin(), entries.end() - (shifts[k] % n + n) % n, entries.end());
    y = selected("roll", y, a, entries);
  }
  return y;
}

inline StridedView flipped_view(const Shape& shape, const std::vector<index_t>& axes) {
  std::vector<Index> indices;
  for (const bool flips : named_axes("flip", axes, shape))
    indices.push_back(flips ? Index(range(slice_end, slice_end, -1)) : Index(all));
  return indexed_view(shape, indices);
}

// Diagonal k of two axes, as the last dimension; `op` names the caller in errors.
EIGENFORMER_NOINLINE inline StridedView diagonal_view(const char* op, const Shape& shape, index_t k,
                                                      index_t axis1, index_t axis2) {
  const index_t a = axis_of(op, axis1, shape), b = axis_of(op, axis2, shape);
  if (a == b) throw ValueError(op, {"axis ", axis1, " is named twice, expected two axes"});
  const StridedView whole = whole_view(shape);
  const index_t sa = whole.strides[static_cast<std::size_t>(a)],
                sb = whole.strides[static_cast<std::size_t>(b)];
  StridedView view;
  std::vector<index_t> sizes;
  for (index_t i = 0; i < shape.rank(); ++i) {
    if (i == a || i == b) continue;
    view.strides[sizes.size()] = whole.strides[static_cast<std::size_t>(i)];
    sizes.push_back(shape[i]);
  }
  const index_t n = std::min(shape[a] + std::min<index_t>(k, 0), shape[b] - std::max<index_t>(k, 0));
  view.strides[sizes.size()] = sa + sb;
  sizes.push_back(std::max<index_t>(0, n));
  if (n > 0) view.offset = k >= 0 ? k * sb : -k * sa;
  view.shape = Shape(sizes);
  return view;
}

// The elements of each matrix of the last two dimensions on and below (or on and above) diagonal k.
template <class T>
Var<T> triangle(const char* op, const Var<T>& x, index_t k, bool lower) {
  const OpScope scope = scope_of(op, x);
  if (x.rank() < 2) {
    throw ShapeError(op, {"input of shape ", x.shape(), " must be of rank 2 or more"}, {x.shape()});
  }
  const index_t rows = x.dim(-2), n = x.dim(-1);
  k = std::clamp(k, -rows, n);  // beyond, there are no further diagonals
  // to = beta * to + from inside the triangle, beta * to outside.
  const auto fill = [=](const T* from, T* to, index_t all_rows, T beta) {
    parallel_each(all_rows, (1 << 15) / std::max<index_t>(1, n), [&](index_t r) {
      // The first element above diagonal k, and the first on it.
      const index_t i = r % rows, edge = std::clamp<index_t>(lower ? i + k + 1 : i + k, 0, n);
      const index_t first = lower ? 0 : edge, last = lower ? edge : n;
      T* row = to + r * n;
      if (beta == T(0)) {
        std::fill_n(row, first, T(0));
        std::copy_n(from + r * n + first, last - first, row + first);
        std::fill_n(row + last, n - last, T(0));
      } else {
        for (index_t j = first; j < last; ++j) row[j] += from[r * n + j];
      }
    });
  };
  Tensor<T> y(x.shape());
  fill(x.value().data(), y.data(), x.shape().rows(), T(0));
  if (not_recorded(y, x)) return y;
  // dx = dy in the triangle, 0 outside.
  return record_one(op, std::move(y), x, SavedTensors(), [fill](const auto& dx, const Tensor<T>& dy) {
    fill(dy.data(), dx.data, dx.shape.rows(), dx.beta);
  });
}

// The entry of a dimension of n that reflect or edge padding repeats at position i, which may be outside.
inline index_t padded_entry(index_t i, index_t n, PadMode mode) {
  if (mode == PadMode::edge) return std::clamp<index_t>(i, 0, n - 1);
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

template <class T>
Var<T> padded(const Var<T>& x, const std::vector<std::pair<index_t, index_t>>& widths, PadMode mode,
              T value) {
  require_defined("pad", x);
  const index_t first = x.rank() - static_cast<index_t>(widths.size());
  if (first < 0) {
    throw ShapeError("pad",
                     {widths.size(), " pairs of widths for shape ", x.shape(),
                      ", expected at most one for each dimension"},
                     {x.shape()});
  }
  Shape shape = x.shape();
  for (std::size_t k = 0; k < widths.size(); ++k) {
    const auto [before, after] = widths[k];
    const index_t a = first + static_cast<index_t>(k), n = x.dim(a), widest = std::max(before, after);
    const bool fits =
        mode == PadMode::constant || widest == 0 || (mode == PadMode::edge ? n > 0 : widest < n);
    if (before < 0 || after < 0 || !fits) {
      throw ValueError("pad", {"widths ", before, " and ", after, " of axis ", a, " of shape ", x.shape(),
                               " must not be negative, nor reach beyond its elements when they reflect"});
    }
    shape = shape.with(a, n + before + after);
  }
  if (mode == PadMode::constant) {
    StridedView view = whole_view(shape);
    view.shape = x.shape();
    for (std::size_t k = 0; k < widths.size(); ++k) {
      view.offset += widths[k].first * view.strides[static_cast<std::size_t>(first) + k];
    }
    return placed("pad", x, view, shape, value);
  }
  Var<T> y = x;
  for (std::size_t k = 0; k < widths.size(); ++k) {
    if (widths[k].first == 0 && widths[k].second == 0) continue;
    const index_t a = first + static_cast<index_t>(k), n = x.dim(a);
    std::vector<index_t> entries;
    for (index_t i = -widths[k].first; i < n + widths[k].second; ++i)
      entries.push_back(padded_entry(i, n, mode));
    y = selected("pad", y, a, entries);
  }
  return y;
}

}  // namespace detail

/// Each entry of an axis `count` times in a row, as NumPy's repeat and PyTorch's repeat_interleave; tile() is
/// PyTorch's repeat. Throws IndexError for an axis outside the rank, ValueError for a negative count.
template <Operand X>
[[nodiscard]] Var<element_t<X>> repeat(const X& x, index_t count, index_t axis) {
  return detail::repeated<element_t<X>>(x, {count}, axis);
}
/// The same with a count for each entry. Throws ShapeError unless there are as many.
template <Operand X>
[[nodiscard]] Var<element_t<X>> repeat(const X& x, const std::vector<index_t>& counts, index_t axis) {
  return detail::repeated<element_t<X>>(x, counts, axis);
}

/// The whole tensor counts[i] times along dimension i, as NumPy's tile: with fewer counts than dimensions for
/// the last ones, with more for new ones in front. Throws ValueError for a negative count.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tile(const X& x, const std::vector<index_t>& counts) {
  return detail::tiled<element_t<X>>(x, counts);
}

/// The elements in reverse order along the given axes, none of which means all. Throws IndexError for an axis
/// outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> flip(const X& x, const std::vector<index_t>& axes = {}) {
  const Var<element_t<X>>& v = x;
  return detail::viewed("flip", v, detail::flipped_view(v.shape(), axes));
}

/// The elements moved by shifts[i] along axes[i]; those that leave at one end enter at the other. Throws
/// IndexError for an axis outside the rank, ValueError unless there are as many axes as shifts.
template <Operand X>
[[nodiscard]] Var<element_t<X>> roll(const X& x, const std::vector<index_t>& shifts,
                                     const std::vector<index_t>& axes) {
  return detail::rolled<element_t<X>>(x, shifts, axes);
}
/// The same for one axis.
template <Operand X>
[[nodiscard]] Var<element_t<X>> roll(const X& x, index_t shift, index_t axis) {
  return roll(x, std::vector<index_t>{shift}, std::vector<index_t>{axis});
}

/// More entries before and after those of the last dimensions: `widths` has a pair (before, after) for each
/// of them, in their order, as NumPy's pad. Throws ShapeError for more pairs than dimensions, ValueError for
/// a negative width, and in reflect mode for one that is not smaller than the dimension.
template <Operand X>
[[nodiscard]] Var<element_t<X>> pad(const X& x, const std::vector<std::pair<index_t, index_t>>& widths,
                                    PadMode mode = PadMode::constant, double value = 0) {
  return detail::padded<element_t<X>>(x, widths, mode, static_cast<element_t<X>>(value));
}

/// Diagonal k of each matrix of two dimensions, as the last dimension of the result; k > 0 is above the main
/// one. Throws IndexError for an axis outside the rank, ValueError for one named twice.
template <Operand X>
[[nodiscard]] Var<element_t<X>> diagonal(const X& x, index_t k = 0, index_t axis1 = 0, index_t axis2 = 1) {
  const Var<element_t<X>>& v = x;
  return detail::viewed("diagonal", v, detail::diagonal_view("diagonal", v.shape(), k, axis1, axis2));
}

/// Of a vector a square matrix with it on diagonal k and zeros elsewhere; of a matrix its diagonal k. Throws
/// ShapeError for another rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> diag(const X& x, index_t k = 0) {
  using T = element_t<X>;
  const Var<T>& v = x;
  if (v.rank() < 1 || v.rank() > 2) {
    throw ShapeError("diag", {"input of shape ", v.shape(), " must have rank 1 or 2"}, {v.shape()});
  }
  if (v.rank() == 2) return detail::viewed("diag", v, detail::diagonal_view("diag", v.shape(), k, 0, 1));
  const index_t n = v.numel() + (k < 0 ? -k : k);
  const Shape shape{n, n};
  return detail::placed("diag", v, detail::diagonal_view("diag", shape, k, 0, 1), shape, T(0));
}

/// Each matrix of the last two dimensions on and below diagonal k, zeros above it. Throws ShapeError for a
/// rank below 2.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tril(const X& x, index_t k = 0) {
  return detail::triangle<element_t<X>>("tril", x, k, true);
}
/// Each matrix of the last two dimensions on and above diagonal k, zeros below it. Throws ShapeError for a
/// rank below 2.
template <Operand X>
[[nodiscard]] Var<element_t<X>> triu(const X& x, index_t k = 0) {
  return detail::triangle<element_t<X>>("triu", x, k, false);
}

}  // namespace eigenformer
