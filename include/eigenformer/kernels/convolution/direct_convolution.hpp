#pragma once

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// Sizes and options of a convolution along one axis.
struct ConvolutionAxis {
  index_t in = 1;        ///< size of the input
  index_t kernel = 1;    ///< entries of the kernel
  index_t stride = 1;    ///< elements between windows
  index_t padding = 0;   ///< zeros at each end
  index_t dilation = 1;  ///< elements between entries of the kernel
  index_t out = 1;       ///< size of the output: the number of windows
};

/// A convolution of images (groups * in, h.in, w.in) to (groups * out, h.out, w.out) by kernels
/// (groups * out, in, h.kernel, w.kernel).
struct DirectConvolution {
  index_t images = 1;  ///< number of images
  index_t groups = 1;  ///< groups of channels
  index_t in = 1;      ///< input channels of one group
  index_t out = 1;     ///< output channels of one group
  ConvolutionAxis h;   ///< along the height
  ConvolutionAxis w;   ///< along the width
};

/// Whether the loops below, which read each window where it is, are meant for a convolution: groups of so few
/// channels that a product of packed windows would be mostly packing, and windows that do not reach far.
inline bool convolution_is_direct(const DirectConvolution& c) noexcept {
  if (c.in * c.out > 4) return false;
  const auto reach = [](const ConvolutionAxis& a) {
    return static_cast<double>(a.dilation) * static_cast<double>(a.kernel - 1) +
           static_cast<double>(a.stride);
  };
  return static_cast<double>(c.in + c.out) * reach(c.h) * (reach(c.w) + 64) < 1 << 16;
}

/// y = the windows of x times w, + bias (groups * out) or, where that is null, + beta y. The element of y is
/// one sum in the order of w, whatever the number of threads.
template <class T>
void direct_convolution(const DirectConvolution& c, const T* x, const T* w, const T* bias, T* y, T beta);

/// x = what y passes to the elements in its windows by w, + bias (groups * in) or, where that is null,
/// + beta x: the gradient of direct_convolution() for x, and the transposed convolution.
template <class T>
void direct_convolution_transposed(const DirectConvolution& c, const T* y, const T* w, const T* bias, T* x,
                                   T beta);

/// dw = beta dw + the sums over images and windows of dy times the windows of x.
template <class T>
void direct_convolution_weight_gradient(const DirectConvolution& c, const T* x, const T* dy, T* dw, T beta);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <utility>
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/runtime/scratch.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

// A tile of the result needs a patch of the input. It is copied with zeros for the padding, so that no loop
// checks for borders, and with the columns of one remainder modulo the stride together, so that neighbouring
// windows have neighbouring elements. Then each entry of the kernel (a tap) is a multiple of a shifted patch.

namespace eigenformer::detail::kernels {
namespace detail {

/// Part of a plane with zeros beside it: element (r, p * length + i) is that of row `top` + r and column
/// `left` + i * phases + p of the plane.
struct Patch {
  index_t top, left, rows, phases, length;

  index_t row() const noexcept { return phases * length; }
  index_t size() const noexcept { return rows * row(); }
};

/// Copies a patch of a plane. Only whole vectors are written: what one writes too much is written again by
/// the next, and after the last one there are patch_slack elements.
template <class T>
struct FillPatch {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* plane, index_t height, index_t width, Patch p, T* to) {
    const T* const end = plane + height * width;
    for (index_t r = 0; r < p.rows; ++r) {
      T* const row = to + r * p.row();
      if (p.top + r < 0 || p.top + r >= height || width == 0) {
        zero<Bytes>(row, p.row());
        continue;
      }
      const T* const from = plane + (p.top + r) * width;
      if (p.phases == 2) {
        pairs<Bytes>(from, width, end, p, row);
        continue;
      }
      for (index_t phase = 0; phase < p.phases; ++phase) {
        T* const part = row + phase * p.length;
        const index_t left = p.left + phase, first = at_least(-left, p), last = at_least(width - left, p);
        zero<Bytes>(part, first);
        if (p.phases == 1) {
          if (first < last) copy<Bytes>(from + left + first, last - first, end, part + first);
        } else {
          for (index_t i = first; i < last; ++i) part[i] = from[left + i * p.phases];
        }
        zero<Bytes>(part + last, p.length - last);
      }
    }
  }

