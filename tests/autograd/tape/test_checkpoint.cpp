#include <doctest/doctest.h>

#include <vector>

#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/grad_check.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Parameter<double> drawn(const char* name, Shape shape, std::uint64_t seed) {
  Tensor<double> value(shape);
  RandomGenerator(seed).fill_normal(value.data(), value.numel(), 0, 1);
  Parameter<double> p(value);
  p.set_name(name);
  return p;
}

// Two products with dropout between them, around a second input: each input is read by several ops.
struct Block {
  Parameter<double> w1 = drawn("w1", {5, 4}, 1), w2 = drawn("w2", {4, 5}, 2);

  Var<double> operator()(const Context<double>& ctx, const Var<double>& x, const Var<double>& other) const {
    const Var<double> h = dropout(ctx, tanh(linear(ctx, x, w1, {})), 0.4);
    return add(multiply(add(linear(ctx, h, w2, {}), x), other), multiply(x, other));
  }
  // By reference: a copy would have parameters of its own.
  auto by_reference() const {
    return [this](const Context<double>& ctx, const Var<double>& x, const Var<double>& other) {
      return (*this)(ctx, x, other);
    };
  }
  std::vector<ParameterHandle<double>> parameters() const { return {w1.handle(), w2.handle()}; }
};

struct Result {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
  friend bool operator==(const Result&, const Result&) = default;
};

// Three blocks one after the other, whose second input is one Var; the first parameter is read once more
// outside.
Result run(bool checkpoints, index_t backwards = 1) {
  const Block block;
  Gradients<double> gradients(block.parameters());
  Result result;
  for (index_t k = 0; k < backwards; ++k) {
    Tape<double> tape;
    const auto ctx = Context<double>::training(tape, detail::DropoutKey{7, static_cast<std::uint32_t>(k), 0});
    const Var<double> x = tape.variable(drawn("", {3, 4}, 3).value()),
                      other = tape.variable(drawn("", {3, 4}, 4).value());
    Var<double> h = x;
    for (int layer = 0; layer < 3; ++layer)
      h = checkpoints ? checkpoint(ctx, block.by_reference(), h, other) : block(ctx, h, other);
    const Var<double> loss = add(sum(h), sum(ctx.use(block.w1)));
    result.loss = loss.item();
    tape.backward(loss, gradients);
    for (const auto* v : {&x, &other}) result.gradients.push_back(values(tape.gradient(*v)));
  }
  for (const auto& e : gradients.entries()) result.gradients.push_back(values(e.value));
  return result;
}

}  // namespace

TEST_CASE("a checkpoint has the loss and the gradients of its function, bit by bit") {
  CHECK(run(true) == run(false));
  CHECK(run(true, 3) == run(false, 3));
}

TEST_CASE("a checkpoint's gradients are right, nested ones' too") {
  const Block block;
  const auto nested = [&](const Context<double>& ctx, const Var<double>& x, const Var<double>& y) {
    return checkpoint(ctx, block.by_reference(), checkpoint(ctx, block.by_reference(), x, y), y);
  };
  const auto check = [&](const auto& f) {
    const auto result = grad_check(
        [&](Tape<double>& tape, std::vector<Var<double>>& in) {
          const auto ctx = Context<double>::training(tape, detail::DropoutKey{5, 1, 0});
          return f(ctx, in);
        },
        {drawn("", {3, 4}, 5).value(), drawn("", {3, 4}, 6).value()}, block.parameters());
    CHECK_MESSAGE(result, result.str());
  };
  check([&](const auto& ctx, auto& in) { return checkpoint(ctx, block.by_reference(), in[0], in[1]); });
  check([&](const auto& ctx, auto& in) { return checkpoint(ctx, nested, in[0], in[1]); });
  // One Var as both inputs, and one that is a constant.
  check([&](const auto& ctx, auto& in) {
    return add(checkpoint(ctx, block.by_reference(), in[0], in[0]),
               checkpoint(ctx, block.by_reference(), in[1], Var<double>(drawn("", {3, 4}, 8).value())));
  });
  // A function that returns its input.
  check([&](const auto& ctx, auto& in) {
    return add(checkpoint(
                   ctx, [](const auto&, const auto& x) { return x; }, in[0]),
               block(ctx, in[0], in[1]));
  });
}

