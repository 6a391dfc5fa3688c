#include "eigenformer/autograd/ops/normalization/layer_norm.hpp"

#include <cmath>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// The two formulas, written out.
Tensor<double> reference(const Tensor<double>& x, const Tensor<double>& gamma, const Tensor<double>& beta,
                         const detail::LayerNormOp& op) {
  Tensor<double> y(x.shape());
  const index_t n = x.dim(-1);
  for (index_t r = 0; r < x.shape().rows(); ++r) {
    const double* row = x.data() + r * n;
    double mean = 0, squares = 0;
    for (index_t i = 0; i < n; ++i) mean += row[i] / static_cast<double>(n);
    for (index_t i = 0; i < n; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double divisor = op.formula == LayerNormFormula::pytorch
                               ? std::sqrt(squares / static_cast<double>(n) + op.eps)
                               : std::sqrt(squares / static_cast<double>(n - 1)) + op.eps;
    for (index_t i = 0; i < n; ++i) {
      const index_t j = op.scalar_gain ? 0 : i;
      y.data()[r * n + i] = (row[i] - mean) / divisor * gamma.data()[j] + beta.data()[j];
    }
  }
  return y;
}

}  // namespace

TEST_CASE("layer_norm: gradients for both formulas, both gains, with and without parameters") {
  for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
    for (const bool scalar : {false, true}) {
      CAPTURE(static_cast<int>(formula));
      CAPTURE(scalar);
      const detail::LayerNormOp op{1e-3, formula, scalar};
      const Shape width{scalar ? 1 : 7};
      const Tensor<double> x = random({2, 5, 7}, 1), g = random(width, 2), b = random(width, 3);
      check_op([&](const Vars& v) { return layer_norm(v[0], v[1], v[2], op); }, {x, g, b});
      check_op([&](const Vars& v) { return layer_norm(v[0], v[1], Var<double>(), op); }, {x, g});
      check_op([&](const Vars& v) { return layer_norm(v[0], Var<double>(), v[1], op); }, {x, b});
      check_op([&](const Vars& v) { return layer_norm(v[0], Var<double>(), Var<double>(), op); }, {x});
      check_op([&](const Vars& v) { return layer_norm(Var<double>(x), v[0], v[1], op); }, {g, b});
      check_op([&](const Vars& v) { return layer_norm(Var<double>(x), Var<double>(g), v[0], op); }, {b});
      check_op([&](const Vars& v) { return layer_norm(v[0], Var<double>(g), Var<double>(b), op); }, {x});
      // Gain and shift that arrive with different betas, and are even the same Var.
      check_op([&](const Vars& v) { return layer_norm(v[0], v[1], v[1], op); }, {x, g});
    }
  }
  check_op([](const Vars& v) { return layer_norm(v[0], v[1], v[2]); },
           {random({7}, 1), random({7}, 2), random({7}, 3)});
}

TEST_CASE("layer_norm: a gain used elsewhere while the shift is not, and the other way round") {
  const Tensor<double> x = random({5, 7}, 1), g = random({7}, 2), b = random({7}, 3);
  for (const std::size_t used : {1u, 2u}) {
    const auto result = grad_check(
        [&](Tape<double>&, const Vars& v) {
          const Var<double> y = layer_norm(v[0], v[1], v[2]);
          return y + sum(square(v[used]));  // recorded later: its gradient is there first
        },
        {x, g, b});
    CHECK_MESSAGE(result.ok, result.str());
  }
}

TEST_CASE("layer_norm: the published mix-up of formulas, (1, 0, 0, 0)") {
  const Var<double> x = Tensor<double>::from({4}, {1, 0, 0, 0});
  const Var<double> none;
  CHECK(layer_norm(x, none, none, {.eps = 1e-12}).value().at({0}) ==
        doctest::Approx(1.7320508).epsilon(1e-6));
  CHECK(layer_norm(x, none, none, {.eps = 1e-12, .formula = LayerNormFormula::teaching}).value().at({0}) ==
        doctest::Approx(1.5).epsilon(1e-6));
}

TEST_CASE_TEMPLATE(
    "layer_norm: values against plain loops, for widths around the vectors' and a tiny variance", T, float,
    double) {
  for (const index_t n : {2, 7, 8, 16, 17, 33, 129}) {
    for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
      for (const bool scalar : {false, true}) {
        const detail::LayerNormOp op{1e-5, formula, scalar};
        const Shape width{scalar ? 1 : n};
        const Tensor<double> x = random({5, n}, 1), g = random(width, 2), b = random(width, 3);
        CHECK(
            worst_difference(layer_norm(Var<T>(x.to<T>()), Var<T>(g.to<T>()), Var<T>(b.to<T>()), op).value(),
                             reference(x, g, b, op)) < (std::is_same_v<T, float> ? 2e-4 : 1e-12));
      }
    }
  }
  // With a variance far below eps, where eps stands decides the result.
  Tensor<double> tiny = random({1, 16}, 4);
  for (double& value : tiny.span()) value *= 1e-4;
  const Tensor<double> one = Tensor<double>::ones({16}), zero = Tensor<double>::zeros({16});
  for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
    const detail::LayerNormOp op{1e-5, formula, false};
    CHECK(worst_difference(
              layer_norm(Var<T>(tiny.to<T>()), Var<T>(one.to<T>()), Var<T>(zero.to<T>()), op).value(),
              reference(tiny, one, zero, op)) < 1e-3);
  }
}

