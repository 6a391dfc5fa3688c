#include "eigenformer/autograd/ops/attention/linear_attention.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("the recurrence equals the definition in every layout, and its gradients are right") {
  for (const auto& layout :
       {SequenceLayout::packed({6, 0, 1, 3}), SequenceLayout::padded({5, 3}, 5),
        SequenceLayout::padded_left({2, 4}, 5),
        SequenceLayout::padded_around(std::vector<index_t>{1, 0}, std::vector<index_t>{3, 2}, 4)}) {
    const index_t d = 5;
    const auto gates = random({layout.rows(), d}, 1), input = random({layout.rows(), d}, 2);
    const auto f = [&](const Vars& x) { return recurrence(sigmoid(x[0]), x[1], layout); };
    const Tensor<double> y = f({Var<double>(gates), Var<double>(input)}).value();
    Tensor<double> expected = Tensor<double>::zeros(y.shape());
    for (index_t b = 0; b < layout.batch(); ++b) {
      for (index_t j = 0; j < d; ++j) {
        double c = 0;
        for (index_t t = 0; t < layout.length(b); ++t) {
          const index_t row = layout.offset(b) + t;
          const double gate = 1 / (1 + std::exp(-gates.at({row, j})));
          c = gate * c + (1 - gate) * input.at({row, j});
          expected.at({row, j}) = c;
        }
      }
    }
    check_close(y, expected, 1e-14);
    check_op(f, {gates, input});
  }
}

TEST_CASE("the recurrence takes (B, L, D), and one input for both") {
  const auto layout = SequenceLayout::padded({3, 2}, 3);
  check_op([&](const Vars& x) { return recurrence(sigmoid(x[0]), x[0], layout); }, {random({2, 3, 4}, 3)});
  check_op([&](const Vars& x) { return recurrence(x[0], x[0], layout); }, {random({2, 3, 4}, 3)});
}

TEST_CASE("the recurrence refuses shapes that do not fit") {
  const auto layout = SequenceLayout::packed({3, 2});
  const auto call = [&](const Shape& a, const Shape& b) {
    (void)recurrence(Var<double>(random(a)), Var<double>(random(b)), layout);
  };
  CHECK_THROWS_AS(call({5, 4}, {5, 3}), ShapeError);
  CHECK_THROWS_AS(call({4, 4}, {4, 4}), ShapeError);
  CHECK_THROWS_AS(call({5}, {5}), ShapeError);
}

TEST_CASE("a change of what the recurrence's backward reads is seen") {
  const auto layout = SequenceLayout::packed({3});
  for (const int changed : {0, 1, 2}) {
    Tape<double> tape;
    Tensor<double> values[] = {positive({3, 2}, 1, 0.1, 0.9), random({3, 2}, 2), {}};
    const Var<double> a = tape.variable(values[0]), b = tape.variable(values[1]);
    const Var<double> y = recurrence(a, b, layout);
    values[2] = y.value();
    const Var<double> loss = sum(y);
    values[changed].fill(0);
    CHECK_THROWS_AS(tape.backward(loss), ValueError);
  }
}
