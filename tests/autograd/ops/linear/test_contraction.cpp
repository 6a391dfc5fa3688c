#include "eigenformer/autograd/ops/linear/contraction.hpp"

#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

namespace {

template <class T>
Var<T> call(const std::string& f, const std::string& argument, const std::vector<Var<T>>& x) {
  if (f == "einsum") return einsum(argument, x);
  if (f == "tensordot") {
    std::istringstream in(argument);
    std::vector<index_t> numbers;
    for (index_t n = 0; in >> n;) numbers.push_back(n);
    if (numbers.size() == 1) return tensordot(x[0], x[1], numbers[0]);
    const auto half = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
    return tensordot(x[0], x[1], {numbers.begin(), half}, {half, numbers.end()});
  }
  if (f == "outer") return outer(x[0], x[1]);
  if (f == "inner") return ef::inner(x[0], x[1]);
  if (f == "kron") return kron(x[0], x[1]);
  if (f == "matmul") return matmul(x[0], x[1]);
  REQUIRE(f == "trace");
  return trace(x[0]);
}

}  // namespace

TEST_CASE_TEMPLATE("contractions: values and gradients as in PyTorch", T, float, double) {
  const Fixture fixture("ops/contractions");
  const double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-13;
  int count = 0;
  const auto options = fixture.options();
  for (const auto& entry : options.at("calls")) {
    const auto key = entry[0].get<std::string>(), f = entry[1].get<std::string>(),
               argument = entry[2].get<std::string>();
    CAPTURE(f);
    CAPTURE(argument);
    Tape<T> tape;
    std::vector<Var<T>> x;
    for (int i = 0; i < entry[3].get<int>(); ++i) {
      x.push_back(tape.variable(fixture.get<T>("in." + key + "." + std::to_string(i))));
      CAPTURE(x.back().shape().str());
    }
    const Var<T> y = call(f, argument, x);
    CHECK(worst_difference(y.value(), fixture.get<double>("out." + key)) < tolerance);
    Gradients<T> none;
    tape.backward(y, fixture.get<T>("in.cotangent." + key), none);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(worst_difference(tape.gradient(x[i]),
                             fixture.get<double>("grad_in." + key + "." + std::to_string(i))) < tolerance);
    }
    ++count;
  }
  CHECK(count > 60);
}

TEST_CASE("contractions: gradients, also of one Var in several places") {
  check_op([](const Vars& v) { return einsum("bij,bkj->bki", v[0], v[1]); },
           {random({2, 3, 5}, 1), random({2, 4, 5}, 2)});
  check_op([](const Vars& v) { return einsum("ij,jk,ki->ij", v[0], v[0], v[0]); }, {random({3, 3})});
  check_op([](const Vars& v) { return einsum("...ii,i->...", v[0], v[1]); },
           {random({2, 3, 3}, 1), random({3}, 2)});
  check_op([](const Vars& v) { return tensordot(v[0], v[0], {0, 2}, {2, 0}); }, {random({2, 3, 2})});
  check_op([](const Vars& v) { return outer(v[0], v[0]); }, {random({4})});
  check_op([](const Vars& v) { return ef::inner(v[0], v[0]); }, {random({2, 3})});
  check_op([](const Vars& v) { return kron(v[0], v[0]); }, {random({2, 3})});
  check_op([](const Vars& v) { return trace(v[0], 1, -2, -1); }, {random({2, 3, 4})});
  // Every place of a vector and every transpose in matmul.
  check_op([](const Vars& v) { return matmul(v[0], v[0]); }, {random({5})});
  for (const bool transposed : {false, true}) {
    check_op([&](const Vars& v) { return matmul(v[0], v[1], transposed, false); },
             {random(transposed ? Shape{2, 5, 3} : Shape{2, 3, 5}, 1), random({5}, 2)});
    check_op([&](const Vars& v) { return matmul(v[0], v[1], false, transposed); },
             {random({5}, 1), random(transposed ? Shape{2, 3, 5} : Shape{2, 5, 3}, 2)});
  }
}

TEST_CASE("contractions: numbers with NaN and infinities, and operands of other kinds") {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor<double> x({2, 2}, {1, inf, 2, std::nan("")});
  const Tensor<double> y = einsum("ij->i", x).value();
  CHECK(y(0) == inf);
  CHECK(std::isnan(y(1)));
  const Eigen::MatrixXd m = Eigen::MatrixXd::Identity(2, 2);
  CHECK(values(einsum("ij,jk->ki", m, Tensor<double>({2, 2}, {1, 2, 3, 4})).value()) ==
        std::vector<double>{1, 3, 2, 4});
  CHECK(trace(m).item() == 2);
}

