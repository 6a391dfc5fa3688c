#pragma once

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of a Linear.
struct LinearOptions {
  index_t in_features = 0;   ///< features of an input row; required
  index_t out_features = 0;  ///< features of an output row; required
  bool bias = true;          ///< add a bias
};

/// y = x W^T + b. The weight starts Xavier uniform and the bias zero, as in PyTorch's nn.Transformer; a
/// single nn.Linear of PyTorch starts differently.
///
///     ef::RandomGenerator rng(1);
///     ef::Linear<float> layer({.in_features = 5, .out_features = 10}, rng);
///     auto y = layer(ef::Context<float>::inference(), ef::Tensor<float>::ones({2, 5}));  // (2, 10)
template <class T = float>
struct Linear {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;  ///< (out, in)
  Parameter<T> bias;    ///< (out), absent without bias

  /// Throws ValueError that names a size that is not positive.
  Linear(const LinearOptions& options, RandomGenerator& rng) {
    detail::require_positive("linear", "in_features", options.in_features);
    detail::require_positive("linear", "out_features", options.out_features);
    weight = Parameter<T>(init::xavier_uniform<T>({options.out_features, options.in_features}, rng));
    if (options.bias) bias = Parameter<T>(Tensor<T>::zeros({options.out_features}));
    name_parameters(*this);
  }

  /// x: (..., in). Returns (..., out). Throws ShapeError if the last dimension of x is not `in`.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return linear(ctx, x, weight, bias);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }
  /// Calls visit(weight, {rows}) for each matrix that pack_weights() packs; rows: how many rows make one
  /// product.
  static void products(auto& self, auto&& visit) { visit(self.weight, {self.weight.shape()[0]}); }
  /// Calls visit(weight, {rows}) for each matrix that adapters may change; rows: the rows of each part.
  static void adaptable(auto& self, auto&& visit) { visit(self.weight, {self.weight.shape()[0]}); }
};

EIGENFORMER_MODULE_INSTANCES(Linear)

}  // namespace eigenformer
