#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/normalization/cross_entropy.hpp"
#include "eigenformer/kernels/normalization/token_objective.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

/// Options of cross_entropy(); the defaults are PyTorch's.
struct CrossEntropyOptions {
  index_t ignore_index = -100;  ///< targets with this id, of 32 bits, are ignored in the loss and in its mean
  /// The share of the uniform distribution over all classes in the target, in [0, 1].
  double label_smoothing = 0;
  /// How the losses of the targets that are not ignored are reduced.
  enum class Reduction {
    mean,                         ///< to their mean
    sum                           ///< to their sum
  } reduction = Reduction::mean;  ///< the reduction, unless `divisor` is above 0
  /// Above 0: the sum is divided by this number, such as the tokens of all micro-batches of an update.
  double divisor = 0;
  double* unsmoothed = nullptr;  ///< receives the sum of the losses without smoothing; may be null
};

namespace detail {

inline kernels::CrossEntropyOptions kernel_options(const CrossEntropyOptions& o) {
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
    throw ValueError("cross_entropy", {"label_smoothing is ", o.label_smoothing, ", must be in [0, 1]"});
  }
  if (o.divisor < 0 || !std::isfinite(o.divisor)) {
    throw ValueError("cross_entropy", {"divisor is ", o.divisor, ", must be positive, or 0 for none"});
  }
  const auto ignore = static_cast<std::int32_t>(o.ignore_index);
  if (ignore != o.ignore_index) {
    throw ValueError("cross_entropy",
                     {"ignore_index is ", o.ignore_index, ", must fit into 32 bits, as targets do"});
  }
  return {o.label_smoothing, ignore};
}

// The factor of the sum of losses; 0 when all targets are ignored, so that the loss of an empty batch is 0.
inline double loss_scale(const CrossEntropyOptions& o, const Tensor<std::int32_t>& targets) {
  if (o.divisor > 0) return 1 / o.divisor;
  if (o.reduction == CrossEntropyOptions::Reduction::sum) return 1;
  const index_t n =
      kernels::count_targets(targets.data(), targets.numel(), static_cast<std::int32_t>(o.ignore_index));
  return n == 0 ? 0 : 1 / static_cast<double>(n);
}

}  // namespace detail

