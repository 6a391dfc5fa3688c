#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "eigenformer/autograd/ops/convolution/window.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/runtime/scratch.hpp"
#include "eigenformer/kernels/convolution/direct_convolution.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

/// Options of conv2d() and conv1d(), with PyTorch's defaults; of a signal only the widths count.
struct ConvOp {
  SizePair stride = 1;    ///< elements between windows
  SizePair padding = 0;   ///< zeros around the image, or at each end of a signal
  SizePair dilation = 1;  ///< elements between entries of the kernel
  index_t groups = 1;     ///< parts of the channels, each with its own kernels
};

/// Options of conv_transpose2d() and conv_transpose1d(); of a signal only the widths count.
struct ConvTransposeOp {
  SizePair stride = 1;          ///< elements of the result between windows
  SizePair padding = 0;         ///< elements removed around the result
  SizePair output_padding = 0;  ///< elements added at the end of the result, fewer than stride or dilation
  index_t groups = 1;           ///< parts of the channels, each with its own kernels
  SizePair dilation = 1;        ///< elements between entries of the kernel
};

/// Options of unfold().
struct UnfoldOp {
  SizePair stride = 1;    ///< elements between windows
  SizePair padding = 0;   ///< zeros around the image
  SizePair dilation = 1;  ///< elements between entries of the kernel
};

/// A convolution of images (groups * in, grid.in) to (groups * out, grid.out) by kernels (groups * out, in,
/// grid.kernel). The transposed one goes from the second to the first with the same kernels.
struct Convolution {
  WindowGrid grid;
  index_t images = 1, groups = 1, in = 0, out = 0;  // in and out: channels of one group

  index_t terms() const noexcept { return in * grid.entries(); }
  index_t work() const noexcept { return terms() * out * grid.out_plane(); }
  /// Windows whose columns are in memory together: they stay in the cache between packing and product.
  index_t tile() const noexcept {
    return grid.pointwise() ? grid.out_plane()
                            : std::max<index_t>(64, (1 << 17) / std::max<index_t>(1, terms()));
  }
  /// The same for the kernels' loops over groups of few channels.
  kernels::DirectConvolution direct() const noexcept {
    return {images,
            groups,
            in,
            out,
            {grid.in.h, grid.kernel.h, grid.stride.h, grid.padding.h, grid.dilation.h, grid.out.h},
            {grid.in.w, grid.kernel.w, grid.stride.w, grid.padding.w, grid.dilation.w, grid.out.w}};
  }
};

struct ColumnsUse;
using ColumnsLease = ThreadLease<Scratch, ColumnsUse>;

// The planes start as the bias, or as beta * what they were; returns the beta of what is added to them.
template <class T>
T start_planes(const T* bias, T* planes, index_t channels, index_t size, T beta, bool product) {
  if (bias != nullptr) {
    for (index_t c = 0; c < channels; ++c) std::fill_n(planes + c * size, size, bias[c]);
    return T(1);
  }
  if (!product && beta == T(0)) std::fill_n(planes, channels * size, T(0));
  return beta;
}

// The columns of a tile of c.in planes: packed, or the planes themselves where both are the same.
template <class T>
const T* columns_of(const Convolution& c, const WindowTile& t, const T* planes, ColumnsLease& lease) {
  if (c.grid.pointwise()) return planes;
  T* packed = lease->template reserve<T>(c.terms() * t.count);
  pack_columns(c.grid, t, planes, c.in, packed, t.count);
  return packed;
}

// y = W columns(x) + bias, or + beta y.
template <class T>
EIGENFORMER_NOINLINE void convolve(const Convolution& c, const T* x, const T* w, const T* bias, T* y,
                                   T beta) {
  if (const auto direct = c.direct(); kernels::convolution_is_direct(direct)) {
    return kernels::direct_convolution<T>(direct, x, w, bias, y, beta);
  }
  const WindowGrid& g = c.grid;
  const index_t k = c.terms(), p = g.out_plane();
  for_each_task(c.images * c.groups, c.work(), [&](index_t task) {
    const index_t group = task % c.groups;
    const T* from = x + task * c.in * g.in_plane();
    T* to = y + task * c.out * p;
    const T into = start_planes(bias == nullptr ? bias : bias + group * c.out, to, c.out, p, beta, true);
    ColumnsLease lease;
    for_each_tile(g, c.tile(), [&](const WindowTile& t) {
      kernels::gemm<T>(false, false, c.out, t.count, k, T(1), w + group * c.out * k, k,
                       columns_of(c, t, from, lease), t.count, into, to + t.first, p);
    });
  });
}

