#include "eigenformer/autograd/tape/gradients.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Parameter<double> parameter(const char* name, const Tensor<double>& value) {
  Parameter<double> p(value);
  p.set_name(name);
  return p;
}

// d sum(factor * w) / dw = factor.
void backward(const Parameter<double>& w, double factor, Gradients<double>& gradients) {
  Tape<double> tape;
  tape.backward(sum(tape.parameter(w.handle()) * factor), gradients);
}

}  // namespace

TEST_CASE("Gradients: zero until something is accumulated") {
  const auto w = parameter("w", Tensor<double>::ones({2, 3}));
  Gradients<double> gradients({w.handle()});
  CHECK(gradients.entries().size() == 1);
  CHECK_FALSE(gradients.entries()[0].written);
  CHECK(values(gradients.of(w)) == std::vector<double>(6, 0.0));
  CHECK(gradients.of(w).shape() == Shape{2, 3});
}

TEST_CASE("Gradients: two backwards accumulate, zero() starts again") {
  const auto w = parameter("w", Tensor<double>::ones({2}));
  Gradients<double> gradients({w.handle()});
  backward(w, 3, gradients);
  backward(w, 4, gradients);
  CHECK(values(gradients.of(w)) == std::vector<double>{7, 7});
  gradients.zero();
  CHECK(values(gradients.of(w)) == std::vector<double>{0, 0});
  backward(w, 5, gradients);
  CHECK(values(gradients.of(w)) == std::vector<double>{5, 5});
}

TEST_CASE("Gradients: large ones take memory at the first write and give it back in zero()") {
  const auto bytes = [] { return Runtime::instance().pool().statistics().bytes_in_use; };
  const auto large = parameter("large", Tensor<double>::ones({700, 300}));
  const auto small = parameter("small", Tensor<double>::ones({70, 30}));
  const auto before = bytes();
  Gradients<double> gradients({large.handle(), small.handle()});
  const auto with_small = bytes();
  CHECK(with_small >= before + 70 * 30 * sizeof(double));
  CHECK(with_small < before + 700 * 300 * sizeof(double));
  CHECK(gradients.entries()[0].value.shape() == Shape{700, 300});
  backward(small, 2, gradients);
  backward(large, 3, gradients);
  CHECK(bytes() >= with_small + 700 * 300 * sizeof(double));
  const double* memory = gradients.of(small).data();
  gradients.zero();
  CHECK(bytes() == with_small);
  CHECK_FALSE(gradients.entries()[0].value.defined());
  CHECK(gradients.entries()[0].value.shape() == Shape{700, 300});
  backward(small, 5, gradients);
  backward(large, 7, gradients);
  CHECK(gradients.of(small).data() == memory);
  CHECK(values(gradients.of(small)) == std::vector<double>(70 * 30, 5.0));
  CHECK(values(gradients.of(large)) == std::vector<double>(700 * 300, 7.0));
}

TEST_CASE("Gradients: accumulate() takes memory for a large entry that has none, and keeps a small one's") {
  const auto large = parameter("large", Tensor<double>::ones({700, 300}));
  const auto small = parameter("small", Tensor<double>::ones({70, 30}));
  Gradients<double> sums({large.handle(), small.handle()}), others({large.handle(), small.handle()});
  backward(large, 2, others);
  backward(small, 3, others);
  REQUIRE_FALSE(sums.entries()[0].value.defined());
  const double* memory = sums.entries()[1].value.data();
  sums.accumulate(others);
  CHECK(values(sums.of(large)) == std::vector<double>(700 * 300, 2.0));
  CHECK(values(sums.of(small)) == std::vector<double>(70 * 30, 3.0));
  CHECK(sums.entries()[1].value.data() == memory);
}

TEST_CASE("Gradients: a large finished gradient that is moved is taken over unless somebody shares it") {
  const Shape shape{500, 290};
  const auto w = parameter("w", Tensor<double>::ones(shape));
  Gradients<double> gradients({w.handle()});
  Tensor<double> kept;
  const double* finished = nullptr;
  const auto run = [&](bool share, double value) {
    Tape<double> tape;
    const Var<double> x = tape.parameter(w.handle());
    Tensor<double> dw = Tensor<double>::full(shape, value);
    finished = dw.data();
    if (share) kept = dw;
    const Var<double> y =
        record("op", Tensor<double>::scalar(1), {x},
               [dw = std::move(dw)](Backward<double>& b) mutable { b.pass(0, std::move(dw)); });
    tape.backward(y, gradients);
  };
  const auto all = [&](double value) { return std::vector<double>(500 * 290, value); };
  run(false, 5);
  CHECK(gradients.of(w).data() == finished);
  CHECK(values(gradients.of(w)) == all(5));
  run(false, 6);  // added to what is there
  CHECK(values(gradients.of(w)) == all(11));
  gradients.zero();
  run(true, 7);
  CHECK(gradients.of(w).data() != finished);
  gradients.scale(2);
  CHECK(values(gradients.of(w)) == all(14));
  CHECK(values(kept) == all(7));
}

