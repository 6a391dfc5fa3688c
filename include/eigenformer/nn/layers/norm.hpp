#pragma once

#include "eigenformer/autograd/ops/normalization/layer_norm.hpp"
#include "eigenformer/autograd/ops/normalization/rms_norm.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

struct NormOptions {
  NormKind kind = NormKind::layer_norm;
  index_t size = 0;  ///< of the last dimension; required
  double eps = defaults::layer_norm_eps;
  LayerNormFormula formula = LayerNormFormula::pytorch;  ///< of layer_norm
  bool scalar_gain = false;  ///< of layer_norm: one gain and one bias for all features
  bool bias = true;          ///< of layer_norm: rms_norm has none

  void validate(const char* op) const {
    detail::require_positive(op, "size", size);
    detail::require_allowed(op, "eps", eps, detail::number_text(eps), Allowed::not_negative);
  }
};

/// Normalises each row, by the kind that its options name: what layers hold where a model may have either.
/// LayerNorm and RMSNorm are this with one kind each. Starts with gain 1 and bias 0.
template <class T = float>
struct Norm {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;  ///< (size), or (1) with scalar_gain
  Parameter<T> bias;    ///< as weight; absent without bias and in rms_norm
  NormOptions options;

  /// Throws ValueError that names the invalid field.
  explicit Norm(const NormOptions& given) : options(given) {
    options.validate(name());
    if (rms()) {
      options.formula = LayerNormFormula::pytorch;
      options.scalar_gain = options.bias = false;
    }
    const Shape shape{options.scalar_gain ? 1 : options.size};
    weight = Parameter<T>(Tensor<T>::ones(shape));
    if (options.bias) bias = Parameter<T>(Tensor<T>::zeros(shape));
    name_parameters(*this);
  }

  /// x: (..., size). Returns the same shape. Throws ShapeError for any other size.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    check(x);
    if (rms()) return rms_norm(x, ctx.use(weight), options.eps);
    return layer_norm(x, ctx.use(weight), ctx.use(bias), op());
  }

  /// The norm of x + dropout(r), in one pass: the "add and norm" of the papers. x, r: (..., size).
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
  LayerNormOp op() const { return {options.eps, options.formula, options.scalar_gain}; }

  void check(const Var<T>& x) const {
    if (x.rank() >= 1 && x.dim(-1) == options.size) return;
    throw ShapeError(name(),
                     "last dimension of input " + x.shape().str() + " must be " +
                         std::to_string(options.size) + ", to match '" + weight.name() + "' of shape " +
                         weight.shape().str(),
                     {x.shape(), weight.shape()});
  }
};

static_assert(std::is_nothrow_move_constructible_v<Norm<float>>);

EIGENFORMER_MODULE_INSTANCES(Norm)

}  // namespace eigenformer
