#pragma once

#include <algorithm>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/shape.hpp"

// Windows that a kernel has on an image, and the columns of their entries.

namespace eigenformer::detail {

/// A number for the height and one for the width of an image: `2` for both, or `{2, 1}`.
struct SizePair {
  index_t h = 0;  ///< along the height
  index_t w = 0;  ///< along the width

  /// One number for both.
  constexpr SizePair(index_t both) noexcept : h(both), w(both) {}
  /// Height first, as in shapes.
  constexpr SizePair(index_t height, index_t width) noexcept : h(height), w(width) {}
};

/// The windows of a kernel on planes of size `in`; there is one for each element of planes of size `out`.
struct WindowGrid {
  SizePair in = 0, kernel = 0, stride = 1, padding = 0, dilation = 1, out = 0;

  index_t in_plane() const noexcept { return in.h * in.w; }
  index_t out_plane() const noexcept { return out.h * out.w; }
  index_t entries() const noexcept { return kernel.h * kernel.w; }
  /// Whether the windows are the elements of the plane.
  bool pointwise() const noexcept {
    return entries() == 1 && stride.h == 1 && stride.w == 1 && padding.h == 0 && padding.w == 0;
  }
};

// The grid of a signal: a plane of height 1, of which only the widths of options count.
inline WindowGrid of_signal(WindowGrid g) {
  g.kernel.h = g.stride.h = g.dilation.h = 1;
  g.padding.h = 0;
  return g;
}

// Throws ValueError for a number outside [least, 2^31): products of two numbers inside do not overflow.
EIGENFORMER_NOINLINE inline void require_at_least(const char* op, const char* name, index_t least,
                                                  const SizePair& pair) {
  for (const index_t n : {pair.h, pair.w}) {
    if (n >= least && n < index_t(1) << 31) continue;
    throw ValueError(op, {name, " is ", n, ", must be in [", least, ", 2^31)"});
  }
}

// Throws ValueError for kernel size, stride, padding and dilation that no kernel has.
EIGENFORMER_NOINLINE inline void check_window(const char* op, const WindowGrid& g) {
  require_at_least(op, "input size", 0, g.in);
  require_at_least(op, "kernel size", 1, g.kernel);
  require_at_least(op, "stride", 1, g.stride);
  require_at_least(op, "padding", 0, g.padding);
  require_at_least(op, "dilation", 1, g.dilation);
}

// The number of windows along one dimension; with ceil_mode also one that is partly outside of the padded
// input, if it begins before the padding at the end, as in PyTorch.
EIGENFORMER_NOINLINE inline index_t windows_along(const char* op, index_t in, index_t kernel, index_t stride,
                                                  index_t padding, index_t dilation, bool ceil_mode) {
  const index_t extent = dilation * (kernel - 1) + 1, room = in + 2 * padding;
  if (extent > room) {
    throw ShapeError(op, {"kernel of ", kernel, " entries covers ", extent,
                          ", must be at most the input's size with padding, ", room});
  }
  const index_t n = (room - extent) / stride + 1;
  return ceil_mode && (room - extent) % stride != 0 && n * stride < in + padding ? n + 1 : n;
}

// Sets `out`. Throws ValueError for numbers that no kernel has, ShapeError for a kernel that does not fit.
EIGENFORMER_NOINLINE inline WindowGrid with_windows(const char* op, WindowGrid g, bool ceil_mode = false) {
  check_window(op, g);
  g.out.h = windows_along(op, g.in.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h, ceil_mode);
  g.out.w = windows_along(op, g.in.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w, ceil_mode);
  return g;
}

// Throws ShapeError for an input that is not (N, channels, spatial...) or the same without N.
EIGENFORMER_NOINLINE inline void require_image(const char* op, const Shape& x, index_t spatial) {
  if (x.rank() == spatial + 1 || x.rank() == spatial + 2) return;
  const char* expected = spatial == 1 ? "(N, C, L) or (C, L)" : "(N, C, H, W) or (C, H, W)";
  throw ShapeError(op, {"input of shape ", x.str(), " must be ", expected}, {x});
}

// Windows of consecutive elements of an output plane: full rows [h0, h1), or a part [w0, w1) of one row.
struct WindowTile {
  index_t h0, h1, w0, w1;
  index_t first, count;  // the elements
};

// Calls use(tile) for tiles of at most about `limit` windows.
template <class F>
void for_each_tile(const WindowGrid& g, index_t limit, const F& use) {
  const index_t rows = std::max<index_t>(1, limit / std::max<index_t>(1, g.out.w));
  const index_t cols = std::max<index_t>(1, std::min(limit, g.out.w));
  for (index_t h = 0; h < g.out.h; h += rows) {
    for (index_t w = 0; w < g.out.w; w += cols) {
      WindowTile t{h, std::min(g.out.h, h + rows), w, std::min(g.out.w, w + cols), h * g.out.w + w, 0};
      t.count = (t.h1 - t.h0) * (t.w1 - t.w0);
      use(t);
    }
  }
}

// Calls use(entry, at, row, lo, hi, shift) for each entry of the kernel and each row of the tile: that entry
// of the tile's windows [lo, hi) of this row is input element row + window * stride + shift, the first of
// the tile's windows in this row is number `at` of the tile, and the windows beside [lo, hi) have the entry
// in the padding; row is -1 if all have.
template <class F>
EIGENFORMER_ALWAYS_INLINE void for_each_run(const WindowGrid& g, const WindowTile& t, const F& use) {
  const auto first_from = [&](index_t n) { return n <= 0 ? 0 : (n + g.stride.w - 1) / g.stride.w; };
  for (index_t kh = 0; kh < g.kernel.h; ++kh) {
    for (index_t kw = 0; kw < g.kernel.w; ++kw) {
      const index_t shift = kw * g.dilation.w - g.padding.w;
      const index_t lo = std::clamp(first_from(-shift), t.w0, t.w1);
      const index_t hi = std::clamp(first_from(g.in.w - shift), lo, t.w1);
      for (index_t oh = t.h0; oh < t.h1; ++oh) {
        const index_t ih = oh * g.stride.h - g.padding.h + kh * g.dilation.h;
        const bool inside = ih >= 0 && ih < g.in.h && lo < hi;
        use(kh * g.kernel.w + kw, (oh - t.h0) * (t.w1 - t.w0), inside ? ih * g.in.w : -1, lo, hi, shift);
      }
    }
  }
}

// columns (channels * entries, ld) = the entries of the tile's windows on the planes of x, 0 in the padding.
template <class T>
EIGENFORMER_NOINLINE void pack_columns(const WindowGrid& g, const WindowTile& t, const T* x, index_t channels,
                                       T* columns, index_t ld) {
  const index_t each = g.entries() * t.count;
  parallel_each(channels, (1 << 15) / each, [&](index_t c) {
    const T* plane = x + c * g.in_plane();
    T* block = columns + c * g.entries() * ld;
    for_each_run(g, t, [&](index_t entry, index_t at, index_t row, index_t lo, index_t hi, index_t shift) {
      T* to = block + entry * ld + at - t.w0;
      if (row < 0) return void(std::fill(to + t.w0, to + t.w1, T(0)));
      const T* from = plane + row + shift;
      for (index_t w = t.w0; w < lo; ++w) to[w] = T(0);
      if (g.stride.w == 1) {
        for (index_t w = lo; w < hi; ++w) to[w] = from[w];
      } else {
        for (index_t w = lo; w < hi; ++w) to[w] = from[w * g.stride.w];
      }
      for (index_t w = hi; w < t.w1; ++w) to[w] = T(0);
    });
  });
}

// Adds each element of columns to the element of x that pack_columns() reads for it.
template <class T>
EIGENFORMER_NOINLINE void add_columns(const WindowGrid& g, const WindowTile& t, const T* columns, index_t ld,
                                      T* x, index_t channels) {
  const index_t each = g.entries() * t.count;
  parallel_each(channels, (1 << 15) / each, [&](index_t c) {
    T* plane = x + c * g.in_plane();
    const T* block = columns + c * g.entries() * ld;
    for_each_run(g, t, [&](index_t entry, index_t at, index_t row, index_t lo, index_t hi, index_t shift) {
      if (row < 0) return;
      const T* from = block + entry * ld + at - t.w0;
      T* to = plane + row + shift;
      if (g.stride.w == 1) {
        for (index_t w = lo; w < hi; ++w) to[w] += from[w];
      } else {
        for (index_t w = lo; w < hi; ++w) to[w * g.stride.w] += from[w];
      }
    });
  });
}

// Calls use(i) for i in 0 .. tasks-1: on several threads if there are enough tasks for all of them, otherwise
// one after the other, so that the loops inside are parallel. work: operations of one task.
template <class F>
void for_each_task(index_t tasks, index_t work, const F& use) {
  auto range = [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) use(i);
  };
  const index_t grain = (1 << 16) / std::max<index_t>(1, work);
  if (tasks >= Runtime::instance().threads()) {
    parallel_for(tasks, grain, range);
  } else {
    range(0, tasks);
  }
}

}  // namespace eigenformer::detail