 private:
  /// The least i >= 0 with i * phases >= n, at most length.
  EIGENFORMER_ALWAYS_INLINE static index_t at_least(index_t n, const Patch& p) {
    if (n <= 0) return 0;
    return std::min(p.length, p.phases == 1   ? n
                              : p.phases == 2 ? (n + 1) / 2
                                              : (n + p.phases - 1) / p.phases);
  }

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void zero(T* to, index_t n) {
    using W = Simd<T, Bytes>;
    const typename W::V none{};
    for (index_t i = 0; i < n; i += W::lanes) W::at(to + i).v = none;
  }

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void copy(const T* from, index_t n, const T* end, T* to) {
    using W = Simd<T, Bytes>;
    for (index_t i = 0; i < n; i += W::lanes) {
      typename W::V v;
      W::load(v, from + i, end - from - i);
      W::at(to + i).v = v;
    }
  }

  /// A row in two phases, which are written together, so that only the second may write too much.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void pairs(const T* from, index_t width, const T* end, const Patch& p,
                                              T* row) {
    using W = Simd<T, Bytes>;
    T* const odd = row + p.length;
    const index_t first = at_least(-p.left, p), last = std::max(first, at_least(width - p.left - 1, p));
    zero<Bytes>(row, first);
    zero<Bytes>(odd, first);
    W::each(last - first, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
      const T* const at = from + p.left + 2 * (first + i);
      typename W::V a, b, c, d;
      W::load(a, at, end - at);
      W::load(b, std::min(at + W::lanes, end), std::max<index_t>(0, end - at - W::lanes));
      deinterleave<W>(a, b, c, d, std::make_integer_sequence<int, static_cast<int>(W::lanes)>());
      W::store(row + first + i, count, c);
      W::store(odd + first + i, count, d);
    });
    const typename W::V none{};
    W::each(p.length - last,
            [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA { W::store(row + last + i, count, none); });
    zero<Bytes>(odd + last, p.length - last);
    // The image's first and last column, where their neighbours in the pair are padding.
    if (first > 0 && p.left + 2 * first == 1) odd[first - 1] = from[0];
    if (last < p.length && p.left + 2 * last == width - 1) row[last] = from[width - 1];
  }

  /// even, odd = the elements of a and b with even and odd numbers.
  template <class W, int... L>
  EIGENFORMER_ALWAYS_INLINE static void deinterleave(const typename W::V& a, const typename W::V& b,
                                                     typename W::V& even, typename W::V& odd,
                                                     std::integer_sequence<int, L...>) {
#if defined(__clang__)
    even = __builtin_shufflevector(a, b, (2 * L)...);
    odd = __builtin_shufflevector(a, b, (2 * L + 1)...);
#else
    even = __builtin_shuffle(a, b, typename W::I{(2 * L)...});
    odd = __builtin_shuffle(a, b, typename W::I{(2 * L + 1)...});
#endif
  }
};

/// out = bias + the sum over taps of w[t] times the patch from offset[t], + beta out: `rows` rows of `width`
/// elements, `step` apart in the patch. A vector's lanes beyond `width` are read and not used.
template <class T>
struct SumTaps {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* patch, index_t step, const index_t* offset, const T* w,
                                            index_t taps, index_t rows, index_t width, T bias, T beta, T* out,
                                            index_t out_step) {
    using W = Simd<T, Bytes>;
    constexpr int together = 4;
    const T* from[together] = {};
    T* to[together] = {};
    index_t count[together] = {};
    index_t row = 0, column = 0;
    // Of rows that follow one another, the next writes again what a vector wrote too much.
    const bool joined = beta == T(0) && out_step == width;
    const T* const end = out + rows * width;
    while (row < rows) {
      // The next vectors; at the end the last one again, not stored.
      int n = 0;
      for (int i = 0; i < together; ++i) {
        if (row < rows) {
          from[i] = patch + row * step + column;
          to[i] = out + row * out_step + column;
          count[i] = joined ? end - to[i] : width - column;
          n = i + 1;
          column += W::lanes;
          if (column >= width) {
            column = 0;
            ++row;
          }
        } else {
          from[i] = from[0];
        }
      }
      typename W::V sum[together], start;
      W::set(start, bias);
      for (auto& s : sum) s = start;
      for (index_t t = 0; t < taps; ++t) {
        const index_t shift = offset[t];
        typename W::V weight;
        W::set(weight, w[t]);
        for (int i = 0; i < together; ++i) sum[i] += weight * W::at(from[i] + shift).v;
      }
      for (int i = 0; i < together; ++i) {
        if (i >= n) break;
        W::store_sum(to[i], count[i], sum[i], beta);
      }
    }
  }
};

