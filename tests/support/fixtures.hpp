#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/io/parity/parity.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"

namespace eigenformer::testing {

/// One file of PyTorch's reference values in tests/fixtures/parity, such as "layers/linear";
/// tests/fixtures/scripts/generate.py says what the names in it mean.
class Fixture : public ParityFixture {
 public:
  explicit Fixture(const std::string& name)
      : ParityFixture(open(fixtures_folder() / "parity" / (name + ".safetensors"))) {}

  /// The sizes and settings of the generator script.
  nlohmann::json options() const { return nlohmann::json::parse(file().metadata().at("options")); }
};

/// CHECKs that all tensors of a report agree, and prints those that do not.
inline void check_report(const ParityReport& report) {
  CHECK_MESSAGE(report.ok(), '\n' << report.str(false));
}

/// The largest |actual - expected| / max(1, |expected|); infinity for NaN or other shapes.
template <class T>
double worst_error(const Tensor<T>& actual, const Tensor<T>& expected) {
  return ParityReport{{compare_tensors("", actual, expected, 0)}}.worst();
}

/// CHECKs that two tensors have one shape and agree, relative to max(1, |expected|).
template <class T>
void check_close(const Tensor<T>& actual, const Tensor<T>& expected, double tolerance,
                 const std::string& what = "") {
  check_report({{compare_tensors(what, actual, expected, tolerance)}});
}

/// CHECKs the rows inside the lengths of a (B, L, ...) tensor; what padded rows hold does not matter.
template <class T>
void check_rows_close(const Tensor<T>& actual, const Tensor<T>& expected, const std::vector<index_t>& lengths,
                      double tolerance, const std::string& what = "") {
  check_report({{compare_tensors(what, actual, expected, tolerance, lengths)}});
}

/// CHECKs every parameter's gradient against the fixture's "grad.*", and that there is one for each.
template <class M, class T>
void check_gradients(const Fixture& fixture, const M& module, const Gradients<T>& gradients,
                     double tolerance) {
  ParityReport report;
  detail::compare_gradients(report, fixture, module, gradients, tolerance);
  check_report(report);
}

}  // namespace eigenformer::testing
