#include <string>

#include "eigenformer/kernels/normalization/layer_norm.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

struct Reference {
  std::vector<double> y, dx, dgamma, dbeta;
};

/// Plain loops in double. The gradient of a row is the Jacobian's product, written out: dy_i/dx_j.
template <class T>
Reference reference(const std::vector<T>& x, const std::vector<T>& gamma, const std::vector<T>& beta,
                    const std::vector<T>& dy, double eps, LayerNormFormula formula, index_t rows, index_t n) {
  const auto at = [](const std::vector<T>& v, index_t i) {
    return static_cast<double>(v[static_cast<std::size_t>(v.size() == 1 ? 0 : i)]);
  };
  Reference out;
  out.dgamma.assign(gamma.size(), 0);
  out.dbeta.assign(gamma.size(), 0);
  for (index_t r = 0; r < rows; ++r) {
    const T* row = x.data() + r * n;
    const T* cotangent = dy.data() + r * n;
    double mean = 0, sum = 0;
    for (index_t i = 0; i < n; ++i) mean += static_cast<double>(row[i]) / static_cast<double>(n);
    for (index_t i = 0; i < n; ++i) sum += std::pow(static_cast<double>(row[i]) - mean, 2);
    const bool pytorch = formula == LayerNormFormula::pytorch;
    const double count = static_cast<double>(pytorch ? n : n - 1);
    const double scale = pytorch ? std::sqrt(sum / count + eps) : std::sqrt(sum / count) + eps;
    // d scale / d x_j = (x_j - mean) / (count * root), root being what stands under the square root's sign.
    const double root = pytorch ? scale : std::sqrt(sum / count);
    for (index_t j = 0; j < n; ++j) {
      const double xj = static_cast<double>(row[j]) - mean;
      out.y.push_back(xj / scale * at(gamma, j) + at(beta, j));
      double d = 0;
      for (index_t i = 0; i < n; ++i) {
        const double xi = static_cast<double>(row[i]) - mean;
        const double slope = root > 0 ? xi * xj / (scale * scale * count * root) : 0;
        d += static_cast<double>(cotangent[i]) * at(gamma, i) *
             (((i == j ? 1.0 : 0.0) - 1.0 / static_cast<double>(n)) / scale - slope);
      }
      out.dx.push_back(d);
      const auto p = static_cast<std::size_t>(gamma.size() == 1 ? 0 : j);
      out.dgamma[p] += static_cast<double>(cotangent[j]) * xj / scale;
      out.dbeta[p] += static_cast<double>(cotangent[j]);
    }
  }
  return out;
}

