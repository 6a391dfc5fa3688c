#include "eigenformer/autograd/tape/grad_check.hpp"

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Vars = std::vector<Var<double>>;

Tensor<double> normal(const Shape& shape, std::uint64_t seed) {
  Tensor<double> t(shape);
  RandomGenerator(seed).fill_normal(t.data(), t.numel(), 0.0, 1.0);
  return t;
}

// y = x^2, whose backward is multiplied by `factor` at element `at` and honours beta only on request.
Var<double> doctored_square(const Var<double>& x, double factor, index_t at, bool honour_beta = true) {
  return record("square", square(Var<double>(x.value())).value(), {x},
                [=, x = x.value()](Backward<double>& b) {
                  const auto dx = b.grad(0);
                  for (index_t i = 0; i < x.numel(); ++i) {
                    const double g = 2 * x.data()[i] * b.dy().data()[i] * (i == at || at < 0 ? factor : 1.0);
                    dx.data[i] = honour_beta && dx.beta != 0 ? dx.data[i] + g : g;
                  }
                });
}

}  // namespace

TEST_CASE("grad_check: passes a right backward with a small error") {
  const auto result = grad_check([](Tape<double>&, const Vars& v) { return doctored_square(v[0], 1, 0); },
                                 {normal({3, 4}, 1)});
  CHECK(result.ok);
  CHECK(result.error < 1e-8);
  CHECK(static_cast<bool>(result));
  CHECK(contains(result.str(), "ok: worst error"));
}

TEST_CASE("grad_check: fails on a wrong backward and says where") {
  const Tensor<double> x = Tensor<double>::from({2, 3}, {1, 2, -3, 4, -5, 6});
  for (const index_t at : {0, 4, 5}) {
    const auto result = grad_check(
        [&](Tape<double>&, const Vars& v) { return doctored_square(v[1], 1.001, at); }, {normal({2}, 1), x});
    CHECK_FALSE(result.ok);
    CHECK(result.input == "input 1");
    CHECK(result.index == at);
    CHECK(result.analytic == doctest::Approx(1.001 * result.numeric).epsilon(1e-6));
    CHECK(result.error == doctest::Approx(0.001).epsilon(0.01));
    CHECK(contains(result.str(), "FAILED: worst error"));
    CHECK(contains(result.str(), "at input 1[" + std::to_string(at) + "], analytic"));
  }
}

TEST_CASE("grad_check: fails on a wrong sign, a missing gradient, a factor that is off by a little") {
  const Tensor<double> x = normal({5}, 2);
  for (const double factor : {-1.0, 0.0, 2.0, 1 + 1e-4}) {
    CHECK_FALSE(
        grad_check([&](Tape<double>&, const Vars& v) { return doctored_square(v[0], factor, -1); }, {x}).ok);
  }
  CHECK_FALSE(grad_check(
                  [](Tape<double>&, const Vars& v) {
                    return record("square", square(v[0].detach()).value(), {v[0]}, [](Backward<double>&) {});
                  },
                  {x})
                  .ok);
}

TEST_CASE("grad_check: fails on a backward that overwrites where it should add") {
  const Tensor<double> x = normal({5}, 3);
  const auto twice = [](bool honour) {
    return [honour](Tape<double>&, const Vars& v) {
      return doctored_square(v[0], 1, 0, honour) + doctored_square(v[0], 1, 0, honour) * 3;
    };
  };
  CHECK(grad_check(twice(true), {x}).ok);
  CHECK_FALSE(grad_check(twice(false), {x}).ok);
}

TEST_CASE("grad_check: fails on a forward that is not the function the backward belongs to") {
  const auto result = grad_check(
      [](Tape<double>&, const Vars& v) {
        return record(
            "cube", (v[0].detach() * v[0].detach() * v[0].detach()).value(), {v[0]},
            [x = v[0].value()](Backward<double>& b) { b.pass(0, (Var<double>(b.dy()) * x * 2).value()); });
      },
      {normal({4}, 4)});
  CHECK_FALSE(result.ok);
}

