#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/normalization/cross_entropy.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

/// How cross_entropy reduces and smooths; the defaults are PyTorch's.
struct CrossEntropyOptions {
  index_t ignore_index = -100;  ///< targets with this id count neither in the loss nor in its mean
  double label_smoothing = 0;   ///< mixed with the uniform distribution over all classes
  enum class Reduction { mean, sum } reduction = Reduction::mean;
  double divisor =
      0;  ///< above 0: the sum is divided by this (the tokens of all micro-batches), not by this call's
};

namespace detail {

inline kernels::CrossEntropyOptions kernel_options(const CrossEntropyOptions& o) {
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
    throw ValueError("cross_entropy",
                     "label_smoothing is " + std::to_string(o.label_smoothing) + ", must be in [0, 1]");
  }
  if (o.divisor < 0 || !std::isfinite(o.divisor)) {
    throw ValueError("cross_entropy",
                     "divisor is " + std::to_string(o.divisor) + ", must be positive, or 0 for none");
  }
  return {o.label_smoothing, static_cast<std::int32_t>(o.ignore_index)};
}

// 1 over what the sum of losses is divided by; 0 when there is nothing to average, so that an empty batch
// gives 0.
inline double loss_scale(const CrossEntropyOptions& o, const Tensor<std::int32_t>& targets) {
  if (o.divisor > 0) return 1 / o.divisor;
  if (o.reduction == CrossEntropyOptions::Reduction::sum) return 1;
  const index_t n =
      kernels::count_targets(targets.data(), targets.numel(), static_cast<std::int32_t>(o.ignore_index));
  return n == 0 ? 0 : 1 / static_cast<double>(n);
}

}  // namespace detail

/// Cross entropy between logits and target ids, in nats, with label smoothing as PyTorch has it.
///
/// logits: (..., V); targets: (...), each in 0 .. V-1 or ignore_index. Returns a scalar; 0 when every target
/// is ignored. Throws ShapeError when the shapes do not fit, IndexError for a target out of range. Szegedy et
/// al. 2016, section 7.
template <class T>
[[nodiscard]] Var<T> cross_entropy(const Var<T>& logits, const Tensor<std::int32_t>& targets,
                                   const CrossEntropyOptions& options = {}) {
  const OpScope scope(Runtime::instance().profiler(), "cross_entropy");
  if (logits.rank() < 1 || logits.shape().without(-1) != targets.shape()) {
    throw ShapeError("cross_entropy",
                     "targets of shape " + targets.shape().str() + " must be the logits' shape " +
                         logits.shape().str() + " without the classes",
                     {logits.shape(), targets.shape()});
  }
  const auto kernel = detail::kernel_options(options);
  const index_t rows = logits.shape().rows(), classes = logits.shape().cols();
  const double scale = detail::loss_scale(options, targets);
  Tensor<T> log_sum_exp(Shape{rows});
  const double sum = kernels::cross_entropy_forward<T>(logits.value().data(), targets.data(), rows, classes,
                                                       kernel, nullptr, log_sum_exp.data());
  Tensor<T> y = Tensor<T>::scalar(static_cast<T>(sum * scale));
  if (detail::not_recorded<T>(y, logits)) return Var<T>(std::move(y));
  // dlogits = scale (softmax(logits) - (1 - e) onehot - e / V), row by row.
  return record("cross_entropy", std::move(y), {logits}, SavedTensors(logits, targets),
                [x = logits.value(), targets, log_sum_exp, kernel, rows, classes, scale](Backward<T>& b) {
                  if (auto dx = b.grad(0)) {
                    kernels::cross_entropy_backward<T>(x.data(), targets.data(), log_sum_exp.data(), rows,
                                                       classes, kernel, static_cast<T>(scale) * b.dy().item(),
                                                       nullptr, dx.data, dx.beta);
                  }
                });
}

