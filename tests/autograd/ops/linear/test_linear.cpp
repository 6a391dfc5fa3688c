#include "eigenformer/autograd/ops/linear/linear.hpp"

#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/linear/feed_forward.hpp"
#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "isa.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr Activation activations[] = {
    Activation::none,      Activation::relu,         Activation::gelu,
    Activation::gelu_tanh, Activation::silu,         Activation::sigmoid,
    Activation::tanh,      Activation::relu_squared, Activation::elu_plus_one};

Parameter<double> parameter(const char* name, const Tensor<double>& value) {
  Parameter<double> p(value);
  p.set_name(name);
  return p;
}

}  // namespace

TEST_CASE("linear: gradients for every activation, with and without dropout") {
  const auto w = parameter("weight", random({6, 7}, 2)), b = parameter("bias", random({6}, 3));
  for (const Activation f : activations) {
    for (const double rate : {0.0, 0.4}) {
      CAPTURE(static_cast<int>(f));
      CAPTURE(rate);
      check_op(
          [&](Tape<double>& tape, const Vars& v) {
            return linear(Context<double>::training(tape, detail::DropoutKey{1, 2, 0}), v[0], w, b, f, rate);
          },
          {random({2, 5, 7}, 1)}, {w.handle(), b.handle()});
    }
  }
}

TEST_CASE("linear: gradients without bias, with a frozen weight, of a constant input, for rank 1") {
  const auto w = parameter("weight", random({20, 12}, 2)), b = parameter("bias", random({20}, 3));
  auto frozen = parameter("frozen", random({20, 12}, 4));
  frozen.set_frozen(true);
  const Parameter<double> absent;
  const auto ctx = [](Tape<double>& tape) { return Context<double>::checking(tape); };
  check_op([&](Tape<double>& t, const Vars& v) { return linear(ctx(t), v[0], w, absent); },
           {random({5, 12}, 1)}, {w.handle()});
  check_op([&](Tape<double>& t, const Vars& v) { return linear(ctx(t), v[0], frozen, absent); },
           {random({5, 12}, 1)});
  check_op([&](Tape<double>& t, const Vars& v) { return linear(ctx(t), v[0], frozen, b); },
           {random({5, 12}, 1)}, {b.handle()});
  check_op([&](Tape<double>& t, const Vars& v) { return linear(ctx(t), v[0], w, b); }, {random({12}, 1)},
           {w.handle(), b.handle()});
  const Tensor<double> constant = random({5, 12}, 6);
  check_op([&](Tape<double>& t, const Vars&) { return linear(ctx(t), Var<double>(constant), w, b); }, {},
           {w.handle(), b.handle()});
  // One weight used twice: both uses count.
  const auto square_weight = parameter("square", random({7, 7}, 5));
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return linear(ctx(t), linear(ctx(t), v[0], square_weight, absent, Activation::tanh), square_weight,
                      absent);
      },
      {random({3, 7}, 1)}, {square_weight.handle()});
}

TEST_CASE_TEMPLATE("linear: values against plain loops", T, float, double) {
  const Tensor<double> x = random({2, 5, 12}, 1), w = random({20, 12}, 2), b = random({20}, 3);
  const Parameter<T> weight(w.to<T>()), bias(b.to<T>());
  const Tensor<T> y = linear(Context<T>::inference(), Var<T>(x.to<T>()), weight, bias).value();
  REQUIRE(y.shape() == Shape{2, 5, 20});
  Tensor<double> expected(Shape{2, 5, 20});
  for (index_t r = 0; r < 10; ++r) {
    for (index_t o = 0; o < 20; ++o) {
      double sum = b.data()[o];
      for (index_t i = 0; i < 12; ++i) sum += x.data()[r * 12 + i] * w.data()[o * 12 + i];
      expected.data()[r * 20 + o] = sum;
    }
  }
  CHECK(worst_difference(y, expected) < (std::is_same_v<T, float> ? 5e-6 : 1e-13));
  CHECK(linear(Context<T>::inference(), Var<T>(Tensor<T>(Shape{0, 12})), weight, bias).shape() ==
        Shape{0, 20});
}

TEST_CASE("linear: the fused activation is the activation, recorded or not") {
  const Parameter<double> w(random({20, 12}, 2)), b(random({20}, 3));
  const Tensor<double> x = random({5, 12}, 1);
  for (const Activation f : activations) {
    Tape<double> tape;
    const auto ctx = Context<double>::inference();
    const Tensor<double> apart = activate(linear(ctx, Var<double>(x), w, b), f).value();
    CHECK(worst_difference(linear(ctx, Var<double>(x), w, b, f).value(), apart) < 1e-14);
    CHECK(values(linear(Context<double>::checking(tape), Var<double>(x), w, b, f).value()) ==
          values(linear(ctx, Var<double>(x), w, b, f).value()));
  }
}

