#include "eigenformer/autograd/tape/record.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/sgd.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// The message of a backward that is refused; empty when it is not.
template <class F>
std::string refusal_of(F&& backward) {
  try {
    backward();
  } catch (const ValueError& e) {
    return e.what();
  }
  return {};
}

using Op = std::function<Var<double>(const Context<double>&, const Vars&)>;

struct Run {
  bool refused = false;
  std::vector<std::vector<double>> gradients;
};

/// Runs an op with the inputs of `recorded` as variables and the others as constants, changes a tensor after
/// the forward pass (inputs by number, the output last), in a way that is counted or not, and goes back.
Run run(const Op& op, const std::vector<Tensor<double>>& inputs, unsigned recorded, std::size_t change,
        bool counted) {
  std::vector<Tensor<double>> tensors;
  for (const auto& x : inputs) tensors.push_back(x.clone());
  Tape<double> tape;
  Vars vars, leaves;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool leaf = (recorded >> i & 1U) != 0;
    vars.push_back(leaf ? tape.variable(tensors[i]) : Var<double>(tensors[i]));
    if (leaf) leaves.push_back(vars.back());
  }
  const Var<double> y = op(Context<double>::training(tape, detail::DropoutKey{3, 1, 0}), vars);
  tensors.push_back(y.value());
  Tensor<double> cotangent(y.shape());
  for (index_t i = 0; i < y.numel(); ++i) cotangent.data()[i] = std::sin(1.0 + static_cast<double>(i));
  if (change < tensors.size()) {
    for (double& x : tensors[change].span()) x = 1.5 * x + 0.25;
    if (counted) tensors[change].mark_changed();
  }
  Run result;
  Gradients<double> none;
  try {
    tape.backward(y, cotangent, none);
    for (const auto& leaf : leaves) result.gradients.push_back(values(tape.gradient(leaf)));
  } catch (const ValueError& e) {
    CHECK(contains(e.what(), "was changed after it was recorded"));
    result.refused = true;
  }
  return result;
}

/// CHECKs that a change of each tensor is refused exactly when it would change a gradient.
void check_changes(const std::string& name, const Op& op, const std::vector<Tensor<double>>& inputs) {
  for (unsigned recorded = 1; recorded < 1U << inputs.size(); ++recorded) {
    const Run clean = run(op, inputs, recorded, inputs.size() + 1, false);
    CHECK_FALSE(clean.refused);
    for (std::size_t change = 0; change <= inputs.size(); ++change) {
      CAPTURE(name);
      CAPTURE(recorded);
      CAPTURE(change);
      const bool matters = run(op, inputs, recorded, change, false).gradients != clean.gradients;
      CHECK(run(op, inputs, recorded, change, true).refused == matters);
    }
  }
}

}  // namespace

TEST_CASE("a tensor that was changed is refused exactly where its old values matter: elementwise ops") {
  const Tensor<double> a = positive({3, 4}, 1), b = positive({3, 4}, 2), row = positive({4}, 3);
  const auto two = [&](const char* name, auto f) {
    check_changes(name, [f](const auto&, const Vars& v) { return f(v[0], v[1]); }, {a, b});
    check_changes(name, [f](const auto&, const Vars& v) { return f(v[0], v[1]); }, {a, row});
  };
  const auto one = [&](const char* name, auto f) {
    check_changes(name, [f](const auto&, const Vars& v) { return f(v[0]); }, {a});
  };
  two("add", [](const auto& x, const auto& y) { return add(x, y); });
  two("subtract", [](const auto& x, const auto& y) { return subtract(x, y); });
  two("multiply", [](const auto& x, const auto& y) { return multiply(x, y); });
  two("divide", [](const auto& x, const auto& y) { return divide(x, y); });
  two("where", [](const auto& x, const auto& y) {
    return where(Tensor<bool>::from({4}, {true, false, true, true}), x, y);
  });
  one("affine", [](const auto& x) { return 3 - x * 2; });
  one("negate", [](const auto& x) { return negate(x); });
  one("exp", [](const auto& x) { return exp(x); });
  one("log", [](const auto& x) { return log(x); });
  one("sqrt", [](const auto& x) { return sqrt(x); });
  one("square", [](const auto& x) { return square(x); });
  for (const Activation f : {Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::sigmoid,
                             Activation::tanh, Activation::relu_squared})
    one("activation", [f](const auto& x) { return activate(x, f); });
  check_changes("dropout", [](const auto& ctx, const Vars& v) { return dropout(ctx, v[0], 0.4); }, {a});
  check_changes("add_dropout",
                [](const auto& ctx, const Vars& v) { return add_dropout(ctx, v[0], v[1], 0.4); }, {a, b});
  check_changes("stochastic_depth",
                [](const auto& ctx, const Vars& v) { return stochastic_depth(ctx, v[0], 0.4); }, {a});
}