TEST_CASE("contractions: errors") {
  const Var<double> a = random({2, 3}), b = random({3, 4}), v = random({3});
  const auto value = [](const auto& f) { return message_of<ValueError>(f); };
  const auto shape = [](const auto& f) { return message_of<ShapeError>(f); };
  CHECK(value([&] { (void)einsum("ij,jk", a); }) ==
        "[einsum] equation \"ij,jk\" has subscripts of 2 operands, 1 were given");
  CHECK(value([&] { (void)einsum("ij", std::vector<Var<double>>{}); }) ==
        "[einsum] equation \"ij\" has subscripts of 1 operands, 0 were given");
  CHECK(value([&] { (void)einsum("i%", a); }) ==
        "[einsum] equation \"i%\" has '%' at position 1, expected letters, commas, one arrow and ellipses of "
        "three dots");
  CHECK(contains(value([&] { (void)einsum("ij->i->j", a); }), "has '-' at position 5"));
  CHECK(contains(value([&] { (void)einsum("i..", a); }), "has '.' at position 1"));
  CHECK(value([&] { (void)einsum("ijk", a); }) ==
        "[einsum] equation \"ijk\" has 3 subscripts of operand 0 with shape (2, 3), expected as many as "
        "dimensions");
  CHECK(contains(value([&] { (void)einsum("i", a); }), "has 1 subscripts of operand 0 with shape (2, 3)"));
  CHECK(contains(value([&] { (void)einsum("...i...", a); }),
                 "has two ellipses among the subscripts of operand 0"));
  CHECK(contains(value([&] { (void)einsum("ij->......", a); }), "has two ellipses in the result"));
  CHECK(contains(value([&] { (void)einsum("ij->i,j", a); }), "has a comma in the result"));
  CHECK(value([&] { (void)einsum("ij->k", a); }) ==
        "[einsum] equation \"ij->k\" has subscript 'k' of the result in no operand");
  CHECK(value([&] { (void)einsum("ij->ii", a); }) ==
        "[einsum] equation \"ij->ii\" has subscript 'i' of the result twice, expected once");
  CHECK(shape([&] { (void)einsum("ij,ik", a, b); }) ==
        "[einsum] equation \"ij,ik\": subscript 'i' of operand 1 with shape (3, 4) has size 3, expected 2 as "
        "before");
  CHECK(contains(shape([&] { (void)einsum("ii", random({1, 3})); }), "has size 3, expected 1 as before"));
  CHECK(contains(shape([&] { (void)einsum("...,...", a, b); }), "an ellipsis of operand 1"));
  CHECK(contains(shape([&] {
                   (void)einsum("abcd,efg", random({1, 1, 1, 1}), random({1, 1, 1}));
                 }),
                 "has 7 dimensions, expected at most 6"));
  CHECK(value([&] { (void)tensordot(a, b, 3); }) ==
        "[tensordot] 3 axes of shapes (2, 3) and (3, 4), expected at least 0 and no more than each has");
  CHECK(shape([&] { (void)tensordot(a, b, {0}, {0}); }) ==
        "[tensordot] axis 0 of shape (2, 3) and axis 0 of shape (3, 4) have different sizes, expected equal "
        "ones");
  CHECK(value([&] {
          (void)tensordot(a, b, {0, 1}, {0});
        }) == "[tensordot] 2 axes of one operand and 1 of the other, expected as many");
  CHECK(contains(value([&] { (void)tensordot(b, b, {0, 0}, {0, 1}); }), "named twice"));
  CHECK(contains(value([&] { (void)tensordot(random({3, 3}), b, {0, 1}, {0, -2}); }), "named twice"));
  CHECK(contains(message_of<IndexError>([&] { (void)tensordot(a, b, {2}, {0}); }), "axis 2 does not exist"));
  CHECK(contains(shape([&] { (void)outer(a, v); }),
                 "[outer] operands of shapes (2, 3) and (3,) must have rank 1"));
  CHECK(contains(shape([&] { (void)ef::inner(a, random({4})); }), "[inner] axis -1 of shape (2, 3)"));
  CHECK(contains(shape([&] { (void)kron(random({1, 1, 1, 2}), v); }), "must have rank 3 at most"));
  CHECK(contains(message_of<IndexError>([&] { (void)trace(v); }), "[diagonal]"));
}