TEST_CASE("linear: dropout after the activation, scaled, in training alone") {
  const Parameter<double> w(random({20, 12}, 2)), b(random({20}, 3));
  const Tensor<double> x = random({50, 12}, 1);
  const Tensor<double> plain =
      linear(Context<double>::inference(), Var<double>(x), w, b, Activation::gelu, 0.25).value();
  Tape<double> tape;
  CHECK(
      values(linear(Context<double>::checking(tape), Var<double>(x), w, b, Activation::gelu, 0.25).value()) ==
      values(plain));
  const auto train = Context<double>::training(tape, detail::DropoutKey{4, 0, 0});
  const Tensor<double> y = linear(train, Var<double>(x), w, b, Activation::gelu, 0.25).value();
  int dropped = 0;
  for (index_t i = 0; i < y.numel(); ++i) {
    if (y.data()[i] == 0)
      ++dropped;
    else
      CHECK(y.data()[i] == doctest::Approx(plain.data()[i] / 0.75));
  }
  CHECK(std::abs(dropped - 250) < 60);
  // The next site of the same pass has another mask.
  CHECK(values(linear(train, Var<double>(x), w, b, Activation::gelu, 0.25).value()) != values(y));
}

TEST_CASE("linear_slice: gradients and values; rows outside get none") {
  const auto w = parameter("in_proj_weight", random({9, 4}, 2)),
             b = parameter("in_proj_bias", random({9}, 3));
  const Parameter<double> absent;
  const auto ctx = [](Tape<double>& tape) { return Context<double>::checking(tape); };
  check_op([&](Tape<double>& t, const Vars& v) { return linear_slice(ctx(t), v[0], w, b, 3, 4); },
           {random({5, 4}, 1)}, {w.handle(), b.handle()});
  check_op([&](Tape<double>& t, const Vars& v) { return linear_slice(ctx(t), v[0], w, absent, 0, 2); },
           {random({5, 4}, 1)}, {w.handle()});
  // Two slices of one weight, one of them of another input.
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return linear_slice(ctx(t), v[0], w, b, 0, 3) * linear_slice(ctx(t), v[1], w, b, 6, 3);
      },
      {random({5, 4}, 1), random({5, 4}, 4)}, {w.handle(), b.handle()});
  // Without columns of the weight, the result is the slice of the bias.
  const auto empty = parameter("empty", random({9, 0}));
  check_op([&](Tape<double>& t, const Vars& v) { return linear_slice(ctx(t), v[0], empty, b, 3, 4); },
           {random({5, 0})}, {empty.handle(), b.handle()});
  const Tensor<double> x = random({5, 4}, 1);
  const Tensor<double> whole = linear(Context<double>::inference(), Var<double>(x), w, b).value();
  const Tensor<double> part = linear_slice(Context<double>::inference(), Var<double>(x), w, b, 3, 4).value();
  REQUIRE(part.shape() == Shape{5, 4});
  for (index_t r = 0; r < 5; ++r) {
    for (index_t o = 0; o < 4; ++o)
      CHECK(part.at({r, o}) == doctest::Approx(whole.at({r, o + 3})).epsilon(1e-12));
  }
  CHECK_THROWS_AS((void)linear_slice(Context<double>::inference(), Var<double>(x), w, b, 6, 4), IndexError);
  CHECK_THROWS_AS((void)linear_slice(Context<double>::inference(), Var<double>(x), w, b, -1, 4), IndexError);
}

TEST_CASE("linear: shapes that do not fit name the parameter") {
  const auto w = parameter("encoder.layers.0.linear1.weight", random({10, 5}, 1));
  const auto b = parameter("encoder.layers.0.linear1.bias", random({3}, 2));
  const auto cube = parameter("cube", random({10, 5, 2}, 3));
  const Parameter<double> absent;
  const auto ctx = Context<double>::inference();
  CHECK(message_of<ShapeError>([&] {
          (void)linear(ctx, Var<double>(random({2, 4})), w, absent);
        }) ==
        "[linear] last dimension of input (2, 4) must be 5, to match 'encoder.layers.0.linear1.weight' of "
        "shape "
        "(10, 5)");
  CHECK(message_of<ShapeError>([&] {
          (void)linear(ctx, Var<double>(random({2, 5})), w, b);
        }) ==
        "[linear] bias 'encoder.layers.0.linear1.bias' of shape (3,) must be (10,), to match "
        "'encoder.layers.0.linear1.weight' of shape (10, 5)");
  CHECK_THROWS_AS((void)linear(ctx, Var<double>(random({2, 5})), cube, absent), ShapeError);
  CHECK_THROWS_AS((void)linear(ctx, Var<double>(Tensor<double>::scalar(1)), w, absent), ShapeError);
  CHECK_THROWS_AS((void)linear(ctx, Var<double>(random({2, 5})), w, absent, Activation::none, 1.0),
                  ValueError);
  CHECK_THROWS_AS((void)linear(ctx, Var<double>(random({2, 5})), w, absent, Activation::none, -0.1),
                  ValueError);
}

