#pragma once

#include <cmath>
#include <functional>
#include <type_traits>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/kernels/normalization/token_objective.hpp"

namespace eigenformer {

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
  const OpScope scope(Runtime::instance().profiler(), name);
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
