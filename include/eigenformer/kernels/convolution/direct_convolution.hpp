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
#include "eigenformer/kernels/convolution/direct_convolution-inl.hpp"
#endif
