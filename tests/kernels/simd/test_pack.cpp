#include "eigenformer/kernels/simd/pack.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/kernels/elementwise/map.hpp"
#include "isa.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Numbers of both signs from the smallest normal one up to `most`, and all special ones.
std::vector<float> numbers(float most) {
  std::vector<float> x{0.0f,  -0.0f,  1,        -1,        0.5f,
                       -0.5f, 2,      -2,       1.5f,      -1.5f,
                       2.5f,  -2.5f,  3.5f,     1e-6f,     0.99f,
                       1.01f, 8,      1.0e-20f, -1.0e-7f,  8388609.0f,
                       3e38f, -3e38f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
  for (float v = most; v > 1e-30f; v *= 0.977f) {
    x.push_back(v);
    x.push_back(-v);
  }
  return x;
}

// CHECKs f of floats against the same in double, on every path: relative error, and limits. Results below the
// smallest normal number may be 0.
template <class F, class E>
void check(const std::string& name, double tolerance, float most, F f, E expected) {
  CAPTURE(name);
  const std::vector<float> x = numbers(most);
  for_each_isa([&] {
    std::vector<float> y(x.size());
    detail::kernels::map<float, 1>(f, {x.data()}, y.data(), 0.0f, static_cast<index_t>(x.size()));
    std::size_t checked = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double e = expected(static_cast<double>(x[i])), a = static_cast<double>(y[i]);
      const bool same = std::isnan(e)                ? std::isnan(a)
                        : std::abs(e) > 3.4028235e38 ? a == std::copysign(HUGE_VAL, e)
                        : std::abs(e) < 1.2e-38      ? std::abs(a) < 1.2e-38
                                                     : std::abs(a - e) <= tolerance * std::abs(e);
      if (!same) {
        FAIL_CHECK(name << "(" << x[i] << ") is " << a << ", expected " << e << ", off by " << (a - e) / e);
      }
      ++checked;
    }
    CHECK(checked > 1000);
  });
}

// The same of two operands.
template <class F, class E>
void check_pair(const std::string& name, double tolerance, F f, E expected) {
  CAPTURE(name);
  std::vector<float> a, b;
  for (const float x : numbers(1e4f)) {
    for (const float y : {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -2.0f, 3.0f, 7.3f, -0.01f, 1e5f, infinity,
                          -infinity, x, -x, std::numeric_limits<float>::quiet_NaN()}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  for_each_isa([&] {
    std::vector<float> out(a.size());
    const Shape shape{static_cast<index_t>(a.size())};
    detail::kernels::map_pairs<float>(f, shape, a.data(), shape, b.data(), shape, out.data());
    std::size_t checked = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double e = expected(static_cast<double>(a[i]), static_cast<double>(b[i])),
                   v = static_cast<double>(out[i]);
      const bool same = std::isnan(e)                ? std::isnan(v)
                        : std::abs(e) > 3.4028235e38 ? v == std::copysign(HUGE_VAL, e)
                        : std::abs(e) < 1.2e-38      ? std::abs(v) < 1.2e-38
                                                     : std::abs(v - e) <= tolerance * std::abs(e);
      if (!same)
        FAIL_CHECK(name << "(" << a[i] << ", " << b[i] << ") is " << v << ", expected " << e << ", off by "
                        << (v - e) / e);
      ++checked;
    }
    CHECK(checked > 1000);
  });
}

}  // namespace

#define CHECK_FUNCTION(name, tolerance, most)                                                  \
  check(                                                                                       \
      #name, tolerance, most, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return name(v); }, \
      [](double v) { return std::name(v); })

