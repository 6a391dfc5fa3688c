#include "eigenformer/autograd/ops/attention/linear_attention.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// The definition, as plain loops over every query and every key: O(n^2), and no state.
Tensor<double> reference(const Tensor<double>& q, const Tensor<double>& k, const Tensor<double>& v,
                         const SequenceLayout& queries, const SequenceLayout& keys,
                         const detail::LinearAttentionOp& op) {
  const index_t width = q.dim(-1), values = v.dim(-1), d = width / op.heads, dv = values / op.heads;
  const auto feature = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  Tensor<double> out = Tensor<double>::zeros(q.shape().with(-1, values));
  for (index_t b = 0; b < queries.batch(); ++b) {
    const index_t kb = op.key_sequence.empty() ? b : op.key_sequence[static_cast<std::size_t>(b)];
    for (index_t i = 0; i < queries.length(b); ++i) {
      for (index_t h = 0; h < op.heads; ++h) {
        const index_t row = queries.offset(b) + i;
        double total = 1e-6;
        double* const to = out.data() + row * values + h * dv;
        for (index_t j = 0; j < keys.length(kb); ++j) {
          if (op.causal && j > i) continue;
          const index_t key = keys.offset(kb) + j;
          if (op.admitted.defined() && !op.admitted.data()[key]) continue;
          double weight = 0;
          for (index_t c = 0; c < d; ++c) {
            weight += feature(q.data()[row * width + h * d + c]) * feature(k.data()[key * width + h * d + c]);
          }
          total += weight;
          for (index_t c = 0; c < dv; ++c) to[c] += weight * v.data()[key * values + h * dv + c];
        }
        for (index_t c = 0; c < dv; ++c) to[c] /= total;
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("linear attention equals the definition, and its gradients are right") {
  const auto queries = SequenceLayout::padded({5, 3}, 5), keys = SequenceLayout::padded({7, 4}, 7);
  const auto packed = SequenceLayout::packed({6, 1, 3});
  const auto check = [](const SequenceLayout& of_queries, const SequenceLayout& of_keys,
                        const detail::LinearAttentionOp& op) {
    // Heads of 4 features and of 3 values, and of 19 values, which is more than a vector.
    for (const index_t values : {9, 57}) {
      const auto q = random({of_queries.rows(), 12}, 1), k = random({of_keys.rows(), 12}, 2),
                 v = random({of_keys.rows(), values}, 3);
      const auto f = [&](const Vars& x) {
        return linear_attention(x[0], x[1], x[2], of_queries, of_keys, op);
      };
      const auto y = f({q, k, v}).value();
      CHECK(worst_difference(y, reference(q, k, v, of_queries, of_keys, op)) < 1e-12);
      // The objective of so many elements is large, and a difference of it needs a wider step.
      check_op(f, {q, k, v}, {}, {.step = 1e-4});
    }
  };
  check(queries, keys, {.heads = 3});
  check(packed, packed, {.heads = 3});
  check(packed, packed, {.heads = 3, .causal = true});
  check(queries, queries, {.heads = 3, .causal = true});
  check(packed, keys, {.heads = 3, .key_sequence = {1, 0, 1}});
  // Keys that are not admitted, of the second sequence all.
  auto some = Tensor<bool>::full({14}, true), few = Tensor<bool>::full({10}, true);
  for (const index_t row : {0, 3, 7, 8, 9, 10}) some.data()[row] = false;
  for (const index_t row : {1, 5, 6, 7}) few.data()[row] = false;
  check(queries, keys, {.heads = 3, .admitted = some});
  check(packed, keys, {.heads = 3, .key_sequence = {1, 0, 0}, .admitted = some});
  check(packed, packed, {.heads = 3, .causal = true, .admitted = few});
  const auto x = random({10, 12}, 4);
  // One Var for all three, and each alone.
  check_op(
      [&](const Vars& v) {
        return linear_attention(v[0], v[0], v[0], packed, packed, {.heads = 3, .causal = true});
      },
      {x});
  for (std::size_t i = 0; i < 3; ++i) {
    check_op(
        [&](const Vars& v) {
          Vars all(3, Var<double>(x));
          all[i] = v[0];
          return linear_attention(all[0], all[1], all[2], packed, packed, {.heads = 3, .causal = i != 1});
        },
        {random({10, 12}, 5)});
  }
}

TEST_CASE("a linear attention to nothing gives zeros, and what padding holds does not matter") {
  const auto queries = SequenceLayout::padded({2, 3}, 3), keys = SequenceLayout::padded({0, 2}, 4);
  const auto q = random({2, 3, 4}, 1);
  Tensor<double> k = random({2, 4, 4}, 2), v = random({2, 4, 4}, 3);
  const auto run = [&] {
    return linear_attention(Var<double>(q), Var<double>(k), Var<double>(v), queries, keys).value();
  };
  const auto before = values(run());
  for (index_t i = 0; i < 12; ++i) CHECK(before[static_cast<std::size_t>(i)] == 0);
  k.at({1, 3, 1}) = 1e9;
  v.at({1, 2, 0}) = std::nan("");
  CHECK(values(run()) == before);
}

TEST_CASE(
    "what a key that is not admitted holds does not matter to a linear attention, nor to its gradients") {
  const auto layout = SequenceLayout::packed({3, 2});
  auto admitted = Tensor<bool>::full({5}, true);
  admitted.data()[1] = false;
  for (const bool causal : {false, true}) {
    const auto q = random({5, 4}, 1);
    Tensor<double> k = random({5, 4}, 2), v = random({5, 6}, 3);
    const auto run = [&] {
      Tape<double> tape;
      const Var<double> a = tape.variable(q), b = tape.variable(k), c = tape.variable(v);
      const auto y =
          linear_attention(a, b, c, layout, layout, {.heads = 2, .causal = causal, .admitted = admitted});
      auto all = values(y.value());
      tape.backward(sum(multiply(y, Var<double>(random({5, 6}, 4)))));
      for (const auto& x : {a, b, c}) {
        const auto g = values(tape.gradient(x));
        all.insert(all.end(), g.begin(), g.end());
      }
      return all;
    };
    const auto before = run();
    for (index_t c = 0; c < 4; ++c) k.at({1, c}) = std::nan("");
    for (index_t c = 0; c < 6; ++c) v.at({1, c}) = std::nan("");
    CHECK(run() == before);
  }
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)linear_attention(Var<double>(random({5, 4}, 1)), Var<double>(random({5, 4}, 1)),
                                          Var<double>(random({5, 4}, 1)), layout, layout,
                                          {.heads = 2, .admitted = Tensor<bool>::full({4}, true)});
                 }),
                 "admitted keys of shape (4,) must be (5,), one for each row of keys"));
}

