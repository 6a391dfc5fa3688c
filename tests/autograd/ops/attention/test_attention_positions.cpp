#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/attention/attention.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// H heads of queries share G of keys and values.
constexpr index_t B = 2, H = 4, G = 2, Lq = 5, Lk = 7, dk = 4, dv = 6, R = 2, E = 2 * R + 1;

const SequenceLayout queries = SequenceLayout::padded(B, Lq).with_first_position({1, 2});
const SequenceLayout keys = SequenceLayout::padded(B, Lk);

detail::AttentionOp grouped() { return {.heads = H, .key_value_heads = G}; }
detail::AttentionOp sloped() {
  detail::AttentionOp op = grouped();
  op.slopes = {0.5, 0.25, 0.125, 0.0625};
  return op;
}

struct Inputs {
  Tensor<double> q = random({B, Lq, H*dk}, 1), k = random({B, Lk, G*dk}, 2), v = random({B, Lk, G*dv}, 3);
  Tensor<double> bias = random({H, E}, 4), keys = random({E, dk}, 5), values = random({E, dv}, 6);
};

// Attention by definition: scale q (k + a^K) + bias - slope |distance|, softmax, times (v + a^V). Parts that
// are not wanted are undefined.
Tensor<double> reference(const Inputs& x, const detail::AttentionOp& op, const AttentionMask& mask, bool bias,
                         bool relative_keys, bool relative_values) {
  Tensor<double> out = Tensor<double>::zeros({B, Lq, H * dv});
  const Tensor<float> forbidden = mask.to_additive(B, H, Lq, Lk, 0);
  for (index_t b = 0; b < B; ++b) {
    for (index_t h = 0; h < H; ++h) {
      const index_t g = h / (H / G);
      for (index_t i = 0; i < Lq; ++i) {
        std::vector<double> p(Lk);
        double sum = 0;
        const auto entry = [&](index_t j) { return std::clamp(j - queries.position(b) - i, -R, R) + R; };
        for (index_t j = 0; j < Lk; ++j) {
          double score = static_cast<double>(forbidden.at({b, h, i, j}));
          const auto distance = static_cast<double>(j - queries.position(b) - i);
          if (!op.slopes.empty()) score -= op.slopes[static_cast<std::size_t>(h)] * std::abs(distance);
          if (bias) score += x.bias.at({h, entry(j)});
          for (index_t c = 0; c < dk; ++c) {
            const double key = x.k.at({b, j, g * dk + c}) + (relative_keys ? x.keys.at({entry(j), c}) : 0);
            score += x.q.at({b, i, h * dk + c}) * key / std::sqrt(static_cast<double>(dk));
          }
          sum += p[static_cast<std::size_t>(j)] = std::exp(score);
        }
        for (index_t j = 0; j < Lk; ++j) {
          for (index_t c = 0; c < dv; ++c) {
            const double value =
                x.v.at({b, j, g * dv + c}) + (relative_values ? x.values.at({entry(j), c}) : 0);
            out.at({b, i, h * dv + c}) += p[static_cast<std::size_t>(j)] / sum * value;
          }
        }
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("attention with positions and shared heads: values against plain loops") {
  const Inputs x;
  const auto ctx = Context<double>::inference();
  const auto none = AttentionMask::none();
  const auto run = [&](const detail::AttentionOp& op, const detail::RelativePositions<double>& relative) {
    return attention(ctx, Var<double>(x.q), Var<double>(x.k), Var<double>(x.v), queries, keys, none, op,
                     relative)
        .value();
  };
  const Var<double> bias = x.bias, relative_keys = x.keys, values = x.values;
  CHECK(worst_difference(run(grouped(), {}), reference(x, grouped(), none, false, false, false)) < 1e-12);
  CHECK(worst_difference(run(sloped(), {}), reference(x, sloped(), none, false, false, false)) < 1e-12);
  CHECK(worst_difference(run(grouped(), {.bias = bias}), reference(x, grouped(), none, true, false, false)) <
        1e-12);
  CHECK(worst_difference(run(grouped(), {.keys = relative_keys}),
                         reference(x, grouped(), none, false, true, false)) < 1e-12);
  CHECK(worst_difference(run(grouped(), {.values = values}),
                         reference(x, grouped(), none, false, false, true)) < 1e-12);
  CHECK(worst_difference(run(sloped(), {.keys = relative_keys, .values = values}),
                         reference(x, sloped(), none, false, true, true)) < 1e-12);
  CHECK(worst_difference(run(sloped(), {.bias = bias, .values = values}),
                         reference(x, sloped(), none, true, false, true)) < 1e-12);
}

TEST_CASE("attention with positions and shared heads: gradients") {
  const Inputs x;
  const std::vector<Tensor<double>> qkv{x.q, x.k, x.v};
  const auto with = [&](std::vector<Tensor<double>> more) {
    std::vector<Tensor<double>> all = qkv;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto mask = AttentionMask::window(3, 1);
  for (const double rate : {0.0, 0.3}) {
    CAPTURE(rate);
    const auto run = [&](Tape<double>& t, const Vars& v, detail::AttentionOp op,
                         const detail::RelativePositions<double>& relative) {
      op.dropout = rate;
      return attention(Context<double>::training(t, detail::DropoutKey{2, 1, 0}), v[0], v[1], v[2], queries,
                       keys, mask, op, relative);
    };
    check_op([&](Tape<double>& t, const Vars& v) { return run(t, v, sloped(), {}); }, qkv);
    check_op([&](Tape<double>& t, const Vars& v) { return run(t, v, grouped(), {.bias = v[3]}); },
             with({x.bias}));
    check_op([&](Tape<double>& t, const Vars& v) { return run(t, v, grouped(), {.keys = v[3]}); },
             with({x.keys}));
    check_op([&](Tape<double>& t, const Vars& v) { return run(t, v, grouped(), {.values = v[3]}); },
             with({x.values}));
    check_op(
        [&](Tape<double>& t, const Vars& v) { return run(t, v, sloped(), {.keys = v[3], .values = v[4]}); },
        with({x.keys, x.values}));
  }
  // Only what is learned by distance is wanted.
  const Var<double> q = x.q, k = x.k, v = x.v;
  const auto ctx = Context<double>::inference();
  check_op(
      [&](const Vars& p) { return attention(ctx, q, k, v, queries, keys, mask, grouped(), {.bias = p[0]}); },
      {x.bias});
  check_op(
      [&](const Vars& p) {
        return attention(ctx, q, k, v, queries, keys, mask, grouped(), {.keys = p[0], .values = p[1]});
      },
      {x.keys, x.values});
}

TEST_CASE("self_attention, cross_attention, attention_weights with positions: gradients and values") {
  const auto packed = SequenceLayout::packed({3, 5}), memory = SequenceLayout::packed({2, 6});
  const auto mask = AttentionMask::causal(), none = AttentionMask::none();
  const auto ctx = [](Tape<double>& t) { return Context<double>::checking(t); };
  const Tensor<double> qkv = random({8, (H + 2 * G) * dk}, 1), kv = random({8, 2 * G * dk}, 2),
                       q = random({8, H * dk}, 3);
  const Tensor<double> bias = random({H, E}, 4), rel_k = random({E, dk}, 5), rel_v = random({E, dk}, 6);
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return self_attention(ctx(t), v[0], packed, mask, sloped(), {.bias = v[1], .values = v[2]});
      },
      {qkv, bias, rel_v});
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return self_attention(ctx(t), v[0], packed, mask, grouped(), {.keys = v[1], .values = v[2]});
      },
      {qkv, rel_k, rel_v});
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return self_attention(ctx(t), Var<double>(qkv), packed, mask, grouped(),
                              {.keys = v[0], .values = v[1]});
      },
      {rel_k, rel_v});
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return cross_attention(ctx(t), v[0], v[1], packed, memory, none, sloped(),
                               {.bias = v[2], .values = v[3]});
      },
      {q, kv, bias, rel_v});
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return attention_weights(ctx(t), v[0], v[1], queries, keys, mask, sloped(), {.bias = v[2]});
      },
      {random({B, Lq, H * dk}, 7), random({B, Lk, G * dk}, 8), bias});
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return attention_weights(ctx(t), v[0], v[1], queries, keys, mask, grouped(), {.keys = v[2]});
      },
      {random({B, Lq, H * dk}, 7), random({B, Lk, G * dk}, 8), rel_k});

  // The fused ops give what attention() gives on the parts.
  const auto inference = Context<double>::inference();
  const Var<double> x = qkv;
  const detail::RelativePositions<double> relative{.keys = rel_k, .values = rel_v};
  const Var<double> parts[] = {slice(x, 1, 0, H * dk), slice(x, 1, H * dk, (H + G) * dk),
                               slice(x, 1, (H + G) * dk)};
  CHECK(values(self_attention(inference, x, packed, mask, grouped(), relative).value()) ==
        values(attention(inference, parts[0], parts[1], parts[2], packed, packed, mask, grouped(), relative)
                   .value()));

  // The weights are those that the output is made with.
  const Inputs in;
  const Tensor<double> w = attention_weights(inference, Var<double>(in.q), Var<double>(in.k), queries, keys,
                                             none, sloped(), {.bias = Var<double>(in.bias)})
                               .value();
  const Tensor<double> out = reference(in, sloped(), none, true, false, false);
  double worst = 0;
  for (index_t b = 0; b < B; ++b) {
    for (index_t h = 0; h < H; ++h) {
      for (index_t i = 0; i < Lq; ++i) {
        for (index_t c = 0; c < dv; ++c) {
          double sum = 0;
          for (index_t j = 0; j < Lk; ++j) sum += w.at({b, h, i, j}) * in.v.at({b, j, h / 2 * dv + c});
          worst = std::max(worst, std::abs(sum - out.at({b, i, h * dv + c})));
        }
      }
    }
  }
  CHECK(worst < 1e-12);
}

