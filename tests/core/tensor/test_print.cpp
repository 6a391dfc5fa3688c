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

// The expected texts are those of NumPy's array2string(x, separator=", ").

TEST_CASE("print: a matrix, its dots under each other") {
  CHECK(text(Tensor<float>::from({2, 3}, {1, -2.5f, 3, 40, 5, 0.125f})) ==
        "Tensor<float> (2, 3)\n"
        "[[ 1.   , -2.5  ,  3.   ],\n"
        " [40.   ,  5.   ,  0.125]]");
}

TEST_CASE("print: rank 0, 1 and 3") {
  CHECK(text(Tensor<double>::scalar(2.5)) == "Tensor<double> () 2.5");
  CHECK(text(Tensor<std::int32_t>::from({3}, {1, -20, 300})) == "Tensor<int32> (3,)\n[  1, -20, 300]");
  CHECK(text(Tensor<std::int32_t>::arange(8).reshape({2, 2, 2})) ==
        "Tensor<int32> (2, 2, 2)\n"
        "[[[0, 1],\n"
        "  [2, 3]],\n"
        "\n"
        " [[4, 5],\n"
        "  [6, 7]]]");
}

TEST_CASE("print: types") {
  CHECK(text(Tensor<bool>::from({1, 2}, {true, false})) == "Tensor<bool> (1, 2)\n[[ True, False]]");
  CHECK(text(Tensor<std::int64_t>::from({2}, {std::numeric_limits<std::int64_t>::min(), 7})) ==
        "Tensor<int64> (2,)\n[-9223372036854775808,                    7]");
  CHECK(text(Tensor<std::uint8_t>::from({2}, {7, 255})) == "Tensor<uint8> (2,)\n[  7, 255]");
  Tensor<float> t = Tensor<float>::arange(4).reshape({2, 2});
  CHECK(text(Tensor<float>(t(0, eigenformer::all))) == "Tensor<float> (2,)\n[0., 1.]");
  std::ostringstream part;
  part << t(eigenformer::all, 1);
  CHECK(part.str() == "Tensor<float> (2,)\n[1., 3.]");
}

TEST_CASE("print: the digits that tell a number from others, at most 8") {
  CHECK(text(Tensor<double>::from({3}, {1.0 / 3, 2, 100.1})) ==
        "Tensor<double> (3,)\n[  0.33333333,   2.        , 100.1       ]");
  CHECK(text(Tensor<float>::from({3}, {1.0f / 3, 2, 100.1f})) ==
        "Tensor<float> (3,)\n[  0.33333334,   2.        , 100.1       ]");
}

TEST_CASE("print: very large and very small numbers, infinities") {
  CHECK(text(Tensor<double>::from({4}, {0, 1.5e-7, -2e9, 1})) ==
        "Tensor<double> (4,)\n[ 0.0e+00,  1.5e-07, -2.0e+09,  1.0e+00]");
  CHECK(text(Tensor<double>::from({2}, {1e100, -1e-5})) == "Tensor<double> (2,)\n[ 1.e+100, -1.e-005]");
  CHECK(text(Tensor<double>::from({1}, {1e10})) == "Tensor<double> (1,)\n[1.e+10]");
  CHECK(text(Tensor<double>::from({2}, {999.5, 1})) == "Tensor<double> (2,)\n[999.5,   1. ]");
  CHECK(text(Tensor<double>::from({2}, {1001.5, 1})) == "Tensor<double> (2,)\n[1.0015e+03, 1.0000e+00]");
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(text(Tensor<double>::from({3}, {inf, -inf, 0})) == "Tensor<double> (3,)\n[ inf, -inf,   0.]");
  CHECK(text(Tensor<double>::from({3}, {std::numeric_limits<double>::quiet_NaN(), 1.5, 0})) ==
        "Tensor<double> (3,)\n[nan, 1.5, 0. ]");
  CHECK(text(Tensor<float>::from({1}, {std::numeric_limits<float>::quiet_NaN()})) ==
        "Tensor<float> (1,)\n[nan]");
}

TEST_CASE("print: long rows go on in the next line, of more than 1,000 elements the ends are shown") {
  CHECK(text(Tensor<double>::arange(40)) ==
        "Tensor<double> (40,)\n"
        "[ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13., 14.,\n"
        " 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27., 28., 29.,\n"
        " 30., 31., 32., 33., 34., 35., 36., 37., 38., 39.]");
  CHECK(text(Tensor<std::int64_t>::arange(1001)) ==
        "Tensor<int64> (1001,)\n[   0,    1,    2, ...,  998,  999, 1000]");
  CHECK(text(Tensor<std::int64_t>::arange(1500).reshape({30, 50})) ==
        "Tensor<int64> (30, 50)\n"
        "[[   0,    1,    2, ...,   47,   48,   49],\n"
        " [  50,   51,   52, ...,   97,   98,   99],\n"
        " [ 100,  101,  102, ...,  147,  148,  149],\n"
        " ...,\n"
        " [1350, 1351, 1352, ..., 1397, 1398, 1399],\n"
        " [1400, 1401, 1402, ..., 1447, 1448, 1449],\n"
        " [1450, 1451, 1452, ..., 1497, 1498, 1499]]");
}

TEST_CASE("print: numbers that are not shown do not widen the columns") {
  Tensor<std::int32_t> t = Tensor<std::int32_t>::full({1030}, 1);
  t.at({15}) = 123456789;
  CHECK(text(t) == "Tensor<int32> (1030,)\n[1, 1, 1, ..., 1, 1, 1]");
}

TEST_CASE("print: empty and undefined tensors") {
  CHECK(text(Tensor<float>(Shape{3, 0})) == "Tensor<float> (3, 0) []");
  CHECK(text(Tensor<float>()) == "Tensor<float> (0,) undefined");
}