/// Vector t of `sums` += the products of dy and the patch from offset[t], over rows and columns; the elements
/// of dy's plane end at dy_end.
template <class T>
struct DotTaps {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* patch, index_t step, const index_t* offset, index_t taps,
                                            index_t rows, index_t width, const T* dy, const T* dy_end,
                                            index_t dy_step, T* sums) {
    // Blocks of at most 9 taps and nearly one size: each reads dy once, and its sums are independent.
    const index_t blocks = (taps + most - 1) / most;
    for (index_t i = 0; i < blocks; ++i) {
      const index_t t = i * taps / blocks;
      block<Bytes, most>((i + 1) * taps / blocks - t, patch, step, offset + t, rows, width, dy, dy_end,
                         dy_step, sums + t * Simd<T, Bytes>::lanes);
    }
  }

 private:
  static constexpr int most = 9;

  /// add() for n in 1 .. N taps.
  template <int Bytes, int N, class... Args>
  EIGENFORMER_ALWAYS_INLINE static void block(index_t n, const Args&... args) {
    if (n == N) return add<Bytes, N>(args...);
    if constexpr (N > 1) block<Bytes, N - 1>(n, args...);
  }

  template <int Bytes, int N>
  EIGENFORMER_ALWAYS_INLINE static void add(const T* patch, index_t step, const index_t* offset, index_t rows,
                                            index_t width, const T* dy, const T* dy_end, index_t dy_step,
                                            T* sums) {
    using W = Simd<T, Bytes>;
    using I = typename W::I;
    using V = typename W::V;
    // The lanes of a row's last vector that belong to it: what the others have may be infinite.
    I mask{};
    for (index_t l = 0; l < W::lanes; ++l) mask[l] = l < width % W::lanes ? -1 : 0;
    V sum[N];
    for (int n = 0; n < N; ++n) sum[n] = W::at(sums + n * W::lanes).v;
    for (index_t r = 0; r < rows; ++r) {
      const T* const from = patch + r * step;
      const T* const d = dy + r * dy_step;
      index_t c = 0;
      for (; c + W::lanes <= width; c += W::lanes) {
        const V g = W::at(d + c).v;
        for (int n = 0; n < N; ++n) sum[n] += g * W::at(from + c + offset[n]).v;
      }
      if (c < width) {
        V g;
        W::load(g, d + c, dy_end - d - c);
        g = reinterpret_cast<V>(reinterpret_cast<I>(g) & mask);
        for (int n = 0; n < N; ++n) {
          const V x = W::at(from + c + offset[n]).v;
          sum[n] += g * reinterpret_cast<V>(reinterpret_cast<I>(x) & mask);
        }
      }
    }
    for (int n = 0; n < N; ++n) W::at(sums + n * W::lanes).v = sum[n];
  }
};

/// to[t] = the sum of vector t.
template <class T>
struct FoldSums {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* sums, index_t n, T* to) {
    using W = Simd<T, Bytes>;
    for (index_t t = 0; t < n; ++t) to[t] = W::sum(typename W::V(W::at(sums + t * W::lanes).v));  // aligned
  }
};

/// x = beta x + the values (rows, phases, length) with the phases of a row interleaved.
template <class T>
struct Interleave {
  EIGENFORMER_ALWAYS_INLINE static void run(const T* values, index_t phases, index_t length, index_t rows,
                                            index_t width, T beta, T* x, index_t x_step) {
    for (index_t r = 0; r < rows; ++r) {
      const T* const from = values + r * phases * length;
      T* const to = x + r * x_step;
      index_t i = 0;
      if (phases == 2 && beta == T(0)) {
        for (; 2 * i + 1 < width; ++i) {
          to[2 * i] = from[i];
          to[2 * i + 1] = from[length + i];
        }
      }
      for (index_t at = i * phases; at < width; ++at)
        put(to[at], from[at % phases * length + at / phases], beta);
    }
  }
};

using DirectLease = eigenformer::detail::ThreadLease<eigenformer::detail::Scratch, struct DirectUse>;

/// Elements behind a patch that its last vector may read or write.
inline constexpr index_t patch_slack = 16;

/// Tiles of a plane, in rows.
struct Tiles {
  index_t height, width;  // of the plane
  index_t rows, columns;  // of a tile