// x = bias, or beta x, + what W^T y adds to the elements that convolve() reads.
template <class T>
EIGENFORMER_NOINLINE void convolve_transposed(const Convolution& c, const T* y, const T* w, const T* bias,
                                              T* x, T beta) {
  if (const auto direct = c.direct(); kernels::convolution_is_direct(direct)) {
    return kernels::direct_convolution_transposed<T>(direct, y, w, bias, x, beta);
  }
  const WindowGrid& g = c.grid;
  const index_t k = c.terms(), p = g.out_plane();
  for_each_task(c.images * c.groups, c.work(), [&](index_t task) {
    const index_t group = task % c.groups;
    const T* from = y + task * c.out * p;
    T* to = x + task * c.in * g.in_plane();
    const T into = start_planes(bias == nullptr ? bias : bias + group * c.in, to, c.in, g.in_plane(), beta,
                                g.pointwise());
    ColumnsLease lease;
    for_each_tile(g, c.tile(), [&](const WindowTile& t) {
      T* columns = g.pointwise() ? to : lease->template reserve<T>(k * t.count);
      kernels::gemm<T>(true, false, k, t.count, c.out, T(1), w + group * c.out * k, k, from + t.first, p,
                       g.pointwise() ? into : T(0), columns, t.count);
      if (!g.pointwise()) add_columns(g, t, columns, t.count, to, c.in);
    });
  });
}

// dW = beta dW + sum over images of dy columns(x)^T. Images are summed in parts, whose number depends on the
// sizes alone, and so does the result.
template <class T>
EIGENFORMER_NOINLINE void convolve_weight_gradient(const Convolution& c, const T* x, const T* dy, T* dw,
                                                   T beta) {
  if (const auto direct = c.direct(); kernels::convolution_is_direct(direct)) {
    return kernels::direct_convolution_weight_gradient<T>(direct, x, dy, dw, beta);
  }
  const WindowGrid& g = c.grid;
  const index_t k = c.terms(), p = g.out_plane(), size = c.groups * c.out * k;
  if (c.images == 0 && beta == T(0)) std::fill_n(dw, size, T(0));
  if (c.images == 0 || size == 0) return;
  const index_t parts = std::clamp<index_t>((1 << 20) / size, 1, std::min<index_t>(c.images, 16));
  Tensor<T> sums(Shape{parts > 1 ? parts : 0, size});
  for_each_task(parts * c.groups, c.work(), [&](index_t task) {
    const index_t part = task / c.groups, group = task % c.groups;
    T* to = (parts > 1 ? sums.data() + part * size : dw) + group * c.out * k;
    T into = parts > 1 ? T(0) : beta;
    ColumnsLease lease;
    for (index_t i = part * c.images / parts; i < (part + 1) * c.images / parts; ++i) {
      const T* from = x + (i * c.groups + group) * c.in * g.in_plane();
      for_each_tile(g, c.tile(), [&](const WindowTile& t) {
        kernels::gemm<T>(false, true, c.out, k, t.count, T(1),
                         dy + (i * c.groups + group) * c.out * p + t.first, p, columns_of(c, t, from, lease),
                         t.count, into, to, k);
        into = T(1);
      });
    }
  });
  for (index_t i = 0; parts > 1 && i < parts; ++i) {
    kernels::axpby<T>(T(1), sums.data() + i * size, i == 0 ? beta : T(1), dw, size);
  }
}

// What the shapes of an op's operands and its options give, once they are known to fit.
struct ConvolutionPlan {
  Convolution c;
  Shape y;
};

// The size of the result of a transposed convolution, of which g.in is the size of the input.
EIGENFORMER_NOINLINE inline SizePair transposed_size(const char* op, const WindowGrid& g,
                                                     const SizePair& output_padding, const Shape& x,
                                                     const Shape& w) {
  check_window(op, g);
  require_at_least(op, "output padding", 0, output_padding);
  const auto size = [&](index_t in, index_t k, index_t s, index_t p, index_t d, index_t extra) {
    if (extra > 0 && extra >= std::max(s, d)) {
      throw ValueError(
          op, {"output padding is ", extra, ", must be less than the stride ", s, " or the dilation ", d});
    }
    const index_t n = (in - 1) * s - 2 * p + d * (k - 1) + extra + 1;
    if (in < 1 || n < 1) {
      throw ShapeError(
          op, {"input of shape ", x.str(), " gives a size of ", n, " with these options, must be positive"},
          {x, w});
    }
    return n;
  };
  return {size(g.in.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h, output_padding.h),
          size(g.in.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w, output_padding.w)};
}

