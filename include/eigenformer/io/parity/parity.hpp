#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/shape/reduce.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/io/parity/parity_fixture.hpp"
#include "eigenformer/io/parity/parity_report.hpp"
#include "eigenformer/nn/module/module.hpp"

/// @file
/// Comparison of modules with other implementations. A fixture holds the inputs, outputs and gradients of the
/// other implementation in one safetensors file; check_parity() runs the module and reports which tensors
/// differ, by how much and where.
namespace eigenformer {

/// Options of check_parity().
struct ParityOptions {
  double output_tolerance = 1e-5;    ///< largest error of outputs, relative to max(1, |expected|)
  double gradient_tolerance = 1e-4;  ///< largest error of gradients, relative to max(1, |expected|)
  /// By the name of an output (B, L, ...): how many rows of each sequence are compared; without an entry,
  /// all.
  std::map<std::string, std::vector<index_t>> lengths{};
  bool gradients = true;  ///< false: outputs only
};

/// The inputs of a fixture as Vars, made on first use; the gradients of those used are compared.
template <class T>
class ParityInputs {
 public:
  /// Holds both by reference.
  ParityInputs(const ParityFixture& fixture, Tape<T>& tape) : fixture_(fixture), tape_(tape) {}

  /// The input `in.NAME`, a tensor of numbers, on the tape. Throws IoError when the fixture does not have it.
  Var<T> operator[](const std::string& name) {
    const auto at = vars_.find(name);
    if (at != vars_.end()) return at->second;
    return vars_.emplace(name, tape_.variable(fixture_.get<T>("in." + name))).first->second;
  }

  /// The inputs used so far, by name.
  const std::map<std::string, Var<T>>& vars() const noexcept { return vars_; }

 private:
  const ParityFixture& fixture_;
  Tape<T>& tape_;
  std::map<std::string, Var<T>> vars_;
};

/// The outputs of a module by name, and optionally its own loss.
template <class T>
struct ParityOutputs {
  std::vector<std::pair<std::string, Var<T>>> outputs;  ///< names, as in `out.NAME`, and values
  Var<T> loss{};  ///< scalar; undefined: the sum of outputs times the fixture's cotangents

  /// A single output, called y.
  ParityOutputs(Var<T> y) : outputs{{"y", std::move(y)}} {}
  /// Several outputs, by name.
  ParityOutputs(std::vector<std::pair<std::string, Var<T>>> named) : outputs(std::move(named)) {}
  /// Several outputs, by name, and the loss whose gradients the fixture holds.
  ParityOutputs(std::vector<std::pair<std::string, Var<T>>> named, Var<T> own_loss)
      : outputs(std::move(named)), loss(std::move(own_loss)) {}
};

/// Compares the gradients of a module's parameters with those of a fixture, `grad.NAME`, and adds the results
/// to `report`; missing and superfluous gradients are reported as problems.
template <class M, class T>
void compare_gradients(ParityReport& report, const ParityFixture& fixture, const M& module,
                       const Gradients<T>& gradients, double tolerance) {
  auto expected = fixture.all<double>("grad.");
  for_each_parameter(module, [&](const std::string& name, const auto& parameter) {
    const auto at = expected.find(name);
    if (at == expected.end()) {
      report.tensors.push_back({.name = "grad." + name,
                                .shape = parameter.shape(),
                                .problem = "the fixture has no such gradient",
                                .tolerance = tolerance});
      return;
    }
    report.tensors.push_back(compare_tensors("grad." + name, gradients.of(parameter), at->second, tolerance));
    expected.erase(at);
  });
  for (const auto& [name, gradient] : expected) {
    report.tensors.push_back({.name = "grad." + name,
                              .expected_shape = gradient.shape(),
                              .problem = "the module has no parameter of shape " + gradient.shape().str(),
                              .tolerance = tolerance});
  }
}

/// Loads the parameters of a fixture, those whose names begin with `prefix`, into a module. Throws ValueError
/// that lists *all* missing, unexpected and misshaped parameters.
template <class M>
void load_parameters(const ParityFixture& fixture, M& module, const std::string& prefix = "param.") {
  using T = typename M::value_type;
  std::vector<StateEntry<T>> entries;
  for (const auto& [name, tensor] : fixture.all<T>(prefix)) entries.push_back({name, tensor, {}});
  load_state_dict(module, entries);
}

/// Runs a module on a fixture's inputs and compares its outputs, and the gradients of its parameters and of
/// the inputs that it used, with the fixture's. Parameters are loaded from the fixture if it has any.
/// run(ctx, inputs) calls the module and returns a Var, or ParityOutputs for several outputs or a loss.
/// Throws IoError for a tensor that the fixture lacks, ValueError for parameters that do not match.
///
///     auto fixture = ef::ParityFixture::open("encoder.safetensors");
///     auto run = [&](const ef::Context<float>& ctx, ef::ParityInputs<float>& in) {
///       return encoder(ctx, in["src"], ef::AttentionMask::key_padding(fixture.get<bool>("in.padding")));
///     };
///     std::cout << ef::check_parity(fixture, encoder, run).str();
template <class M, class F>
[[nodiscard]] ParityReport check_parity(const ParityFixture& fixture, M& module, F&& run,
                                        const ParityOptions& options = {}) {
  using T = typename M::value_type;
  const auto names = fixture.file().names();
  const auto any = [&](const char* prefix) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& n) { return n.starts_with(prefix); });
  };
  if (any("param.")) load_parameters(fixture, module);
  Tape<T> tape;
  ParityInputs<T> inputs(fixture, tape);
  const ParityOutputs<T> result = run(Context<T>::checking(tape), inputs);
  ParityReport report;
  for (const auto& [name, y] : result.outputs) {
    const auto lengths = options.lengths.find(name);
    report.tensors.push_back(compare_tensors(
        "out." + name, y.value(), fixture.get<double>("out." + name), options.output_tolerance,
        lengths == options.lengths.end() ? std::vector<index_t>() : lengths->second));
  }
  // When shapes differ, a cotangent of the expected shape does not match either.
  const bool comparable = std::all_of(report.tensors.begin(), report.tensors.end(),
                                      [](const TensorParity& t) { return t.problem.empty(); });
  if (!options.gradients || !comparable || !(any("grad.") || any("grad_in."))) return report;
  Var<T> loss = result.loss;
  if (!loss.defined()) {
    for (const auto& [name, y] : result.outputs) {
      const std::string cotangent = name == "y" ? "in.cotangent" : "in.cotangent_" + name;
      if (!fixture.contains(cotangent)) continue;
      const Var<T> term = sum(multiply(y, fixture.get<T>(cotangent)));
      loss = loss.defined() ? add(loss, term) : term;
    }
    if (!loss.defined()) {
      throw IoError("check_parity",
                    "'" + fixture.file().path().string() +
                        "' has gradients, but no in.cotangent to compute them from; pass a loss");
    }
  }
  Gradients<T> gradients(parameters(module));
  tape.backward(loss, gradients);
  compare_gradients(report, fixture, module, gradients, options.gradient_tolerance);
  for (const auto& [name, x] : inputs.vars()) {
    if (!fixture.contains("grad_in." + name)) continue;
    report.tensors.push_back(compare_tensors("grad_in." + name, tape.gradient(x),
                                             fixture.get<double>("grad_in." + name),
                                             options.gradient_tolerance));
  }
  return report;
}

}  // namespace eigenformer