TEST_CASE("a tensor that was changed is refused exactly where its old values matter: shapes and reductions") {
  const Tensor<double> a = random({3, 4}, 1), b = random({3, 4}, 2);
  const auto one = [&](const char* name, auto f) {
    check_changes(name, [f](const auto&, const Vars& v) { return f(v[0]); }, {a});
  };
  one("sum", [](const auto& x) { return sum(x, {1}); });
  one("mean", [](const auto& x) { return mean(x); });
  one("max", [](const auto& x) { return max(x, {1}); });
  one("reshape", [](const auto& x) { return reshape(x, Shape{2, 6}); });
  one("transpose", [](const auto& x) { return transpose(x); });
  one("slice", [](const auto& x) { return slice(x, 0, 1, 3); });
  one("slice columns", [](const auto& x) { return slice(x, 1, 1, 3); });
  one("gather", [](const auto& x) { return gather(x, 1, Tensor<std::int32_t>::from({1, 2}, {3, 0})); });
  one("index_select", [](const auto& x) { return index_select(x, Tensor<std::int32_t>::from({2}, {2, 0})); });
  one("embedding", [](const auto& x) { return embedding(x, Tensor<std::int32_t>::from({2}, {2, 0})); });
  one("pool", [](const auto& x) { return pool(x, SequenceLayout::packed({1, 2})); });
  check_changes("concat", [](const auto&, const Vars& v) { return concat({v[0], v[1]}, 1); }, {a, b});
}

TEST_CASE("a tensor that was changed is refused exactly where its old values matter: products and norms") {
  const Tensor<double> x = random({3, 4}, 1), r = random({3, 4}, 2), w = random({5, 4}, 3),
                       gain = random({4}, 4), shift = random({4}, 5);
  check_changes("matmul", [](const auto&, const Vars& v) { return matmul(v[0], v[1], false, true); }, {x, w});
  check_changes("softmax", [](const auto&, const Vars& v) { return softmax(v[0]); }, {x});
  check_changes("log_softmax", [](const auto&, const Vars& v) { return log_softmax(v[0], 0); }, {x});
  check_changes("glu", [](const auto&, const Vars& v) { return glu(v[0]); }, {x});
  check_changes("cross_entropy",
                [](const auto&, const Vars& v) {
                  return cross_entropy(v[0], Tensor<std::int32_t>::from({3}, {0, 3, 1}));
                },
                {x});
  check_changes("layer_norm", [](const auto&, const Vars& v) { return layer_norm(v[0], v[1], v[2]); },
                {x, gain, shift});
  check_changes("rms_norm", [](const auto&, const Vars& v) { return rms_norm(v[0], v[1]); }, {x, gain});
  check_changes(
      "add_layer_norm",
      [](const auto& ctx, const Vars& v) { return add_layer_norm(ctx, v[0], v[1], 0.3, v[2], v[3]); },
      {x, r, gain, shift});
  check_changes("add_rms_norm",
                [](const auto& ctx, const Vars& v) { return add_rms_norm(ctx, v[0], v[1], 0.0, v[2]); },
                {x, r, gain});
}

