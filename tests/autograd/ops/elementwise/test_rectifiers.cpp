#include "eigenformer/autograd/ops/elementwise/activation.hpp"

#include <optional>

#include <doctest/doctest.h>

#include "elementwise_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

TEST_CASE_TEMPLATE("rectifiers and their gradients are PyTorch's", T, float, double) {
  EIGENFORMER_CHECK_UNARY(mish);
  EIGENFORMER_CHECK_UNARY(selu);
  EIGENFORMER_CHECK_UNARY(elu);
  EIGENFORMER_CHECK_UNARY(softplus);
  EIGENFORMER_CHECK_UNARY(leaky_relu);
  // The gradient of softsign() at infinity is 0, in PyTorch NaN.
  check_unary<T>(
      "softsign", [](const Var<T>& x) { return ef::softsign(x); }, false);
  EIGENFORMER_CHECK_UNARY(logsigmoid);
  EIGENFORMER_CHECK_UNARY(hard_tanh);
  // PyTorch's gradient of doubles is the float next to 1 / 6; check_op() below checks ours.
  if constexpr (std::is_same_v<T, float>) EIGENFORMER_CHECK_UNARY(hard_sigmoid);
  EIGENFORMER_CHECK_UNARY(hard_swish);
  // In floats the largest number is another one: see below.
  if constexpr (std::is_same_v<T, double>) EIGENFORMER_CHECK_UNARY(nan_to_num);
  check_unary<T>("clip", [](const Var<T>& x) { return ef::clip(x, -1, 2.5); });
  check_unary<T>("clip_max", [](const Var<T>& x) { return ef::clip(x, std::nullopt, 1); });
  check_unary<T>("softplus2", [](const Var<T>& x) { return ef::softplus(x, 2, 5); });
  check_unary<T>("elu2", [](const Var<T>& x) { return ef::elu(x, 0.7); });
  check_unary<T>("leaky_relu2", [](const Var<T>& x) { return ef::leaky_relu(x, 0.2); });
  check_unary<T>("threshold", [](const Var<T>& x) { return ef::threshold(x, 0.5, -2); });
}

TEST_CASE("rectifiers: gradients, errors, replacements") {
  check_op([](const Vars& v) { return ef::mish(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::selu(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::elu(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::softplus(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::leaky_relu(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::softsign(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::logsigmoid(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::hard_tanh(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::hard_sigmoid(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  check_op([](const Vars& v) { return ef::hard_swish(v[0]); }, {away_from_zero({3, 2}, 1, 0.2, 0.9)});
  const Tensor<float> x({3}, {std::nanf(""), HUGE_VALF, -HUGE_VALF});
  CHECK(values(ef::nan_to_num(x, 5, 6, 7).value()) == std::vector<float>{5, 6, 7});
  CHECK_THROWS_WITH_AS((void)ef::clip(x, std::nullopt),
                       "[clip] min and max are both absent, expected at least one of them", ValueError);
}
