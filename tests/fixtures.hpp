#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/autograd/gradients.hpp"
#include "eigenformer/io/safetensors.hpp"
#include "eigenformer/nn/module.hpp"

#ifndef EIGENFORMER_FIXTURES
#error "define EIGENFORMER_FIXTURES as the path of the folder tests/fixtures, as a string"
#endif

namespace eigenformer::testing {

/// One file of PyTorch's reference values; what the names mean is told in tests/fixtures/generate.py.
class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : file_(SafetensorsFile::open(std::filesystem::path(EIGENFORMER_FIXTURES) / (name + ".safetensors"))) {}

  const SafetensorsFile& file() const noexcept { return file_; }

  /// A tensor by its full name, such as "in.x": float or double for numbers, bool for masks, int32_t for
  /// tokens.
  template <class T>
  Tensor<T> get(const std::string& name) const {
    return file_.tensor<T>(name);
  }

  /// A vector of whole numbers, such as "in.src_lengths".
  std::vector<index_t> lengths(const std::string& name) const {
    const auto t = file_.tensor<std::int64_t>(name);
    return {t.span().begin(), t.span().end()};
  }

  /// All tensors whose names begin with `prefix`, keyed by the rest of the name.
  template <class T>
  std::map<std::string, Tensor<T>> all(const std::string& prefix) const {
    std::map<std::string, Tensor<T>> found;
    for (const std::string& name : file_.names()) {
      if (name.rfind(prefix, 0) == 0) found.emplace(name.substr(prefix.size()), file_.tensor<T>(name));
    }
    return found;
  }

  /// The sizes and settings of the generator script.
  nlohmann::json options() const { return nlohmann::json::parse(file_.metadata().at("options")); }

 private:
  SafetensorsFile file_;
};

/// The largest |actual - expected| / max(1, |expected|); infinity for NaN or other shapes.
template <class T>
double worst_error(const Tensor<T>& actual, const Tensor<T>& expected) {
  if (actual.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (index_t i = 0; i < actual.numel(); ++i) {
    const double e = static_cast<double>(expected.data()[i]);
    const double error = std::abs(static_cast<double>(actual.data()[i]) - e) / std::max(1.0, std::abs(e));
    if (!(error <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

/// CHECKs that two tensors have one shape and agree, relative to max(1, |expected|).
template <class T>
void check_close(const Tensor<T>& actual, const Tensor<T>& expected, double tolerance,
                 const std::string& what = "") {
  CHECK_MESSAGE(actual.shape() == expected.shape(),
                what << ": shape " << actual.shape().str() << ", expected " << expected.shape().str());
  CHECK_MESSAGE(worst_error(actual, expected) <= tolerance,
                what << ": error " << worst_error(actual, expected));
}

/// CHECKs the rows inside the lengths of a (B, L, ...) tensor; what padded rows hold does not matter.
template <class T>
void check_rows_close(const Tensor<T>& actual, const Tensor<T>& expected, const std::vector<index_t>& lengths,
                      double tolerance, const std::string& what = "") {
  REQUIRE_MESSAGE(actual.shape() == expected.shape(),
                  what << ": shape " << actual.shape().str() << ", expected " << expected.shape().str());
  for (index_t b = 0; b < actual.dim(0); ++b) {
    const index_t n = lengths.at(static_cast<std::size_t>(b));
    const Shape row = actual.shape().without(0);
    check_close(actual.rows(b, 1).reshape(row).rows(0, n), expected.rows(b, 1).reshape(row).rows(0, n),
                tolerance, what + ", sequence " + std::to_string(b));
  }
}

/// Gives a module the fixture's parameters ("param.*"); all names and shapes must fit.
template <class M>
void load_parameters(const Fixture& fixture, M& module, const std::string& prefix = "param.") {
  using T = typename M::value_type;
  std::vector<StateEntry<T>> entries;
  for (const auto& [name, tensor] : fixture.all<T>(prefix)) entries.push_back({name, tensor, {}});
  load_state_dict(module, entries);
}

/// CHECKs every parameter's gradient against the fixture's "grad.*", and that there is one for each.
template <class M, class T>
void check_gradients(const Fixture& fixture, const M& module, const Gradients<T>& gradients,
                     double tolerance) {
  auto expected = fixture.all<T>("grad.");
  for_each_parameter(module, [&](const std::string& name, const auto& parameter) {
    const auto at = expected.find(name);
    CHECK_MESSAGE(at != expected.end(), "the fixture has no gradient of " << name);
    if (at == expected.end()) return;
    check_close(gradients.of(parameter), at->second, tolerance, "gradient of " + name);
    expected.erase(at);
  });
  for (const auto& left : expected) {
    CHECK_MESSAGE(false,
                  "the module has no parameter " << left.first << " of shape " << left.second.shape().str());
  }
}

/// An empty folder that is removed, with all its contents, with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "eigenformer-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw IoError("test", "cannot create a temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  /// The names of everything in the folder, hidden ones too, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace eigenformer::testing