TEST_CASE("a tensor that was changed is refused exactly where its old values matter: attention") {
  const auto layout = SequenceLayout::padded(1, 5);
  const Tensor<double> q = random({5, 4}, 1), k = random({5, 4}, 2), v = random({5, 6}, 3),
                       rk = random({3, 2}, 4), rv = random({3, 3}, 5), bias = random({2, 3}, 6),
                       fused = random({5, 12}, 7);
  check_changes("attention",
                [&](const auto& ctx, const Vars& x) {
                  return attention(ctx, x[0], x[1], x[2], layout, layout, AttentionMask::causal(),
                                   {.heads = 2, .dropout = 0.2});
                },
                {q, k, v});
  check_changes("attention by distance",
                [&](const auto& ctx, const Vars& x) {
                  return attention(ctx, x[0], x[1], x[2], layout, layout, {}, {.heads = 2},
                                   {.keys = x[3], .values = x[4]});
                },
                {q, k, v, rk, rv});
  check_changes("self_attention",
                [&](const auto& ctx, const Vars& x) {
                  return self_attention(ctx, x[0], layout, {}, {.heads = 2}, {.bias = x[1]});
                },
                {fused, bias});
  check_changes("cross_attention",
                [&](const auto& ctx, const Vars& x) {
                  return cross_attention(ctx, x[0], x[1], layout, layout, {}, {.heads = 2});
                },
                {q, random({5, 8}, 8)});
  check_changes("linear_attention",
                [&](const auto&, const Vars& x) {
                  return linear_attention(x[0], x[1], x[2], layout, layout, {.heads = 2});
                },
                {q, k, v});
}

TEST_CASE("a parameter that was changed is refused by name, whatever it was changed by") {
  Parameter<double> w1(random({6, 4}, 1)), b1(random({6}, 2)), w2(random({3, 6}, 3)), b2(random({3}, 4));
  w1.set_name("encoder.linear1.weight");
  b1.set_name("encoder.linear1.bias");
  w2.set_name("encoder.linear2.weight");
  b2.set_name("encoder.linear2.bias");
  const std::vector<ParameterHandle<double>> all = {w1.handle(), b1.handle(), w2.handle(), b2.handle()};
  const Tensor<double> x = random({2, 4}, 5);
  Gradients<double> gradients(all);
  const auto loss = [&](Tape<double>& tape) {
    const auto ctx = Context<double>::checking(tape);
    return sum(square(feed_forward(ctx, Var<double>(x), w1, b1, w2, b2, Activation::relu, 0)));
  };
  const auto refusal = [&](auto change) {
    Tape<double> tape;
    const Var<double> y = loss(tape);
    change();
    gradients.zero();
    return refusal_of([&] { tape.backward(y, gradients); });
  };
  const std::string message =
      "[backward] parameter 'encoder.linear2.weight' of shape (3, 6) was changed after it was recorded, and "
      "the "
      "gradient of 'feed_forward' needs its old values; run the forward pass again";
  CHECK(refusal([&] { w2.value().fill(1); }) == message);
  CHECK(refusal([&] { w2.value().copy_from(random({3, 6}, 9)); }) == message);
  const Parameter<double> other(random({3, 6}, 9));
  CHECK(refusal([&] { w2 = other; }) == message);
  CHECK(refusal([&] { w2.value().mark_changed(); }) == message);
  // x is a constant, so w1's values are not needed again, and a bias's never are.
  CHECK(refusal([&] { w1.value().fill(1); }).empty());
  CHECK(refusal([&] { b2.value().fill(1); }).empty());
  // Another tensor in its place: what was recorded is as it was.
  CHECK(refusal([&] { w2.value() = random({3, 6}, 9); }).empty());
}