// x: (N, C, spatial...) or without N; w: (O, C / groups, kernel...), transposed (C, O / groups, kernel...).
EIGENFORMER_NOINLINE inline ConvolutionPlan plan_convolution(const char* op, const Shape& x, const Shape& w,
                                                             const Shape* bias, index_t spatial,
                                                             const ConvOp& o,
                                                             const SizePair* output_padding) {
  require_image(op, x, spatial);
  if (w.rank() != spatial + 2) {
    throw ShapeError(
        op, {"weight of shape ", w.str(), " must have rank ", spatial + 2, ", with channels and kernel size"},
        {x, w});
  }
  const bool transposed = output_padding != nullptr;
  const index_t channels = x[-1 - spatial], groups = o.groups;
  if (groups < 1 || w[0] % groups != 0 || channels % groups != 0) {
    throw ValueError(op, {"groups is ", groups, ", must divide the ", channels,
                          " channels of the input and the ", w[0], " of the weight"});
  }
  if (channels != (transposed ? w[0] : w[1] * groups)) {
    throw ShapeError(op,
                     {"input of shape ", x.str(), " has ", channels, " channels, weight of shape ", w.str(),
                      " in ", groups, " groups needs ", transposed ? w[0] : w[1] * groups},
                     {x, w});
  }
  const index_t results = transposed ? w[1] * groups : w[0];
  if (bias != nullptr && *bias != Shape{results}) {
    throw ShapeError(op, {"bias of shape ", bias->str(), " must be (", results, ",)"}, {x, w, *bias});
  }
  const auto last_two = [&](const Shape& s) { return SizePair(spatial == 1 ? 1 : s[-2], s[-1]); };
  const bool signal = spatial == 1;
  WindowGrid g{last_two(x), last_two(w), o.stride, o.padding, o.dilation};
  if (signal) g = of_signal(g);
  SizePair to = 0;
  if (!transposed) {
    g = with_windows(op, g);
    to = g.out;
  } else {
    to = transposed_size(op, g, {signal ? 0 : output_padding->h, output_padding->w}, x, w);
    g.out = std::exchange(g.in, to);
  }
  ConvolutionPlan plan;
  plan.c = {g, x.rank() == spatial + 2 ? x[0] : 1, groups, w[1], w[0] / groups};
  plan.y = x.with(-1 - spatial, results).with(-1, to.w);
  if (spatial == 2) plan.y = plan.y.with(-2, to.h);
  return plan;
}

template <class T>
Var<T> convolution(const char* op, const Var<T>& x, const Var<T>& w, const Var<T>& bias, index_t spatial,
                   const ConvOp& o, const SizePair* output_padding) {
  const OpScope scope = scope_of(op, x, w);
  require_defined_or_absent(op, bias);
  const ConvolutionPlan plan = plan_convolution(
      op, x.shape(), w.shape(), bias.defined() ? &bias.shape() : nullptr, spatial, o, output_padding);
  const Convolution& c = plan.c;
  const bool transposed = output_padding != nullptr;
  Tensor<T> y(plan.y);
  (transposed ? convolve_transposed<T> : convolve<T>)(c, x.value().data(), w.value().data(),
                                                      bias.value().data(), y.data(), T(0));
  if (not_recorded(y, x, w, bias)) return y;
  // With y = W columns(x) + b: dx = the transposed convolution of dy, dW = the sum over windows of
  // dy columns(x)^T, db = the sum of dy over windows. With y transposed, dx = the convolution of dy, and dW
  // has x in the place of dy and dy in that of x.
  return record(
      op, std::move(y), {x, w, bias}, SavedTensors().add_if(x.recorded(), w).add_if(w.recorded(), x),
      [c, transposed, x = x.value(), w = w.value()](Backward<T>& back) {
        const T* dy = back.dy().data();
        if (const auto dx = back.grad(0)) {
          (transposed ? convolve<T> : convolve_transposed<T>)(c, dy, w.data(), nullptr, dx.data, dx.beta);
        }
        if (const auto dw = back.grad(1)) {
          convolve_weight_gradient(c, transposed ? dy : x.data(), transposed ? x.data() : dy, dw.data,
                                   dw.beta);
        }
        if (const auto db = back.grad(2)) {
          const index_t n = db.shape[0], plane = transposed ? c.grid.in_plane() : c.grid.out_plane();
          kernels::reduce_sum<T>(dy, Shape{c.images, n, plane}, std::array<index_t, 2>{0, 2}, db.data, T(1),
                                 db.beta);
        }
      });
}

}  // namespace detail

