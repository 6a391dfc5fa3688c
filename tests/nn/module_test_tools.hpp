#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/grad_check.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"
#include "fixtures.hpp"
#include "test_tools.hpp"

namespace eigenformer::testing {

/// Sizes that all differ, so that a transposed or swapped tensor cannot stay unseen.
inline constexpr index_t B = 2, L = 5, S = 7, H = 3, D = 12, F = 20, V = 23;

/// A layer of these sizes.
inline LayerOptions small_layer(bool norm_first = false, Activation activation = Activation::relu) {
  return {
      .d_model = D, .num_heads = H, .dim_feedforward = F, .activation = activation, .norm_first = norm_first};
}

template <class T>
Tensor<T> random_tensor(const Shape& shape, std::uint64_t seed, double deviation = 1) {
  RandomGenerator rng(seed);
  Tensor<T> t(shape);
  rng.fill_normal(t.data(), t.numel(), 0, deviation);
  return t;
}

/// Random values for every parameter, gains and biases too, so that none of them can be forgotten unseen.
template <class M>
void randomise(M& module, std::uint64_t seed) {
  RandomGenerator rng(seed);
  for_each_parameter(module, [&](const std::string& name, auto& parameter) {
    auto& value = parameter.value();
    const bool gain = name.find("norm") != std::string::npos && name.find("weight") != std::string::npos;
    rng.fill_normal(value.data(), value.numel(), gain ? 1 : 0, 0.3);
  });
}

/// Options of gradient checks of modules: some elements of each input and parameter, as the ops that modules
/// consist of are checked in full.
inline const GradCheckOptions sampled{.max_elements = 60};

/// CHECKs f's backward with central differences, for its inputs and all parameters of the module.
template <class M, class Function>
void check_backward(M& module, std::vector<Tensor<double>> inputs, Function&& f) {
  const auto result = grad_check(
      [&](Tape<double>& tape, std::vector<Var<double>>& x) { return f(Context<double>::checking(tape), x); },
      std::move(inputs), parameters(module), sampled);
  CHECK_MESSAGE(result.ok, result.str());
}

/// The tolerances of parity: outputs and gradients.
template <class T>
constexpr double output_tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-10;
template <class T>
constexpr double gradient_tolerance = std::is_same_v<T, float> ? 1e-4 : 1e-10;

/// CHECKs a layer against a fixture: output, gradients of inputs and of every parameter. f(ctx, vars) -> Var.
template <class T, class M, class Function>
void check_parity(const Fixture& fixture, M& module, const std::vector<std::string>& inputs,
                  const std::vector<index_t>& output_lengths, Function&& f) {
  const auto run = [&](const Context<T>& ctx, ParityInputs<T>& in) {
    std::vector<Var<T>> vars;
    for (const auto& name : inputs) vars.push_back(in[name]);
    return f(ctx, vars);
  };
  const auto report = eigenformer::check_parity(fixture, module, run,
                                                {.output_tolerance = output_tolerance<T>,
                                                 .gradient_tolerance = gradient_tolerance<T>,
                                                 .lengths = {{"y", output_lengths}}});
  check_report(report);
  std::size_t gradients = 0;
  for_each_parameter(module, [&](const std::string&, const auto&) { ++gradients; });
  CHECK(report.tensors.size() == 1 + gradients + inputs.size());
}

template <class M>
std::vector<std::string> names_of(const M& module) {
  std::vector<std::string> names;
  for (const auto& entry : state_dict(module)) names.push_back(entry.name + " " + entry.value.shape().str());
  return names;
}

/// The rows of sequence b, without padding: (length, d).
template <class T>
Tensor<T> sequence(const Tensor<T>& rows, const SequenceLayout& layout, index_t b) {
  const index_t d = rows.dim(-1);
  return rows.reshape({layout.rows(), d}).rows(layout.offset(b), layout.length(b));
}

}  // namespace eigenformer::testing
