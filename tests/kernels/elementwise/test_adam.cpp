#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("adam equals PyTorch's formula over several steps", T, float, double) {
  for_each_isa([&] {
    for (const bool decoupled : {false, true}) {
      for (const index_t n : edge_sizes) {
        CAPTURE(n);
        const double lr = 1e-2, beta1 = 0.9, beta2 = 0.98, eps = 1e-6, decay = 0.05, scale = 0.5;
        auto p = random_values<T>(n, 1);
        std::vector<T> m(p.size()), v(p.size());
        std::vector<double> expected(p.begin(), p.end()), first(p.size()), second(p.size());
        for (index_t step = 1; step <= 4; ++step) {
          const auto g = random_values<T>(n, 10 + static_cast<std::uint64_t>(step));
          detail::kernels::adam_step(p.data(), g.data(), m.data(), v.data(), n, lr, beta1, beta2, eps, decay,
                                     decoupled, step, scale);
          for (std::size_t i = 0; i < p.size(); ++i) {
            double gradient = scale * static_cast<double>(g[i]);
            if (decoupled) {
              expected[i] *= 1 - lr * decay;
            } else {
              gradient += decay * expected[i];
            }
            first[i] = beta1 * first[i] + (1 - beta1) * gradient;
            second[i] = beta2 * second[i] + (1 - beta2) * gradient * gradient;
            const double corrected1 = first[i] / (1 - std::pow(beta1, static_cast<double>(step)));
            const double corrected2 = second[i] / (1 - std::pow(beta2, static_cast<double>(step)));
            expected[i] -= lr * corrected1 / (std::sqrt(corrected2) + eps);
          }
        }
        CHECK(worst_error(p, expected) < tolerance<T>);
        CHECK(worst_error(m, first) < tolerance<T>);
        CHECK(worst_error(v, second) < tolerance<T>);
      }
    }
  });
}

TEST_CASE("adam's first step moves by the learning rate against the gradient's sign") {
  std::vector<double> p = {1, 1}, m(2), v(2);
  const std::vector<double> g = {3, -7};
  detail::kernels::adam_step(p.data(), g.data(), m.data(), v.data(), 2, 0.1, 0.9, 0.999, 0.0, 0.0, false, 1,
                             1.0);
  CHECK(p[0] == doctest::Approx(0.9));
  CHECK(p[1] == doctest::Approx(1.1));
  CHECK_THROWS_AS(detail::kernels::adam_step(p.data(), g.data(), m.data(), v.data(), 2, 0.1, 0.9, 0.999, 0.0,
                                             0.0, false, 0, 1.0),
                  ValueError);
}

TEST_CASE_TEMPLATE("sgd equals PyTorch's formula", T, float, double) {
  for_each_isa([&] {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0.0) continue;
        const index_t n = 35;
        const double lr = 0.1, decay = 0.01, scale = 2;
        auto p = random_values<T>(n, 1);
        std::vector<T> buffer(p.size(), std::numeric_limits<T>::quiet_NaN());
        std::vector<double> expected(p.begin(), p.end()), velocity(p.size());
        for (int step = 0; step < 3; ++step) {
          const auto g = random_values<T>(n, 5 + static_cast<std::uint64_t>(step));
          detail::kernels::sgd_step(p.data(), g.data(), momentum == 0.0 ? nullptr : buffer.data(), n, lr,
                                    momentum, nesterov, decay, step == 0, scale);
          for (std::size_t i = 0; i < p.size(); ++i) {
            double gradient = scale * static_cast<double>(g[i]) + decay * expected[i];
            velocity[i] = step == 0 ? gradient : momentum * velocity[i] + gradient;
            if (momentum != 0.0) gradient = nesterov ? gradient + momentum * velocity[i] : velocity[i];
            expected[i] -= lr * gradient;
          }
        }
        CHECK(worst_error(p, expected) < tolerance<T>);
      }
    }
  });
}

TEST_CASE_TEMPLATE("the sum of squares is a double's, whatever T and the threads", T, float, double) {
  for_each_isa([&] {
    for (const index_t n : {0, 1, 15, 16, 17, 35, 16384, 16385, 200003}) {
      const auto x = random_values<T>(n, 1);
      long double expected = 0;
      for (const T v : x) expected += static_cast<long double>(v) * static_cast<long double>(v);
      const ThreadScope one(1);
      const double sum = detail::kernels::sum_of_squares(x.data(), n);
      CHECK(sum == doctest::Approx(static_cast<double>(expected)).epsilon(1e-13));
      const ThreadScope three(3);
      CHECK(detail::kernels::sum_of_squares(x.data(), n) == sum);
    }
  });
}

}  // namespace

TEST_CASE_TEMPLATE("moments without a gradient end at zero, not among the denormal numbers", T, float,
                   double) {
  constexpr index_t n = 19;
  const T least = std::numeric_limits<T>::min();
  for_each_isa([&] {
    std::vector<T> p(n, T(1)), g(n, T(0)), m(n), v(n), velocity(n);
    for (std::size_t i = 0; i < n; ++i) {
      m[i] = i % 2 == 0 ? 2 * least : -2 * least;
      v[i] = 2 * least;
      velocity[i] = m[i];
    }
    for (int step = 1; step <= 3000; ++step) {
      detail::kernels::adam_step<T>(p.data(), g.data(), m.data(), v.data(), n, 1e-3, 0.9, 0.999, 1e-8, 0,
                                    false, step, 1);
      detail::kernels::sgd_step<T>(p.data(), g.data(), velocity.data(), n, 1e-3, 0.9, false, 0, false, 1);
      for (std::size_t i = 0; i < n; ++i) {
        REQUIRE((m[i] == 0 || std::abs(m[i]) >= least));
        REQUIRE((v[i] == 0 || v[i] >= least));
        REQUIRE((velocity[i] == 0 || std::abs(velocity[i]) >= least));
      }
    }
    for (std::size_t i = 0; i < n; ++i) CHECK((m[i] == 0 && v[i] == 0 && velocity[i] == 0));
    // NaN is no small number.
    m.assign(n, T(0));
    g.assign(n, std::numeric_limits<T>::quiet_NaN());
    detail::kernels::adam_step<T>(p.data(), g.data(), m.data(), v.data(), n, 1e-3, 0.9, 0.999, 1e-8, 0, false,
                                  1, 1);
    CHECK(std::isnan(m[3]));
  });
}
