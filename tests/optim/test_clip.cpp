#include <doctest/doctest.h>

#include <limits>

#include "eigenformer/optim/clip.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("clipping agrees with PyTorch's clip_grad_norm_", T, float, double) {
  const Fixture fixture("training/optimizers");
  const auto given = fixture.get<T>("in.gradients");
  Parameter<T> a(Tensor<T>::zeros({3, 5})), b(Tensor<T>::zeros({5}));
  Gradients<T> gradients({a.handle(), b.handle()});
  set_gradient(gradients, a, given.rows(0, 1).reshape({3, 5}));
  set_gradient(gradients, b, given.rows(1, 1).reshape({3, 5}).rows(0, 1).reshape({5}));
  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-12;
  const double norm = fixture.get<double>("out.clip_norm").item();
  const ClipFactor clip = clip_factor(gradients, 0.5);
  CHECK(clip.finite);
  CHECK(clip.norm == doctest::Approx(norm).epsilon(tolerance));
  CHECK(clip.factor == doctest::Approx(0.5 / (norm + 1e-6)).epsilon(tolerance));
  check_close(gradients.of(a), given.rows(0, 1).reshape({3, 5}), 0);  // the factor alone changes nothing
  CHECK(clip_global_norm(gradients, 0.5) == clip.norm);
  check_close(gradients.of(a), fixture.get<T>("out.clip.0"), tolerance);
  check_close(gradients.of(b), fixture.get<T>("out.clip.1"), tolerance);
}

TEST_CASE("clip_global_norm leaves small gradients and those that are not finite as they are") {
  const double inf = std::numeric_limits<double>::infinity();
  Parameter<double> a(Tensor<double>::zeros({2})), b(Tensor<double>::zeros({7}));
  Gradients<double> gradients({a.handle(), b.handle()});
  CHECK(clip_global_norm(gradients, 1.0) == 0);
  set_gradient(gradients, a, Tensor<double>::from({2}, {3, 4}));
  CHECK(clip_global_norm(gradients, 6.0) == 5);
  CHECK(clip_global_norm(gradients, 0.0) == 5);
  CHECK(values(gradients.of(a)) == std::vector<double>{3, 4});
  CHECK(clip_global_norm(gradients, 2.5) == 5);
  CHECK(global_norm(gradients) == doctest::Approx(2.5));
  CHECK_FALSE(gradients.find(b.id())->written);
  set_gradient(gradients, a, Tensor<double>::from({2}, {-inf, 4}));
  CHECK(clip_global_norm(gradients, 1.0) == inf);
  CHECK(values(gradients.of(a)) == std::vector<double>{-inf, 4});
  CHECK(contains(message_of<ValueError>([&] { clip_global_norm(gradients, -1.0); }), "max_norm is -1"));
}

TEST_CASE(
    "small gradients stay, a scale counts, unwritten gradients are zero, and what is not finite is "
    "reported") {
  Parameter<double> a(Tensor<double>::zeros({2})), b(Tensor<double>::zeros({7}));
  Gradients<double> gradients({a.handle(), b.handle()});
  CHECK(global_norm(gradients) == 0);
  set_gradient(gradients, a, Tensor<double>::from({2}, {3, 4}));
  CHECK(global_norm(gradients) == 5);
  CHECK(clip_factor(gradients, 6.0).factor == 1);
  CHECK(clip_factor(gradients, 0.0).factor == 1);
  CHECK(clip_factor(gradients, 2.5).factor == doctest::Approx(0.5));
  const auto scaled = clip_factor(gradients, 1.0, 0.5);
  CHECK(scaled.norm == 2.5);
  CHECK(scaled.factor == doctest::Approx(0.2));
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    set_gradient(gradients, a, Tensor<double>::from({2}, {bad, 4}));
    CHECK(!clip_factor(gradients, 1.0).finite);
  }
  CHECK(contains(message_of<ValueError>([&] { (void)clip_factor(gradients, -1.0); }), "max_norm is -1"));
}