TEST_CASE("layer_norm: constant rows stay finite, forward and backward") {
  for (const auto formula : {LayerNormFormula::pytorch, LayerNormFormula::teaching}) {
    Tape<double> tape;
    const Var<double> x = tape.variable(Tensor<double>::full({2, 4}, 3));
    const Var<double> none;
    const Var<double> y = layer_norm(x, none, none, {.formula = formula});
    CHECK(values(y.value()) == std::vector<double>(8, 0.0));
    tape.backward(sum(square(y + 1)));
    for (const double g : values(tape.gradient(x))) CHECK(std::isfinite(g));
  }
}

TEST_CASE("layer_norm: a row does not depend on its neighbours, nor on the number of threads") {
  const Tensor<float> x = random({301, 65}, 1).to<float>(), g = random({65}, 2).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<float> tape;
    const Var<float> v = tape.variable(x), gain = tape.variable(g), shift = tape.variable(g);
    const Var<float> y = layer_norm(v, gain, shift);
    tape.backward(sum(y * y));
    return std::vector<std::vector<float>>{values(y.value()), values(tape.gradient(v)),
                                           values(tape.gradient(gain)), values(tape.gradient(shift))};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
  const Tensor<float> alone =
      layer_norm(Var<float>(x.rows(17, 1).clone()), Var<float>(g), Var<float>(g)).value();
  CHECK(values(alone) == std::vector<float>(one[0].begin() + 17 * 65, one[0].begin() + 18 * 65));
}

TEST_CASE("add_layer_norm: gradients, with and without dropout, also of one Var on both sides") {
  const Tensor<double> x = random({2, 5, 7}, 1), r = random({2, 5, 7}, 2), g = random({7}, 3),
                       b = random({7}, 4);
  for (const double rate : {0.0, 0.3}) {
    const auto op = [&](Tape<double>& tape, const Var<double>& a, const Var<double>& c,
                        const Var<double>& gain, const Var<double>& shift) {
      return add_layer_norm(Context<double>::training(tape, detail::DropoutKey{3, 1, 0}), a, c, rate, gain,
                            shift);
    };
    check_op([&](Tape<double>& t, const Vars& v) { return op(t, v[0], v[1], v[2], v[3]); }, {x, r, g, b});
    check_op([&](Tape<double>& t, const Vars& v) { return op(t, v[0], v[0], v[1], v[2]); }, {x, g, b});
    check_op([&](Tape<double>& t, const Vars& v) { return op(t, v[0], Var<double>(r), v[1], v[2]); },
             {x, g, b});
    check_op([&](Tape<double>& t,
                 const Vars& v) { return op(t, Var<double>(x), v[0], Var<double>(g), Var<double>(b)); },
             {r});
  }
}

TEST_CASE("add_layer_norm: equals the norm of the sum, dropout included") {
  const Tensor<double> x = random({5, 7}, 1), r = random({5, 7}, 2), g = random({7}, 3), b = random({7}, 4);
  Tape<double> tape;
  for (const double rate : {0.0, 0.4}) {
    const auto fused = add_layer_norm(Context<double>::training(tape, detail::DropoutKey{3, 1, 0}),
                                      Var<double>(x), Var<double>(r), rate, Var<double>(g), Var<double>(b));
    const auto dropped =
        dropout(Context<double>::training(tape, detail::DropoutKey{3, 1, 0}), Var<double>(r), rate);
    CHECK(worst_difference(fused.value(),
                           layer_norm(Var<double>(x) + dropped, Var<double>(g), Var<double>(b)).value()) <
          1e-13);
  }
}

TEST_CASE("layer_norm: shapes that do not fit") {
  const Var<double> x = random({2, 4}), gain = random({5}), none;
  CHECK(message_of<ShapeError>([&] { (void)layer_norm(x, gain, none); }) ==
        "[layer_norm] gain and shift must have 4 elements for input (2, 4), one has shape (5,)");
  CHECK_THROWS_AS((void)layer_norm(x, none, gain), ShapeError);
  CHECK_THROWS_AS((void)layer_norm(x, Var<double>(random({4})), none, {.scalar_gain = true}), ShapeError);
  CHECK_THROWS_AS((void)layer_norm(Var<double>(Tensor<double>::scalar(1)), none, none), ShapeError);
  CHECK_THROWS_AS(
      (void)layer_norm(Var<double>(random({3, 1})), none, none, {.formula = LayerNormFormula::teaching}),
      ValueError);
  CHECK(contains(
      message_of<ShapeError>([&] {
        (void)add_layer_norm(Context<double>::inference(), x, Var<double>(random({2, 5})), 0, none, none);
      }),
      "[add_layer_norm] residual of shape (2, 5) must have the input's shape (2, 4)"));
}