TEST_CASE("linear: packed weights give the same bits, and are not used where gradients are wanted") {
  const Parameter<float> w(random({20, 12}, 2).to<float>()), b(random({20}, 3).to<float>());
  const Var<float> x = random({5, 12}, 1).to<float>();
  auto packed = std::make_shared<detail::kernels::PackedWeights>();
  packed->add(w.id(), 0, detail::kernels::PackedMatrix::pack(w.value().data(), 20, 12));
  const auto plain = Context<float>::inference();
  const auto ctx = plain.with_packed_weights(packed);
  CHECK(values(linear(ctx, x, w, b, Activation::relu).value()) ==
        values(linear(plain, x, w, b, Activation::relu).value()));
  // Weights packed from other numbers show that they are what is used.
  auto other = std::make_shared<detail::kernels::PackedWeights>();
  const Tensor<float> zeros = Tensor<float>::zeros({20, 12});
  other->add(w.id(), 0, detail::kernels::PackedMatrix::pack(zeros.data(), 20, 12));
  CHECK(values(linear(plain.with_packed_weights(other), x, w, Parameter<float>()).value()) ==
        std::vector<float>(100, 0.0f));
}

TEST_CASE("linear: values and gradients are the same bits for any number of threads") {
  const Parameter<float> w(random({96, 65}, 2).to<float>()), b(random({96}, 3).to<float>());
  const Tensor<float> x = random({301, 65}, 1).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<float> tape;
    Gradients<float> gradients({w.handle(), b.handle()});
    const Var<float> v = tape.variable(x);
    const Var<float> y =
        linear(Context<float>::training(tape, detail::DropoutKey{1, 1, 0}), v, w, b, Activation::gelu, 0.1);
    tape.backward(sum(y * y), gradients);
    return std::vector<std::vector<float>>{values(y.value()), values(tape.gradient(v)),
                                           values(gradients.of(w)), values(gradients.of(b))};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("products with weights have the same bits with a weight cache, before and after an update") {
  for_each_isa([] {
    const auto weight = [](const Shape& shape, std::uint64_t seed) {
      return Parameter<float>(random(shape, seed).to<float>());
    };
    Parameter<float> w = weight({24, 20}, 1), b = weight({24}, 2), w1 = weight({40, 24}, 3),
                     w2 = weight({18, 40}, 4), gate = weight({33, 18}, 5), up = weight({33, 18}, 6),
                     w3 = weight({16, 33}, 7), out = weight({37, 16}, 8);
    const Parameter<float> absent;
    const std::vector<Parameter<float>*> all = {&w, &b, &w1, &w2, &gate, &up, &w3, &out};
    const Tensor<float> input = random({50, 20}, 9).to<float>();
    Tensor<std::int32_t> targets(Shape{50});
    for (index_t i = 0; i < 50; ++i) targets.data()[i] = static_cast<std::int32_t>(i % 37);
    const auto run = [&](GemmPrecision precision,
                         const std::shared_ptr<detail::kernels::WeightCache>& cache) {
      Tape<float> tape;
      std::vector<ParameterHandle<float>> handles;
      for (const auto* p : all) handles.push_back(p->handle());
      Gradients<float> gradients(handles);
      const auto ctx = Context<float>::training(tape, detail::DropoutKey{1, 1, 0})
                           .with_precision(precision)
                           .with_weight_cache(cache);
      const Var<float> x = tape.variable(input);
      Var<float> y = linear(ctx, x, w, b, Activation::gelu, 0.1);
      y = add(y, linear_slice(ctx, y, w1, absent, 8, 24));
      y = feed_forward(ctx, y, w1, absent, w2, absent, Activation::relu, 0.2);
      y = gated_feed_forward(ctx, y, gate, absent, up, absent, w3, absent, Activation::silu, 0.1);
      const Var<float> loss = linear_cross_entropy(ctx, y, out, absent, targets);
      tape.backward(loss, gradients);
      std::vector<std::vector<float>> result = {values(loss.value()), values(tape.gradient(x))};
      for (const auto* p : all) result.push_back(values(gradients.of(*p)));
      return result;
    };
    const auto cache = std::make_shared<detail::kernels::WeightCache>();
    CHECK(run(GemmPrecision::full, cache) == run(GemmPrecision::full, nullptr));
    CHECK(cache->size() == 0);
    const auto before = run(GemmPrecision::bf16, nullptr);
    CHECK(before != run(GemmPrecision::full, nullptr));
    CHECK(run(GemmPrecision::bf16, cache) == before);
    // Two of each: w, a slice of w1, w1, w2, gate, up, w3, out.
    CHECK(cache->size() == 16);
    CHECK(run(GemmPrecision::bf16, cache) == before);
    for (Parameter<float>* p : all) {
      for (float& value : p->value().span()) value *= 0.75f;
      p->value().mark_changed();
    }
    const auto after = run(GemmPrecision::bf16, nullptr);
    CHECK(after != before);
    CHECK(run(GemmPrecision::bf16, cache) == after);
    CHECK(cache->size() == 16);
  });
}
