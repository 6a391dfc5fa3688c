#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "eigenformer/nn/attention/attention.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

template <class T>
MultiHeadAttention<T> make_attention(bool bias = true, double dropout = 0, index_t kdim = 0,
                                     index_t vdim = 0) {
  RandomGenerator rng(1);
  MultiHeadAttention<T> attention(
      {.d_model = D, .num_heads = H, .dropout = dropout, .bias = bias, .kdim = kdim, .vdim = vdim}, rng);
  randomise(attention, 2);
  return attention;
}

template <class T>
AttentionMask fixture_mask(const Fixture& fixture) {
  if (fixture.options().at("mask") == "block") return AttentionMask::block(fixture.get<bool>("in.attn_mask"));
  return AttentionMask::additive(fixture.get<float>("in.attn_mask"));
}

/// Softmax attention written as loops, for one head of one query.
std::vector<double> loop_weights(const Tensor<double>& q, const Tensor<double>& k, index_t b, index_t h,
                                 index_t i, const std::vector<bool>& allowed) {
  const index_t d = D / H;
  std::vector<double> weights(static_cast<std::size_t>(k.dim(1)), 0.0);
  double sum = 0;
  for (index_t j = 0; j < k.dim(1); ++j) {
    if (!allowed[static_cast<std::size_t>(j)]) continue;
    double score = 0;
    for (index_t c = 0; c < d; ++c) score += q.at({b, i, h * d + c}) * k.at({b, j, h * d + c});
    sum += weights[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(static_cast<double>(d)));
  }
  for (double& w : weights) w = sum > 0 ? w / sum : 0;
  return weights;
}

}  // namespace

TEST_CASE_TEMPLATE("self-attention agrees with PyTorch, key padding by layout or by mask", T, float, double) {
  const Fixture fixture("attention/multi_head_attention_self");
  const auto lengths = fixture.lengths("in.key_lengths");
  const auto mask = fixture_mask<T>(fixture);
  auto attention = make_attention<T>();
  check_parity<T>(fixture, attention, {"x"}, lengths, [&](const Context<T>& ctx, const auto& x) {
    const auto layout = SequenceLayout::padded(lengths, L);
    return attention(ctx, x[0], layout, x[0], x[0], layout, mask);
  });
  check_parity<T>(fixture, attention, {"x"}, lengths, [&](const Context<T>& ctx, const auto& x) {
    return attention(ctx, x[0], x[0], x[0],
                     mask & AttentionMask::key_padding(fixture.get<bool>("in.key_padding")));
  });
}

TEST_CASE_TEMPLATE("cross-attention with three different inputs agrees with PyTorch for every kind of mask",
                   T, float, double) {
  for (const char* name :
       {"attention/multi_head_attention_cross", "attention/multi_head_attention_cross_additive",
        "attention/multi_head_attention_cross_per_head"}) {
    CAPTURE(name);
    const Fixture fixture(name);
    const auto keys = SequenceLayout::padded(fixture.lengths("in.key_lengths"), S);
    const auto mask = fixture_mask<T>(fixture);
    auto attention = make_attention<T>(fixture.options().at("bias"));
    check_parity<T>(fixture, attention, {"query", "key", "value"}, {L, L},
                    [&](const Context<T>& ctx, const auto& x) {
                      return attention(ctx, x[0], SequenceLayout::padded(B, L), x[1], x[2], keys, mask);
                    });
    const auto run = [&](HeadWeights heads) {
      return attention.with_weights(Context<T>::inference(), fixture.get<T>("in.query"),
                                    SequenceLayout::padded(B, L), fixture.get<T>("in.key"),
                                    fixture.get<T>("in.value"), keys, mask, heads);
    };
    const auto per_head = run(HeadWeights::per_head), averaged = run(HeadWeights::averaged);
    check_close(per_head.output.value(), fixture.get<T>("out.y"), output_tolerance<T>,
                "output beside weights");
    check_close(per_head.weights.value(), fixture.get<T>("out.weights_per_head"), output_tolerance<T>,
                "weights per head");
    check_close(averaged.weights.value(), fixture.get<T>("out.weights_average"), output_tolerance<T>,
                "averaged weights");
  }
}

