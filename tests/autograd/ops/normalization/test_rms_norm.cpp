#include "eigenformer/autograd/ops/normalization/layer_norm.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("rms_norm: values and gradients, with and without a gain") {
  const Tensor<double> x = random({2, 5, 7}, 1), g = random({7}, 2);
  check_op([&](const Vars& v) { return rms_norm(v[0], v[1], 1e-3); }, {x, g});
  check_op([&](const Vars& v) { return rms_norm(v[0]); }, {x});
  check_op([&](const Vars& v) { return rms_norm(Var<double>(x), v[0]); }, {g});
  check_op([&](const Vars& v) { return rms_norm(v[0], Var<double>(g)); }, {x});
  check_op([&](const Vars& v) { return rms_norm(v[0], v[0]); }, {random({7}, 3)});
  Tensor<double> expected(x.shape());
  for (index_t r = 0; r < 10; ++r) {
    double squares = 0;
    for (index_t i = 0; i < 7; ++i) squares += x.data()[r * 7 + i] * x.data()[r * 7 + i];
    const double rms = std::sqrt(squares / 7 + 1e-3);
    for (index_t i = 0; i < 7; ++i) expected.data()[r * 7 + i] = x.data()[r * 7 + i] / rms * g.data()[i];
  }
  CHECK(worst_difference(rms_norm(Var<double>(x), Var<double>(g), 1e-3).value(), expected) < 1e-12);
}

TEST_CASE("add_rms_norm: the norm of the sum, with the masks of add_dropout") {
  const Tensor<double> x = random({2, 5, 7}, 1), r = random({2, 5, 7}, 2), g = random({7}, 3);
  for (const double rate : {0.0, 0.4}) {
    CAPTURE(rate);
    const detail::DropoutKey key{1, 2, 3};
    check_op(
        [&](Tape<double>& tape, const Vars& v) {
          return add_rms_norm(Context<double>::training(tape, key), v[0], v[1], rate, v[2], 1e-3);
        },
        {x, r, g});
    Tape<double> tape;
    const auto sum = add_dropout(Context<double>::training(tape, key), Var<double>(x), Var<double>(r), rate);
    const auto y = add_rms_norm(Context<double>::training(tape, key), Var<double>(x), Var<double>(r), rate,
                                Var<double>(g), 1e-3);
    CHECK(worst_difference(y.value(), rms_norm(sum, Var<double>(g), 1e-3).value()) < 1e-12);
  }
}

TEST_CASE("rms_norm says what does not fit") {
  const Var<double> x = Tensor<double>::zeros({2, 5}), g = Tensor<double>::zeros({4});
  CHECK(message_of<ShapeError>([&] { (void)rms_norm(x, g); }) ==
        "[rms_norm] gain of shape (4,) must have 5 elements for input (2, 5)");
  CHECK(contains(message_of<ShapeError>([&] { (void)add_rms_norm(Context<double>::inference(), x, g, 0.0); }),
                 "residual of shape (4,) must have the input's shape (2, 5)"));
}
