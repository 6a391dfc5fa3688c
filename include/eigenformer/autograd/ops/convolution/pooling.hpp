#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "eigenformer/autograd/ops/convolution/window.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

namespace detail {

/// Options of max_pool2d() and max_pool1d(), with PyTorch's defaults; of a signal only the widths count.
struct MaxPoolOp {
  SizePair stride = 0;     ///< elements between windows; 0: the kernel's size
  SizePair padding = 0;    ///< elements of -infinity around the image, at most half the kernel
  SizePair dilation = 1;   ///< elements between entries of the kernel
  bool ceil_mode = false;  ///< also windows that are partly behind the end
};

/// Options of avg_pool2d() and avg_pool1d(), with PyTorch's defaults; of a signal only the widths count.
struct AvgPoolOp {
  SizePair stride = 0;            ///< elements between windows; 0: the kernel's size
  SizePair padding = 0;           ///< zeros around the image, at most half the kernel
  bool ceil_mode = false;         ///< also windows that are partly behind the end
  bool count_include_pad = true;  ///< whether the padding counts in the mean
};

EIGENFORMER_NOINLINE inline WindowGrid pooling_grid(const char* op, const Shape& x, index_t spatial,
                                                    const SizePair& kernel, const SizePair& stride,
                                                    const SizePair& padding, const SizePair& dilation,
                                                    bool ceil_mode) {
  require_image(op, x, spatial);
  const bool touching = stride.h == 0 && stride.w == 0;
  WindowGrid g{{spatial == 1 ? 1 : x[-2], x[-1]}, kernel, touching ? kernel : stride, padding, dilation};
  if (spatial == 1) g = of_signal(g);
  check_window(op, g);
  for (const auto& [k, p, d] : {std::array<index_t, 3>{g.kernel.h, g.padding.h, g.dilation.h},
                                std::array<index_t, 3>{g.kernel.w, g.padding.w, g.dilation.w}}) {
    const index_t most = (d * (k - 1) + 1) / 2;
    if (p <= most) continue;
    throw ValueError(op, {"padding is ", p, ", must be at most half the kernel, ", most});
  }
  return with_windows(op, g, ceil_mode);
}

inline Shape pooled_shape(const Shape& x, index_t spatial, const WindowGrid& g) {
  const Shape y = x.with(-1, g.out.w);
  return spatial == 1 ? y : y.with(-2, g.out.h);
}

/// The elements [h0, h1) x [w0, w1) of a plane that a window covers, beginning with entries of the kernel.
struct PoolingWindow {
  index_t h0, h1, w0, w1;
  index_t padded;  ///< the elements with those of the padding
};

// Calls use(plane, number of the window in its plane, window); the planes in parallel.
template <class F>
EIGENFORMER_ALWAYS_INLINE void for_each_window(const WindowGrid& g, index_t planes, const F& use) {
  const auto first = [](index_t begin, index_t step) {
    return begin >= 0 ? begin : begin + (-begin + step - 1) / step * step;
  };
  const index_t grain = (1 << 14) / std::max<index_t>(1, g.out_plane() * g.entries());
  parallel_each(planes, grain, [&](index_t plane) {
    for (index_t oh = 0; oh < g.out.h; ++oh) {
      const index_t h = oh * g.stride.h - g.padding.h, h_end = h + g.dilation.h * (g.kernel.h - 1) + 1;
      PoolingWindow window{first(h, g.dilation.h), std::min(h_end, g.in.h), 0, 0, 0};
      const index_t rows = std::min(h_end, g.in.h + g.padding.h) - h;
      for (index_t ow = 0; ow < g.out.w; ++ow) {
        const index_t w = ow * g.stride.w - g.padding.w, w_end = w + g.dilation.w * (g.kernel.w - 1) + 1;
        window.w0 = first(w, g.dilation.w);
        window.w1 = std::min(w_end, g.in.w);
        window.padded = rows * (std::min(w_end, g.in.w + g.padding.w) - w);
        use(plane, oh * g.out.w + ow, window);
      }
    }
  });
}

template <class T>
Var<T> max_pool(const char* op, const Var<T>& x, index_t spatial, const SizePair& kernel,
                const MaxPoolOp& o) {
  const OpScope scope = scope_of(op, x);
  const WindowGrid g =
      pooling_grid(op, x.shape(), spatial, kernel, o.stride, o.padding, o.dilation, o.ceil_mode);
  if (g.in_plane() > std::numeric_limits<std::int32_t>::max()) {
    throw ShapeError(op, {"input of shape ", x.shape(), " must have less than 2^31 elements per plane"},
                     {x.shape()});
  }
  Tensor<T> y(pooled_shape(x.shape(), spatial, g));
  const index_t planes = y.numel() / g.out_plane();
  // Where each largest element was, for the backward.
  Tensor<std::int32_t> places(x.recorded() ? y.shape() : Shape{0});
  std::int32_t* place = x.recorded() ? places.data() : nullptr;
  for_each_window(
      g, planes,
      [&, from = x.value().data(), to = y.data()](index_t plane, index_t i, const PoolingWindow& window) {
        const T* image = from + plane * g.in_plane();
        T largest = -std::numeric_limits<T>::infinity();
        index_t at = -1;
        for (index_t h = window.h0; h < window.h1; h += g.dilation.h) {
          for (index_t w = window.w0; w < window.w1; w += g.dilation.w) {
            const T v = image[h * g.in.w + w];
            if (!(v > largest) && at >= 0 && !std::isnan(v)) continue;
            largest = v;
            at = h * g.in.w + w;
          }
        }
        to[plane * g.out_plane() + i] = largest;
        if (place != nullptr) place[plane * g.out_plane() + i] = static_cast<std::int32_t>(at);
      });
  if (not_recorded(y, x)) return y;
  // dx = the sum of dy over the windows whose largest element it is: the first of equal ones, the last NaN.
  return record_one(op, std::move(y), x, SavedTensors(),
                    [g, planes, places](const auto& dx, const Tensor<T>& dy) {
                      const index_t grain = (1 << 15) / std::max<index_t>(1, g.in_plane());
                      parallel_each(planes, grain, [&](index_t plane) {
                        T* to = dx.data + plane * g.in_plane();
                        if (dx.beta == T(0)) std::fill_n(to, g.in_plane(), T(0));
                        for (index_t i = plane * g.out_plane(); i < (plane + 1) * g.out_plane(); ++i) {
                          if (places.data()[i] >= 0) to[places.data()[i]] += dy.data()[i];
                        }
                      });
                    });
}

template <class T>
Var<T> avg_pool(const char* op, const Var<T>& x, index_t spatial, const SizePair& kernel,
                const AvgPoolOp& o) {
  const OpScope scope = scope_of(op, x);
  const WindowGrid g = pooling_grid(op, x.shape(), spatial, kernel, o.stride, o.padding, 1, o.ceil_mode);
  Tensor<T> y(pooled_shape(x.shape(), spatial, g));
  const index_t planes = y.numel() / g.out_plane();
  const auto factor = [pad = o.count_include_pad](const PoolingWindow& window) {
    const index_t n = pad ? window.padded : (window.h1 - window.h0) * (window.w1 - window.w0);
    return T(1) / static_cast<T>(n);
  };
  for_each_window(
      g, planes,
      [&, from = x.value().data(), to = y.data()](index_t plane, index_t i, const PoolingWindow& window) {
        T sum = T(0);
        for (index_t h = window.h0; h < window.h1; ++h) {
          const T* row = from + plane * g.in_plane() + h * g.in.w;
          for (index_t w = window.w0; w < window.w1; ++w) sum += row[w];
        }
        const bool empty = window.h0 >= window.h1 || window.w0 >= window.w1;
        to[plane * g.out_plane() + i] = empty ? T(0) : sum * factor(window);
      });
  if (not_recorded(y, x)) return y;
  // dx = the sum of dy / (elements of the window) over the windows that an element is in.
  return record_one(op, std::move(y), x, SavedTensors(),
                    [g, planes, factor](const auto& dx, const Tensor<T>& dy) {
                      dx.start_sum();
                      for_each_window(g, planes, [&](index_t plane, index_t i, const PoolingWindow& window) {
                        const T share = dy.data()[plane * g.out_plane() + i] * factor(window);
                        for (index_t h = window.h0; h < window.h1; ++h) {
                          T* row = dx.data + plane * g.in_plane() + h * g.in.w;
                          for (index_t w = window.w0; w < window.w1; ++w) row[w] += share;
                        }
                      });
                    });
}

}  // namespace detail

