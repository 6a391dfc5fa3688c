#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/nn/layers/norm.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("layer norm agrees with PyTorch, and with the teaching formula and scalar gain", T, float,
                   double) {
  const auto check = [](const char* name, const NormOptions& options) {
    LayerNorm<T> norm(options);
    check_parity<T>(Fixture(name), norm, {"x"}, {L, L},
                    [&](const Context<T>& ctx, const auto& x) { return norm(ctx, x[0]); });
  };
  check("layers/layer_norm", {.size = D});
  check("layers/layer_norm_teaching", {.size = D, .eps = 1e-6, .formula = LayerNormFormula::teaching});
  check("layers/layer_norm_scalar_gain",
        {.size = D, .eps = 1e-6, .formula = LayerNormFormula::teaching, .scalar_gain = true});
}

TEST_CASE("the variance of [1, 0, 0, 0] is biased in PyTorch's formula and unbiased in the teaching one") {
  const auto first = [](LayerNormFormula formula) {
    const LayerNorm<double> norm({.size = 4, .eps = 0, .formula = formula});
    return norm(Context<double>::inference(), Tensor<double>::from({4}, {1, 0, 0, 0})).value().at({0});
  };
  CHECK(first(LayerNormFormula::pytorch) == doctest::Approx(std::sqrt(3.0)));
  CHECK(first(LayerNormFormula::teaching) == doctest::Approx(1.5));
}

TEST_CASE("add_and_norm is the norm of the sum, forward and backward") {
  LayerNorm<double> norm({.size = D});
  randomise(norm, 1);
  const auto x = random_tensor<double>({B, L, D}, 2), r = random_tensor<double>({B, L, D}, 3);
  auto sum = x.clone();
  for (index_t i = 0; i < sum.numel(); ++i) sum.data()[i] += r.data()[i];
  const auto ctx = Context<double>::inference();
  check_close(norm.add_and_norm(ctx, x, r, 0.1).value(), norm(ctx, sum).value(), 1e-12);
  check_backward(norm, {x, r}, [&](const Context<double>& c, const auto& in) {
    return norm.add_and_norm(c, in[0], in[1], 0.1);
  });
  for (const bool scalar : {false, true}) {
    for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
      LayerNorm<double> other({.size = D, .formula = formula, .scalar_gain = scalar, .bias = false});
      check_backward(other, {x}, [&](const Context<double>& c, const auto& in) { return other(c, in[0]); });
    }
  }
}

TEST_CASE("layer norm names what does not fit") {
  LayerNorm<float> norm({.size = 12});
  norm.weight.set_name("encoder.norm.weight");
  CHECK(message_of<ShapeError>([&] {
          (void)norm(Context<float>::inference(), Tensor<float>::zeros({2, 4}));
        }) ==
        "[layer_norm] last dimension of input (2, 4) must be 12, to match 'encoder.norm.weight' of shape "
        "(12,)");
  CHECK(message_of<ValueError>([] { LayerNorm<float>(NormOptions{}); }) ==
        "[layer_norm] size is 0, must be positive");
  CHECK(contains(message_of<ValueError>([] { LayerNorm<float>({.size = 3, .eps = -1}); }), "eps is -1"));
}
