#pragma once

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

struct LinearOptions {
  index_t in_features = 0;   ///< required
  index_t out_features = 0;  ///< required
  bool bias = true;

  void validate(const char* op) const {
    detail::require_positive(op, "in_features", in_features);
    detail::require_positive(op, "out_features", out_features);
  }
};

/// y = x W^T + b. The weight starts Xavier uniform, the bias zero (PyTorch's nn.Linear alone starts
/// otherwise; its nn.Transformer starts like this).
///
///     ef::RandomGenerator rng(1);
///     ef::Linear<float> layer({.in_features = 5, .out_features = 10}, rng);
///     auto y = layer(ef::Context<float>::inference(), ef::Tensor<float>::ones({2, 5}));  // (2, 10)
template <class T = float>
struct Linear {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;  ///< (out, in)
  Parameter<T> bias;    ///< (out), absent without bias

  /// Throws ValueError that names a field that is not positive.
  Linear(const LinearOptions& options, RandomGenerator& rng) {
    options.validate("linear");
    weight = Parameter<T>(init::xavier_uniform<T>({options.out_features, options.in_features}, rng));
    if (options.bias) bias = Parameter<T>(Tensor<T>::zeros({options.out_features}));
    name_parameters(*this);
  }

  /// x: (..., in). Returns (..., out). Throws ShapeError if x does not end in `in`.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return linear(ctx, x, weight, bias);
  }

  index_t in_features() const { return weight.shape()[1]; }
  index_t out_features() const { return weight.shape()[0]; }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }
  /// The matrices of inference, and how many of their rows are one product.
  static void products(auto& self, auto&& visit) { visit(self.weight, {self.weight.shape()[0]}); }
  /// The matrices that adapters are for, and how many rows each of their parts has.
  static void adaptable(auto& self, auto&& visit) { visit(self.weight, {self.weight.shape()[0]}); }
};

static_assert(std::is_nothrow_move_constructible_v<Linear<float>>);

EIGENFORMER_MODULE_INSTANCES(Linear)

}  // namespace eigenformer
