#include "eigenformer/autograd/tape/var.hpp"

#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/eigen_interop.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::values;

namespace {

index_t rank_of(const Var<double>& x) { return x.rank(); }

}  // namespace

TEST_CASE("Var: an Eigen expression is a constant") {
  Eigen::MatrixXd m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const Var<double> x = m;
  CHECK_FALSE(x.recorded());
  CHECK(x.shape() == Shape{2, 3});
  CHECK(values(x.value()) == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(rank_of(2 * m.transpose()) == 2);
  CHECK(rank_of(m.col(0)) == 1);
  CHECK(values(Var<double>(m.array() + 1).value()) == std::vector<double>{2, 3, 4, 5, 6, 7});
  static_assert(!std::is_convertible_v<Eigen::MatrixXf, Var<double>>);
}

TEST_CASE("Var: an op on Eigen data records what flows back to its other inputs") {
  Eigen::MatrixXd m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  Tape<double> tape;
  const Var<double> w = tape.variable(Eigen::MatrixXd::Ones(3, 2));
  const Var<double> y = matmul(Var<double>(m), w);
  CHECK(values(y.value()) == std::vector<double>{6, 6, 15, 15});
  Gradients<double> none;
  tape.backward(y, Eigen::MatrixXd::Identity(2, 2), none);
  CHECK(as_eigen(tape.gradient(w)) == m.transpose());
}
