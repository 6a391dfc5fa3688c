#include "eigenformer/autograd/ops/attention/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr index_t B = 2, H = 3, Lq = 5, Lk = 7, dk = 4, dv = 6;

struct NamedMask {
  std::string name;
  AttentionMask mask;
};

// Every kind of mask for (B, H, Lq, Lk); the first query of the first sequence has nothing to look at in the
// last.
std::vector<NamedMask> masks() {
  RandomGenerator rng(5);
  Tensor<bool> allow(Shape{Lq, Lk}), block(Shape{B, Lq, Lk}), padding = Tensor<bool>::zeros({B, Lk});
  for (bool& b : allow.span()) b = rng.uniform() < 0.7;
  for (bool& b : block.span()) b = rng.uniform() < 0.3;
  for (index_t j = 4; j < Lk; ++j) padding.at({1, j}) = true;
  Tensor<float> bias(Shape{B, H, Lq, Lk});
  rng.fill_normal(bias.data(), bias.numel(), 0.0, 1.0);
  Tensor<bool> nothing = Tensor<bool>::zeros({B, 1, Lq, Lk});
  for (index_t j = 0; j < Lk; ++j) nothing.at({0, 0, 0, j}) = true;
  return {{"none", AttentionMask::none()},
          {"causal", AttentionMask::causal()},
          {"window", AttentionMask::window(1, 2)},
          {"allow", AttentionMask::allow(allow)},
          {"block", AttentionMask::block(block)},
          {"additive", AttentionMask::additive(bias)},
          {"key padding", AttentionMask::key_padding(padding)},
          {"nothing to look at", AttentionMask::block(nothing)},
          {"all together", AttentionMask::causal() & AttentionMask::additive(bias) &
                               AttentionMask::key_padding(padding) & AttentionMask::block(nothing)}};
}

// softmax(q k^T / sqrt(dk) + mask) v in plain loops; q: (B, H, Lq, dk), k: (B, H, Lk, dk), v: (B, H, Lk, dv).
Tensor<double> reference(const Tensor<double>& q, const Tensor<double>& k, const Tensor<double>& v,
                         const AttentionMask& mask, Tensor<double>* weights = nullptr) {
  const index_t b_count = q.dim(0), h_count = q.dim(1), nq = q.dim(2), nk = k.dim(2), d = q.dim(3),
                e = v.dim(3);
  const Tensor<float> bias = mask.to_additive(b_count, h_count, nq, nk);
  Tensor<double> out = Tensor<double>::zeros({b_count, h_count, nq, e});
  if (weights != nullptr) *weights = Tensor<double>::zeros({b_count, h_count, nq, nk});
  for (index_t b = 0; b < b_count; ++b) {
    for (index_t h = 0; h < h_count; ++h) {
      for (index_t i = 0; i < nq; ++i) {
        std::vector<double> p(static_cast<std::size_t>(nk));
        double sum = 0;
        for (index_t j = 0; j < nk; ++j) {
          double score = static_cast<double>(bias.at({b, h, i, j}));
          if (std::isinf(score)) continue;
          for (index_t c = 0; c < d; ++c)
            score += q.at({b, h, i, c}) * k.at({b, h, j, c}) / std::sqrt(static_cast<double>(d));
          p[static_cast<std::size_t>(j)] = std::exp(score);
          sum += p[static_cast<std::size_t>(j)];
        }
        for (index_t j = 0; j < nk && sum > 0; ++j) {
          const double w = p[static_cast<std::size_t>(j)] / sum;
          if (weights != nullptr) weights->at({b, h, i, j}) = w;
          for (index_t c = 0; c < e; ++c) out.at({b, h, i, c}) += w * v.at({b, h, j, c});
        }
      }
    }
  }
  return out;
}

