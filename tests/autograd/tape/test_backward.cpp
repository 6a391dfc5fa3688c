#include "eigenformer/autograd/tape/record.hpp"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("SeparateSlots: inputs that are one Var get memory of their own, and the sum arrives") {
  for (const bool written : {false, true}) {
    Tape<double> tape;
    const Var<double> x = tape.variable(Tensor<double>::ones({2})),
                      z = tape.variable(Tensor<double>::ones({2}));
    const Var<double> y = record("op", Tensor<double>::scalar(0), {x, z, x, Var<double>(), x}, SavedTensors(),
                                 [](Backward<double>& b) {
                                   const detail::SeparateSlots<double> d(b, 0, 5);
                                   CHECK(d[0].data != d[2].data);
                                   CHECK(d[0].data != d[4].data);
                                   CHECK(d[2].data != d[4].data);
                                   CHECK_FALSE(static_cast<bool>(d[3]));
                                   // All at once, as a kernel would.
                                   for (index_t i = 0; i < 2; ++i) {
                                     double factor = 1;
                                     for (const std::size_t k : {0, 1, 2, 4}) {
                                       d[k].data[i] = (d[k].beta == 0 ? 0 : d[k].data[i]) + factor;
                                       factor *= 10;
                                     }
                                   }
                                   d.add_up();
                                 });
    tape.backward(written ? y + sum(x) * 10000 : y);
    CHECK(values(tape.gradient(x)) == std::vector<double>(2, written ? 11101 : 1101));
    CHECK(values(tape.gradient(z)) == std::vector<double>{10, 10});
  }
}

TEST_CASE("pass: a large gradient reaches a parameter whole, written and added, on several threads") {
  const ThreadScope scope(2);
  const index_t n = 3 * 40000;
  Parameter<double> w(random({3, 40000}, 1));
  const Tensor<double> factors = random({n}, 2);
  for (const bool twice : {false, true}) {
    Tape<double> tape;
    Gradients<double> gradients({w.handle()});
    Var<double> y = sum(multiply(reshape(tape.parameter(w.handle()), Shape{n}), Var<double>(factors)));
    if (twice) y = y + sum(multiply(reshape(tape.parameter(w.handle()), Shape{n}), Var<double>(factors)));
    tape.backward(y, gradients);
    const Tensor<double> g = gradients.of(w);
    index_t wrong = 0;
    for (index_t i = 0; i < n; ++i) wrong += g.data()[i] != (twice ? 2 : 1) * factors.data()[i];
    CHECK(wrong == 0);
  }
}

// One Var as several inputs of an op: kernels that write two gradients at once must not meet in one place.

TEST_CASE("aliased inputs: elementwise ops, products and shapes") {
  const Tensor<double> x = away_from_zero({4, 4}, 3);
  check_op([](const Vars& v) { return add(v[0], v[0]); }, {x});
  check_op([](const Vars& v) { return subtract(v[0], v[0]) + v[0]; }, {x});
  check_op([](const Vars& v) { return multiply(v[0], v[0]); }, {x});
  check_op([](const Vars& v) { return divide(v[0], v[0]) * v[0]; }, {x});
  check_op([](const Vars& v) { return where(less(v[0], 0.0), v[0], v[0]); }, {x});
  check_op([](const Vars& v) { return concat({v[0], v[0], v[0]}, 1); }, {x});
  check_op([](const Vars& v) { return stack({v[0], v[0]}, 1); }, {x});
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) check_op([&](const Vars& v) { return matmul(v[0], v[0], a, b); }, {x});
  }
  // Broadcast against itself: (1, 1, 3) and (3, 1, 3) of one Var.
  const Tensor<double> row = away_from_zero({3, 1, 3}, 4);
  check_op([](const Vars& v) { return multiply(v[0], transpose(v[0], 0, 1)); }, {row});
  const Context<double> ctx = Context<double>::inference();
  check_op([&](const Vars& v) { return add_dropout(ctx, v[0], v[0], 0.5); }, {x});
  check_op(
      [&](Tape<double>& tape, const Vars& v) {
        return add_dropout(Context<double>::training(tape, detail::DropoutKey{7, 1, 0}), v[0], v[0], 0.3);
      },
      {x});
}

TEST_CASE("aliased inputs: normalisation") {
  const Tensor<double> x = random({5}, 3), rows = random({3, 5}, 4), gain = random({5}, 5);
  check_op([](const Vars& v) { return layer_norm(v[0], v[0], v[0]); }, {x});
  check_op([](const Vars& v) { return layer_norm(v[0], v[0], v[1]); }, {x, gain});
  check_op([](const Vars& v) { return layer_norm(v[0], v[1], v[1]); }, {rows, gain});
  check_op([](const Vars& v) { return layer_norm(v[0], v[0], Var<double>()); }, {x});
  check_op([](const Vars& v) { return rms_norm(v[0], v[0]); }, {x});
  for (const double rate : {0.0, 0.4}) {
    const auto ctx = [&](Tape<double>& tape) {
      return Context<double>::training(tape, detail::DropoutKey{7, 1, 0});
    };
    check_op([&](Tape<double>& tape,
                 const Vars& v) { return add_layer_norm(ctx(tape), v[0], v[0], rate, v[0], v[0]); },
             {x});
    check_op([&](Tape<double>& tape,
                 const Vars& v) { return add_layer_norm(ctx(tape), v[0], v[0], rate, v[1], v[1]); },
             {rows, gain});
    check_op(
        [&](Tape<double>& tape, const Vars& v) { return add_rms_norm(ctx(tape), v[0], v[0], rate, v[0]); },
        {x});
  }
}