TEST_CASE("grad_check: NaN is a failure") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(grad_check([&](Tape<double>&, const Vars& v) { return doctored_square(v[0], nan, 1); },
                         {normal({3}, 5), normal({2}, 6)})
                  .ok);
  CHECK_FALSE(
      grad_check([](Tape<double>&, const Vars& v) { return log(v[0]); }, {Tensor<double>::full({2}, -1)}).ok);
}

TEST_CASE("grad_check: parameters are checked by name, frozen ones left out") {
  Parameter<double> w(normal({4}, 7));
  w.set_name("layer.weight");
  CHECK(grad_check([&](Tape<double>& tape, const Vars& v) { return v[0] * tape.parameter(w.handle()); },
                   {normal({3, 4}, 8)}, {w.handle()})
            .ok);
  const auto wrong = [&](Tape<double>& tape, const Vars&) {
    return doctored_square(tape.parameter(w.handle()), 1.5, 2);
  };
  const auto result = grad_check(wrong, {}, {w.handle()});
  CHECK_FALSE(result.ok);
  CHECK(result.input == "layer.weight");
  CHECK(result.index == 2);

  const Parameter<double> bias(normal({4}, 8));
  Parameter<double> frozen(normal({4}, 9));
  frozen.set_frozen(true);
  const auto f = [&](Tape<double>& tape, const Vars&) {
    return tape.parameter(bias.handle()) * Var<double>(frozen.value());
  };
  CHECK(grad_check(f, {}, {bias.handle(), frozen.handle()}).ok);
}

TEST_CASE("grad_check: inputs and parameters hold their values again afterwards") {
  const Tensor<double> x = normal({3}, 10);
  const Parameter<double> w(normal({3}, 11));
  const auto kept_x = values(x), kept_w = values(w.value());
  (void)grad_check([&](Tape<double>& tape, const Vars& v) { return exp(v[0]) * tape.parameter(w.handle()); },
                   {x}, {w.handle()});
  CHECK(values(x) == kept_x);
  CHECK(values(w.value()) == kept_w);
}

TEST_CASE("grad_check: large inputs are sampled in every column") {
  // The error sits in column 3 of 8; a stride of 8 from column 0 would never see it.
  const auto f = [](Tape<double>&, const Vars& v) {
    const Tensor<double> x = v[0].value();
    return record("square", square(Var<double>(x)).value(), {v[0]}, [x](Backward<double>& b) {
      const auto dx = b.grad(0);
      for (index_t i = 0; i < x.numel(); ++i)
        dx.data[i] = (i % 8 == 3 ? 3 : 2) * x.data()[i] * b.dy().data()[i];
    });
  };
  GradCheckOptions options;
  options.max_elements = 25;
  CHECK_FALSE(grad_check(f, {normal({25, 8}, 12)}, {}, options).ok);
}

TEST_CASE("grad_check: nothing to check is an error and not a success") {
  CHECK(contains(message_of<ValueError>([] {
                   (void)grad_check([](Tape<double>&, const Vars& v) { return exp(v[0]); },
                                    {Tensor<double>(Shape{0})});
                 }),
                 "[grad_check] there is nothing to check"));
  CHECK_THROWS_AS(
      (void)grad_check([](Tape<double>&, const Vars& v) { return exp(v[0].detach()); }, {normal({2}, 1)}),
      ValueError);
}

TEST_CASE("grad_check: the tolerance and the step are options") {
  GradCheckOptions options;
  options.tolerance = 1e-2;
  CHECK(grad_check([](Tape<double>&, const Vars& v) { return doctored_square(v[0], 1.001, 0); },
                   {normal({3}, 1)}, {}, options)
            .ok);
  options.tolerance = 1e-6;
  options.step = 0.5;  // far too coarse for exp
  CHECK_FALSE(
      grad_check([](Tape<double>&, const Vars& v) { return exp(v[0]); }, {normal({3}, 1)}, {}, options).ok);
}