TEST_CASE("a checkpoint keeps its inputs alone until backward") {
  const auto kept = [](bool checkpoints) {
    Parameter<double> w = drawn("w", {256, 256}, 1);
    Tape<double> tape;
    const auto ctx = Context<double>::checking(tape);
    const auto deep = [&](const Context<double>& c, const Var<double>& x) {
      Var<double> h = x;
      for (int i = 0; i < 8; ++i) h = tanh(linear(c, h, w, {}));
      return h;
    };
    const std::size_t before = Runtime::instance().pool().statistics().bytes_in_use;
    const Var<double> x = tape.variable(Tensor<double>::ones({512, 256}));
    const Var<double> y = checkpoints ? checkpoint(ctx, deep, x) : deep(ctx, x);
    return (Runtime::instance().pool().statistics().bytes_in_use - before) / (512 * 256 * 8);
  };
  CHECK(kept(true) == 2);  // the input and the output
  CHECK(kept(false) >= 9);
}

TEST_CASE("a checkpoint outside training, of constants, and of parameters alone") {
  const Block block;
  const Var<double> x(drawn("", {3, 4}, 3).value());
  const Var<double> plain = checkpoint(Context<double>::inference(), block.by_reference(), x, x);
  CHECK(!plain.recorded());
  Tape<double> tape;
  const auto ctx = Context<double>::checking(tape);
  CHECK(!checkpoint(
             ctx, [](const auto&, const auto& a) { return tanh(a); }, x)
             .recorded());
  const Var<double> y = checkpoint(ctx, block.by_reference(), x, x);
  CHECK(values(y.value()) == values(plain.value()));
  CHECK(y.recorded());
  Gradients<double> gradients(block.parameters());
  tape.backward(sum(y), gradients);
  CHECK(gradients.entries()[0].written);
}

TEST_CASE("a checkpoint refuses what it cannot repeat, and gradients stay as they were") {
  const Block block;
  Gradients<double> gradients(block.parameters());
  const auto message = [&](const auto& f) {
    Tape<double> tape;
    const auto ctx = Context<double>::checking(tape);
    const Var<double> x = tape.variable(drawn("", {3, 4}, 3).value());
    return message_of<ValueError>([&] { tape.backward(sum(f(ctx, x, tape)), gradients); });
  };
  CHECK(contains(message([](const auto& ctx, const auto& x, auto&) {
                   return checkpoint(
                       ctx, [&](const auto&, const auto& a) { return multiply(a, x); },
                       Var<double>(x.value()));
                 }),
                 "[checkpoint] the function reads a recorded Var that is not among its inputs"));
  // The forward pass as a whole is repeated, so what it read must not have changed.
  CHECK(contains(message([&](const auto& ctx, const auto& x, auto&) {
                   const auto y = checkpoint(ctx, block.by_reference(), x, x);
                   block.w1.handle()->value.mark_changed();
                   return y;
                 }),
                 "parameter 'w1' of shape (5, 4) was changed after it was recorded, and the gradient of "
                 "'checkpoint'"));
  // An op that fails after a checkpoint's parameters got their gradients.
  CHECK(contains(message([&](const auto& ctx, const auto& x, auto&) {
                   const auto failing = record("failing", x.value(), {x}, [&](Backward<double>&) {
                     throw ValueError("failing", "on purpose");
                   });
                   return checkpoint(ctx, block.by_reference(), failing, failing);
                 }),
                 "on purpose"));
  for (const auto& e : gradients.entries()) CHECK(!e.written);
  int calls = 0;
  CHECK(contains(message([&](const auto& ctx, const auto& x, auto&) {
                   return checkpoint(
                       ctx,
                       [&](const auto& c, const auto& a) {
                         return ++calls == 1 ? tanh(a) : linear(c, a, drawn("new", {4, 4}, 1), {});
                       },
                       x);
                 }),
                 "the function used parameter 'new' when it was recomputed, but not in the forward pass"));
  Gradients<double> none;
  Tape<double> tape;
  const Var<double> x = tape.variable(drawn("", {3, 4}, 3).value());
  const Var<double> y = sum(checkpoint(Context<double>::checking(tape), block.by_reference(), x, x));
  CHECK(contains(message_of<ValueError>([&] { tape.backward(y, none); }),
                 "parameter 'w1' of shape (5, 4) was recorded but is missing in the gradients"));
}
