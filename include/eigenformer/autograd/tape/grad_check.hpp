#pragma once

#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/base/random.hpp"

namespace eigenformer {

/// Options of grad_check().
struct GradCheckOptions {
  double step = 1e-5;           ///< half the width of the central difference, relative to max(1, |x|)
  double tolerance = 1e-6;      ///< on |analytic - numeric| / max(1, |analytic|, |numeric|)
  index_t max_elements = 2000;  ///< most elements checked of each input; larger ones are sampled evenly
  std::uint64_t seed = 1;       ///< of the random cotangent
};

/// The result of grad_check(): the element whose analytic and numeric gradient differ most.
struct GradCheckResult {
  bool ok = true;       ///< whether `error` is at most the tolerance
  double error = 0;     ///< |analytic - numeric| / max(1, |analytic|, |numeric|); may be NaN
  std::string input;    ///< "input 0", or the name of a parameter
  index_t index = 0;    ///< the flat index of the element
  double analytic = 0;  ///< its gradient by backward
  double numeric = 0;   ///< its gradient by central differences

  /// The value of `ok`.
  explicit operator bool() const noexcept { return ok; }
  /// All fields as one line of text.
  std::string str() const {
    std::ostringstream s;
    s.precision(12);
    s << (ok ? "ok" : "FAILED") << ": worst error " << error << " at " << input << "[" << index
      << "], analytic " << analytic << ", numeric " << numeric;
    return s.str();
  }
};

/// Compares the backward of f with central differences, in double.
///
/// f(tape, vars) returns a Var of any shape, computed from Vars of `inputs` and from `parameters`, which it
/// uses through a Context on that tape; it must be deterministic. The gradient of <f, random cotangent> is
/// checked with respect to every input and unfrozen parameter. Values are restored afterwards. Throws
/// ValueError when no input has an element, and what Tape::backward throws.
template <class F>
GradCheckResult grad_check(F&& f, std::vector<Tensor<double>> inputs,
                           const std::vector<ParameterHandle<double>>& parameters = {},
                           const GradCheckOptions& options = {}) {
  Tensor<double> cotangent;
  const auto run = [&](Tape<double>& tape, std::vector<Var<double>>& vars) {
    vars.clear();
    for (const auto& x : inputs) vars.push_back(tape.variable(x));
    return f(tape, vars);
  };
  const auto objective = [&] {
    Tape<double> tape;
    std::vector<Var<double>> vars;
    const Var<double> y = run(tape, vars);
    double sum = 0;
    for (index_t i = 0; i < y.numel(); ++i) sum += y.value().data()[i] * cotangent.data()[i];
    return sum;
  };

  Gradients<double> gradients(parameters);
  std::vector<Tensor<double>> analytic;
  {
    Tape<double> tape;
    std::vector<Var<double>> vars;
    const Var<double> y = run(tape, vars);
    cotangent = Tensor<double>(y.shape());
    RandomGenerator(options.seed).fill_normal(cotangent.data(), cotangent.numel(), 0.0, 1.0);
    tape.backward(y, cotangent, gradients);
    for (const auto& v : vars) analytic.push_back(tape.gradient(v));
  }

  GradCheckResult worst;
  worst.error = -1;
  const auto compare = [&](const std::string& name, Tensor<double>& x, const Tensor<double>& gradient) {
    index_t stride = std::max<index_t>(1, (x.numel() + options.max_elements - 1) / options.max_elements);
    while (std::gcd(stride, x.shape().cols()) > 1) ++stride;  // otherwise it would sample some columns only
    for (index_t i = 0; i < x.numel(); i += stride) {
      double& value = x.data()[i];
      const double kept = value;
      const double h = options.step * std::max(1.0, std::abs(kept));
      value = kept + h;
      const double above = objective();
      value = kept - h;
      const double below = objective();
      value = kept;
      const double numeric = (above - below) / (2 * h);
      const double a = gradient.data()[i];
      const double error = std::abs(a - numeric) / std::max({1.0, std::abs(a), std::abs(numeric)});
      if (error > worst.error || std::isnan(error)) worst = {true, error, name, i, a, numeric};
      if (std::isnan(error)) return;
    }
  };
  for (std::size_t k = 0; k < inputs.size(); ++k)
    compare("input " + std::to_string(k), inputs[k], analytic[k]);
  for (const auto& entry : gradients.entries()) {
    if (entry.parameter->frozen) continue;
    const Tensor<double> gradient =
        entry.written ? entry.value : Tensor<double>::zeros(entry.parameter->value.shape());
    compare(entry.parameter->name.empty() ? "parameter" : entry.parameter->name, entry.parameter->value,
            gradient);
  }
  if (worst.error == -1) throw ValueError("grad_check", "there is nothing to check: no input has an element");
  worst.ok = worst.error <= options.tolerance;
  return worst;
}

}  // namespace eigenformer
