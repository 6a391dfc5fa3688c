#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/tape/grad_check.hpp"
#include "eigenformer/core/base/random.hpp"
#include "test_tools.hpp"

namespace eigenformer::testing {

using Vars = std::vector<Var<double>>;

/// Standard normal numbers, the same for the same seed.
inline Tensor<double> random(const Shape& shape, std::uint64_t seed = 1) {
  Tensor<double> t(shape);
  RandomGenerator(seed).fill_normal(t.data(), t.numel(), 0.0, 1.0);
  return t;
}

/// Numbers of either sign at a distance from 0 (low to high), where divisions and kinks are well-behaved.
inline Tensor<double> away_from_zero(const Shape& shape, std::uint64_t seed = 1, double low = 0.5,
                                     double high = 2.0) {
  Tensor<double> t(shape);
  RandomGenerator rng(seed);
  for (double& x : t.span()) x = rng.uniform(low, high) * (rng.uniform_int(2) == 0 ? -1 : 1);
  return t;
}

/// Positive numbers from low to high.
inline Tensor<double> positive(const Shape& shape, std::uint64_t seed = 1, double low = 0.5,
                               double high = 2.0) {
  Tensor<double> t(shape);
  RandomGenerator(seed).fill_uniform(t.data(), t.numel(), low, high);
  return t;
}

/// CHECKs the backward of f(vars) twice: writing the first gradients (beta 0), and adding to gradients that
/// other uses of every input and parameter have left there (beta 1). `parameters` are what f uses beside its
/// inputs.
template <class F>
void check_op(F&& f, const std::vector<Tensor<double>>& inputs,
              const std::vector<ParameterHandle<double>>& parameters = {},
              const GradCheckOptions& options = {}) {
  const auto first = grad_check(
      [&](Tape<double>& tape, const Vars& v) {
        if constexpr (std::is_invocable_v<F, Tape<double>&, const Vars&>)
          return f(tape, v);
        else
          return f(v);
      },
      inputs, parameters, options);
  CHECK_MESSAGE(first.ok, "writing: " << first.str());
  const auto added = grad_check(
      [&](Tape<double>& tape, const Vars& v) {
        Var<double> y;
        if constexpr (std::is_invocable_v<F, Tape<double>&, const Vars&>)
          y = f(tape, v);
        else
          y = f(v);
        // Recorded later, so their backward runs earlier.
        Var<double> rest(Tensor<double>::scalar(0));
        for (const auto& x : v) rest = rest + sum(square(x));
        for (const auto& p : parameters) {
          if (!p->frozen) rest = rest + sum(square(tape.parameter(p)));
        }
        return y + rest;
      },
      inputs, parameters, options);
  CHECK_MESSAGE(added.ok, "adding: " << added.str());
}

/// The largest |actual - expected| / max(1, |expected|); infinity for other shapes or NaN.
template <class T>
double worst_difference(const Tensor<T>& actual, const Tensor<double>& expected) {
  if (actual.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (index_t i = 0; i < actual.numel(); ++i) {
    const double e = expected.data()[i];
    const double d = std::abs(static_cast<double>(actual.data()[i]) - e) / std::max(1.0, std::abs(e));
    if (!(d <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, d);
  }
  return worst;
}

}  // namespace eigenformer::testing
