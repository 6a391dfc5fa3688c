#pragma once

#include "eigenformer/autograd/ops/normalization/layer_norm.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of a Norm, LayerNorm or RMSNorm.
struct NormOptions {
  NormKind kind = NormKind::layer_norm;   ///< which normalisation
  index_t size = 0;                       ///< features of a row; required
  double eps = defaults::layer_norm_eps;  ///< added to the variance (teaching formula: to the deviation) or
                                          ///< mean square
  LayerNormFormula formula = LayerNormFormula::pytorch;  ///< layer_norm only
  bool scalar_gain = false;  ///< layer_norm only: one gain and one bias for all features
  bool bias = true;          ///< layer_norm only: rms_norm has none
};

/// Layer norm or RMS norm of each row, as the options choose: for layers of models that may have either.
/// LayerNorm is its other name. Starts with gain 1 and bias 0.
///
///     ef::Norm<float> norm({.kind = ef::NormKind::rms_norm, .size = 12});
///     auto y = norm(ctx, x);  // (..., 12) -> (..., 12)
template <class T = float>
struct Norm {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;  ///< (size), or (1) with scalar_gain
  Parameter<T> bias;    ///< shape of weight; absent in rms_norm and without bias
  NormOptions options;  ///< as given; for rms_norm without what only layer_norm has

  /// Throws ValueError that names the invalid field.
  explicit Norm(const NormOptions& given) : options(given) {
    detail::require_positive(name(), "size", options.size);
    detail::require_allowed(name(), "eps", options.eps, Allowed::not_negative);
    if (rms()) {
      options.formula = LayerNormFormula::pytorch;
      options.scalar_gain = options.bias = false;
    }
    const Shape shape{options.scalar_gain ? 1 : options.size};
    weight = Parameter<T>(Tensor<T>::ones(shape));
    if (options.bias) bias = Parameter<T>(Tensor<T>::zeros(shape));
    name_parameters(*this);
  }

  /// x: (..., size). Returns the same shape. Throws ShapeError for another last dimension.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    check(x);
    if (rms()) return rms_norm(x, ctx.use(weight), options.eps);
    return layer_norm(x, ctx.use(weight), ctx.use(bias), op());
  }

  /// Norm of x + dropout(r) in one pass: the "add and norm" of the papers. x, r: (..., size). Dropout acts in
  /// training contexts only. Throws ShapeError if x and r differ in shape or in the last dimension from size.
  [[nodiscard]] Var<T> add_and_norm(const Context<T>& ctx, const Var<T>& x, const Var<T>& r,
                                    double dropout) const {
    check(x);
    if (rms()) return add_rms_norm(ctx, x, r, dropout, ctx.use(weight), options.eps);
    return add_layer_norm(ctx, x, r, dropout, ctx.use(weight), ctx.use(bias), op());
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }

 private:
  bool rms() const noexcept { return options.kind == NormKind::rms_norm; }
  const char* name() const noexcept { return rms() ? "rms_norm" : "layer_norm"; }
  detail::LayerNormOp op() const { return {options.eps, options.formula, options.scalar_gain}; }

  void check(const Var<T>& x) const {
    (void)weight.shape();  // throws for a norm that was moved from
    if (x.rank() >= 1 && x.dim(-1) == options.size) return;
    throw ShapeError(name(),
                     {"last dimension of input ", x.shape(), " must be ", options.size, ", to match '",
                      weight.name(), "' of shape ", weight.shape()},
                     {x.shape(), weight.shape()});
  }
};

EIGENFORMER_MODULE_INSTANCES(Norm)

/// Normalises each row to mean 0 and variance 1, then scales and shifts it (Ba et al. 2016): a Norm of the
/// default kind. Starts with gain 1 and bias 0.
///
///     ef::LayerNorm<float> norm({.size = 12});
///     auto y = norm(ctx, x);  // (..., 12) -> (..., 12)
template <class T = float>
using LayerNorm = Norm<T>;

/// Divides each row by its root mean square and scales it; no mean, no bias (Zhang and Sennrich 2019;
/// PyTorch's nn.RMSNorm, whose default eps is the machine epsilon of its type). Starts with gain 1.
///
///     ef::RMSNorm<float> norm({.size = 12, .eps = 1e-6});
///     auto y = norm(ctx, x);  // (..., 12) -> (..., 12)
template <class T = float>
struct RMSNorm : Norm<T> {
  /// Only size and eps are used. Throws ValueError that names the invalid field.
  explicit RMSNorm(const NormOptions& given)
      : Norm<T>({.kind = NormKind::rms_norm, .size = given.size, .eps = given.eps}) {}
};

EIGENFORMER_MODULE_INSTANCES(RMSNorm)

}  // namespace eigenformer