TEST_CASE("attention with positions: padding on either side equals packed rows, whatever padding holds") {
  const Tensor<double> rows = random({8, (H + 2 * G) * dk}, 1), dout = random({8, H * dk}, 2);
  const auto packed = SequenceLayout::packed({3, 5});
  const auto spread = [](const Tensor<double>& x, const SequenceLayout& from, const SequenceLayout& to,
                         double fill) {
    Tensor<double> y = Tensor<double>::full({to.rows(), x.dim(1)}, fill);
    for (index_t b = 0; b < from.batch(); ++b)
      std::copy_n(x.data() + from.offset(b) * x.dim(1), from.length(b) * x.dim(1),
                  y.data() + to.offset(b) * x.dim(1));
    return y;
  };
  const auto run = [&](const SequenceLayout& layout) {
    Tape<double> tape;
    Gradients<double> gradients;
    const Var<double> x = tape.variable(spread(rows, packed, layout, std::nan("")));
    const Var<double> k = tape.variable(random({E, dk}, 5)), v = tape.variable(random({E, dk}, 6));
    const Var<double> y = self_attention(Context<double>::checking(tape), x, layout, AttentionMask::causal(),
                                         sloped(), {.keys = k, .values = v});
    const Tensor<double> out = spread(y.value(), layout, packed, 0);
    tape.backward(y, spread(dout, packed, layout, 0), gradients);
    return std::vector<Tensor<double>>{out, spread(tape.gradient(x), layout, packed, 0), tape.gradient(k),
                                       tape.gradient(v)};
  };
  const auto expected = run(packed);
  for (const auto& layout :
       {SequenceLayout::padded({3, 5}, 6), SequenceLayout::padded_left({3, 5}, 6),
        SequenceLayout::padded_around(std::vector<index_t>{2, 1}, std::vector<index_t>{3, 5}, 7)}) {
    const auto got = run(layout);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(worst_difference(got[i], expected[i]) < 1e-14);
  }
}