  /// Tiles whose patches have about `elements` elements, for rows that overlap by `reach`.
  static Tiles of(index_t height, index_t width, index_t row_elements, index_t reach) {
    const index_t columns = std::clamp<index_t>(width, 1, 4096);
    const index_t row = std::max<index_t>(1, row_elements) * columns;
    return {height, width,
            std::clamp<index_t>(16384 / row - reach, std::min<index_t>(height, reach + 1),
                                std::max<index_t>(1, height)),
            columns};
  }
  index_t across() const { return (width + columns - 1) / columns; }
  index_t count() const { return (height + rows - 1) / rows * across(); }
  struct Tile {
    index_t top, left, rows, columns;
  };
  Tile operator[](index_t i) const {
    const index_t top = i / across() * rows, left = i % across() * columns;
    return {top, left, std::min(rows, height - top), std::min(columns, width - left)};
  }
};

/// Calls use(plane, tile, scratch) for all tiles of `planes` planes, in parallel. scratch: room for so many
/// elements. work: operations of one element.
template <class T, class F>
void for_each_direct_tile(index_t planes, const Tiles& tiles, index_t work, index_t scratch, const F& use) {
  const index_t each = tiles.count();
  const index_t grain = simple_grain / std::max<index_t>(1, work * tiles.rows * tiles.columns);
  parallel_for(planes * each, grain, [&](index_t begin, index_t end) {
    DirectLease lease;
    T* const room = lease->template reserve<T>(scratch);
    for (index_t i = begin; i < end; ++i) use(i / each, tiles[i % each], room);
  });
}

/// The patches of windows: their sizes for a tile of windows, and where the taps are in them.
struct WindowPatches {
  Tiles tiles;
  Patch patch;  // of a whole tile
  index_t step;
  std::vector<index_t> offset;  // (in, kernel height, kernel width)

  explicit WindowPatches(const DirectConvolution& c) : patch{} {
    const ConvolutionAxis &h = c.h, &w = c.w;
    const index_t reach = (h.kernel - 1) * h.dilation;
    tiles = Tiles::of(h.out, w.out, c.in * h.stride * w.stride, reach / h.stride);
    patch.rows = (tiles.rows - 1) * h.stride + reach + 1;
    patch.phases = w.stride;
    patch.length = tiles.columns + (w.kernel - 1) * w.dilation / w.stride;
    step = h.stride * patch.row();
    for (index_t i = 0; i < c.in; ++i) {
      for (index_t kh = 0; kh < h.kernel; ++kh) {
        for (index_t kw = 0; kw < w.kernel; ++kw) {
          const index_t at = kw * w.dilation;
          offset.push_back(i * patch.size() + kh * h.dilation * patch.row() + at % w.stride * patch.length +
                           at / w.stride);
        }
      }
    }
  }

  /// The patch of a tile of each input channel, one after the other.
  template <class T>
  void fill(const DirectConvolution& c, const T* x, const Tiles::Tile& tile, T* to) const {
    Patch p = patch;
    p.top = tile.top * c.h.stride - c.h.padding;
    p.left = tile.left * c.w.stride - c.w.padding;
    p.rows -= (tiles.rows - tile.rows) * c.h.stride;
    for (index_t i = 0; i < c.in; ++i)
      dispatch<FillPatch<T>>(x + i * c.h.in * c.w.in, c.h.in, c.w.in, p, to + i * patch.size());
  }
};

/// The elements of an axis whose number is `phase` modulo the stride: how many there are, and which entries
/// of the kernel reach them, from the window that many before.
struct AxisPhase {
  index_t count = 0;
  std::vector<index_t> entry, shift;
};

/// Phases of an axis, and the range of shifts.
struct AxisPhases {
  std::vector<AxisPhase> phases;
  index_t least = 0, most = 0;

  explicit AxisPhases(const ConvolutionAxis& a) : phases(static_cast<std::size_t>(a.stride)) {
    bool any = false;
    for (index_t p = 0; p < a.stride; ++p) {
      AxisPhase& phase = phases[static_cast<std::size_t>(p)];
      phase.count = p < a.in ? (a.in - p + a.stride - 1) / a.stride : 0;
      for (index_t k = 0; k < a.kernel; ++k) {
        const index_t distance = p + a.padding - k * a.dilation;
        if (distance % a.stride != 0) continue;
        const index_t shift = distance / a.stride;
        phase.entry.push_back(k);
        phase.shift.push_back(shift);
        least = any ? std::min(least, shift) : shift;
        most = any ? std::max(most, shift) : shift;
        any = true;
      }
    }
  }
};

/// Adds to the elements of one phase.
template <class T>
struct PhaseTaps {
  std::vector<index_t> offset;  // (out, entries of this phase)
  std::vector<T> w;             // (groups * in, out, entries)
};