// (B, H, L, d) -> (B, L, H d), the layout of the ops with heads.
Var<double> merged(const Var<double>& x) {
  return reshape(permute(x, {0, 2, 1, 3}), {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}

const SequenceLayout queries = SequenceLayout::padded(B, Lq), keys = SequenceLayout::padded(B, Lk);

}  // namespace

TEST_CASE("attention(q, k, v, mask): gradients for every mask") {
  for (const NamedMask& m : masks()) {
    CAPTURE(m.name);
    check_op([&](const Vars& v) { return attention(v[0], v[1], v[2], m.mask); },
             {random({B, H, Lq, dk}, 1), random({B, H, Lk, dk}, 2), random({B, H, Lk, dv}, 3)});
  }
  check_op([](const Vars& v) { return attention(v[0], v[1], v[2], AttentionMask::causal()); },
           {random({B, Lq, dk}, 1), random({B, Lk, dk}, 2), random({B, Lk, dv}, 3)});
}

TEST_CASE_TEMPLATE("attention(q, k, v, mask): values against plain loops for every mask", T, float, double) {
  const Tensor<double> q = random({B, H, Lq, dk}, 1), k = random({B, H, Lk, dk}, 2),
                       v = random({B, H, Lk, dv}, 3);
  for (const NamedMask& m : masks()) {
    CAPTURE(m.name);
    const Tensor<T> y = attention(Var<T>(q.to<T>()), k.to<T>(), v.to<T>(), m.mask).value();
    CHECK(worst_difference(y, reference(q, k, v, m.mask)) < (std::is_same_v<T, float> ? 2e-6 : 1e-12));
  }
}

TEST_CASE("attention: one Var as query, key and value") {
  check_op([](const Vars& v) { return attention(v[0], v[0], v[0], AttentionMask::causal()); },
           {random({B, Lq, dk}, 1)});
  check_op([](const Vars& v) { return attention(v[0], v[1], v[1]); },
           {random({B, Lq, dk}, 1), random({B, Lk, dk}, 2)});
  check_op([](const Vars& v) { return attention(v[0], v[0], v[1]); },
           {random({B, Lq, dk}, 1), random({B, Lq, dv}, 2)});
  check_op([](const Vars& v) { return attention(v[0], v[1], v[0]); },
           {random({B, Lq, dk}, 1), random({B, Lq, dk}, 2)});
}

TEST_CASE("attention: gradients where some inputs are constants") {
  const Tensor<double> q = random({B, Lq, dk}, 1), k = random({B, Lk, dk}, 2), v = random({B, Lk, dv}, 3);
  check_op([&](const Vars& x) { return attention(x[0], k, v); }, {q});
  check_op([&](const Vars& x) { return attention(Var<double>(q), x[0], v); }, {k});
  check_op([&](const Vars& x) { return attention(Var<double>(q), k, x[0]); }, {v});
}

TEST_CASE("attention with heads: gradients with dropout, padded and packed, and shared key sequences") {
  const detail::AttentionOp op{.heads = H, .dropout = 0.3};
  const auto ctx = [](Tape<double>& tape) {
    return Context<double>::training(tape, detail::DropoutKey{2, 1, 0});
  };
  // Padded, with lengths below the maximum.
  const auto q_padded = SequenceLayout::padded({3, 5}, Lq), k_padded = SequenceLayout::padded({7, 2}, Lk);
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return attention(ctx(t), v[0], v[1], v[2], q_padded, k_padded, AttentionMask::none(), op);
      },
      {random({B, Lq, H * dk}, 1), random({B, Lk, H * dk}, 2), random({B, Lk, H * dv}, 3)});
  // Packed; the third query sequence looks at the first keys, as beams do.
  const auto q_packed = SequenceLayout::packed({3, 1, 4}), k_packed = SequenceLayout::packed({2, 5});
  const detail::AttentionOp beams{.heads = H, .scale = 0.7, .dropout = 0.3, .key_sequence = {0, 1, 0}};
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return attention(ctx(t), v[0], v[1], v[2], q_packed, k_packed, AttentionMask::none(), beams);
      },
      {random({8, H * dk}, 1), random({7, H * dk}, 2), random({7, H * dv}, 3)});
}

