#pragma once

#include "eigenformer/autograd/ops/convolution/batch_norm.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of a BatchNorm.
struct BatchNormOptions {
  index_t num_features = 0;  ///< channels; required
  double momentum = 0.1;     ///< how much of a batch's statistics goes into the running ones
  double eps = 1e-5;         ///< added to the variance
  bool affine = true;        ///< a gain and a shift for each channel
};

/// batch_norm() with its parameters and running statistics: PyTorch's BatchNorm1d, 2d and 3d.
///
/// Contexts with dropout (Context::training) normalise by the batch and update the running statistics; others
/// use the running ones. So it must not run in several threads at once in training, nor in a checkpoint,
/// which would count its batch twice. The statistics are saved and loaded with a model; PyTorch's
/// num_batches_tracked is not part of it.
template <class T = float>
struct BatchNorm {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;       ///< (num_features), starts as 1; absent unless affine
  Parameter<T> bias;         ///< (num_features), starts as 0; absent unless affine
  Buffer<T> running_mean;    ///< (num_features), starts as 0
  Buffer<T> running_var;     ///< (num_features), starts as 1
  BatchNormOptions options;  ///< as given

  /// Throws ValueError for num_features that is not positive.
  explicit BatchNorm(const BatchNormOptions& given) : options(given) {
    detail::require_positive("batch_norm", "num_features", given.num_features);
    const Shape shape{given.num_features};
    if (given.affine) {
      weight = Parameter<T>(Tensor<T>::ones(shape));
      bias = Parameter<T>(Tensor<T>::zeros(shape));
    }
    running_mean = {Tensor<T>::zeros(shape), true};
    running_var = {Tensor<T>::ones(shape), true};
    name_parameters(*this);
  }
  /// A copy with its own parameters and statistics.
  BatchNorm(const BatchNorm& other)
      : weight(other.weight),
        bias(other.bias),
        running_mean{other.running_mean.value.clone(), true},
        running_var{other.running_var.value.clone(), true},
        options(other.options) {}
  /// Takes all; the other module has nothing afterwards.
  BatchNorm(BatchNorm&&) noexcept = default;
  /// Copies the values; statistics stay its own.
  BatchNorm& operator=(const BatchNorm& other) {
    running_mean.value = other.running_mean.value.clone();
    running_var.value = other.running_var.value.clone();
    weight = other.weight;  // keeps its id
    bias = other.bias;
    options = other.options;
    return *this;
  }
  /// Takes all; the other module has nothing afterwards.
  BatchNorm& operator=(BatchNorm&&) noexcept = default;
  ~BatchNorm() = default;

  /// x: (N, num_features, ...). Returns the same shape. Throws as batch_norm().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    Tensor<T> mean = running_mean.value, var = running_var.value;  // the same memory
    return batch_norm(x, mean, var, ctx.use(weight), ctx.use(bias),
                      {ctx.drops(), options.momentum, options.eps});
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
    visit("running_mean", self.running_mean);
    visit("running_var", self.running_var);
  }
};

/// Options of a GroupNorm.
struct GroupNormOptions {
  index_t num_groups = 0;    ///< required
  index_t num_channels = 0;  ///< required
  double eps = 1e-5;         ///< added to the variance
  bool affine = true;        ///< a gain and a shift for each channel
};

/// group_norm() with its parameters.
template <class T = float>
struct GroupNorm {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;       ///< (num_channels), starts as 1; absent unless affine
  Parameter<T> bias;         ///< (num_channels), starts as 0; absent unless affine
  GroupNormOptions options;  ///< as given

  /// Throws ValueError for sizes that are not positive and for groups that do not divide the channels.
  explicit GroupNorm(const GroupNormOptions& given) : options(given) {
    detail::require_positive("group_norm", "num_groups", given.num_groups);
    detail::require_positive("group_norm", "num_channels", given.num_channels);
    if (given.num_channels % given.num_groups != 0) {
      throw ValueError("group_norm", {"num_groups is ", given.num_groups, ", must divide num_channels ",
                                      given.num_channels});
    }
    if (given.affine) {
      weight = Parameter<T>(Tensor<T>::ones({given.num_channels}));
      bias = Parameter<T>(Tensor<T>::zeros({given.num_channels}));
    }
    name_parameters(*this);
  }

  /// x: (N, num_channels, ...). Returns the same shape. Throws as group_norm().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return group_norm(x, options.num_groups, ctx.use(weight), ctx.use(bias), options.eps);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }
};

EIGENFORMER_MODULE_INSTANCES(BatchNorm)
EIGENFORMER_MODULE_INSTANCES(GroupNorm)

}  // namespace eigenformer
