#pragma once

#include "eigenformer/autograd/ops/linear/feed_forward.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/module/optional_module.hpp"

namespace eigenformer {

/// Options of a FeedForward.
struct FeedForwardOptions {
  index_t d_model = defaults::d_model;                  ///< features of inputs and outputs
  index_t dim_feedforward = defaults::dim_feedforward;  ///< features between the two linear layers
  Activation activation = Activation::relu;             ///< between the two linear layers
  double dropout = defaults::dropout;                   ///< rate after the activation, in training
  bool bias = true;                                     ///< biases in the linear layers
  bool gated = false;  ///< multiply the activation's output by a third linear layer

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const {
    detail::require_positive(op, "d_model", d_model);
    detail::require_positive(op, "dim_feedforward", dim_feedforward);
    detail::require_rate(op, "dropout", dropout);
  }
};

/// The position-wise feed-forward network linear2(dropout(activation(linear1(x)))) (Vaswani et al. 2017, eq.
/// 2), or gated linear2(dropout(activation(linear1(x)) * linear3(x))) (Shazeer 2020; the three are Llama's
/// w1, w2, w3 and T5's wi_0, wo, wi_1).
///
///     ef::FeedForward<float> network({.d_model = 12, .activation = ef::Activation::gelu}, rng);
///     auto y = network(ctx, x);  // (..., 12) -> (..., 12)
///     ef::FeedForward<float> swiglu(
///         {.d_model = 12, .activation = ef::Activation::silu, .gated = true}, rng);
template <class T = float>
struct FeedForward {
  using value_type = T;  ///< element type, float or double

  Linear<T> linear1;                          ///< d_model -> dim_feedforward
  Linear<T> linear2;                          ///< dim_feedforward -> d_model
  detail::OptionalModule<Linear<T>> linear3;  ///< d_model -> dim_feedforward; absent unless gated
  Activation activation;                      ///< applied to linear1's output
  double dropout;                             ///< rate after the activation, in training

  /// Throws ValueError that names the invalid field.
  FeedForward(const FeedForwardOptions& options, RandomGenerator& rng)
      : linear1({detail::validated("feed_forward", options).d_model, options.dim_feedforward, options.bias},
                rng),
        linear2({options.dim_feedforward, options.d_model, options.bias}, rng),
        activation(options.activation),
        dropout(options.dropout) {
    if (options.gated) {
      linear3.emplace(LinearOptions{options.d_model, options.dim_feedforward, options.bias}, rng);
    }
    name_parameters(*this);
  }

  /// x: (..., d_model). Returns the same shape. Throws ShapeError if the last dimension of x is not d_model.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    if (linear3) {
      return gated_feed_forward(ctx, x, linear1.weight, linear1.bias, linear3->weight, linear3->bias,
                                linear2.weight, linear2.bias, activation, dropout);
    }
    return eigenformer::feed_forward(ctx, x, linear1.weight, linear1.bias, linear2.weight, linear2.bias,
                                     activation, dropout);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("linear1", self.linear1);
    visit("linear2", self.linear2);
    visit("linear3", self.linear3);
  }
};

EIGENFORMER_MODULE_INSTANCES(FeedForward)

}  // namespace eigenformer
