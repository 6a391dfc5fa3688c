#include "eigenformer/autograd/tape/context.hpp"

#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("Context: inference records nothing and drops nothing") {
  const auto ctx = Context<float>::inference();
  const Parameter<float> w(Tensor<float>::ones({2}));
  CHECK_FALSE(ctx.records());
  CHECK_FALSE(ctx.drops());
  CHECK(ctx.tape() == nullptr);
  CHECK_FALSE(ctx.use(w).recorded());
  CHECK(ctx.use(w).value().data() == w.value().data());
  CHECK(message_of<ValueError>([&] { (void)ctx.next_dropout(); }) ==
        "[dropout] this context has no random numbers: use Context::training");
}

TEST_CASE("Context: checking records and drops nothing") {
  Tape<float> tape;
  const auto ctx = Context<float>::checking(tape);
  const Parameter<float> w(Tensor<float>::ones({2}));
  CHECK(ctx.records());
  CHECK_FALSE(ctx.drops());
  CHECK(ctx.tape() == &tape);
  CHECK(ctx.use(w).recorded());
  CHECK(ctx.use(w).node() == ctx.use(w).node());
  CHECK(tape.size() == 1);
  CHECK_THROWS_AS((void)ctx.next_dropout(), ValueError);
}

TEST_CASE("Context: an absent parameter is an undefined Var, a frozen one a constant without gradient") {
  Tape<double> tape;
  const auto ctx = Context<double>::checking(tape);
  CHECK_FALSE(ctx.use(Parameter<double>()).defined());
  Parameter<double> frozen(Tensor<double>::full({2}, 3)), w(Tensor<double>::ones({2}));
  frozen.set_frozen(true);
  CHECK_FALSE(ctx.use(frozen).recorded());
  CHECK(tape.size() == 0);
  // It needs no place in the gradients either.
  Gradients<double> gradients({w.handle()});
  tape.backward(sum(ctx.use(frozen) * ctx.use(w)), gradients);
  CHECK(values(gradients.of(w)) == std::vector<double>{3, 3});
  frozen.set_frozen(false);
  CHECK(ctx.use(frozen).recorded());
}

TEST_CASE("Context: training gives every dropout of a pass a key of its own, copies included") {
  Tape<float> tape;
  const detail::DropoutKey key{5, 7, 0};
  const auto ctx = Context<float>::training(tape, key);
  CHECK(ctx.drops());
  const auto copy = ctx.for_rows(SequenceLayout::packed({2, 3}));
  CHECK(ctx.next_dropout() == detail::DropoutKey{5, 7, 0});
  CHECK(copy.next_dropout() == detail::DropoutKey{5, 7, 1});
  CHECK(ctx.next_dropout() == detail::DropoutKey{5, 7, 2});
  // Another context of the same key begins again: micro-batches of one step drop alike.
  CHECK(Context<float>::training(tape, key).next_dropout() == detail::DropoutKey{5, 7, 0});
}

TEST_CASE("Context: training from a generator draws new masks for each pass, the same from the same state") {
  Tape<float> tape;
  RandomGenerator rng(3);
  const auto state = rng.state();
  const detail::DropoutKey first = Context<float>::training(tape, rng).next_dropout();
  const detail::DropoutKey second = Context<float>::training(tape, rng).next_dropout();
  CHECK_FALSE(first == second);
  rng.set_state(state);
  CHECK(Context<float>::training(tape, rng).next_dropout() == first);
}

TEST_CASE("Context: layout, precision and packed weights are kept by the copy and not by the original") {
  const auto plain = Context<float>::inference();
  const SequenceLayout layout = SequenceLayout::packed({2, 3});
  const auto weights = std::make_shared<const detail::kernels::PackedWeights>();
  const auto ctx = plain.for_rows(layout).with_precision(GemmPrecision::bf16).with_packed_weights(weights);
  REQUIRE(ctx.rows().has_value());
  CHECK(*ctx.rows() == layout);
  CHECK(ctx.precision() == GemmPrecision::bf16);
  CHECK(ctx.packed_weights() == weights.get());
  CHECK_FALSE(plain.rows().has_value());
  CHECK(plain.precision() == GemmPrecision::full);
  CHECK(plain.packed_weights() == nullptr);
}