TEST_CASE("a state of constant size carries a causal linear attention from one part of a text to the next") {
  const index_t heads = 3, d = 4, dv = 5, n = 9;
  const auto q = elu_plus_one(Var<float>(random({n, heads * d}, 1).to<float>())).value(),
             k = elu_plus_one(Var<float>(random({n, heads * d}, 2).to<float>())).value(),
             v = random({n, heads * dv}, 3).to<float>();
  const auto run = [&](const std::vector<index_t>& parts) {
    Tensor<float> out(Shape{n, heads * dv});
    Tensor<float> state =
        Tensor<float>::zeros(Shape{heads, detail::kernels::linear_attention_state_size(d, dv)});
    index_t row = 0;
    for (const index_t rows : parts) {
      const auto layout = SequenceLayout::packed({rows});
      detail::kernels::AttentionProblem<float> p;
      p.q = q.data() + row * heads * d, p.k = k.data() + row * heads * d, p.v = v.data() + row * heads * dv;
      p.q_stride = p.k_stride = heads * d, p.v_stride = heads * dv;
      p.heads = heads, p.head_dim = d, p.value_dim = dv;
      p.queries = p.keys = &layout;
      detail::kernels::linear_attention_forward<float>(p, true, state.data(), out.data() + row * heads * dv,
                                                       heads * dv);
      row += rows;
    }
    return values(out);
  };
  CHECK(run({9}) == run({1, 1, 1, 1, 1, 1, 1, 1, 1}));
  CHECK(run({9}) == run({4, 5}));
}

TEST_CASE("linear attention names what does not fit") {
  const auto layout = SequenceLayout::packed({2, 3}), other = SequenceLayout::packed({5});
  const Var<double> x = Tensor<double>::zeros({5, 12}), wide = Tensor<double>::zeros({5, 18});
  const auto shape = [&](auto&&... args) {
    return message_of<ShapeError>([&] { (void)linear_attention(args...); });
  };
  const auto value = [&](auto&&... args) {
    return message_of<ValueError>([&] { (void)linear_attention(args...); });
  };
  CHECK(contains(shape(x, wide, x, layout, layout, detail::LinearAttentionOp{}),
                 "as many features as the queries, 12"));
  CHECK(
      contains(shape(x, x, x, layout, SequenceLayout::packed({2, 2})), "must have the 4 rows of its layout"));
  CHECK(contains(shape(x, x, x, layout, layout, detail::LinearAttentionOp{.heads = 5}),
                 "features for each of 5 heads"));
  CHECK(contains(shape(x, x, x, layout, other), "2 sequences of queries and 1 of keys"));
  CHECK(contains(value(x, x, x, layout, other, detail::LinearAttentionOp{.causal = true}),
                 "needs queries and keys of the same sequences"));
  CHECK(contains(value(x, x, x, layout, other, detail::LinearAttentionOp{.key_sequence = {0, 1}}),
                 "key_sequence has 1"));
}