TEST_CASE("two passes and an optimizer's step between their backwards are an error, not a wrong gradient") {
  for (const bool adam : {false, true}) {
    Parameter<double> w(random({4, 4}, 1));
    w.set_name("w");
    Gradients<double> gradients({w.handle()});
    Adam<double> with_moments({w.handle()});
    Sgd<double> plain({w.handle()});
    Tape<double> first, second;
    const auto loss = [&](Tape<double>& tape) {
      const Var<double> v = tape.parameter(w.handle());
      return sum(exp(matmul(v, v)));
    };
    const Var<double> a = loss(first), b = loss(second);
    first.backward(a, gradients);
    if (adam) {
      with_moments.step(gradients, 0.1);
    } else {
      plain.step(gradients, 0.1);
    }
    gradients.zero();
    CHECK(contains(refusal_of([&] { second.backward(b, gradients); }),
                   "parameter 'w' of shape (4, 4) was changed after it was recorded"));
    CHECK_FALSE(gradients.find(w.id())->written);
    // A step without a gradient changes nothing.
    Tape<double> third;
    const Var<double> c = loss(third);
    with_moments.step(gradients, 0.1);
    third.backward(c, gradients);
  }
}

TEST_CASE("index tensors and masks are compared by value: also what is written through data() is noticed") {
  const Tensor<double> x = random({4, 3}, 1);
  const auto refusal = [&](auto op, auto index, auto value) {
    Tape<double> tape;
    const Var<double> y = sum(op(tape.variable(x), index));
    const auto old = std::exchange(index.data()[index.numel() - 1], value);
    Tape<double> again;
    index.data()[index.numel() - 1] = old;
    const Var<double> z = sum(op(again.variable(x), index));
    again.backward(z);  // changed, and changed back
    index.data()[index.numel() - 1] = value;
    return refusal_of([&] { tape.backward(y); });
  };
  const auto rows = Tensor<std::int32_t>::from({5}, {0, 1, 2, 3, 0});
  CHECK(refusal([](const auto& v, const auto& i) { return embedding(v, i); }, rows.clone(), 2) ==
        "[backward] an index or mask of 'embedding' was changed after it was recorded, and the gradient of "
        "'embedding' needs its old values; run the forward pass again");
  CHECK(contains(refusal([](const auto& v, const auto& i) { return index_select(v, i); }, rows.clone(), 2),
                 "an index or mask of 'index_select'"));
  CHECK(contains(refusal([](const auto& v, const auto& i) { return gather(v, 1, i); },
                         Tensor<std::int32_t>::from({1, 2}, {0, 2}), 1),
                 "an index or mask of 'gather'"));
  CHECK(contains(refusal([](const auto& v, const auto& i) { return cross_entropy(v, i); },
                         Tensor<std::int32_t>::from({4}, {0, 2, 1, 0}), 1),
                 "an index or mask of 'cross_entropy'"));
  CHECK(contains(refusal([](const auto& v, const auto& m) { return where(m, v, 0.0); },
                         Tensor<bool>::from({3}, {true, false, true}), false),
                 "an index or mask of 'where'"));
  CHECK(contains(refusal(
                     [](const auto& v, const auto& m) {
                       const auto layout = SequenceLayout::padded(1, 4);
                       return attention(Context<double>::inference(), v, v, v, layout, layout,
                                        AttentionMask::allow(m), {.heads = 1});
                     },
                     Tensor<bool>::full({4, 4}, true), false),
                 "an index or mask of 'attention'"));
}

