#include "eigenformer/autograd/ops/linear/matmul.hpp"

#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Swaps the last two sizes where the flag says so.
Shape stored(const Shape& shape, bool transposed) {
  return transposed ? shape.with(-1, shape[-2]).with(-2, shape[-1]) : shape;
}

double entry(const Tensor<double>& t, index_t batch, index_t row, index_t col, bool transposed) {
  const index_t rows = t.dim(-2), cols = t.dim(-1);
  return t.data()[batch * rows * cols + (transposed ? col * cols + row : row * cols + col)];
}

}  // namespace

TEST_CASE("matmul: gradients with every transpose and every kind of batch") {
  struct Case {
    Shape a, b;
  };
  const std::vector<Case> cases = {{Shape{3, 5}, Shape{5, 4}},          {Shape{2, 3, 5}, Shape{2, 5, 4}},
                                   {Shape{2, 3, 5}, Shape{5, 4}},       {Shape{3, 5}, Shape{2, 5, 4}},
                                   {Shape{2, 1, 3, 5}, Shape{7, 5, 4}}, {Shape{1, 3, 5}, Shape{2, 5, 4}},
                                   {Shape{2, 3, 1}, Shape{2, 1, 4}},    {Shape{2, 1, 5}, Shape{2, 5, 1}}};
  for (const auto& c : cases) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        CAPTURE(c.a.str());
        CAPTURE(c.b.str());
        CAPTURE(ta);
        CAPTURE(tb);
        check_op([&](const Vars& v) { return matmul(v[0], v[1], ta, tb); },
                 {random(stored(c.a, ta), 1), random(stored(c.b, tb), 2)});
      }
    }
  }
}

TEST_CASE("matmul: gradients of one operand, and of the same Var on both sides") {
  const Tensor<double> constant = random({5, 4}, 3);
  check_op([&](const Vars& v) { return matmul(v[0], constant); }, {random({2, 3, 5}, 1)});
  check_op([&](const Vars& v) { return matmul(Var<double>(constant), v[0]); }, {random({4, 3}, 1)});
  check_op([](const Vars& v) { return matmul(v[0], v[0], false, true); }, {random({2, 3, 5}, 1)});
  check_op([](const Vars& v) { return matmul(v[0], v[0]); }, {random({4, 4}, 1)});
}

TEST_CASE_TEMPLATE("matmul: values against plain loops", T, float, double) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Tensor<double> a = random(stored({2, 1, 3, 5}, ta), 1), b = random(stored({7, 5, 4}, tb), 2);
      const Tensor<T> y = matmul(Var<T>(a.to<T>()), b.to<T>(), ta, tb).value();
      REQUIRE(y.shape() == Shape{2, 7, 3, 4});
      Tensor<double> expected(y.shape());
      for (index_t i = 0; i < 2; ++i) {
        for (index_t j = 0; j < 7; ++j) {
          for (index_t r = 0; r < 3; ++r) {
            for (index_t c = 0; c < 4; ++c) {
              double sum = 0;
              for (index_t k = 0; k < 5; ++k) sum += entry(a, i, r, k, ta) * entry(b, j, k, c, tb);
              expected.at({i, j, r, c}) = sum;
            }
          }
        }
      }
      CHECK(worst_difference(y, expected) < (std::is_same_v<T, float> ? 5e-6 : 1e-13));
    }
  }
}

TEST_CASE("matmul: empty dimensions") {
  CHECK(matmul(Var<double>(Tensor<double>(Shape{0, 5})), Tensor<double>::ones({5, 4})).shape() ==
        Shape{0, 4});
  CHECK(values(matmul(Var<double>(Tensor<double>(Shape{2, 0})), Tensor<double>(Shape{0, 3})).value()) ==
        std::vector<double>(6, 0.0));
  // A batch of nothing leaves a broadcast operand a gradient of zeros.
  Tape<double> tape;
  const Var<double> a = tape.variable(Tensor<double>(Shape{0, 2, 3})),
                    b = tape.variable(Tensor<double>::ones({3, 4}));
  const Var<double> inner = tape.variable(Tensor<double>(Shape{2, 0})),
                    outer = tape.variable(Tensor<double>(Shape{0, 3}));
  const Var<double> rows = tape.variable(Tensor<double>(Shape{0, 3}));
  tape.backward(sum(matmul(a, b)) + sum(matmul(inner, outer)) + sum(matmul(rows, b)));
  CHECK(values(tape.gradient(b)) == std::vector<double>(12, 0.0));
  CHECK(tape.gradient(a).shape() == Shape{0, 2, 3});
}

TEST_CASE("matmul: shapes that do not fit") {
  const Var<double> a = random({2, 3}), b = random({4, 5});
  CHECK(message_of<ShapeError>([&] { (void)matmul(a, b); }) ==
        "[matmul] inner dimensions of (2, 3) and (4, 5) differ: 3 and 4");
  CHECK(message_of<ShapeError>([&] { (void)matmul(a, b, true, true); }) ==
        "[matmul] inner dimensions of (2, 3) transposed and (4, 5) transposed differ: 2 and 5");
  CHECK(message_of<ShapeError>([&] { (void)matmul(a, random({4})); }) ==
        "[matmul] inner dimensions of (2, 3) and (4,) differ: 3 and 4");
  CHECK(
      message_of<ShapeError>([&] { (void)matmul(a, random({3}), false, true); }) ==
      "[matmul] operands of shapes (2, 3) and (3,) must have rank 1 or more, and 2 or more to be transposed");
  CHECK(contains(message_of<ShapeError>([&] { (void)matmul(a, random({})); }),
                 "shapes (2, 3) and () must have rank 1 or more"));
  CHECK(contains(message_of<ShapeError>([] {
                   (void)matmul(Var<double>(random({2, 4, 3})), random({5, 3, 4}));
                 }),
                 "[matmul] shapes (2,) and (5,) do not broadcast"));
}
