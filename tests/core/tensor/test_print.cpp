#include "eigenformer/core/tensor/print.hpp"

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

using namespace eigenformer;

namespace {

template <class T>
std::string text(const Tensor<T>& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}

}  // namespace

TEST_CASE("print: a matrix, its columns aligned") {
  CHECK(text(Tensor<float>::from({2, 3}, {1, -2.5f, 3, 40, 5, 0.125f})) ==
        "Tensor<float> (2, 3)\n"
        "[[ 1.0000, -2.5000,  3.0000],\n"
        " [40.0000,  5.0000,  0.1250]]");
}

TEST_CASE("print: rank 0, 1 and 3") {
  CHECK(text(Tensor<double>::scalar(2.5)) == "Tensor<double> () 2.5000");
  CHECK(text(Tensor<std::int32_t>::from({3}, {1, -20, 300})) == "Tensor<int32> (3,)\n[  1, -20, 300]");
  CHECK(text(Tensor<std::int32_t>::arange(8).reshape({2, 2, 2})) ==
        "Tensor<int32> (2, 2, 2)\n"
        "[[[0, 1],\n"
        "  [2, 3]],\n"
        " [[4, 5],\n"
        "  [6, 7]]]");
}

TEST_CASE("print: booleans") {
  CHECK(text(Tensor<bool>::from({1, 2}, {true, false})) == "Tensor<bool> (1, 2)\n[[ true, false]]");
}

TEST_CASE("print: very large and very small numbers, infinities") {
  CHECK(text(Tensor<double>::from({4}, {0, 1.5e-7, -2e9, 1})) ==
        "Tensor<double> (4,)\n[     0.0000,  1.5000e-07, -2.0000e+09,      1.0000]");
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(text(Tensor<double>::from({3}, {inf, -inf, 0})) == "Tensor<double> (3,)\n[   inf,   -inf, 0.0000]");
  CHECK(text(Tensor<float>::from({1}, {std::numeric_limits<float>::quiet_NaN()})) ==
        "Tensor<float> (1,)\n[nan]");
}

TEST_CASE("print: long dimensions are abridged, nine entries are not") {
  CHECK(text(Tensor<std::int32_t>::arange(9)) == "Tensor<int32> (9,)\n[0, 1, 2, 3, 4, 5, 6, 7, 8]");
  CHECK(text(Tensor<std::int32_t>::arange(10)) == "Tensor<int32> (10,)\n[0, 1, 2, 3, ..., 6, 7, 8, 9]");
  CHECK(text(Tensor<std::int32_t>::arange(20).reshape({10, 2})) ==
        "Tensor<int32> (10, 2)\n"
        "[[ 0,  1],\n"
        " [ 2,  3],\n"
        " [ 4,  5],\n"
        " [ 6,  7],\n"
        " ...,\n"
        " [12, 13],\n"
        " [14, 15],\n"
        " [16, 17],\n"
        " [18, 19]]");
}

TEST_CASE("print: numbers that are not shown do not widen the columns") {
  Tensor<std::int32_t> t = Tensor<std::int32_t>::full({30}, 1);
  t.at({15}) = 123456789;
  CHECK(text(t) == "Tensor<int32> (30,)\n[1, 1, 1, 1, ..., 1, 1, 1, 1]");
}

TEST_CASE("print: a large tensor stays readable and aligned") {
  Tensor<float> t = Tensor<float>::zeros({200, 300});
  t.at({2, 299}) = -123.5f;
  const std::string s = text(t);
  CHECK(
      s.find(
          "[   0.0000,    0.0000,    0.0000,    0.0000, ...,    0.0000,    0.0000,    0.0000, -123.5000]") !=
      std::string::npos);
  CHECK(s.size() < 1200);
}

TEST_CASE("print: empty and undefined tensors") {
  CHECK(text(Tensor<float>(Shape{3, 0})) == "Tensor<float> (3, 0) []");
  CHECK(text(Tensor<float>()) == "Tensor<float> (0,) undefined");
}
