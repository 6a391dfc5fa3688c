#include "eigenformer/autograd/ops/elementwise/dropout.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("stochastic_depth leaves whole sequences out, scales the others, and is off outside training") {
  constexpr index_t sequences = 400, width = 3;
  std::vector<index_t> lengths;
  for (index_t b = 0; b < sequences; ++b) lengths.push_back(1 + b % 4);
  const auto layout = SequenceLayout::packed(lengths);
  const Tensor<double> x = random({layout.rows(), width}, 1);
  Tape<double> tape;
  const auto ctx = Context<double>::training(tape, detail::DropoutKey{5, 6, 7}).for_rows(layout);
  const Tensor<double> y = stochastic_depth(ctx, Var<double>(x), 0.25).value();
  index_t dropped = 0;
  for (index_t b = 0; b < sequences; ++b) {
    const index_t begin = layout.offset(b) * width, end = begin + layout.length(b) * width;
    const double m = y.data()[begin] == 0 ? 0 : 1 / 0.75;
    dropped += m == 0 ? 1 : 0;
    for (index_t i = begin; i < end; ++i) CHECK(y.data()[i] == doctest::Approx(m * x.data()[i]));
  }
  // 100 expected; three standard deviations are 26.
  CHECK(dropped > 74);
  CHECK(dropped < 126);
  CHECK(values(stochastic_depth(Context<double>::checking(tape), Var<double>(x), 0.25).value()) == values(x));
  CHECK(values(stochastic_depth(ctx, Var<double>(x), 0.0).value()) == values(x));
}

TEST_CASE("stochastic_depth: gradients") {
  const auto layout = SequenceLayout::padded({3, 5, 2, 4}, 5);
  const detail::DropoutKey key{1, 2, 3};
  const auto f = [&](Tape<double>& tape, const Vars& v) {
    return stochastic_depth(Context<double>::training(tape, key).for_rows(layout), v[0], 0.5);
  };
  check_op(f, {random({4, 5, 3}, 1)});
  Tape<double> tape;
  const Tensor<double> y = f(tape, {Var<double>(Tensor<double>::ones({4, 5, 3}))}).value();
  double sum = 0;
  for (const double v : y.span()) sum += v;
  // Some are left out, and not all.
  CHECK(sum > 0);
  CHECK(sum < 120);
}

TEST_CASE("what stochastic_depth leaves out depends on the sequence's number alone") {
  const detail::DropoutKey key{9, 1, 0};
  const Tensor<double> ones = Tensor<double>::ones({8, 2});
  const auto run = [&](const SequenceLayout& layout) {
    Tape<double> tape;
    const auto ctx = Context<double>::training(tape, key).for_rows(layout);
    return stochastic_depth(ctx, Var<double>(ones.rows(0, layout.rows())), 0.5).value();
  };
  const auto batch = SequenceLayout::packed({2, 1, 3, 2}).with_sequence_numbers({11, 4, 7, 30});
  const Tensor<double> together = run(batch);
  for (index_t b = 0; b < 4; ++b) {
    const auto alone =
        SequenceLayout::padded({batch.length(b)}, 4).with_sequence_numbers({batch.sequence_number(b)});
    CHECK(run(alone).data()[0] == together.data()[batch.offset(b) * 2]);
  }
  CHECK_THROWS_AS((void)stochastic_depth(Context<double>::inference(), Var<double>(ones), 1.0), ValueError);
}