TEST_CASE("functions of Packs have the values of the standard library's, on every path") {
  CHECK_FUNCTION(floor, 0, 1e9f);
  CHECK_FUNCTION(ceil, 0, 1e9f);
  CHECK_FUNCTION(trunc, 0, 1e9f);
  check(
      "round", 0, 1e9f, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return round(v); },
      [](double v) { return std::nearbyint(v); });
  CHECK_FUNCTION(abs, 0, 1e9f);
  CHECK_FUNCTION(sqrt, 1e-7, 1e9f);
  CHECK_FUNCTION(exp, 2e-7, 87);
  CHECK_FUNCTION(exp2, 2e-7, 126);
  CHECK_FUNCTION(expm1, 3e-7, 88);
  CHECK_FUNCTION(log, 2e-7, 1e9f);
  CHECK_FUNCTION(log2, 2e-7, 1e9f);
  CHECK_FUNCTION(log10, 3e-7, 1e9f);
  CHECK_FUNCTION(log1p, 3e-7, 1e9f);
  CHECK_FUNCTION(tan, 4e-7, 1e9f);
  CHECK_FUNCTION(asin, 3e-7, 1);
  CHECK_FUNCTION(atan, 3e-7, 1e9f);
  CHECK_FUNCTION(sinh, 4e-7, 89);
  CHECK_FUNCTION(cosh, 3e-7, 89);
  CHECK_FUNCTION(tanh, 3e-7, 1e9f);
  CHECK_FUNCTION(asinh, 4e-7, 1e9f);
  CHECK_FUNCTION(acosh, 6e-7, 1e9f);
  CHECK_FUNCTION(atanh, 6e-7, 1);
  CHECK_FUNCTION(sin, 3e-7, 1e9f);
  CHECK_FUNCTION(cos, 3e-7, 1e9f);
  CHECK_FUNCTION(acos, 3e-7, 1);
  CHECK_FUNCTION(erfc, 2e-7, 9);
}

TEST_CASE("functions of two Packs have the values of the standard library's, on every path") {
  check_pair(
      "pow", 1e-7, [](const auto& u, const auto& v) EIGENFORMER_INLINE_LAMBDA { return pow(u, v); },
      [](double u, double v) { return std::pow(u, v); });
  check_pair(
      "atan2", 4e-7, [](const auto& u, const auto& v) EIGENFORMER_INLINE_LAMBDA { return atan2(u, v); },
      [](double u, double v) { return std::atan2(u, v); });
  check_pair(
      "copysign", 0, [](const auto& u, const auto& v) EIGENFORMER_INLINE_LAMBDA { return copysign(u, v); },
      [](double u, double v) { return std::copysign(u, v); });
  check_pair(
      "floor_mod", 1e-7,
      [](const auto& u, const auto& v) EIGENFORMER_INLINE_LAMBDA { return floor_mod(u, v); },
      [](double u, double v) {
        const double r = std::fmod(u, v);
        return r != 0 && (r < 0) != (v < 0) ? r + v : r;
      });
}

TEST_CASE("powers of 2 have whole logarithms to base 2") {
  std::vector<float> x, y(140);
  for (int e = -70; e < 70; ++e) x.push_back(std::ldexp(1.0f, e));
  for_each_isa([&] {
    detail::kernels::map<float, 1>([](const auto& v) EIGENFORMER_INLINE_LAMBDA { return log2(v); },
                                   {x.data()}, y.data(), 0.0f, 140);
    for (int e = -70; e < 70; ++e) CHECK(y[static_cast<std::size_t>(e + 70)] == static_cast<float>(e));
  });
}

TEST_CASE("select takes each element from one side, and any() sees a single one") {
  std::vector<float> x(37), y(37);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 11;
  for_each_isa([&] {
    detail::kernels::map<float, 1>(
        [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return select((v > 3) & ~(v == 7), v * 2, -v); },
        {x.data()}, y.data(), 0.0f, 37);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == (x[i] > 3 && x[i] != 7 ? x[i] * 2 : -x[i]));
    for (std::size_t i = 0; i < 32; ++i) {
      std::vector<float> one(32, 0.0f);
      one[i] = 1;
      detail::kernels::map<float, 1>(
          [](const auto& v) EIGENFORMER_INLINE_LAMBDA {
            using P = std::decay_t<decltype(v)>;
            return any(v == 1) ? P(5) : P(4);
          },
          {one.data()}, y.data(), 0.0f, 32);
      CHECK(y[i] == 5);
    }
  });
}