TEST_CASE("self_attention, cross_attention: gradients, and the values of attention() on the parts") {
  const auto layout = SequenceLayout::packed({3, 5});
  const detail::AttentionOp op{.heads = H, .dropout = 0.2};
  const index_t width = H * dk;
  const auto ctx = [](Tape<double>& tape) {
    return Context<double>::training(tape, detail::DropoutKey{2, 1, 0});
  };
  const auto mask = AttentionMask::causal();
  check_op([&](Tape<double>& t, const Vars& v) { return self_attention(ctx(t), v[0], layout, mask, op); },
           {random({8, 3 * width}, 1)});
  const auto padded = SequenceLayout::padded({3, 5}, 5);
  check_op([&](Tape<double>& t, const Vars& v) { return self_attention(ctx(t), v[0], padded, mask, op); },
           {random({B, 5, 3 * width}, 1)});
  const auto memory = SequenceLayout::packed({2, 6});
  const auto none = AttentionMask::none();
  check_op([&](Tape<double>& t,
               const Vars& v) { return cross_attention(ctx(t), v[0], v[1], layout, memory, none, op); },
           {random({8, width}, 1), random({8, 2 * width}, 2)});
  const Tensor<double> fixed = random({8, 2 * width}, 2);
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return cross_attention(ctx(t), v[0], Var<double>(fixed), layout, memory, none, op);
      },
      {random({8, width}, 1)});
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return cross_attention(ctx(t), Var<double>(slice(Var<double>(fixed), 1, 0, width).value()), v[0],
                               layout, memory, none, op);
      },
      {random({8, 2 * width}, 1)});

  Tape<double> tape;
  const Var<double> qkv = random({8, 3 * width}, 4);
  CHECK(values(self_attention(ctx(tape), qkv, layout, mask, op).value()) ==
        values(attention(ctx(tape), slice(qkv, 1, 0, width), slice(qkv, 1, width, 2 * width),
                         slice(qkv, 1, 2 * width), layout, layout, mask, op)
                   .value()));
  const Var<double> q = random({8, width}, 5), kv = random({8, 2 * width}, 6);
  CHECK(values(cross_attention(ctx(tape), q, kv, layout, memory, none, op).value()) ==
        values(attention(ctx(tape), q, slice(kv, 1, 0, width), slice(kv, 1, width), layout, memory, none, op)
                   .value()));
}

TEST_CASE(
    "attention of columns: one matrix in any order, columns that nobody reads, and columns read twice") {
  const auto layout = SequenceLayout::packed({3, 5});
  const detail::AttentionOp op{.heads = H, .dropout = 0.2};
  const index_t width = H * dk, spare = 5;
  const auto mask = AttentionMask::causal();
  const auto ctx = [](Tape<double>& tape) {
    return Context<double>::training(tape, detail::DropoutKey{2, 1, 0});
  };
  const auto part = [&](const Var<double>& x, index_t column) {
    return detail::AttentionInput<double>(x, column, width);
  };
  using Heads = detail::AttentionHeads<double>;
  const std::vector<std::pair<std::string, std::function<Heads(const Vars&)>>> kinds{
      {"values, queries, keys",
       [&](const Vars& x) {
         return Heads{part(x[0], width), part(x[0], 2 * width), part(x[0], 0)};
       }},
      {"after columns that nobody reads",
       [&](const Vars& x) {
         return Heads{part(x[0], spare), part(x[0], spare + width), part(x[0], spare + 2 * width)};
       }},
      {"keys that are values too, of the queries' matrix",
       [&](const Vars& x) {
         return Heads{part(x[0], 0), part(x[0], width), part(x[0], width)};
       }},
      {"overlapping", [&](const Vars& x) {
         return Heads{part(x[0], 0), part(x[0], 3), part(x[0], 2 * width - 1)};
       }}};
  for (const auto& kind : kinds) {
    CAPTURE(kind.first);
    const auto& of = kind.second;
    check_op(
        [&](Tape<double>& t, const Vars& v) { return attention(ctx(t), of(v), layout, layout, mask, op); },
        {random({8, 3 * width + spare}, 1)});
    check_op([&](Tape<double>& t,
                 const Vars& v) { return attention_weights(ctx(t), of(v), layout, layout, mask, op); },
             {random({8, 3 * width + spare}, 1)});
    Tape<double> tape;
    const Heads parts = of({random({8, 3 * width + spare}, 4)});
    CHECK(values(attention(ctx(tape), parts, layout, layout, mask, op).value()) ==
          values(attention(ctx(tape), parts.q.alone(), parts.k.alone(), parts.v.alone(), layout, layout, mask,
                           op)
                     .value()));
    CHECK(values(attention_weights(ctx(tape), parts, layout, layout, mask, op).value()) ==
          values(attention_weights(ctx(tape), parts.q.alone(), parts.k.alone(), layout, layout, mask, op)
                     .value()));
  }
  const Var<double> x = random({8, 2 * width}, 1);
  CHECK(contains(
      message_of<ShapeError>([&] {
        const auto c = Context<double>::inference();
        (void)attention(c, Heads{part(x, 0), part(x, width), part(x, width + 1)}, layout, layout, mask, op);
      }),
      "value in columns 13 to 25 must be inside (8, 24)"));
}