TEST_CASE("attention with positions: shapes and options that do not fit") {
  const Inputs x;
  const auto ctx = Context<double>::inference();
  const auto none = AttentionMask::none();
  const auto run = [&](const detail::AttentionOp& op, const detail::RelativePositions<double>& relative) {
    (void)attention(ctx, Var<double>(x.q), Var<double>(x.k), Var<double>(x.v), queries, keys, none, op,
                    relative);
  };
  CHECK(message_of<ValueError>([&] { run({.heads = 4, .key_value_heads = 3}, {}); }) ==
        "[attention] heads is 4, must be divisible by key_value_heads, which is 3");
  CHECK(message_of<ValueError>([&] {
          run({.heads = 4, .key_value_heads = 2, .slopes = {1, 2}}, {});
        }) == "[attention] 2 slopes given, must be 4, one for each head");
  CHECK(message_of<ShapeError>([&] { run({.heads = 4}, {}); }) ==
        "[attention] query of width 16 and key of width 8 must agree");
  CHECK(
      message_of<ShapeError>([&] {
        run(grouped(), {.bias = random({H, 4})});
      }) ==
      "[attention] bias by distance of shape (4, 4) must be (4 heads, 2 R + 1 distances for R of 1 or more)");
  CHECK(message_of<ShapeError>([&] {
          run(grouped(), {.keys = random({E, 3})});
        }) ==
        "[attention] keys by distance of shape (5, 3) must be (2 R + 1 distances for R of 1 or more, 4)");
  CHECK_THROWS_AS(run(grouped(), {.keys = random({E, dk}), .values = random({E + 2, dv})}), ShapeError);
  CHECK_THROWS_AS(run(grouped(), {.bias = random({H, E}), .keys = random({E, dk})}), ValueError);
}