TEST_CASE_TEMPLATE("gradients through the weights agree with PyTorch", T, float, double) {
  const Fixture fixture("attention/multi_head_attention_self_weights");
  const auto lengths = fixture.lengths("in.key_lengths");
  auto attention = make_attention<T>();
  const auto layout = SequenceLayout::padded(lengths, L);
  const auto run = [&](const Context<T>& ctx, ParityInputs<T>& in) {
    const auto x = in["x"];
    const auto result =
        attention.with_weights(ctx, x, layout, x, x, layout, fixture_mask<T>(fixture), HeadWeights::per_head);
    const auto loss = add(sum(multiply(result.output, fixture.get<T>("in.cotangent"))),
                          sum(multiply(result.weights, fixture.get<T>("in.cotangent_weights"))));
    return ParityOutputs<T>({{"y", result.output}}, loss);
  };
  check_report(eigenformer::check_parity(fixture, attention, run,
                                         {.output_tolerance = output_tolerance<T>,
                                          .gradient_tolerance = gradient_tolerance<T>,
                                          .lengths = {{"y", lengths}}}));
}

TEST_CASE("attention has PyTorch's names and shapes, fused or with keys and values of other widths") {
  CHECK(names_of(make_attention<float>()) ==
        std::vector<std::string>{"in_proj_weight (36, 12)", "in_proj_bias (36,)", "out_proj.weight (12, 12)",
                                 "out_proj.bias (12,)"});
  CHECK(names_of(make_attention<float>(false)) ==
        std::vector<std::string>{"in_proj_weight (36, 12)", "out_proj.weight (12, 12)"});
  CHECK(names_of(make_attention<float>(true, 0, 9, 11)) ==
        std::vector<std::string>{"q_proj_weight (12, 12)", "k_proj_weight (12, 9)", "v_proj_weight (12, 11)",
                                 "in_proj_bias (36,)", "out_proj.weight (12, 12)", "out_proj.bias (12,)"});
  RandomGenerator rng(3);
  const MultiHeadAttention<double> fresh({.d_model = 60, .num_heads = 5}, rng);
  double largest = 0;
  for (const double w : fresh.in_proj.weight.value().span()) largest = std::max(largest, std::abs(w));
  CHECK(largest == doctest::Approx(std::sqrt(6.0 / (60 + 180))).epsilon(0.01));
  CHECK(values(fresh.in_proj.bias.value()) == std::vector<double>(180, 0.0));
  CHECK(values(fresh.out_proj.bias.value()) == std::vector<double>(60, 0.0));
}

TEST_CASE("every way through attention has a right backward, masks included") {
  const auto x = random_tensor<double>({B, L, D}, 3), memory = random_tensor<double>({B, S, D}, 4);
  const auto queries = SequenceLayout::padded({3, 5}, L), keys = SequenceLayout::padded({7, 4}, S);
  auto attention = make_attention<double>();
  check_backward(attention, {x}, [&](const Context<double>& ctx, const auto& in) {
    return attention(ctx, in[0], queries, in[0], in[0], queries, AttentionMask::causal());
  });
  check_backward(attention, {x, memory}, [&](const Context<double>& ctx, const auto& in) {
    return attention(ctx, in[0], queries, in[1], in[1], keys, AttentionMask::window(2, 1));
  });
  auto apart = make_attention<double>(true, 0, 9, 11);
  const auto key = random_tensor<double>({B, S, 9}, 5), value = random_tensor<double>({B, S, 11}, 6);
  check_backward(apart, {x, key, value}, [&](const Context<double>& ctx, const auto& in) {
    return apart(ctx, in[0], queries, in[1], in[2], keys, {});
  });
  check_backward(attention, {x, memory}, [&](const Context<double>& ctx, const auto& in) {
    return attention.with_weights(ctx, in[0], queries, in[1], in[1], keys, {}).weights;
  });
}