TEST_CASE(
    "attention: padded and packed rows give the same, whatever padding holds, and padding gets no gradient") {
  const double nan = std::nan("");
  const index_t width = H * dk;
  const auto padded = SequenceLayout::padded({3, 5}, 6), packed = SequenceLayout::packed({3, 5});
  const detail::AttentionOp op{.heads = H};
  const Tensor<double> rows = random({8, 3 * width}, 1);
  Tensor<double> spread = Tensor<double>::full({2, 6, 3 * width}, nan);
  std::copy_n(rows.data(), 3 * 3 * width, spread.data());
  std::copy_n(rows.data() + 3 * 3 * width, 5 * 3 * width, spread.data() + 6 * 3 * width);
  const auto run = [&](const Tensor<double>& x, const SequenceLayout& layout) {
    Tape<double> tape;
    Gradients<double> none;
    const Var<double> v = tape.variable(x);
    const Var<double> y =
        self_attention(Context<double>::checking(tape), v, layout, AttentionMask::causal(), op);
    const Tensor<double> out = y.value().reshape({layout.rows(), width});
    tape.backward(y, Tensor<double>::ones(y.shape()), none);
    return std::vector<Tensor<double>>{out, tape.gradient(v).reshape({layout.rows(), 3 * width})};
  };
  const auto a = run(spread, padded), b = run(rows, packed);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(values(a[i].rows(0, 3)) == values(b[i].rows(0, 3)));
    CHECK(values(a[i].rows(6, 5)) == values(b[i].rows(3, 5)));
  }
  for (const index_t row : {3, 4, 5, 11})
    CHECK(values(a[1].rows(row, 1)) == std::vector<double>(static_cast<std::size_t>(3 * width), 0.0));
}

TEST_CASE("attention: what a masked key holds has no effect, bit by bit, even NaN") {
  const Tensor<double> q = random({B, Lq, dk}, 1);
  Tensor<double> k = random({B, Lk, dk}, 2), v = random({B, Lk, dv}, 3);
  Tensor<bool> padding = Tensor<bool>::zeros({B, Lk});
  padding.at({1, 5}) = padding.at({1, 6}) = true;
  const auto run = [&] {
    Tape<double> tape;
    const Var<double> x = tape.variable(q), y = tape.variable(k), z = tape.variable(v);
    const Var<double> out = attention(x, y, z, AttentionMask::key_padding(padding));
    const auto value = values(out.value());
    tape.backward(sum(square(out)));
    return std::vector<std::vector<double>>{value, values(tape.gradient(x)), values(tape.gradient(y)),
                                            values(tape.gradient(z))};
  };
  const auto before = run();
  for (index_t c = 0; c < dk; ++c) k.at({1, 5, c}) = std::nan("");
  for (index_t c = 0; c < dv; ++c) v.at({1, 6, c}) = std::numeric_limits<double>::infinity();
  CHECK(run() == before);
}