/// Convolution of images (cross-correlation, as in PyTorch): each element of the result is the sum of a
/// window of the image times a kernel, plus the bias.
///
/// x: (N, C, H, W) or (C, H, W); weight: (O, C / groups, kernel height, kernel width); bias: (O), or
/// undefined. Returns (N, O, H', W') with H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
/// Throws ShapeError when shapes do not fit, ValueError for options that no kernel has.
///
///     auto y = ef::conv2d(x, weight, bias, {.stride = 2, .padding = {1, 0}});
template <class X, class W, class B = Var<element_t<X>>>
requires Operands<X, W, B>
[[nodiscard]] Var<element_t<X>> conv2d(const X& x, const W& weight, const B& bias = {},
                                       const detail::ConvOp& options = {}) {
  return detail::convolution<element_t<X>>("conv2d", x, weight, bias, 2, options, nullptr);
}

/// conv2d() of signals. x: (N, C, L) or (C, L); weight: (O, C / groups, kernel); bias: (O), or undefined.
/// Returns (N, O, L').
template <class X, class W, class B = Var<element_t<X>>>
requires Operands<X, W, B>
[[nodiscard]] Var<element_t<X>> conv1d(const X& x, const W& weight, const B& bias = {},
                                       const detail::ConvOp& options = {}) {
  return detail::convolution<element_t<X>>("conv1d", x, weight, bias, 1, options, nullptr);
}

/// The transposed convolution: what conv2d() with the same weight and options has as gradient of its input.
///
/// x: (N, C, H, W) or (C, H, W); weight: (C, O / groups, kernel height, kernel width); bias: (O), or
/// undefined. Returns (N, O, H', W') with H' = (H - 1) stride - 2 padding + dilation (kernel - 1) +
/// output_padding + 1. Errors as for conv2d().
template <class X, class W, class B = Var<element_t<X>>>
requires Operands<X, W, B>
[[nodiscard]] Var<element_t<X>> conv_transpose2d(const X& x, const W& weight, const B& bias = {},
                                                 const detail::ConvTransposeOp& options = {}) {
  return detail::convolution<element_t<X>>(
      "conv_transpose2d", x, weight, bias, 2,
      {options.stride, options.padding, options.dilation, options.groups}, &options.output_padding);
}

/// conv_transpose2d() of signals. x: (N, C, L) or (C, L); weight: (C, O / groups, kernel); bias: (O), or
/// undefined. Returns (N, O, L').
template <class X, class W, class B = Var<element_t<X>>>
requires Operands<X, W, B>
[[nodiscard]] Var<element_t<X>> conv_transpose1d(const X& x, const W& weight, const B& bias = {},
                                                 const detail::ConvTransposeOp& options = {}) {
  return detail::convolution<element_t<X>>(
      "conv_transpose1d", x, weight, bias, 1,
      {options.stride, options.padding, options.dilation, options.groups}, &options.output_padding);
}

/// The windows of images as columns (im2col): what conv2d() multiplies by its weight.
///
/// x: (N, C, H, W) or (C, H, W). Returns (N, C * kernel height * kernel width, windows), windows in the order
/// of conv2d()'s result. Throws ShapeError when the kernel does not fit, ValueError for options that no
/// kernel has.
template <Operand X>
[[nodiscard]] Var<element_t<X>> unfold(const X& input, const detail::SizePair& kernel_size,
                                       const detail::UnfoldOp& options = {}) {
  using T = element_t<X>;
  const Var<T>& x = input;
  const OpScope scope = detail::scope_of("unfold", x);
  detail::require_image("unfold", x.shape(), 2);
  const index_t channels = x.dim(-3), images = x.shape().rank() == 4 ? x.dim(0) : 1;
  const auto g = detail::with_windows(
      "unfold", {{x.dim(-2), x.dim(-1)}, kernel_size, options.stride, options.padding, options.dilation});
  const index_t rows = channels * g.entries(), n = g.out_plane();
  Tensor<T> y(x.shape().without(-1).with(-2, rows).with(-1, n));
  const detail::WindowTile whole{0, g.out.h, 0, g.out.w, 0, n};
  detail::for_each_task(images, rows * n, [&](index_t i) {
    detail::pack_columns(g, whole, x.value().data() + i * channels * g.in_plane(), channels,
                         y.data() + i * rows * n, n);
  });
  if (detail::not_recorded(y, x)) return y;
  // dx = the sum of dy over the windows that an element is in.
  return detail::record_one("unfold", std::move(y), x, SavedTensors(),
                            [g, whole, channels, images, rows, n](const auto& dx, const Tensor<T>& dy) {
                              detail::for_each_task(images, rows * n, [&](index_t i) {
                                T* to = dx.data + i * channels * g.in_plane();
                                if (dx.beta == T(0)) std::fill_n(to, channels * g.in_plane(), T(0));
                                detail::add_columns(g, whole, dy.data() + i * rows * n, n, to, channels);
                              });
                            });
}

}  // namespace eigenformer
