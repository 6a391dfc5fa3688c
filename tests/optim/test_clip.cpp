#include <doctest/doctest.h>

#include <limits>

#include "eigenformer/optim/clip.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("clipping agrees with PyTorch's clip_grad_norm_", T, float, double) {
  const Fixture fixture("optimizers");
  const auto given = fixture.get<T>("in.gradients");
  Parameter<T> a(Tensor<T>::zeros({3, 5})), b(Tensor<T>::zeros({5}));
  Gradients<T> gradients({a.handle(), b.handle()});
  set_gradient(gradients, a, given.rows(0, 1).reshape({3, 5}));
  set_gradient(gradients, b, given.rows(1, 1).reshape({3, 5}).rows(0, 1).reshape({5}));
  const auto clipped = clip_global_norm(gradients, 0.5);
  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-12;
  CHECK(clipped.finite);
  CHECK(clipped.norm == doctest::Approx(fixture.get<double>("out.clip_norm").item()).epsilon(tolerance));
  gradients.scale(static_cast<T>(clipped.factor));
  check_close(gradients.of(a), fixture.get<T>("out.clip.0"), tolerance);
  check_close(gradients.of(b), fixture.get<T>("out.clip.1"), tolerance);
}

TEST_CASE(
    "small gradients stay, a scale counts, unwritten gradients are zero, and what is not finite is "
    "reported") {
  Parameter<double> a(Tensor<double>::zeros({2})), b(Tensor<double>::zeros({7}));
  Gradients<double> gradients({a.handle(), b.handle()});
  CHECK(global_norm(gradients) == 0);
  set_gradient(gradients, a, Tensor<double>::from({2}, {3, 4}));
  CHECK(global_norm(gradients) == 5);
  CHECK(clip_global_norm(gradients, 6.0).factor == 1);
  CHECK(clip_global_norm(gradients, 0.0).factor == 1);
  CHECK(clip_global_norm(gradients, 2.5).factor == doctest::Approx(0.5));
  const auto scaled = clip_global_norm(gradients, 1.0, 0.5);
  CHECK(scaled.norm == 2.5);
  CHECK(scaled.factor == doctest::Approx(0.2));
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    set_gradient(gradients, a, Tensor<double>::from({2}, {bad, 4}));
    CHECK(!clip_global_norm(gradients, 1.0).finite);
  }
  CHECK(contains(message_of<ValueError>([&] { (void)clip_global_norm(gradients, -1.0); }), "max_norm is -1"));
}
