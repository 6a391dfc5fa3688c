#pragma once

#include <cmath>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/kernels/normalization/layer_norm.hpp"

namespace eigenformer {

namespace detail {

/// Options of layer_norm(); the defaults are PyTorch's.
struct LayerNormOp {
  double eps = 1e-5;  ///< added to the variance (pytorch) or the standard deviation (teaching)
  LayerNormFormula formula = LayerNormFormula::pytorch;  ///< see LayerNormFormula
  bool scalar_gain = false;                              ///< gamma and beta have one element each
};

// Throws ValueError for an eps that is negative or not a number.
inline void require_eps(const char* op, double eps) {
  if (!(eps >= 0) || !std::isfinite(eps))
    throw ValueError(op, {"eps is ", eps, ", must be 0 or a positive number"});
}

// The data that the backward of a layer normalisation needs.
template <class T>
struct LayerNormSaved {
  Tensor<T> x, gamma, mean, rstd;
  LayerNormOp op;
  index_t rows, n;

  LayerNormSaved(const char* name, const Var<T>& input, const Var<T>& gain, const Var<T>& shift,
                 const LayerNormOp& o)
      : gamma(gain.value()), op(o), rows(input.shape().rows()), n(input.shape().cols()) {
    require_defined_or_absent(name, gain, shift);
    require_eps(name, op.eps);
    const index_t width = op.scalar_gain ? 1 : n;
    if (input.rank() < 1)
      throw ShapeError(name, {"input of shape ", input.shape(), " must have rank 1 or more"});
    for (const Var<T>* p : {&gain, &shift}) {
      if (p->defined() && p->numel() != width) {
        throw ShapeError(name,
                         {"gain and shift must have ", width, " elements for input ", input.shape(),
                          ", one has shape ", p->shape()},
                         {input.shape(), p->shape()});
      }
    }
  }

  // Writes y. keep: the statistics, for the backward. r, s, dropout: as of layer_norm_forward.
  void forward(const Var<T>& input, const Var<T>& shift, T* y, bool keep, const T* r = nullptr,
               T* s = nullptr, const kernels::RowDropout& dropout = {}) {
    if (keep) {
      mean = Tensor<T>(Shape{rows});
      rstd = Tensor<T>(Shape{rows});
    }
    kernels::layer_norm_forward<T>(input.value().data(), gamma.data(), shift.value().data(),
                                   static_cast<T>(op.eps), op.formula, op.scalar_gain, y,
                                   keep ? mean.data() : y, rstd.data(), rows, n, r, s, dropout);
  }