/// cross_entropy(linear(x, weight, bias), targets) without ever holding all logits: blocks of rows go through
/// the product, the loss and both gradients in one pass, so that memory does not grow with rows x vocabulary.
///
/// x: (N, d); weight: (V, d); bias: (V) or absent; targets: (N). Returns a scalar. Throws as linear and
/// cross_entropy.
template <class T>
[[nodiscard]] Var<T> linear_cross_entropy(const Context<T>& ctx, const Var<T>& x, const Parameter<T>& weight,
                                          const Parameter<T>& bias, const Tensor<std::int32_t>& targets,
                                          const CrossEntropyOptions& options = {}) {
  const OpScope scope(Runtime::instance().profiler(), "linear_cross_entropy");
  if (weight.shape().rank() != 2 || (bias.defined() && bias.shape() != Shape{weight.shape()[0]})) {
    throw ShapeError("linear_cross_entropy",
                     "weight '" + weight.name() + "' of shape " + weight.shape().str() +
                         " must be (classes, d), and the bias (classes) or absent",
                     {weight.shape()});
  }
  const index_t d = weight.shape()[-1], classes = weight.shape()[0];
  if (x.rank() != 2 || x.dim(1) != d || targets.numel() != x.dim(0)) {
    throw ShapeError("linear_cross_entropy",
                     "input " + x.shape().str() + " must be (rows, " + std::to_string(d) + ") to match '" +
                         weight.name() + "' of shape " + weight.shape().str() +
                         ", with one target a row; targets have shape " + targets.shape().str(),
                     {x.shape(), weight.shape(), targets.shape()});
  }
  const auto kernel = detail::kernel_options(options);
  const double scale = detail::loss_scale(options, targets);
  const index_t rows = x.dim(0);
  const Var<T> w = ctx.use(weight);
  const Var<T> b = ctx.use(bias);
  const bool wants_x = x.recorded(), wants_w = w.recorded(), wants_b = b.recorded();
  const bool recorded = wants_x || wants_w || wants_b;

  // About 16 MB of logits at a time: enough rows for the products to run at full speed, little beside the
  // model.
  const index_t block = std::clamp<index_t>((index_t{1} << 22) / std::max<index_t>(classes, 1), 64, 1024);
  Tensor<T> logits(Shape{std::min(block, rows), classes});
  Tensor<T> dx = wants_x ? Tensor<T>(x.shape()) : Tensor<T>();
  Tensor<T> dw = wants_w ? Tensor<T>(weight.shape()) : Tensor<T>();
  Tensor<T> db = wants_b ? Tensor<T>(bias.shape()) : Tensor<T>();
  kernels::GemmEpilogue<T> epilogue;
  if (bias.defined()) epilogue.bias = bias.value().data();
  double sum = 0;
  for (index_t row = 0; row < rows; row += block) {
    const index_t n = std::min(block, rows - row);
    const T* xr = x.value().data() + row * d;
    const std::int32_t* target = targets.data() + row;
    detail::weight_product<T>("linear_cross_entropy", ctx, n, xr, weight, 0, classes, recorded, logits.data(),
                              epilogue);
    if (!recorded) {
      sum += kernels::cross_entropy_forward<T>(logits.data(), target, n, classes, kernel, nullptr, nullptr);
      continue;
    }
    sum += kernels::cross_entropy_forward_backward<T>(logits.data(), target, n, classes, kernel,
                                                      static_cast<T>(scale), nullptr);
    const T beta = row == 0 ? T(0) : T(1);
    if (wants_x) {
      detail::WeightProducts<T>(ctx).run(true, n, T(1), logits.data(), weight.value(), 0, classes, T(0),
                                         dx.data() + row * d);
    }
    if (wants_w) {
      kernels::gemm<T>(true, false, classes, d, n, T(1), logits.data(), classes, xr, d, beta, dw.data(), d,
                       {}, ctx.precision());
    }
    if (wants_b) kernels::sum_rows<T>(logits.data(), db.data(), beta, n, classes);
  }
  if (rows == 0) {
    if (wants_w) dw.fill(T(0));
    if (wants_b) db.fill(T(0));
  }
  Tensor<T> y = Tensor<T>::scalar(static_cast<T>(sum * scale));
  if (detail::not_recorded<T>(y, x, w, b)) return Var<T>(std::move(y));
  // The gradients stand for dy = 1; any other arrives as a factor.
  return record("linear_cross_entropy", std::move(y), {x, w, b}, SavedTensors(),
                [dx = std::move(dx), dw = std::move(dw), db = std::move(db)](Backward<T>& back) mutable {
                  const T dy = back.dy().item();
                  Tensor<T>* ready[] = {&dx, &dw, &db};
                  for (std::size_t i = 0; i < 3; ++i) {
                    if (dy == T(1) && back.needs(i)) {
                      back.pass(i, std::move(*ready[i]));
                    } else if (auto slot = back.grad(i)) {
                      kernels::axpby<T>(dy, ready[i]->data(), slot.beta, slot.data, ready[i]->numel());
                    }
                  }
                });
}

}  // namespace eigenformer