TEST_CASE("attention: a query with nothing to look at gives zeros and gets zero gradients") {
  Tape<double> tape;
  const Var<double> q = tape.variable(random({1, 2, dk}, 1)), k = tape.variable(random({1, 3, dk}, 2));
  const Var<double> v = tape.variable(random({1, 3, dv}, 3));
  const Tensor<bool> block = Tensor<bool>::from({2, 3}, {true, true, true, false, false, true});
  const Var<double> y = attention(q, k, v, AttentionMask::block(block));
  CHECK(values(y.value().reshape({2, dv}).rows(0, 1)) == std::vector<double>(dv, 0.0));
  tape.backward(sum(square(y + 1)));
  CHECK(values(tape.gradient(q).reshape({2, dk}).rows(0, 1)) == std::vector<double>(dk, 0.0));
  for (const double g : values(tape.gradient(k))) CHECK(std::isfinite(g));
  CHECK(values(tape.gradient(v).reshape({3, dv}).rows(2, 1)) == std::vector<double>(dv, 0.0));
}

TEST_CASE("attention_weights: gradients and values for every mask") {
  const detail::AttentionOp op{.heads = H};
  const Tensor<double> q = random({B, H, Lq, dk}, 1), k = random({B, H, Lk, dk}, 2),
                       v = random({B, H, Lk, dv}, 3);
  for (const NamedMask& m : masks()) {
    CAPTURE(m.name);
    const auto weights = [&](Tape<double>& t, const Var<double>& x, const Var<double>& y) {
      return attention_weights(Context<double>::checking(t), x, y, queries, keys, m.mask, op);
    };
    check_op([&](Tape<double>& t, const Vars& x) { return weights(t, merged(x[0]), merged(x[1])); }, {q, k});
    Tape<double> tape;
    Tensor<double> expected;
    (void)reference(q, k, v, m.mask, &expected);
    CHECK(worst_difference(weights(tape, merged(Var<double>(q)), merged(Var<double>(k))).value(), expected) <
          1e-12);
  }
  // One Var as query and key; a constant key; weights are those before dropout.
  const auto none = AttentionMask::none();
  check_op(
      [&](Tape<double>& t, const Vars& x) {
        return attention_weights(Context<double>::checking(t), x[0], x[0], queries, queries, none, op);
      },
      {random({B, Lq, H * dk}, 4)});
  const Tensor<double> constant = random({B, Lk, H * dk}, 5);
  check_op(
      [&](Tape<double>& t, const Vars& x) {
        return attention_weights(Context<double>::checking(t), x[0], Var<double>(constant), queries, keys,
                                 none, op);
      },
      {random({B, Lq, H * dk}, 4)});
  Tape<double> tape;
  const Var<double> x = random({B, Lq, H * dk}, 4);
  detail::AttentionOp dropping = op;
  dropping.dropout = 0.5;
  CHECK(values(attention_weights(Context<double>::training(tape, detail::DropoutKey{}), x, x, queries,
                                 queries, none, dropping)
                   .value()) ==
        values(attention_weights(Context<double>::inference(), x, x, queries, queries, none, op).value()));
}