TEST_CASE("attention is the formula written as loops") {
  auto attention = make_attention<double>();
  const auto x = random_tensor<double>({B, L, D}, 3), memory = random_tensor<double>({B, S, D}, 4);
  const auto ctx = Context<double>::inference();
  const auto q = attention.project_query(ctx, x).value(), k = attention.in_proj.key(ctx, memory).value(),
             v = attention.in_proj.value(ctx, memory).value();
  const auto both = attention.project_key_value(ctx, memory).value();
  const auto all = attention.in_proj.all(ctx, x).value();
  CHECK(both.at({1, 2, 3}) == k.at({1, 2, 3}));
  CHECK(both.at({1, 2, D + 3}) == v.at({1, 2, 3}));
  CHECK(all.at({1, 2, 3}) == q.at({1, 2, 3}));
  const auto keys = SequenceLayout::padded({7, 4}, S);
  const auto result = attention.with_weights(ctx, x, SequenceLayout::padded(B, L), memory, memory, keys,
                                             AttentionMask::causal(), HeadWeights::per_head);
  Tensor<double> heads({B, L, D});
  for (index_t b = 0; b < B; ++b) {
    for (index_t i = 0; i < L; ++i) {
      for (index_t h = 0; h < H; ++h) {
        std::vector<bool> allowed;
        for (index_t j = 0; j < S; ++j) allowed.push_back(j <= i && j < keys.length(b));
        const auto w = loop_weights(q, k, b, h, i, allowed);
        for (index_t j = 0; j < S; ++j)
          CHECK(result.weights.value().at({b, h, i, j}) == doctest::Approx(w[static_cast<std::size_t>(j)]));
        for (index_t c = h * 4; c < h * 4 + 4; ++c) {
          heads.at({b, i, c}) = 0;
          for (index_t j = 0; j < S; ++j)
            heads.at({b, i, c}) += w[static_cast<std::size_t>(j)] * v.at({b, j, c});
        }
      }
    }
  }
  check_close(result.output.value(), attention.out_proj(ctx, heads).value(), 1e-12);
}

TEST_CASE("what a masked key holds, even NaN, changes nothing, bit by bit") {
  auto attention = make_attention<float>();
  const auto ctx = Context<float>::inference();
  const auto x = random_tensor<float>({B, L, D}, 3), memory = random_tensor<float>({B, S, D}, 4);
  auto other = memory.clone();
  for (index_t j = 4; j < S; ++j) {
    for (index_t d = 0; d < D; ++d)
      other.at({1, j, d}) = d == 0 ? std::numeric_limits<float>::quiet_NaN() : 1e30F;
  }
  auto padding = Tensor<bool>::full({B, S}, false);
  for (index_t j = 4; j < S; ++j) padding.at({1, j}) = true;
  const auto by_mask = AttentionMask::key_padding(padding);
  CHECK(values(attention(ctx, x, memory, memory, by_mask).value()) ==
        values(attention(ctx, x, other, other, by_mask).value()));
  const auto queries = SequenceLayout::padded(B, L), keys = SequenceLayout::padded({7, 4}, S);
  CHECK(values(attention(ctx, x, queries, memory, memory, keys, {}).value()) ==
        values(attention(ctx, x, queries, other, other, keys, {}).value()));
  CHECK(values(attention(ctx, x, memory, memory, by_mask).value()) ==
        values(attention(ctx, x, queries, memory, memory, keys, {}).value()));
}

TEST_CASE("a query with nothing to attend to gives the output bias, and finite gradients") {
  auto attention = make_attention<double>();
  const auto nothing = AttentionMask::block(Tensor<bool>::full({L, L}, true));
  const auto x = random_tensor<double>({B, L, D}, 3);
  const auto y = attention(Context<double>::inference(), x, x, x, nothing).value();
  for (index_t r = 0; r < B * L; ++r) {
    for (index_t d = 0; d < D; ++d) CHECK(y.data()[r * D + d] == attention.out_proj.bias.value().at({d}));
  }
  check_backward(attention, {x}, [&](const Context<double>& ctx, const auto& in) {
    return attention(ctx, in[0], in[0], in[0], nothing);
  });
}

TEST_CASE("cross-attention of padded tensors is that of their full layouts") {
  const auto attention = make_attention<double>();
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({B, L, D}, 3), memory = random_tensor<double>({B, S, D}, 4);
  const auto full =
      attention.cross(ctx, x, SequenceLayout::padded(B, L), memory, SequenceLayout::padded(B, S));
  const auto plain = attention.cross(ctx, x, memory);
  CHECK(plain.value().shape() == Shape{B, L, D});
  CHECK(values(plain.value()) == values(full.value()));
  const Var<double> other = random_tensor<double>({B + 1, S, D}, 5);
  CHECK_THROWS_AS((void)attention.cross(ctx, x, other), ShapeError);
}

