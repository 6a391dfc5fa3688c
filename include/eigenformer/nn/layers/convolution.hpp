#pragma once

#include <cmath>

#include "eigenformer/autograd/ops/convolution/convolution.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of a Conv2d. Pairs are {height, width}, or one number for both.
struct Conv2dOptions {
  index_t in_channels = 0;           ///< channels of an input image; required
  index_t out_channels = 0;          ///< channels of a result; required
  detail::SizePair kernel_size = 0;  ///< required
  detail::SizePair stride = 1;       ///< elements between windows
  detail::SizePair padding = 0;      ///< zeros around the image
  detail::SizePair dilation = 1;     ///< elements between entries of the kernel
  index_t groups = 1;                ///< parts of the channels, each with its own kernels
  bool bias = true;                  ///< add a bias
};

/// Options of a Conv1d.
struct Conv1dOptions {
  index_t in_channels = 0;   ///< channels of an input signal; required
  index_t out_channels = 0;  ///< channels of a result; required
  index_t kernel_size = 0;   ///< required
  index_t stride = 1;        ///< elements between windows
  index_t padding = 0;       ///< zeros at each end
  index_t dilation = 1;      ///< elements between entries of the kernel
  index_t groups = 1;        ///< parts of the channels, each with its own kernels
  bool bias = true;          ///< add a bias
};

namespace detail {

// Weight and bias as PyTorch starts them: uniform in +-1 / sqrt(fan_in). Throws ValueError for channels that
// do not fit.
template <class T, class Options>
void start_convolution(const char* op, const Options& o, const Shape& kernel, Parameter<T>& weight,
                       Parameter<T>& bias, RandomGenerator& rng) {
  require_positive(op, "in_channels", o.in_channels);
  require_positive(op, "out_channels", o.out_channels);
  require_positive(op, "groups", o.groups);
  for (const index_t k : kernel) require_positive(op, "kernel_size", k);
  if (o.in_channels % o.groups != 0 || o.out_channels % o.groups != 0) {
    throw ValueError(op, {"groups is ", o.groups, ", must divide in_channels ", o.in_channels,
                          " and out_channels ", o.out_channels});
  }
  const index_t in = o.in_channels / o.groups;
  const Shape shape = kernel.inserted(0, in).inserted(0, o.out_channels);
  weight = Parameter<T>(init::kaiming_uniform<T>(shape, rng, std::sqrt(5.0)));
  if (!o.bias) return;
  const double bound = 1 / std::sqrt(static_cast<double>(in * kernel.numel()));
  bias = Parameter<T>(init::uniform<T>({o.out_channels}, rng, -bound, bound));
}

}  // namespace detail

/// conv2d() with a weight and a bias, which start as PyTorch's.
///
///     ef::Conv2d<float> layer({.in_channels = 3, .out_channels = 8, .kernel_size = 3, .padding = 1}, rng);
template <class T = float>
struct Conv2d {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;    ///< (out_channels, in_channels / groups, kernel height, kernel width)
  Parameter<T> bias;      ///< (out_channels), absent without bias
  Conv2dOptions options;  ///< as given

  /// Throws ValueError for sizes that are not positive and for groups that do not divide the channels.
  Conv2d(const Conv2dOptions& given, RandomGenerator& rng) : options(given) {
    detail::start_convolution("conv2d", given, {given.kernel_size.h, given.kernel_size.w}, weight, bias, rng);
    name_parameters(*this);
  }

  /// x: (N, in_channels, H, W) or the same without N. Returns (N, out_channels, H', W'). Throws as conv2d().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return conv2d(x, ctx.use(weight), ctx.use(bias),
                  {options.stride, options.padding, options.dilation, options.groups});
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }
};

/// conv1d() with a weight and a bias, which start as PyTorch's.
template <class T = float>
struct Conv1d {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;    ///< (out_channels, in_channels / groups, kernel)
  Parameter<T> bias;      ///< (out_channels), absent without bias
  Conv1dOptions options;  ///< as given

  /// Throws ValueError for sizes that are not positive and for groups that do not divide the channels.
  Conv1d(const Conv1dOptions& given, RandomGenerator& rng) : options(given) {
    detail::start_convolution("conv1d", given, {given.kernel_size}, weight, bias, rng);
    name_parameters(*this);
  }

  /// x: (N, in_channels, L) or the same without N. Returns (N, out_channels, L'). Throws as conv1d().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return conv1d(x, ctx.use(weight), ctx.use(bias),
                  {options.stride, options.padding, options.dilation, options.groups});
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }
};

EIGENFORMER_MODULE_INSTANCES(Conv2d)
EIGENFORMER_MODULE_INSTANCES(Conv1d)

}  // namespace eigenformer