TEST_CASE("aliased inputs: one parameter in several places") {
  Parameter<double> w(random({4, 4}, 6)), b(random({4}, 7));
  const std::vector<ParameterHandle<double>> both = {w.handle(), b.handle()};
  for (const Activation f : {Activation::none, Activation::relu, Activation::gelu, Activation::sigmoid}) {
    check_op(
        [&](Tape<double>& tape, const Vars&) {
          const auto ctx = Context<double>::checking(tape);
          return linear(ctx, ctx.use(w), w, b, f);
        },
        {}, both);
    check_op(
        [&](Tape<double>& tape, const Vars&) {
          const auto ctx = Context<double>::checking(tape);
          return feed_forward(ctx, ctx.use(w), w, b, w, b, f, 0.0);
        },
        {}, both);
    check_op(
        [&](Tape<double>& tape, const Vars&) {
          const auto ctx = Context<double>::checking(tape);
          return gated_feed_forward(ctx, ctx.use(w), w, b, w, b, w, b, f, 0.0);
        },
        {}, both);
  }
  check_op(
      [&](Tape<double>& tape, const Vars&) {
        const auto ctx = Context<double>::checking(tape);
        return linear_slice(ctx, ctx.use(w), w, b, 1, 2);
      },
      {}, both);
  const auto targets = Tensor<std::int32_t>::from({4}, {2, 0, 3, 3});
  check_op(
      [&](Tape<double>& tape, const Vars&) {
        const auto ctx = Context<double>::checking(tape);
        return linear_cross_entropy(ctx, ctx.use(w), w, b, targets, {.label_smoothing = 0.1});
      },
      {}, both);
}

TEST_CASE("aliased inputs: attention") {
  const Context<double> ctx = Context<double>::inference();
  const AttentionMask causal = AttentionMask::causal();
  const Tensor<double> x = random({2, 5, 4}, 8);
  check_op([&](const Vars& v) { return attention(v[0], v[0], v[0], causal); }, {x});
  check_op([&](const Vars& v) { return attention(v[0], v[0], v[1]); }, {x, random({2, 5, 3}, 9)});
  check_op([&](const Vars& v) { return attention(v[0], v[1], v[1]); }, {x, random({2, 6, 4}, 9)});
  const auto layout = SequenceLayout::padded(1, 5);
  check_op(
      [&](const Vars& v) {
        return linear_attention(v[0], v[0], v[0], layout, layout, {.heads = 2, .causal = true});
      },
      {random({5, 4}, 9)});

  // Keys and values by distance that are one Var, alone, and the same as the queries, too.
  const Tensor<double> q = random({5, 4}, 1), r = random({5, 4}, 2), fused = random({5, 12}, 3),
                       kv = random({5, 8}, 4);
  check_op(
      [&](const Vars& v) {
        return attention(ctx, v[0], v[0], v[0], layout, layout, causal, {.heads = 1},
                         {.keys = v[1], .values = v[1]});
      },
      {q, r});
  check_op(
      [&](const Vars& v) {
        return attention(ctx, v[0], v[0], v[0], layout, layout, {}, {.heads = 1},
                         {.keys = v[0], .values = v[0]});
      },
      {q});
  check_op(
      [&](const Vars& v) {
        return self_attention(ctx, v[0], layout, causal, {.heads = 1}, {.keys = v[1], .values = v[1]});
      },
      {fused, r});
  check_op(
      [&](const Vars& v) {
        return cross_attention(ctx, v[0], v[1], layout, layout, {}, {.heads = 1},
                               {.keys = v[2], .values = v[2]});
      },
      {q, kv, r});
  check_op(
      [&](const Vars& v) {
        return cross_attention(ctx, v[0], v[1], layout, layout, {}, {.heads = 1},
                               {.keys = v[0], .values = v[0]});
      },
      {q, kv});
  check_op(
      [&](const Vars& v) {
        return attention_weights(ctx, v[0], v[0], layout, layout, causal, {.heads = 1}, {.keys = v[0]});
      },
      {q});
  // Two heads of queries, one of keys: queries are as wide as keys and values side by side.
  check_op(
      [&](const Vars& v) {
        return cross_attention(ctx, v[0], v[0], layout, layout, causal, {.heads = 2, .key_value_heads = 1});
      },
      {kv});

  // A bias by distance (heads, 2 R + 1) that is the queries, or the fused projection.
  const auto three = SequenceLayout::padded(1, 3);
  check_op(
      [&](const Vars& v) {
        return attention(ctx, v[0], v[0], v[0], three, three, {}, {.heads = 3}, {.bias = v[0]});
      },
      {random({3, 9}, 5)});
  check_op([&](const Vars& v) { return self_attention(ctx, v[0], three, {}, {.heads = 3}, {.bias = v[0]}); },
           {random({3, 9}, 6)});
}