TEST_CASE("a sequence of queries can look at any sequence of keys") {
  auto attention = make_attention<float>();
  const auto ctx = Context<float>::inference();
  const auto x = random_tensor<float>({3, L, D}, 3), memory = random_tensor<float>({B, S, D}, 4);
  const auto queries = SequenceLayout::padded(3, L), keys = SequenceLayout::padded({7, 4}, S);
  const auto y = attention(ctx, x, queries, memory, memory, keys, {}, {1, 1, 0}).value();
  for (index_t b = 0; b < 3; ++b) {
    const index_t m = b == 2 ? 0 : 1;
    const auto one = SequenceLayout::padded({keys.length(m)}, S);
    const auto alone = attention(ctx, x.rows(b, 1), SequenceLayout::padded(1, L), memory.rows(m, 1),
                                 memory.rows(m, 1), one, {});
    CHECK(values(y.rows(b, 1)) == values(alone.value()));
  }
}

TEST_CASE("dropout on the weights differs from pass to pass and is off outside training") {
  auto attention = make_attention<float>(true, 0.3);
  const auto x = random_tensor<float>({B, L, D}, 3);
  RandomGenerator rng(5);
  const auto run = [&](const Context<float>& ctx) { return values(attention(ctx, x, x, x).value()); };
  Tape<float> tape;
  const auto plain = run(Context<float>::inference());
  CHECK(run(Context<float>::checking(tape)) == plain);
  const auto first = run(Context<float>::training(tape, rng));
  CHECK(first != plain);
  CHECK(run(Context<float>::training(tape, rng)) != first);
  CHECK(run(Context<float>::training(tape, detail::DropoutKey{7, 1, 0})) ==
        run(Context<float>::training(tape, detail::DropoutKey{7, 1, 0})));
}

TEST_CASE("attention says what does not fit") {
  const auto attention = make_attention<float>();
  const auto ctx = Context<float>::inference();
  const auto zeros = [](const Shape& shape) { return Var<float>(Tensor<float>::zeros(shape)); };
  const auto call = [&](const Shape& q, const Shape& k, const Shape& v, const AttentionMask& mask = {}) {
    return message_of<ShapeError>([&] { (void)attention(ctx, zeros(q), zeros(k), zeros(v), mask); });
  };
  CHECK(call({2, 5, 11}, {2, 7, 12}, {2, 7, 12}) ==
        "[multi_head_attention] query of shape (2, 5, 11) must have 12 features, to match 'in_proj_weight'");
  CHECK(contains(call({2, 5, 12}, {2, 7, 10}, {2, 7, 12}), "key of shape (2, 7, 10) must have 12 features"));
  CHECK(contains(call({2, 5, 12}, {2, 7, 12}, {2, 6, 12}),
                 "value of shape (2, 6, 12) must fit its layout: 2 padded sequences in 14 rows"));
  CHECK(contains(call({2, 5, 12}, {3, 7, 12}, {3, 7, 12}),
                 "query of shape (2, 5, 12) and key of shape (3, 7, 12) must have the same batch size"));
  CHECK(contains(
      call({2, 5, 12}, {2, 7, 12}, {2, 7, 12}, AttentionMask::block(Tensor<bool>::full({5, 6}, false))),
      "mask of shape (5, 6)"));
  CHECK(contains(call({12}, {2, 7, 12}, {2, 7, 12}), "input of shape (12,)"));
  RandomGenerator rng(1);
  CHECK(message_of<ValueError>([&] { MultiHeadAttention<float>({.d_model = 12, .num_heads = 0}, rng); }) ==
        "[multi_head_attention] num_heads is 0, must be positive");
  CHECK(message_of<ValueError>([&] { MultiHeadAttention<float>({.d_model = 12, .num_heads = 5}, rng); }) ==
        "[multi_head_attention] d_model is 12, must be divisible by num_heads, which is 5");
  CHECK(contains(message_of<ValueError>(
                     [&] { MultiHeadAttention<float>({.d_model = 12, .num_heads = 3, .dropout = 1}, rng); }),
                 "dropout is 1"));
  CHECK(contains(message_of<ValueError>(
                     [&] { MultiHeadAttention<float>({.d_model = 12, .num_heads = 3, .kdim = -1}, rng); }),
                 "kdim is -1"));
  const auto apart = make_attention<float>(true, 0, 9, 11);
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)apart.project_key_value(ctx, zeros({3, 9}));
                 }),
                 "must be 11, to match"));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)apart.in_proj.key_value(ctx, zeros({3, 9}));
                 }),
                 "separate weights"));
}
