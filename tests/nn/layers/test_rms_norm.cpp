#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("RMS norm agrees with PyTorch", T, float, double) {
  RMSNorm<T> norm({.size = D});
  check_parity<T>(Fixture("layers/rms_norm"), norm, {"x"}, {L, L},
                  [&](const Context<T>& ctx, const auto& x) { return norm(ctx, x[0]); });
}

TEST_CASE("RMS norm has a gain and no bias, and subtracts no mean") {
  const RMSNorm<double> norm({.size = 4, .eps = 0});
  CHECK(names_of(norm) == std::vector<std::string>{"weight (4,)"});
  const auto y = norm(Context<double>::inference(), Tensor<double>::from({4}, {2, 2, 2, 2})).value();
  CHECK(values(y) == std::vector<double>{1, 1, 1, 1});
}

TEST_CASE("add_and_norm of an RMS norm is the norm of the sum, forward and backward") {
  RMSNorm<double> norm({.size = D});
  randomise(norm, 1);
  const auto x = random_tensor<double>({B, L, D}, 2), r = random_tensor<double>({B, L, D}, 3);
  const auto ctx = Context<double>::inference();
  const Var<double> sum = add(Var<double>(x), Var<double>(r));
  check_close(norm.add_and_norm(ctx, x, r, 0.1).value(), norm(ctx, sum).value(), 1e-12);
  check_backward(norm, {x, r}, [&](const Context<double>& c, const auto& in) {
    return norm.add_and_norm(c, in[0], in[1], 0.1);
  });
}

TEST_CASE("either norm stands where a layer holds one, with its parameters") {
  RMSNorm<double> rms({.size = D});
  const auto id = rms.weight.id();
  const detail::OptionalModule<Norm<double>> held = std::move(rms);
  CHECK(held->weight.id() == id);
  CHECK(held->options.kind == NormKind::rms_norm);
  const detail::OptionalModule<Norm<double>> other = LayerNorm<double>({.size = D});
  CHECK(names_of(*other) == std::vector<std::string>{"weight (12,)", "bias (12,)"});
}

TEST_CASE("RMS norm names what does not fit") {
  RMSNorm<float> norm({.size = 12});
  norm.weight.set_name("encoder.norm.weight");
  CHECK(
      message_of<ShapeError>([&] {
        (void)norm(Context<float>::inference(), Tensor<float>::zeros({2, 4}));
      }) ==
      "[rms_norm] last dimension of input (2, 4) must be 12, to match 'encoder.norm.weight' of shape (12,)");
  CHECK(message_of<ValueError>([] { RMSNorm<float>(NormOptions{}); }) ==
        "[rms_norm] size is 0, must be positive");
  CHECK(contains(message_of<ValueError>([] { RMSNorm<float>({.size = 3, .eps = -1}); }), "eps is -1"));
}
