#include "eigenformer/kernels/normalization/layer_norm.hpp"

#include <vector>

#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::kernels::layer_norm_backward;
using detail::kernels::layer_norm_forward;

constexpr auto formula = LayerNormFormula::pytorch;

struct Reference {
  std::vector<double> y, dx, dgamma;
};

/// Plain loops in double; the gradient of a row is the Jacobian's product, written out.
template <class T>
Reference reference(const std::vector<T>& x, const std::vector<T>& gamma, const std::vector<T>& dy,
                    double eps, index_t rows, index_t n) {
  Reference out;
  out.dgamma.assign(gamma.size(), 0);
  for (index_t r = 0; r < rows; ++r) {
    const auto at = [&](const std::vector<T>& v, index_t i) {
      return static_cast<double>(v[static_cast<std::size_t>(r * n + i)]);
    };
    double squares = 0;
    for (index_t i = 0; i < n; ++i) squares += at(x, i) * at(x, i);
    const double rms = std::sqrt(squares / static_cast<double>(n) + eps);
    for (index_t j = 0; j < n; ++j) {
      const auto gain = [&](index_t i) { return static_cast<double>(gamma[static_cast<std::size_t>(i)]); };
      out.y.push_back(at(x, j) / rms * gain(j));
      out.dgamma[static_cast<std::size_t>(j)] += at(dy, j) * at(x, j) / rms;
      double d = 0;
      for (index_t i = 0; i < n; ++i) {
        const double slope =
            (i == j ? 1 / rms : 0.0) - at(x, i) * at(x, j) / (static_cast<double>(n) * rms * rms * rms);
        d += at(dy, i) * gain(i) * slope;
      }
      out.dx.push_back(d);
    }
  }
  return out;
}

TEST_CASE_TEMPLATE("rms_norm and its gradients equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const index_t n : edge_sizes) {
      CAPTURE(n);
      const index_t rows = n == 17 ? 131 : 5;
      const auto x = random_values<T>(rows * n, 1), dy = random_values<T>(rows * n, 2);
      const auto gamma = random_values<T>(n, 3, 0.5, 2);
      const T eps = T(1e-3);
      const auto expected = reference(x, gamma, dy, static_cast<double>(eps), rows, n);
      std::vector<T> y(x.size()), rstd(static_cast<std::size_t>(rows));
      layer_norm_forward<T>(x.data(), gamma.data(), nullptr, eps, formula, false, y.data(), nullptr,
                            rstd.data(), rows, n);
      CHECK(worst_error(y, expected.y) < 10 * tolerance<T>);
      std::vector<T> alone(x.size());  // without the factors for a backward
      layer_norm_forward<T>(x.data(), gamma.data(), nullptr, eps, formula, false, alone.data(), nullptr,
                            nullptr, rows, n);
      CHECK(alone == y);
      for (const T b : {T(0), T(1)}) {
        const T old = b == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0.25);
        std::vector<T> dx(x.size(), old), dgamma(gamma.size(), old);
        layer_norm_backward<T>(x.data(), gamma.data(), nullptr, rstd.data(), dy.data(), formula, false,
                               dx.data(), b, dgamma.data(), nullptr, b, rows, n);
        const auto shifted = [b](std::vector<double> v) {
          for (double& e : v) e += static_cast<double>(b) * 0.25;
          return v;
        };
        CHECK(worst_error(dx, shifted(expected.dx)) < 50 * tolerance<T>);
        CHECK(worst_error(dgamma, shifted(expected.dgamma)) < 50 * tolerance<T>);
      }
    }
  });
}

TEST_CASE_TEMPLATE("add_rms_norm is the norm of the sum, in place too, and drops as the dropout kernel does",
                   T, float, double) {
  for_each_isa([&] {
    const index_t rows = 5, n = 35;
    const auto x = random_values<T>(rows * n, 1), r = random_values<T>(rows * n, 2);
    for (const double rate : {0.0, 0.5}) {
      const detail::kernels::RowDropout dropout{rate, {1, 2, 3}, nullptr};
      std::vector<T> sum(x.size()), s(x.size()), y(x.size()), expected(x.size()), rstd(5);
      detail::kernels::dropout_rows<T>(r.data(), sum.data(), rows, n, n, dropout, x.data());
      layer_norm_forward<T>(sum.data(), nullptr, nullptr, T(1e-5), formula, false, expected.data(), nullptr,
                            rstd.data(), rows, n);
      layer_norm_forward<T>(x.data(), nullptr, nullptr, T(1e-5), formula, false, y.data(), nullptr,
                            rstd.data(), rows, n, r.data(), s.data(), dropout);
      CHECK(s == sum);
      CHECK(worst_error(y, expected) < tolerance<T>);
      std::vector<T> place = x;
      layer_norm_forward<T>(place.data(), nullptr, nullptr, T(1e-5), formula, false, y.data(), nullptr,
                            rstd.data(), rows, n, r.data(), place.data(), dropout);
      CHECK(place == sum);
    }
  });
}

}  // namespace