TEST_CASE("messages name an input, a constant, an output") {
  const auto refusal = [](auto make) {
    Tape<double> tape;
    Tensor<double> x = positive({2, 3}, 1), c = positive({2, 3}, 2);
    const Var<double> v = tape.variable(x);
    const Var<double> y = make(v, x, c);
    return refusal_of([&] { tape.backward(sum(y)); });
  };
  const std::string rest =
      " was changed after it was recorded, and the gradient of 'multiply' needs its old values; run the "
      "forward pass "
      "again";
  CHECK(refusal([](const auto& v, auto& x, auto&) {
          const Var<double> y = v * v;
          x.fill(1);
          return y;
        }) == "[backward] input 0 of 'multiply', a variable of shape (2, 3)," + rest);
  CHECK(refusal([](const auto& v, auto&, auto& c) {
          const Var<double> y = v * c;
          c.fill(1);
          return y;
        }) == "[backward] input 1 of 'multiply', a constant or a frozen parameter," + rest);
  CHECK(refusal([](const auto& v, auto&, auto&) {
          const Var<double> h = v + 1;
          const Var<double> y = v * h;
          Tensor<double> t = h.value();
          t.fill(1);
          return y;
        }) == "[backward] input 1 of 'multiply', the output of 'add' of shape (2, 3)," + rest);
  CHECK(contains(refusal([](const auto& v, auto&, auto&) {
                   const Var<double> y = exp(v);
                   Tensor<double> t = y.value();
                   t.fill(1);
                   return y;
                 }),
                 "the output of 'exp' of shape (2, 3) was changed"));
}

TEST_CASE("an op of one's own: everything counts as read unless it says what is, or captures nothing") {
  const auto changed = [](bool says, bool captures, bool change_output) {
    Tape<double> tape;
    Tensor<double> x = Tensor<double>::ones({2});
    const Var<double> v = tape.variable(x);
    const int token = 1;
    const auto with = [token](Backward<double>& b) {
      (void)token;
      b.pass(0, b.dy());
    };
    const auto without = [](Backward<double>& b) { b.pass(0, b.dy()); };
    const Var<double> y = says       ? record("own", x.clone(), {v}, SavedTensors(), with)
                          : captures ? record("own", x.clone(), {v}, with)
                                     : record("own", x.clone(), {v}, without);
    Tensor<double> t = change_output ? y.value() : x;
    t.fill(2);
    return !refusal_of([&] { tape.backward(sum(y)); }).empty();
  };
  for (const bool output : {false, true}) {
    CHECK(changed(false, true, output));
    CHECK_FALSE(changed(false, false, output));
    CHECK_FALSE(changed(true, true, output));
  }
}

TEST_CASE("what is off the path to the loss, or gone, may change") {
  Tape<double> tape;
  Tensor<double> x = Tensor<double>::ones({2});
  const Var<double> v = tape.variable(x), w = tape.variable(Tensor<double>::full({2}, 3));
  (void)square(v);
  const Var<double> loss = sum(w * w);
  x.fill(5);
  tape.backward(loss);
  CHECK(values(tape.gradient(w)) == std::vector<double>{6, 6});
}

TEST_CASE("more tensors than usual can be saved") {
  Tape<double> tape;
  std::vector<Tensor<double>> tensors;
  SavedTensors saved;
  for (int i = 0; i < 12; ++i) tensors.push_back(Tensor<double>::ones({1}));
  for (const auto& t : tensors) saved.add(t);
  const Var<double> v = tape.variable(Tensor<double>::ones({1}));
  const Var<double> y = record("own", Tensor<double>::ones({1}), {v}, saved, [&tensors](Backward<double>& b) {
    (void)tensors;  // so that it reads something
    b.pass(0, b.dy());
  });
  tensors.back().fill(2);
  CHECK(contains(refusal_of([&] { tape.backward(y); }), "a tensor that 'own' was given was changed"));
}

TEST_CASE("checksum: every byte counts") {
  std::vector<unsigned char> bytes(77, 5);
  for (std::size_t n = 0; n <= bytes.size(); ++n) {
    const auto sum = detail::checksum(bytes.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      ++bytes[i];
      CHECK(detail::checksum(bytes.data(), n) != sum);
      --bytes[i];
    }
    CHECK(detail::checksum(bytes.data(), n) == sum);
  }
}