TEST_CASE_TEMPLATE("layer_norm and its gradients equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
      for (const bool scalar : {false, true}) {
        for (const index_t n : edge_sizes) {
          if (n == 1) continue;
          CAPTURE(n);
          CAPTURE(scalar);
          const index_t rows = n == 17 ? 131 : 5;
          const index_t parameters = scalar ? 1 : n;
          const auto x = random_values<T>(rows * n, 1), dy = random_values<T>(rows * n, 2);
          const auto gamma = random_values<T>(parameters, 3, 0.5, 2), beta = random_values<T>(parameters, 4);
          const T eps = T(1e-3);
          const auto expected = reference(x, gamma, beta, dy, static_cast<double>(eps), formula, rows, n);
          std::vector<T> y(x.size()), mean(static_cast<std::size_t>(rows)), rstd(mean.size());
          detail::kernels::layer_norm_forward(x.data(), gamma.data(), beta.data(), eps, formula, scalar,
                                              y.data(), mean.data(), rstd.data(), rows, n);
          CHECK(worst_error(y, expected.y) < 10 * tolerance<T>);
          for (const T b : {T(0), T(1)}) {
            const T old = b == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0.25);
            std::vector<T> dx(x.size(), old), dgamma(gamma.size(), old), dbeta(gamma.size(), old);
            detail::kernels::layer_norm_backward(x.data(), gamma.data(), mean.data(), rstd.data(), dy.data(),
                                                 formula, scalar, dx.data(), b, dgamma.data(), dbeta.data(),
                                                 b, rows, n);
            const auto shifted = [b](std::vector<double> v) {
              for (double& e : v) e += static_cast<double>(b) * 0.25;
              return v;
            };
            CHECK(worst_error(dx, shifted(expected.dx)) < 50 * tolerance<T>);
            CHECK(worst_error(dgamma, shifted(expected.dgamma)) < 50 * tolerance<T>);
            CHECK(worst_error(dbeta, shifted(expected.dbeta)) < 50 * tolerance<T>);
          }
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("the two formulas differ as their sources do", T, float, double) {
  for_each_isa([&] {
    const std::vector<T> x = {1, 0, 0, 0};
    std::vector<T> y(4), mean(1), rstd(1);
    const T* none = nullptr;
    detail::kernels::layer_norm_forward(x.data(), none, none, T(1e-12), LayerNormFormula::pytorch, false,
                                        y.data(), mean.data(), rstd.data(), 1, 4);
    CHECK(static_cast<double>(y[0]) == doctest::Approx(1.7320508));
    detail::kernels::layer_norm_forward(x.data(), none, none, T(1e-12), LayerNormFormula::teaching, false,
                                        y.data(), mean.data(), rstd.data(), 1, 4);
    CHECK(static_cast<double>(y[0]) == doctest::Approx(1.5));
    // A row of tiny variance: eps rules, and where it stands matters.
    const std::vector<T> tiny = {T(1e-4), T(-1e-4), T(1e-4), T(-1e-4)};
    detail::kernels::layer_norm_forward(tiny.data(), none, none, T(1e-5), LayerNormFormula::pytorch, false,
                                        y.data(), mean.data(), rstd.data(), 1, 4);
    CHECK(static_cast<double>(y[0]) == doctest::Approx(1e-4 / std::sqrt(1e-8 + 1e-5)).epsilon(1e-4));
    detail::kernels::layer_norm_forward(tiny.data(), none, none, T(1e-5), LayerNormFormula::teaching, false,
                                        y.data(), mean.data(), rstd.data(), 1, 4);
    CHECK(static_cast<double>(y[0]) == doctest::Approx(1e-4 / (std::sqrt(4e-8 / 3) + 1e-5)).epsilon(1e-4));
  });
}

TEST_CASE_TEMPLATE("a constant row gives beta and finite gradients", T, float, double) {
  for_each_isa([&] {
    for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
      const std::vector<T> x(7, T(3)), beta = random_values<T>(7, 1), dy = random_values<T>(7, 2);
      std::vector<T> y(7), mean(1), rstd(1), dx(7);
      const T* none = nullptr;
      detail::kernels::layer_norm_forward(x.data(), none, beta.data(), T(1e-5), formula, false, y.data(),
                                          mean.data(), rstd.data(), 1, 7);
      CHECK(y == beta);
      detail::kernels::layer_norm_backward<T>(x.data(), none, mean.data(), rstd.data(), dy.data(), formula,
                                              false, dx.data(), T(0), nullptr, nullptr, T(0), 1, 7);
      for (const T g : dx) CHECK(std::isfinite(g));
    }
  });
}

TEST_CASE_TEMPLATE("a large mean does not cost the variance its accuracy", T, float, double) {
  for_each_isa([&] {
    const std::vector<T> x = {T(4097), T(4095), T(4097), T(4095)};
    std::vector<T> y(4), mean(1), rstd(1);
    const T* none = nullptr;
    detail::kernels::layer_norm_forward(x.data(), none, none, T(0), LayerNormFormula::pytorch, false,
                                        y.data(), mean.data(), rstd.data(), 1, 4);
    CHECK(y == std::vector<T>{1, -1, 1, -1});
  });
}

TEST_CASE_TEMPLATE("add_layer_norm is dropout, addition and layer_norm in one", T, float, double) {
  for_each_isa([&] {
    for (const double rate : {0.0, 0.3}) {
      for (const index_t n : {5, 64, 131}) {
        const index_t rows = 7;
        const auto x = random_values<T>(rows * n, 1), r = random_values<T>(rows * n, 2),
                   gamma = random_values<T>(n, 3);
        std::vector<detail::RowKey> keys;
        for (std::uint32_t i = 0; i < 7; ++i) keys.push_back({i / 3 + 10, i % 3});
        const detail::DropoutKey key{5, 6, 7};
        for (const detail::RowKey* rows_of :
             {static_cast<const detail::RowKey*>(nullptr), static_cast<const detail::RowKey*>(keys.data())}) {
          std::vector<T> sum(x.size()), expected(x.size()), s(x.size()), y(x.size()), mean(7), rstd(7), m(7),
              d(7);
          const detail::kernels::RowDropout dropout{rate, key, rows_of};
          detail::kernels::dropout_rows(r.data(), sum.data(), rows, n, n, dropout, x.data());
          const T* none = nullptr;
          detail::kernels::layer_norm_forward(sum.data(), gamma.data(), none, T(1e-5),
                                              LayerNormFormula::pytorch, false, expected.data(), m.data(),
                                              d.data(), rows, n);
          detail::kernels::layer_norm_forward(x.data(), gamma.data(), none, T(1e-5),
                                              LayerNormFormula::pytorch, false, y.data(), mean.data(),
                                              rstd.data(), rows, n, r.data(), s.data(), dropout);
          CHECK(worst_error(s, sum) < tolerance<T>);
          CHECK(worst_error(y, expected) < 5 * tolerance<T>);
          // Without statistics, the same bits; the mean, which only says that there is one, stays as it is.
          std::vector<T> z(x.size()), untouched = mean;
          detail::kernels::layer_norm_forward<T>(x.data(), gamma.data(), none, T(1e-5),
                                                 LayerNormFormula::pytorch, false, z.data(), mean.data(),
                                                 nullptr, rows, n, r.data(), s.data(), dropout);
          CHECK(z == y);
          CHECK(mean == untouched);
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("layer_norm's gradients do not depend on the number of threads", T, float, double) {
  for_each_isa([&] {
    const index_t rows = 1111, n = 67;
    const auto x = random_values<T>(rows * n, 1), dy = random_values<T>(rows * n, 2),
               gamma = random_values<T>(n, 3);
    std::vector<std::vector<T>> results;
    for (const int count : {1, 3}) {
      const ThreadScope threads(count);
      std::vector<T> y(x.size()), mean(static_cast<std::size_t>(rows)), rstd(mean.size()), dx(x.size()),
          dgamma(67), dbeta(67);
      detail::kernels::layer_norm_forward(x.data(), gamma.data(), gamma.data(), T(1e-5),
                                          LayerNormFormula::pytorch, false, y.data(), mean.data(),
                                          rstd.data(), rows, n);
      detail::kernels::layer_norm_backward(x.data(), gamma.data(), mean.data(), rstd.data(), dy.data(),
                                           LayerNormFormula::pytorch, false, dx.data(), T(0), dgamma.data(),
                                           dbeta.data(), T(0), rows, n);
      for (auto* v : {&y, &dx, &dgamma, &dbeta}) results.push_back(*v);
    }
    for (std::size_t i = 0; i < 4; ++i) CHECK(results[i] == results[i + 4]);
  });
}

TEST_CASE("the teaching formula refuses a single feature") {
  const float x = 1;
  float y, mean, rstd;
  CHECK_THROWS_WITH_AS(
      detail::kernels::layer_norm_forward<float>(&x, nullptr, nullptr, 1e-5f, LayerNormFormula::teaching,
                                                 false, &y, &mean, &rstd, 1, 1),
      "[layer_norm] the unbiased standard deviation needs at least 2 features, got 1", ValueError);
}

}  // namespace