TEST_CASE(
    "attention: values and gradients are the same bits for any number of threads, longer than a block") {
  const index_t width = 2 * 16, length = 150;
  const Tensor<float> x = random({3 * length, 3 * width}, 1).to<float>();
  const auto layout = SequenceLayout::packed({length, length, length});
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<float> tape;
    const Var<float> v = tape.variable(x);
    const Var<float> y =
        self_attention(Context<float>::training(tape, detail::DropoutKey{1, 1, 0}), v, layout,
                       AttentionMask::causal(), detail::AttentionOp{.heads = 2, .dropout = 0.1});
    tape.backward(sum(y * y));
    return std::vector<std::vector<float>>{values(y.value()), values(tape.gradient(v))};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("attention: shapes and options that do not fit") {
  const auto ctx = Context<double>::inference();
  const Var<double> q = random({B, Lq, 12}), k = random({B, Lk, 12}), narrow = random({B, Lk, 9});
  const auto none = AttentionMask::none();
  CHECK(message_of<ShapeError>([&] {
          (void)attention(ctx, q, narrow, k, queries, keys, none, detail::AttentionOp{.heads = 3});
        }) == "[attention] query of width 12 and key of width 9 must agree");
  CHECK(message_of<ShapeError>([&] {
          (void)attention(ctx, q, k, k, queries, queries, none, detail::AttentionOp{.heads = 3});
        }) == "[attention] key of shape (2, 7, 12) must have the 10 rows of its layout");
  CHECK(message_of<ShapeError>([&] {
          (void)attention(ctx, q, k, k, queries, keys, none, detail::AttentionOp{.heads = 5});
        }) == "[attention] query of width 12 must divide into 5 heads");
  CHECK_THROWS_AS((void)attention(ctx, q, k, k, queries, keys, none, detail::AttentionOp{.heads = 0}),
                  ValueError);
  CHECK_THROWS_AS(
      (void)attention(ctx, q, k, k, queries, keys, none, detail::AttentionOp{.heads = 3, .dropout = 1}),
      ValueError);
  CHECK_THROWS_AS(
      (void)attention(ctx, q, k, k, queries, keys, AttentionMask::allow(Tensor<bool>::ones({5, 6})),
                      detail::AttentionOp{.heads = 3}),
      ShapeError);
  // Query sequences and key sequences must pair up, and key_sequence must name sequences that exist.
  const auto one_key = SequenceLayout::packed({B * Lk});
  CHECK_THROWS_AS((void)attention(ctx, q, k, k, queries, one_key, none, detail::AttentionOp{.heads = 3}),
                  Error);
  CHECK_THROWS_AS((void)attention(ctx, q, k, k, queries, keys, none,
                                  detail::AttentionOp{.heads = 3, .key_sequence = {0, 2}}),
                  Error);
  CHECK_THROWS_AS((void)attention(ctx, q, k, k, queries, keys, none,
                                  detail::AttentionOp{.heads = 3, .key_sequence = {0, -1}}),
                  Error);
  CHECK_THROWS_AS((void)attention(ctx, q, k, k, queries, keys, none,
                                  detail::AttentionOp{.heads = 3, .key_sequence = {0}}),
                  ShapeError);
  CHECK_THROWS_AS(
      (void)self_attention(ctx, q, SequenceLayout::padded(B, Lq), none, detail::AttentionOp{.heads = 5}),
      ShapeError);
  CHECK_THROWS_AS(
      (void)self_attention(ctx, Var<double>(random({B, Lq, 11})), queries, none, detail::AttentionOp{}),
      ShapeError);
  CHECK_THROWS_AS((void)cross_attention(ctx, q, Var<double>(random({B, Lk, 11})), queries, keys, none,
                                        detail::AttentionOp{}),
                  ShapeError);
  CHECK_THROWS_AS((void)attention(q, Var<double>(random({B, 1, Lk, 12})), k), ShapeError);
  CHECK_THROWS_AS((void)attention(q, random({3, Lk, 12}), random({3, Lk, 12})), ShapeError);
  CHECK_THROWS_AS((void)attention(q, k, random({B, Lq, 12})), ShapeError);
  CHECK_THROWS_AS((void)attention(q, k, k, AttentionMask::allow(Tensor<bool>::ones({7, 5}))), ShapeError);
}

TEST_CASE("attention: the profiler counts the products of the pairs that windows admit") {
  Profiler& profiler = Runtime::instance().profiler();
  const index_t batch = 2, length = 5, heads = 3, head_dim = 4;
  for (const bool causal : {false, true}) {
    profiler.clear();
    profiler.start();
    Tape<double> tape;
    const auto x = tape.variable(Tensor<double>::ones({batch, length, heads * head_dim}));
    const auto layout = SequenceLayout::padded(batch, length);
    const auto y =
        attention(Context<double>::checking(tape), x, x, x, layout, layout,
                  causal ? AttentionMask::causal() : AttentionMask{}, detail::AttentionOp{.heads = heads});
    Gradients<double> none;
    tape.backward(y, Tensor<double>::ones(y.shape()), none);
    profiler.stop();
    const auto pairs =
        static_cast<double>(batch * heads * (causal ? length * (length + 1) / 2 : length * length));
    const auto report = profiler.report();
    profiler.clear();
    REQUIRE(report.size() == 2);
    for (const OpProfile& p : report) CHECK(p.flops == 2 * pairs * head_dim * (p.backward ? 5 : 2));
  }
}