  // dx = rstd (g - mean(g) - h mean(g h)), dgamma = sum dy h, dbeta = sum dy; h the normalised input, g =
  // gamma dy. The kernel writes dgamma and dbeta with one beta, so both are written to a temporary buffer
  // if their betas differ.
  void backward(const Tensor<T>& dy, T* dx, T beta_dx, GradientSlot<T> dgamma, GradientSlot<T> dbeta) const {
    const auto run = [&](T* to_x, T beta_x, T* to_gamma, T* to_beta, T beta) {
      kernels::layer_norm_backward<T>(x.data(), gamma.data(), mean.data(), rstd.data(), dy.data(), op.formula,
                                      op.scalar_gain, to_x, beta_x, to_gamma, to_beta, beta, rows, n);
    };
    if (dgamma && dbeta && dgamma.beta == dbeta.beta)
      return run(dx, beta_dx, dgamma.data, dbeta.data, dgamma.beta);
    run(dx, beta_dx, dgamma.data, nullptr, dgamma.beta);
    if (dbeta) run(nullptr, T(0), nullptr, dbeta.data, dbeta.beta);
  }
};

}  // namespace detail

/// Normalises each row of the last dimension to mean 0 and variance 1, then scales and shifts it.
///
/// x: (..., n); gamma, beta: (n), (1) with scalar_gain, or undefined for 1 and 0. Returns x's shape. Throws
/// ShapeError when they do not fit, ValueError for n below 2 with the teaching formula and for an eps that is
/// negative or not finite. Ba et al. 2016.
template <class T>
[[nodiscard]] Var<T> layer_norm(const Var<T>& x, const Var<T>& gamma, const Var<T>& beta,
                                const detail::LayerNormOp& op = {}) {
  const OpScope scope = detail::scope_of("layer_norm", x);
  detail::LayerNormSaved<T> saved("layer_norm", x, gamma, beta, op);
  saved.x = x.value();
  Tensor<T> y(x.shape());
  saved.forward(x, beta, y.data(), detail::any_recorded(x, gamma, beta));
  if (detail::not_recorded(y, x, gamma, beta)) return y;
  return record("layer_norm", std::move(y), {x, gamma, beta},
                SavedTensors().add_if(x.recorded() || gamma.recorded(), x).add_if(x.recorded(), gamma),
                [saved](Backward<T>& b) {
                  const detail::SeparateSlots<T> d(b, 0, 3);
                  saved.backward(b.dy(), d[0].data, d[0].beta, d[1], d[2]);
                  d.add_up();
                });
}

/// The same for other operands.
template <class X, class G = Var<element_t<X>>, class B = Var<element_t<X>>>
requires detail::Converted<X, G, B>
[[nodiscard]] Var<element_t<X>> layer_norm(const X& x, const G& gamma, const B& beta,
                                           const detail::LayerNormOp& op = {}) {
  return layer_norm<element_t<X>>(x, gamma, beta, op);
}

/// layer_norm(x + dropout(r)), in one pass: the "add and norm" of a post-norm sub-layer (Vaswani et al.
/// 2017, 3.1). x, r: (..., n). Throws ShapeError when they differ, ValueError for a rate outside [0, 1).
template <class T>
[[nodiscard]] Var<T> add_layer_norm(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                    const std::type_identity_t<Var<T>>& r, double dropout_rate,
                                    const std::type_identity_t<Var<T>>& gamma,
                                    const std::type_identity_t<Var<T>>& beta,
                                    const detail::LayerNormOp& op = {}) {
  const OpScope scope = detail::scope_of("add_layer_norm", x, r);
  detail::require_residual("add_layer_norm", x, r);
  detail::LayerNormSaved<T> saved("add_layer_norm", x, gamma, beta, op);
  saved.x = Tensor<T>(x.shape());
  const detail::RowDropoutSite<T> site("add_layer_norm", ctx, dropout_rate, saved.rows);
  Tensor<T> y(x.shape());
  saved.forward(x, beta, y.data(), detail::any_recorded(x, r, gamma, beta), r.value().data(), saved.x.data(),
                site.view());
  if (detail::not_recorded(y, x, r, gamma, beta)) return y;
  return record(
      "add_layer_norm", std::move(y), {x, r, gamma, beta},
      SavedTensors().add_if(x.recorded() || r.recorded(), gamma), [saved, site](Backward<T>& b) {
        Tensor<T> ds(b.dy().shape());  // the sum's gradient goes to x as it is, and through the mask to r
        const detail::SeparateSlots<T> d(b, 2, 2);
        saved.backward(b.dy(), ds.data(), T(0), d[0], d[1]);
        d.add_up();
        site.pass(b, 1, ds);
        b.pass(0, ds);
      });
}

namespace detail {

// The data that the backward of an RMS normalisation needs.
template <class T>
struct RmsNormSaved {
  Tensor<T> x, gamma, rstd;
  index_t rows, n;

  RmsNormSaved(const char* name, const Var<T>& input, const Var<T>& gain, double eps)
      : gamma(gain.value()), rows(input.shape().rows()), n(input.shape().cols()) {
    require_defined_or_absent(name, gain);
    require_eps(name, eps);
    if (input.rank() < 1) {
      throw ShapeError(name, {"input of shape ", input.shape(), " must have rank 1 or more"},
                       {input.shape()});
    }
    if (gain.defined() && gain.numel() != n) {
      throw ShapeError(
          name, {"gain of shape ", gain.shape(), " must have ", n, " elements for input ", input.shape()},
          {input.shape(), gain.shape()});
    }
  }