template <class T>
PhaseTaps<T> phase_taps(const DirectConvolution& c, const T* w, const AxisPhases& h, const AxisPhases& v,
                        const AxisPhase& ph, const AxisPhase& pv, const Patch& patch) {
  PhaseTaps<T> taps;
  const auto each = [&](const auto& use) {
    for (std::size_t a = 0; a < ph.entry.size(); ++a) {
      for (std::size_t b = 0; b < pv.entry.size(); ++b) use(a, b);
    }
  };
  for (index_t o = 0; o < c.out; ++o) {
    each([&](std::size_t a, std::size_t b) {
      taps.offset.push_back(o * patch.size() + (ph.shift[a] - h.least) * patch.row() + pv.shift[b] - v.least);
    });
  }
  for (index_t i = 0; i < c.groups * c.in; ++i) {
    for (index_t o = 0; o < c.out; ++o) {
      const T* kernel = w + (((i / c.in) * c.out + o) * c.in + i % c.in) * c.h.kernel * c.w.kernel;
      each([&](std::size_t a, std::size_t b) {
        taps.w.push_back(kernel[ph.entry[a] * c.w.kernel + pv.entry[b]]);
      });
    }
  }
  return taps;
}

}  // namespace detail

template <class T>
void direct_convolution(const DirectConvolution& c, const T* x, const T* w, const T* bias, T* y, T beta) {
  const detail::WindowPatches patches(c);
  const index_t taps = static_cast<index_t>(patches.offset.size());
  const index_t in_plane = c.h.in * c.w.in, out_plane = c.h.out * c.w.out;
  const index_t scratch = c.in * patches.patch.size() + detail::patch_slack;
  const auto use = [&](index_t plane, const detail::Tiles::Tile& tile, T* patch) {
    patches.fill(c, x + plane * c.in * in_plane, tile, patch);
    for (index_t o = 0; o < c.out; ++o) {
      const index_t channel = plane % c.groups * c.out + o;
      T* const to = y + (plane * c.out + o) * out_plane + tile.top * c.w.out + tile.left;
      dispatch<detail::SumTaps<T>>(patch, patches.step, patches.offset.data(), w + channel * taps, taps,
                                   tile.rows, tile.columns, bias == nullptr ? T(0) : bias[channel],
                                   bias == nullptr ? beta : T(0), to, c.w.out);
    }
  };
  detail::for_each_direct_tile<T>(c.images * c.groups, patches.tiles, taps * c.out, scratch, use);
}

template <class T>
void direct_convolution_transposed(const DirectConvolution& c, const T* y, const T* w, const T* bias, T* x,
                                   T beta) {
  const detail::AxisPhases h(c.h), v(c.w);
  const auto tiles = detail::Tiles::of(h.phases[0].count, v.phases[0].count, c.out, h.most - h.least);
  const detail::Patch patch{0, 0, tiles.rows + h.most - h.least, 1, tiles.columns + v.most - v.least};
  std::vector<detail::PhaseTaps<T>> taps;
  for (const auto& ph : h.phases) {
    for (const auto& pv : v.phases) taps.push_back(detail::phase_taps(c, w, h, v, ph, pv, patch));
  }
  const index_t in_plane = c.h.in * c.w.in, out_plane = c.h.out * c.w.out;
  const index_t patch_size = c.out * patch.size() + detail::patch_slack;
  const bool whole = c.w.stride == 1;
  // The rows of one phase, from the patch: at once, or first each phase of the columns apart.
  const auto row_phase = [&](index_t a, index_t channel, const detail::Tiles::Tile& tile, index_t rows,
                             const T* from, T* apart, T* to) {
    const T start = bias == nullptr ? T(0) : bias[channel], into = bias == nullptr ? beta : T(0);
    const index_t to_step = c.h.stride * c.w.in;
    for (index_t b = 0; b < c.w.stride; ++b) {
      const auto& some = taps[static_cast<std::size_t>(a * c.w.stride + b)];
      const index_t n = static_cast<index_t>(some.offset.size());
      const index_t columns = std::min(tile.columns, v.phases[static_cast<std::size_t>(b)].count - tile.left);
      if (columns <= 0) continue;
      dispatch<detail::SumTaps<T>>(from, patch.row(), some.offset.data(), some.w.data() + channel * n, n,
                                   rows, columns, start, whole ? into : T(0),
                                   whole ? to : apart + b * tiles.columns,
                                   whole ? to_step : c.w.stride * tiles.columns);
    }
    if (whole) return;
    const index_t width = std::min(tile.columns * c.w.stride, c.w.in - tile.left * c.w.stride);
    dispatch<detail::Interleave<T>>(apart, c.w.stride, tiles.columns, rows, width, into, to, to_step);
  };
  const auto use = [&](index_t plane, const detail::Tiles::Tile& tile, T* from) {
    detail::Patch p = patch;
    p.top = tile.top + h.least;
    p.left = tile.left + v.least;
    p.rows -= tiles.rows - tile.rows;
    for (index_t o = 0; o < c.out; ++o) {
      dispatch<detail::FillPatch<T>>(y + (plane * c.out + o) * out_plane, c.h.out, c.w.out, p,
                                     from + o * patch.size());
    }
    for (index_t i = 0; i < c.in; ++i) {
      T* const to =
          x + (plane * c.in + i) * in_plane + tile.top * c.h.stride * c.w.in + tile.left * c.w.stride;
      for (index_t a = 0; a < c.h.stride; ++a) {
        const index_t rows = std::min(tile.rows, h.phases[static_cast<std::size_t>(a)].count - tile.top);
        if (rows <= 0) continue;
        row_phase(a, plane % c.groups * c.in + i, tile, rows, from, from + patch_size, to + a * c.w.in);
      }
    }
  };
  const index_t work = c.in * c.out * c.h.kernel * c.w.kernel + c.in * c.h.stride * c.w.stride;
  const index_t values = whole ? 0 : tiles.rows * c.w.stride * tiles.columns;
  detail::for_each_direct_tile<T>(c.images * c.groups, tiles, work, patch_size + values, use);
}