TEST_CASE("Gradients: a copy has memory of its own") {
  const auto small = parameter("small", Tensor<double>::ones({2})),
             unwritten = parameter("unwritten", Tensor<double>::ones({3})),
             large = parameter("large", Tensor<double>::ones({500, 300}));
  Gradients<double> gradients({small.handle(), unwritten.handle(), large.handle()});
  backward(small, 3, gradients);
  backward(large, 4, gradients);
  Gradients<double> copy = gradients, assigned;
  assigned = gradients;
  for (Gradients<double>* other : {&copy, &assigned}) {
    other->scale(10);
    backward(unwritten, 5, *other);
    CHECK(values(other->of(small)) == std::vector<double>{30, 30});
    CHECK(values(other->of(unwritten)) == std::vector<double>(3, 5.0));
    CHECK(other->of(large).at({499, 299}) == 40);
  }
  backward(unwritten, 6, gradients);
  CHECK(values(gradients.of(small)) == std::vector<double>{3, 3});
  CHECK(values(gradients.of(unwritten)) == std::vector<double>(3, 6.0));
  CHECK(values(copy.of(unwritten)) == std::vector<double>(3, 5.0));
  CHECK(gradients.of(large).at({499, 299}) == 4);
}

TEST_CASE("Gradients: a tied parameter is held once") {
  const auto w = parameter("w", Tensor<double>::ones({2}));
  Gradients<double> gradients({w.handle(), w.handle()});
  CHECK(gradients.entries().size() == 1);
  Tape<double> tape;
  const Var<double> x = tape.parameter(w.handle()), y = tape.parameter(w.handle());
  CHECK(x.node() == y.node());
  tape.backward(sum(x * 2 + y * 10), gradients);
  CHECK(values(gradients.of(w)) == std::vector<double>{12, 12});
}

TEST_CASE("Gradients: a parameter that is not listed is an error, before anything is written") {
  const auto w = parameter("encoder.weight", Tensor<double>::ones({2, 5}));
  const auto other = parameter("other", Tensor<double>::ones({5}));
  Gradients<double> gradients({other.handle()});
  CHECK(message_of<ValueError>([&] { (void)gradients.of(w); }) ==
        "[gradients] there is no gradient of parameter 'encoder.weight'");
  Tape<double> tape;
  const Var<double> loss = sum(tape.parameter(w.handle()) * tape.parameter(other.handle()));
  CHECK(message_of<ValueError>([&] { tape.backward(loss, gradients); }) ==
        "[backward] parameter 'encoder.weight' of shape (2, 5) was recorded but is missing in the gradients; "
        "construct them with it, or freeze it");
  CHECK_FALSE(gradients.entries()[0].written);
  // The mistake can be mended: nothing was consumed.
  gradients.add(w.handle());
  tape.backward(loss, gradients);
  CHECK(values(gradients.of(other)) == std::vector<double>(5, 2.0));
}

TEST_CASE("Gradients: made for another shape of a parameter, they are refused") {
  auto w = parameter("w", Tensor<double>::ones({2}));
  Gradients<double> gradients({w.handle()});
  const auto wide = parameter("wide", Tensor<double>::ones({3000}));
  w = wide;  // keeps its id
  CHECK(message_of<ShapeError>([&] { backward(w, 1, gradients); }) ==
        "[backward] the gradients hold parameter 'wide' with shape (2,), it was recorded with (3000,)");
}

TEST_CASE("Gradients: workers' gradients add up, in order") {
  const auto a = parameter("a", Tensor<double>::ones({3})), b = parameter("b", Tensor<double>::ones({2}));
  Gradients<double> total({a.handle(), b.handle()}), worker({b.handle(), a.handle()});
  backward(a, 2, worker);
  total.accumulate(worker);  // the first: copied, so that the worker can go on
  backward(a, 5, worker);
  CHECK(values(total.of(a)) == std::vector<double>{2, 2, 2});
  total.accumulate(worker);
  CHECK(values(total.of(a)) == std::vector<double>{9, 9, 9});
  CHECK_FALSE(total.find(b.id())->written);
  total.scale(0.5);
  CHECK(values(total.of(a)) == std::vector<double>{4.5, 4.5, 4.5});
  CHECK(values(total.of(b)) == std::vector<double>{0, 0});
}

TEST_CASE("Gradients: workers with a parameter that the sum does not have") {
  const auto a = parameter("a", Tensor<double>::ones({3})), b = parameter("b", Tensor<double>::ones({2}));
  Gradients<double> total({a.handle()});
  Gradients<double> worker({a.handle(), b.handle()});
  worker.entries()[0].writable().fill(1);
  CHECK(message_of<ValueError>([&] { total.accumulate(worker); }) ==
        "[gradients] parameter 'b' of the other gradients is missing in these");
  CHECK_FALSE(total.entries()[0].written);
}

TEST_CASE("Gradients: find") {
  const auto a = parameter("a", Tensor<double>::ones({3})), b = parameter("b", Tensor<double>::ones({2}));
  Gradients<double> gradients({a.handle()});
  REQUIRE(gradients.find(a.id()) != nullptr);
  CHECK(gradients.find(a.id())->parameter->name == "a");
  CHECK(gradients.find(b.id()) == nullptr);
  const Gradients<double>& constant = gradients;
  CHECK(constant.find(b.id()) == nullptr);
}