  // As LayerNormSaved::forward().
  void forward(const Var<T>& input, double eps, T* y, bool keep, const T* r = nullptr, T* s = nullptr,
               const kernels::RowDropout& dropout = {}) {
    if (keep) rstd = Tensor<T>(Shape{rows});
    kernels::layer_norm_forward<T>(input.value().data(), gamma.data(), nullptr, static_cast<T>(eps),
                                   LayerNormFormula::pytorch, false, y, nullptr, rstd.data(), rows, n, r, s,
                                   dropout);
  }

  // dx = rstd (g - h mean(g h)), dgamma = sum dy h; h = x rstd, g = gamma dy.
  void backward(const Tensor<T>& dy, T* dx, T beta_dx, GradientSlot<T> dgamma) const {
    kernels::layer_norm_backward<T>(x.data(), gamma.data(), nullptr, rstd.data(), dy.data(),
                                    LayerNormFormula::pytorch, false, dx, beta_dx, dgamma.data, nullptr,
                                    dgamma.beta, rows, n);
  }
};

}  // namespace detail

/// Divides each row of the last dimension by its root mean square and scales it.
///
/// x: (..., n); gamma: (n), or undefined for 1. Returns x's shape. Throws ShapeError when they do not fit,
/// ValueError for an eps that is negative or not finite. Zhang and Sennrich 2019, eq. 4; PyTorch's
/// F.rms_norm.
template <class T>
[[nodiscard]] Var<T> rms_norm(const Var<T>& x, const Var<T>& gamma = {}, double eps = 1e-5) {
  const OpScope scope = detail::scope_of("rms_norm", x);
  detail::RmsNormSaved<T> saved("rms_norm", x, gamma, eps);
  saved.x = x.value();
  Tensor<T> y(x.shape());
  saved.forward(x, eps, y.data(), detail::any_recorded(x, gamma));
  if (detail::not_recorded(y, x, gamma)) return y;
  return record("rms_norm", std::move(y), {x, gamma}, SavedTensors(x).add_if(x.recorded(), gamma),
                [saved](Backward<T>& b) {
                  const detail::SeparateSlots<T> d(b, 0, 2);
                  saved.backward(b.dy(), d[0].data, d[0].beta, d[1]);
                  d.add_up();
                });
}

/// The same for other operands.
template <class X, class G = Var<element_t<X>>>
requires detail::Converted<X, G>
[[nodiscard]] Var<element_t<X>> rms_norm(const X& x, const G& gamma = {}, double eps = 1e-5) {
  return rms_norm<element_t<X>>(x, gamma, eps);
}

/// rms_norm(x + dropout(r)), in one pass: the "add and norm" of a post-norm sub-layer. x, r: (..., n). Throws
/// ShapeError when they differ, ValueError for a rate outside [0, 1).
template <class T>
[[nodiscard]] Var<T> add_rms_norm(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                  const std::type_identity_t<Var<T>>& r, double dropout_rate,
                                  const std::type_identity_t<Var<T>>& gamma = {}, double eps = 1e-5) {
  const OpScope scope = detail::scope_of("add_rms_norm", x, r);
  detail::require_residual("add_rms_norm", x, r);
  detail::RmsNormSaved<T> saved("add_rms_norm", x, gamma, eps);
  saved.x = Tensor<T>(x.shape());
  const detail::RowDropoutSite<T> site("add_rms_norm", ctx, dropout_rate, saved.rows);
  Tensor<T> y(x.shape());
  saved.forward(x, eps, y.data(), detail::any_recorded(x, r, gamma), r.value().data(), saved.x.data(),
                site.view());
  if (detail::not_recorded(y, x, r, gamma)) return y;
  return record(
      "add_rms_norm", std::move(y), {x, r, gamma}, SavedTensors().add_if(x.recorded() || r.recorded(), gamma),
      [saved, site](Backward<T>& b) {
        Tensor<T> ds(b.dy().shape());  // the sum's gradient goes to x as it is, and through the mask to r
        saved.backward(b.dy(), ds.data(), T(0), b.grad(2));
        site.pass(b, 1, ds);
        b.pass(0, ds);
      });
}

}  // namespace eigenformer