template <class T>
void direct_convolution_weight_gradient(const DirectConvolution& c, const T* x, const T* dy, T* dw, T beta) {
  const detail::WindowPatches patches(c);
  const index_t taps = static_cast<index_t>(patches.offset.size());
  const index_t in_plane = c.h.in * c.w.in, out_plane = c.h.out * c.w.out, size = c.groups * c.out * taps;
  // Images are summed in parts, whose number depends on the sizes alone.
  const index_t parts = std::clamp<index_t>(64 / c.groups, 1, std::clamp<index_t>(c.images, 1, 16));
  std::vector<T> sums(static_cast<std::size_t>(parts * size));
  const index_t patch_size = c.in * patches.patch.size() + detail::patch_slack;
  const index_t work = c.images / parts * c.out * taps * out_plane;
  parallel_for(parts * c.groups, simple_grain / std::max<index_t>(1, work), [&](index_t begin, index_t end) {
    detail::DirectLease lease;
    const index_t room = taps * detail::patch_slack;  // for a vector of sums of each tap
    T* const patch = lease->template reserve<T>(patch_size + c.out * room);
    T* const dots = patch + patch_size;
    for (index_t task = begin; task < end; ++task) {
      const index_t part = task / c.groups, group = task % c.groups;
      std::fill_n(dots, c.out * room, T(0));
      for (index_t i = part * c.images / parts; i < (part + 1) * c.images / parts; ++i) {
        const index_t plane = i * c.groups + group;
        for (index_t t = 0; t < patches.tiles.count(); ++t) {
          const auto tile = patches.tiles[t];
          patches.fill(c, x + plane * c.in * in_plane, tile, patch);
          for (index_t o = 0; o < c.out; ++o) {
            const T* const d = dy + (plane * c.out + o) * out_plane;
            dispatch<detail::DotTaps<T>>(patch, patches.step, patches.offset.data(), taps, tile.rows,
                                         tile.columns, d + tile.top * c.w.out + tile.left, d + out_plane,
                                         c.w.out, dots + o * room);
          }
        }
      }
      for (index_t o = 0; o < c.out; ++o) {
        dispatch<detail::FoldSums<T>>(dots + o * room, taps,
                                      sums.data() + part * size + (group * c.out + o) * taps);
      }
    }
  });
  for (index_t i = 0; i < size; ++i) {
    T sum = beta == T(0) ? T(0) : beta * dw[i];
    for (index_t part = 0; part < parts; ++part) sum += sums[static_cast<std::size_t>(part * size + i)];
    dw[i] = sum;
  }
}

EIGENFORMER_KERNEL(direct_convolution)
EIGENFORMER_KERNEL(direct_convolution_transposed)
EIGENFORMER_KERNEL(direct_convolution_weight_gradient)

}  // namespace eigenformer::detail::kernels
#endif
