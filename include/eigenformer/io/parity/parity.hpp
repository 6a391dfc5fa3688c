#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/nn/module/module.hpp"

/// @file
/// Comparison of modules with other implementations. A fixture holds the inputs, outputs and gradients of the
/// other implementation in one safetensors file; check_parity() runs the module and reports which tensors
/// differ, by how much and where.
namespace eigenformer {

/// The comparison of one tensor with its expected values.
struct TensorParity {
  std::string name;        ///< name in the fixture, such as "out.y"
  Shape shape{};           ///< of the actual tensor; (0,) when there is none
  Shape expected_shape{};  ///< of the expected tensor; (0,) when there is none
  std::string problem{};   ///< why values cannot be compared: absent, other shape; empty otherwise
  double error = 0;  ///< largest |actual - expected| / max(1, |expected|); infinity for NaN against a number
  double tolerance = 0;          ///< largest error that counts as equal
  std::vector<index_t> index{};  ///< indices of the element with the largest error
  double actual = 0;             ///< its value
  double expected = 0;           ///< its expected value
  index_t differing = 0;         ///< number of elements with an error above the tolerance
  index_t compared = 0;          ///< number of elements that were compared

  /// Whether values could be compared and agree within the tolerance.
  bool ok() const noexcept { return problem.empty() && error <= tolerance; }
};

namespace detail {

// The error is 0 for equal values, equal infinities and two NaNs, and infinite for NaN on one side only.
inline double parity_error(double actual, double expected) noexcept {
  if (actual == expected || (std::isnan(actual) && std::isnan(expected))) return 0;
  const double error = std::abs(actual - expected) / std::max(1.0, std::abs(expected));
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

inline std::vector<index_t> index_of(index_t flat, const Shape& shape) {
  std::vector<index_t> index(static_cast<std::size_t>(shape.rank()));
  for (index_t axis = shape.rank(); axis-- > 0; flat /= shape[axis])
    index[static_cast<std::size_t>(axis)] = flat % shape[axis];
  return index;
}

inline std::string format_number(const char* format, double x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

}  // namespace detail

/// Compares a tensor with its expected values. lengths: for tensors of shape (B, L, ...), the number of rows
/// of each of the B sequences that are compared, so that padding is ignored; empty: all elements are
/// compared.
template <class T, class U>
[[nodiscard]] TensorParity compare_tensors(const std::string& name, const Tensor<T>& actual,
                                           const Tensor<U>& expected, double tolerance,
                                           const std::vector<index_t>& lengths = {}) {
  TensorParity result{
      .name = name, .shape = actual.shape(), .expected_shape = expected.shape(), .tolerance = tolerance};
  if (actual.shape() != expected.shape()) {
    result.problem = "shape " + actual.shape().str() + ", expected " + expected.shape().str();
    return result;
  }
  if (!lengths.empty() && (actual.rank() < 2 || actual.dim(0) != static_cast<index_t>(lengths.size()))) {
    result.problem = "shape " + actual.shape().str() + ", expected (B, L, ...) with " +
                     std::to_string(lengths.size()) + " sequences";
    return result;
  }
  const index_t per_sequence = lengths.empty() || actual.dim(0) == 0 ? 0 : actual.numel() / actual.dim(0);
  const index_t per_row = per_sequence == 0 ? 0 : per_sequence / actual.dim(1);
  index_t worst = -1;
  for (index_t i = 0; i < actual.numel(); ++i) {
    if (per_sequence > 0 &&
        i % per_sequence / per_row >= lengths[static_cast<std::size_t>(i / per_sequence)]) {
      continue;
    }
    const double error =
        detail::parity_error(static_cast<double>(actual.data()[i]), static_cast<double>(expected.data()[i]));
    ++result.compared;
    if (!(error <= tolerance)) ++result.differing;
    if (worst < 0 || error > result.error) {
      result.error = error;
      worst = i;
    }
  }
  if (worst >= 0) {
    result.index = detail::index_of(worst, actual.shape());
    result.actual = static_cast<double>(actual.data()[worst]);
    result.expected = static_cast<double>(expected.data()[worst]);
  }
  return result;
}

/// The result of a comparison with another implementation.
struct ParityReport {
  std::vector<TensorParity> tensors;  ///< one entry per tensor

  /// Whether all tensors agree; true for none.
  bool ok() const noexcept {
    return std::all_of(tensors.begin(), tensors.end(), [](const TensorParity& t) { return t.ok(); });
  }

  /// The largest error of all tensors; infinity when one could not be compared.
  double worst() const noexcept {
    double worst = 0;
    for (const TensorParity& t : tensors) {
      worst = std::max(worst, t.problem.empty() ? t.error : std::numeric_limits<double>::infinity());
    }
    return worst;
  }

  /// A readable table: name, shape, error, tolerance, and for a tensor that differs the index of the largest
  /// error, both values there and the number of elements that differ. all: false to list only tensors that
  /// differ.
  std::string str(bool all = true) const;
};

/// A safetensors file of another implementation's inputs, outputs and gradients, with these tensors:
///
/// | tensor | contents |
/// |---|---|
/// | `param.NAME` | a parameter, by the module's name for it; all or none |
/// | `in.NAME` | an input: numbers, tokens or a mask |
/// | `out.NAME` | an output; `out.y` for a module with a single one |
/// | `in.cotangent`, `in.cotangent_NAME` | the gradient of the loss with respect to `out.y`, `out.NAME` |
/// | `grad.NAME` | the gradient of a parameter |
/// | `grad_in.NAME` | the gradient of an input |
///
/// Unless the module returns its own loss, the loss is the sum of outputs times cotangents.
/// examples/parity/make_fixture.py writes such a file for a PyTorch module.
class ParityFixture {
 public:
  /// Opens a file. Throws IoError when it is not a safetensors file.
  static ParityFixture open(const std::filesystem::path& path) {
    return ParityFixture(SafetensorsFile::open(path));
  }

  /// file: an open file with the tensors above.
  explicit ParityFixture(SafetensorsFile file) : file_(std::move(file)) {}

  /// The file that the fixture reads.
  const SafetensorsFile& file() const noexcept { return file_; }

  /// Whether there is a tensor of this full name, such as "in.x".
  bool contains(const std::string& name) const { return file_.contains(name); }

  /// A tensor by its full name, such as "in.x": T is float or double for numbers, bool for masks, int32_t for
  /// tokens. Throws IoError as SafetensorsFile::tensor() does.
  template <class T>
  Tensor<T> get(const std::string& name) const {
    return file_.tensor<T>(name);
  }

  /// A value of the JSON object in the file's metadata "options", which holds the options of the module: X is
  /// a number, std::string or bool. Throws IoError when there is no such object, no such value, or one of
  /// another type.
  template <class X>
  X option(const std::string& name) const {
    const auto refuse = [&](std::initializer_list<detail::MessagePart> what) {
      return IoError("parity",
                     {"'", file_.path().string(), "' is not a parity fixture: ", detail::join(what)});
    };
    const auto text = file_.metadata().find("options");
    if (text == file_.metadata().end()) throw refuse({"it has no metadata 'options'"});
    const auto options = detail::parse_json(text->second);
    if (!options.is_object()) throw refuse({"its metadata 'options' is not a JSON object"});
    if (!options.contains(name)) throw refuse({"it has no '", name, "' in its metadata 'options'"});
    const nlohmann::json& value = options.at(name);
    try {
      if (X x = value.get<X>(); value == nlohmann::json(x)) return x;
    } catch (const nlohmann::json::exception&) {  // of another kind, as below
    }
    throw refuse({"'", name, "' in its metadata 'options' is ", value.dump(),
                  ", which has another type than expected"});
  }

  /// A tensor of whole numbers as a vector, such as "in.src_lengths". Throws IoError as get() does.
  std::vector<index_t> lengths(const std::string& name) const {
    const auto t = file_.tensor<std::int64_t>(name);
    return {t.span().begin(), t.span().end()};
  }

  /// All tensors whose names begin with `prefix`, by the rest of the name. Throws IoError as get() does.
  template <class T>
  std::map<std::string, Tensor<T>> all(const std::string& prefix) const {
    std::map<std::string, Tensor<T>> found;
    for (const std::string& name : file_.names()) {
      if (name.starts_with(prefix)) found.emplace(name.substr(prefix.size()), file_.tensor<T>(name));
    }
    return found;
  }

 private:
  SafetensorsFile file_;
};

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
  /// Several outputs, by name, and the loss whose gradients the fixture holds, if it is the module's own.
  ParityOutputs(std::vector<std::pair<std::string, Var<T>>> named, Var<T> own_loss = {})
      : outputs(std::move(named)), loss(std::move(own_loss)) {}
};

namespace detail {

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

/// Loads the parameters of a fixture into a module. Throws ValueError that lists *all* missing, unexpected
/// and misshaped parameters.
template <class M>
void load_parameters(const ParityFixture& fixture, M& module) {
  using T = typename M::value_type;
  std::vector<StateEntry<T>> entries;
  for (const auto& [name, tensor] : fixture.all<T>("param.")) entries.push_back({name, tensor, {}});
  load_state_dict(module, entries);
}

}  // namespace detail

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
  if (any("param.")) detail::load_parameters(fixture, module);
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
                    {"'", fixture.file().path().string(),
                     "' has gradients, but no in.cotangent to compute them from; pass a loss"});
    }
  }
  Gradients<T> gradients(parameters(module));
  tape.backward(loss, gradients);
  detail::compare_gradients(report, fixture, module, gradients, options.gradient_tolerance);
  for (const auto& [name, x] : inputs.vars()) {
    if (!fixture.contains("grad_in." + name)) continue;
    report.tensors.push_back(compare_tensors("grad_in." + name, tape.gradient(x),
                                             fixture.get<double>("grad_in." + name),
                                             options.gradient_tolerance));
  }
  return report;
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION std::string ParityReport::str(bool all) const {
  std::vector<std::vector<std::string>> rows = {{"tensor", "shape", "error", "tolerance", ""}};
  index_t agree = 0;
  for (const TensorParity& t : tensors) {
    agree += t.ok() ? 1 : 0;
    if (t.ok() && !all) continue;
    std::string verdict = "ok";
    if (!t.problem.empty()) {
      verdict = "DIFFERS: " + t.problem;
    } else if (!t.ok()) {
      std::string at;
      for (const index_t i : t.index) at += (at.empty() ? "" : ", ") + std::to_string(i);
      verdict = "DIFFERS at [" + at + "]: " + detail::format_number("%.9g", t.actual) + ", expected " +
                detail::format_number("%.9g", t.expected) + "; " + std::to_string(t.differing) + " of " +
                std::to_string(t.compared) + " elements differ";
    }
    rows.push_back({t.name, t.shape.str(), t.problem.empty() ? detail::format_number("%.1e", t.error) : "",
                    detail::format_number("%.0e", t.tolerance), verdict});
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += (i == 0 ? "" : "  ") + row[i] + std::string(widths[i] - row[i].size(), ' ');
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text + std::to_string(agree) + " of " + std::to_string(tensors.size()) + " tensors agree\n";
}

}  // namespace eigenformer

#endif
