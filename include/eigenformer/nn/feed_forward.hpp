#pragma once

#include "eigenformer/autograd/ops/feed_forward.hpp"
#include "eigenformer/nn/linear.hpp"

namespace eigenformer {

struct FeedForwardOptions {
  index_t d_model = defaults::d_model;
  index_t dim_feedforward = defaults::dim_feedforward;
  Activation activation = Activation::relu;
  double dropout = defaults::dropout;  ///< after the activation
  bool bias = true;

  void validate(const char* op) const {
    detail::require_positive(op, "d_model", d_model);
    detail::require_positive(op, "dim_feedforward", dim_feedforward);
    detail::require_rate(op, "dropout", dropout);
  }
};

/// linear2(dropout(activation(linear1(x)))), on each row alone. Vaswani et al. 2017, eq. 2.
///
///     ef::FeedForward<float> network({.d_model = 12, .activation = ef::Activation::gelu}, rng);
///     auto y = network(ctx, x);  // (..., 12) -> (..., 12)
template <class T = float>
struct FeedForward {
  using value_type = T;

  Linear<T> linear1;  ///< d_model -> dim_feedforward
  Linear<T> linear2;  ///< dim_feedforward -> d_model
  Activation activation;
  double dropout;

  /// Throws ValueError that names an impossible field.
  FeedForward(const FeedForwardOptions& options, RandomGenerator& rng)
      : linear1({validated(options).d_model, options.dim_feedforward, options.bias}, rng),
        linear2({options.dim_feedforward, options.d_model, options.bias}, rng),
        activation(options.activation),
        dropout(options.dropout) {
    name_parameters(*this);
  }

  /// x: (..., d_model). Returns the same shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return eigenformer::feed_forward(ctx, x, linear1.weight, linear1.bias, linear2.weight, linear2.bias, activation,
                                     dropout);
  }

  static void fields(auto& self, auto&& visit) {
    visit("linear1", self.linear1);
    visit("linear2", self.linear2);
  }

 private:
  static const FeedForwardOptions& validated(const FeedForwardOptions& options) {
    options.validate("feed_forward");
    return options;
  }
};

static_assert(std::is_nothrow_move_constructible_v<FeedForward<float>>);

}  // namespace eigenformer
