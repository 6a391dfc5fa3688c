#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

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
  for (index_t axis = shape.rank(); axis-- > 0;) {
    index[static_cast<std::size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
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
  std::string str(bool all = true) const {
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
};

}  // namespace eigenformer