/// Cross entropy between logits and target ids, in nats, with label smoothing as in PyTorch.
///
/// logits: (..., V); targets: (...), each in 0 .. V-1 or ignore_index. Returns a scalar; 0 when every target
/// is ignored. Throws ShapeError when the shapes do not fit, IndexError for a target out of range. Szegedy et
/// al. 2016, section 7.
template <class T>
[[nodiscard]] Var<T> cross_entropy(const Var<T>& logits, const Tensor<std::int32_t>& targets,
                                   const CrossEntropyOptions& options = {}) {
  const OpScope scope = detail::scope_of("cross_entropy", logits, targets);
  if (logits.rank() < 1 || logits.shape().without(-1) != targets.shape()) {
    throw ShapeError("cross_entropy",
                     {"targets of shape ", targets.shape(), " must be the logits' shape ", logits.shape(),
                      " without the classes"},
                     {logits.shape(), targets.shape()});
  }
  const auto kernel = detail::kernel_options(options);
  const index_t rows = logits.shape().rows(), classes = logits.shape().cols();
  const double scale = detail::loss_scale(options, targets);
  Tensor<T> log_sum_exp(Shape{rows});
  const double sum = detail::kernels::cross_entropy_forward<T>(
      logits.value().data(), targets.data(), rows, classes, kernel, log_sum_exp.data(), options.unsmoothed);
  Tensor<T> y = Tensor<T>::scalar(static_cast<T>(sum * scale));
  if (detail::not_recorded(y, logits)) return y;
  // dlogits = scale (softmax(logits) - (1 - e) onehot - e / V), row by row.
  return detail::record_one("cross_entropy", std::move(y), logits, SavedTensors(logits, targets),
                            [x = logits.value(), targets, log_sum_exp, kernel, rows, classes, scale](
                                const auto& dx, const Tensor<T>& dy) {
                              detail::kernels::cross_entropy_backward<T>(
                                  x.data(), targets.data(), log_sum_exp.data(), rows, classes, kernel,
                                  static_cast<T>(scale) * dy.item(), dx.data, dx.beta);
                            });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> cross_entropy(const X& logits, const Tensor<std::int32_t>& targets,
                                              const CrossEntropyOptions& options = {}) {
  return cross_entropy<element_t<X>>(logits, targets, options);
}

namespace detail {

// Passes the gradients of a loss on, which are computed for dy = 1; any other dy is a factor.
template <class T>
void pass_times_dy(Backward<T>& back, std::initializer_list<Tensor<T>*> gradients) {
  const T dy = back.dy().item();
  std::size_t i = 0;
  for (Tensor<T>* gradient : gradients) {
    if (dy == T(1) && back.needs(i)) {
      back.pass(i, std::move(*gradient));
    } else if (auto slot = back.grad(i)) {
      kernels::axpby<T>(dy, gradient->data(), slot.beta, slot.data, gradient->numel());
    }
    ++i;
  }
}

/// A loss of linear(x, weight, bias) without storing all logits: product, loss and both gradients are
/// computed for one block of rows after the other, so that memory does not grow with rows x vocabulary.
///
/// x: (copies * N, d), N rows and then as many for each further copy of them. rows_loss(logits, row, n,
/// recorded): logits (copies * n, V) of the rows [row, row + n) of each copy; returns the sum of their
/// losses, and overwrites logits by their gradient times `scale` if `recorded`. Returns the sum times
/// `scale`.
template <class T, class F>
[[nodiscard]] Var<T> linear_loss(const char* op, const Context<T>& ctx, const Var<T>& x,
                                 const Parameter<T>& weight, const Parameter<T>& bias, index_t copies,
                                 double scale, F&& rows_loss) {
  const index_t d = weight.shape()[-1], classes = weight.shape()[0], rows = x.dim(0) / copies;
  const Var<T> w = ctx.use(weight);
  const Var<T> b = ctx.use(bias);
  const bool wants_x = x.recorded(), wants_w = w.recorded(), wants_b = b.recorded();
  const bool recorded = wants_x || wants_w || wants_b;

  // Enough rows for products at full speed, which need more of them for larger d, but at most about 16 MB of
  // logits: little memory compared with the model, and what one product wrote is in a cache for the next.
  const index_t block = std::clamp<index_t>(
      std::min((index_t{1} << 22) / std::max<index_t>(classes * copies, 1), 4 * d), 64, 1024);
  constexpr index_t part = 2048;  // classes whose gradient two products read, one after the other
  Tensor<T> logits(Shape{copies * std::min(block, rows), classes});
  Tensor<T> dx = wants_x ? Tensor<T>(x.shape()) : Tensor<T>();
  Tensor<T> dw = wants_w ? Tensor<T>(weight.shape()) : Tensor<T>();
  Tensor<T> db = wants_b ? Tensor<T>(bias.shape()) : Tensor<T>();
  kernels::GemmEpilogue<T> epilogue;
  if (bias.defined()) epilogue.bias = bias.value().data();
  const WeightProducts<T> products(ctx);
  double sum = 0;
  for (index_t row = 0; row < rows; row += block) {
    const index_t n = std::min(block, rows - row);
    for (index_t c = 0; c < copies; ++c) {
      weight_product<T>(op, ctx, n, x.value().data() + (c * rows + row) * d, weight, 0, classes, recorded,
                        logits.data() + c * n * classes, epilogue);
    }
    sum += rows_loss(logits.data(), row, n, recorded);
    if (!recorded) continue;
    for (index_t c = 0; c < copies; ++c) {
      const index_t first = (c * rows + row) * d;
      const T* gradient = logits.data() + c * n * classes;
      const T beta = row == 0 && c == 0 ? T(0) : T(1);
      for (index_t begin = 0; begin < classes; begin += part) {
        const index_t count = std::min(part, classes - begin);
        if (wants_x) {
          products.run(true, n, T(1), gradient + begin, weight.value(), begin, count,
                       begin == 0 ? T(0) : T(1), dx.data() + first, {}, classes);
        }
        if (wants_w) {
          kernels::gemm<T>(true, false, count, d, n, T(1), gradient + begin, classes,
                           x.value().data() + first, d, beta, dw.data() + begin * d, d, {},
                           products.precision);
        }
      }
      if (wants_b) kernels::sum_rows<T>(gradient, db.data(), beta, n, classes);
    }
  }
  if (wants_x && classes == 0) dx.fill(T(0));
  if (rows == 0) {
    if (wants_w) dw.fill(T(0));
    if (wants_b) db.fill(T(0));
  }
  Tensor<T> y = Tensor<T>::scalar(static_cast<T>(sum * scale));
  if (not_recorded(y, x, w, b)) return y;
  return record(op, std::move(y), {x, w, b}, SavedTensors(),
                [dx = std::move(dx), dw = std::move(dw), db = std::move(db)](Backward<T>& back) mutable {
                  pass_times_dy(back, {&dx, &dw, &db});
                });
}

// Throws ShapeError unless x (copies * N, d), weight (V, d), bias (V) or absent and targets (N) fit.
template <class T>
void require_linear_loss(const char* op, const Var<T>& x, const Parameter<T>& weight,
                         const Parameter<T>& bias, const Tensor<std::int32_t>& targets, index_t copies = 1) {
  require_defined(op, x, targets);
  if (weight.shape().rank() != 2 || (bias.defined() && bias.shape() != Shape{weight.shape()[0]})) {
    throw ShapeError(op,
                     {"weight '", weight.name(), "' of shape ", weight.shape(),
                      " must be (classes, d), and the bias (classes) or absent"},
                     {weight.shape()});
  }
  if (x.rank() != 2 || x.dim(1) != weight.shape()[-1] || targets.numel() * copies != x.dim(0)) {
    throw ShapeError(op,
                     {"input ", x.shape(), " must be (rows, ", weight.shape()[-1], ") to match '",
                      weight.name(), "' of shape ", weight.shape(), ", with one target ",
                      (copies == 1 ? "a row" : "for two rows"), "; targets have shape ", targets.shape()},
                     {x.shape(), weight.shape(), targets.shape()});
  }
}

}  // namespace detail

/// cross_entropy(linear(x, weight, bias), targets) without storing all logits: product, loss and both
/// gradients are computed for one block of rows after the other, so that memory does not grow with rows x
/// vocabulary.
///
/// x: (N, d); weight: (V, d); bias: (V) or absent; targets: (N). Returns a scalar. Throws as linear and
/// cross_entropy.
template <class T>
[[nodiscard]] Var<T> linear_cross_entropy(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                          const Parameter<T>& weight, const Parameter<T>& bias,
                                          const Tensor<std::int32_t>& targets,
                                          const CrossEntropyOptions& options = {}) {
  constexpr const char* name = "linear_cross_entropy";
  const OpScope scope = detail::scope_of(name);
  detail::require_linear_loss(name, x, weight, bias, targets);
  const auto kernel = detail::kernel_options(options);
  const double scale = detail::loss_scale(options, targets);
  double unsmoothed = 0;
  const auto block = [&](T* logits, index_t row, index_t n, bool recorded) {
    double plain = 0;
    const double sum = detail::kernels::cross_entropy_forward<T>(
        logits, targets.data() + row, n, weight.shape()[0], kernel, nullptr, &plain,
        recorded ? logits : nullptr, static_cast<T>(scale));
    unsmoothed += plain;
    return sum;
  };
  const Var<T> loss = detail::linear_loss(name, ctx, x, weight, bias, 1, scale, block);
  if (options.unsmoothed != nullptr) *options.unsmoothed = unsmoothed;
  return loss;
}

namespace detail {

/// Writes a teacher's probabilities (count, V) for the rows [first, first + count), at the temperature of the
/// objective.
template <class T>
using TeacherRows = std::function<void(index_t first, index_t count, T* probabilities)>;

}  // namespace detail

/// detail::kernels::token_objective() of linear(x, weight, bias), divided by `divisor`, without storing all
/// logits or all of the teacher's probabilities.
///
/// x: (copies * N, d), all rows of the first copy before those of the second, which is needed only for a
/// divergence above 0; weight: (V, d); bias: (V) or absent; targets: (N). teacher: needed for a distillation
/// above 0, else empty. Returns a scalar; `losses` receives its terms. Throws as linear_cross_entropy(), and
/// ValueError for invalid weights of the terms or an invalid temperature.
template <class T>
[[nodiscard]] Var<T> linear_token_objective(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                            const Parameter<T>& weight, const Parameter<T>& bias,
                                            const Tensor<std::int32_t>& targets,
                                            const TokenObjective& objective, double divisor,
                                            const detail::TeacherRows<T>& teacher, TokenLosses& losses) {
  constexpr const char* name = "token_objective";
  const OpScope scope = detail::scope_of(name);
  const auto require = [](bool holds, const char* field, double value, const char* expected) {
    if (!holds) throw ValueError(name, {field, " is ", value, ", must be ", expected});
  };
  require(divisor > 0 && std::isfinite(divisor), "divisor", divisor, "positive");
  require(objective.divergence >= 0 && std::isfinite(objective.divergence), "divergence",
          objective.divergence, "0 or above");
  require(objective.distillation >= 0 && objective.distillation <= 1, "distillation", objective.distillation,
          "in [0, 1]");
  require(objective.temperature > 0 && std::isfinite(objective.temperature), "temperature",
          objective.temperature, "above 0");
  if ((objective.distillation > 0) != static_cast<bool>(teacher)) {
    throw ValueError(name, teacher ? "a teacher is given, but distillation is 0, must be above 0"
                                   : "distillation is above 0, but no teacher is given");
  }
  const index_t copies = objective.divergence > 0 ? 2 : 1;
  detail::require_linear_loss(name, x, weight, bias, targets, copies);
  const double scale = 1 / divisor;
  const index_t classes = weight.shape()[0];
  Tensor<T> probabilities;
  losses = {};
  return detail::linear_loss(name, ctx, x, weight, bias, copies, scale,
                             [&](T* logits, index_t row, index_t n, bool recorded) {
                               if (teacher) {
                                 if (!probabilities.defined()) probabilities = Tensor<T>(Shape{n, classes});
                                 teacher(row, n, probabilities.data());
                               }
                               const TokenLosses sums = detail::kernels::token_objective<T>(
                                   logits, teacher ? probabilities.data() : nullptr, targets.data() + row, n,
                                   copies, classes, objective, static_cast<T>(scale), recorded);
                               losses.words += sums.words;
                               losses.unsmoothed += sums.unsmoothed;
                               losses.divergence += sums.divergence;
                               losses.distillation += sums.distillation;
                               return sums.objective(objective);
                             });
}

}  // namespace eigenformer
