#include <cmath>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/attention/attention.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr index_t B = 2, H = 4, G = 2, Lq = 5, Lk = 7, dk = 4, dv = 6, R = 2, E = 2 * R + 1;

const SequenceLayout queries = SequenceLayout::padded(B, Lq).with_first_position({1, 2});
const SequenceLayout keys = SequenceLayout::padded(B, Lk);

// score - 0.3 sqrt(|distance|).
struct RootSlope {
  static constexpr bool additive = true;

  void operator()(ScoreTile<double>& tile) const {
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j)
        tile.row(i)[j] -= 0.3 * std::sqrt(std::abs(static_cast<double>(tile.key + j - tile.query - i)));
    }
  }
};

// c tanh(score / c), as in Gemma 2.
struct SoftCap {
  double c = 1.2;

  void operator()(ScoreTile<double>& tile) const {
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j) tile.row(i)[j] = c * std::tanh(tile.row(i)[j] / c);
    }
  }
  void backward(const ScoreTile<double>& tile, double* gradient) const {
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j)
        gradient[i * tile.stride + j] *= 1 - std::pow(tile.row(i)[j] / c, 2);
    }
  }
};

detail::AttentionOp with(const ScoreRule& rule) {
  detail::AttentionOp op{.heads = H, .key_value_heads = G};
  op.slopes = {0.5, 0.25, 0.125, 0.0625};
  op.rule = rule;
  return op;
}

}  // namespace

TEST_CASE("attention with a rule of scores: gradients") {
  const Tensor<double> q = random({B, Lq, H * dk}, 1), k = random({B, Lk, G * dk}, 2),
                       v = random({B, Lk, G * dv}, 3), bias = random({H, E}, 4), rel_k = random({E, dk}, 5),
                       rel_v = random({E, dv}, 6);
  for (const ScoreRule& rule : {ScoreRule(RootSlope{}), ScoreRule(SoftCap{})}) {
    for (const auto& mask : {AttentionMask::none(), AttentionMask::window(3, 1)}) {
      const auto ctx = [](Tape<double>& t) {
        return Context<double>::training(t, detail::DropoutKey{2, 1, 0});
      };
      detail::AttentionOp dropping = with(rule);
      dropping.dropout = 0.3;
      check_op(
          [&](Tape<double>& t, const Vars& x) {
            return attention(ctx(t), x[0], x[1], x[2], queries, keys, mask, dropping);
          },
          {q, k, v});
      check_op(
          [&](Tape<double>& t, const Vars& x) {
            return attention(ctx(t), x[0], x[1], x[2], queries, keys, mask, with(rule), {.bias = x[3]});
          },
          {q, k, v, bias});
      check_op(
          [&](Tape<double>& t, const Vars& x) {
            return attention(ctx(t), x[0], x[1], x[2], queries, keys, mask, with(rule),
                             {.keys = x[3], .values = x[4]});
          },
          {q, k, v, rel_k, rel_v});
      check_op(
          [&](Tape<double>& t, const Vars& x) {
            return attention_weights(ctx(t), x[0], x[1], queries, keys, mask, with(rule), {.bias = x[2]});
          },
          {q, k, bias});
    }
  }
}

TEST_CASE("attention with a rule of scores: fused projections, and a rule that the tape outlives") {
  const auto packed = SequenceLayout::packed({3, 5}), memory = SequenceLayout::packed({2, 6});
  const Tensor<double> qkv = random({8, (H + 2 * G) * dk}, 1), kv = random({8, 2 * G * dk}, 2),
                       q = random({8, H * dk}, 3);
  check_op(
      [&](Tape<double>& t, const Vars& x) {
        return self_attention(Context<double>::checking(t), x[0], packed, AttentionMask::causal(),
                              with(SoftCap{}));
      },
      {qkv});
  check_op(
      [&](Tape<double>& t, const Vars& x) {
        return cross_attention(Context<double>::checking(t), x[0], x[1], packed, memory,
                               AttentionMask::none(), with(SoftCap{}));
      },
      {q, kv});
}

TEST_CASE("attention with a rule of scores: weights are those of the capped scores") {
  const Tensor<double> q = random({1, 3, 2}, 1), k = random({1, 4, 2}, 2);
  const auto rows = SequenceLayout::padded(1, 3), columns = SequenceLayout::padded(1, 4);
  detail::AttentionOp op{.scale = 2};
  op.rule = SoftCap{0.7};
  const auto w = attention_weights(Context<double>::inference(), Var<double>(q), Var<double>(k), rows,
                                   columns, AttentionMask::none(), op)
                     .value();
  for (index_t i = 0; i < 3; ++i) {
    double e[4], sum = 0;
    for (index_t j = 0; j < 4; ++j) {
      const double s = 2 * (q.at({0, i, 0}) * k.at({0, j, 0}) + q.at({0, i, 1}) * k.at({0, j, 1}));
      sum += e[j] = std::exp(0.7 * std::tanh(s / 0.7));
    }
    for (index_t j = 0; j < 4; ++j) CHECK(std::abs(w.at({0, 0, i, j}) - e[j] / sum) < 1e-14);
  }
}
