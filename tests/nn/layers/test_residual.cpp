#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/layers/residual.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Block {
  using value_type = double;
  Linear<double> inner;
  Residual<double> around;
  static void fields(auto& self, auto&& visit) {
    visit("inner", self.inner);
    visit("around", self.around);
  }
};

}  // namespace

TEST_CASE("residual is norm(x + f(x)), or x + f(norm(x)) with norm_first") {
  const auto ctx = Context<double>::inference();
  const auto x = random_tensor<double>({B, L, D}, 1);
  const auto f = [](const Var<double>& h) { return multiply(h, 3.0); };
  for (const bool first : {false, true}) {
    Residual<double> around({.size = D, .norm_first = first});
    randomise(around, 2);
    const auto y = around(ctx, x, f).value();
    const Var<double> expected =
        first ? add(Var<double>(x), f(around.norm(ctx, x))) : around.norm(ctx, add(Var<double>(x), f(x)));
    check_close(y, expected.value(), 1e-12);
    CHECK(names_of(around) == std::vector<std::string>{"norm.weight (12,)", "norm.bias (12,)"});
  }
}

TEST_CASE("residual is differentiable around any callable") {
  RandomGenerator rng(3);
  for (const bool first : {false, true}) {
    Block block{Linear<double>({.in_features = D, .out_features = D}, rng),
                Residual<double>({.size = D, .norm_first = first})};
    randomise(block, 4);
    check_backward(
        block, {random_tensor<double>({B, L, D}, 5)}, [&](const Context<double>& ctx, const auto& x) {
          return block.around(ctx, x[0], [&](const Var<double>& h) { return tanh(block.inner(ctx, h)); });
        });
  }
}

TEST_CASE("residual drops the sub-layer's output and never the input") {
  const Residual<double> around({.size = D, .dropout = 0.5, .norm_first = true});
  Tape<double> tape;
  RandomGenerator rng(6);
  const auto x = random_tensor<double>({50, D}, 7);
  const auto y = around(Context<double>::training(tape, rng), x,
                        [](const Var<double>& h) { return Var<double>(Tensor<double>::ones(h.shape())); });
  int kept = 0;
  for (index_t i = 0; i < x.numel(); ++i) {
    const double added = y.value().data()[i] - x.data()[i];
    CHECK((std::abs(added) < 1e-12 || std::abs(added - 2) < 1e-12));
    kept += added > 1 ? 1 : 0;
  }
  CHECK(kept > 220);
  CHECK(kept < 380);
}

TEST_CASE("residual refuses a callable that changes the shape, and impossible options") {
  const Residual<double> around({.size = D});
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)around(Context<double>::inference(), Tensor<double>::zeros({3, D}),
                                [](const Var<double>&) {
                                  return Var<double>(Tensor<double>::zeros({3, 5}));
                                });
                 }),
                 "residual of shape (3, 5) must have the input's shape (3, 12)"));
  CHECK(contains(message_of<ValueError>([] { Residual<double>({.size = D, .dropout = -0.5}); }),
                 "dropout is -0.5"));
}