/// The largest element of each window; NaN if one is NaN. The first of equal elements has the gradient.
///
/// x: (N, C, H, W) or (C, H, W). Returns (N, C, H', W') with H' = (H + 2 padding - dilation (kernel - 1) - 1)
/// / stride + 1. Throws ShapeError when the kernel does not fit, ValueError for options that no kernel has.
template <Operand X>
[[nodiscard]] Var<element_t<X>> max_pool2d(const X& x, const detail::SizePair& kernel_size,
                                           const detail::MaxPoolOp& options = {}) {
  return detail::max_pool<element_t<X>>("max_pool2d", x, 2, kernel_size, options);
}

/// max_pool2d() of signals. x: (N, C, L) or (C, L). Returns (N, C, L').
template <Operand X>
[[nodiscard]] Var<element_t<X>> max_pool1d(const X& x, index_t kernel_size,
                                           const detail::MaxPoolOp& options = {}) {
  return detail::max_pool<element_t<X>>("max_pool1d", x, 1, kernel_size, options);
}

/// The mean of each window. x: (N, C, H, W) or (C, H, W). Returns (N, C, H', W') with H' = (H + 2 padding -
/// kernel) / stride + 1. Errors as for max_pool2d().
template <Operand X>
[[nodiscard]] Var<element_t<X>> avg_pool2d(const X& x, const detail::SizePair& kernel_size,
                                           const detail::AvgPoolOp& options = {}) {
  return detail::avg_pool<element_t<X>>("avg_pool2d", x, 2, kernel_size, options);
}

/// avg_pool2d() of signals. x: (N, C, L) or (C, L). Returns (N, C, L').
template <Operand X>
[[nodiscard]] Var<element_t<X>> avg_pool1d(const X& x, index_t kernel_size,
                                           const detail::AvgPoolOp& options = {}) {
  return detail::avg_pool<element_t<X>>("avg_pool1d", x, 1, kernel_size, options);
}

}  // namespace eigenformer
