#include "eigenformer/kernels/simd/simd_math.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using eigenformer::testing::for_each_isa;

enum class Function { exp, log, tanh, erf, sigmoid, sqrt };

template <Function function, class T>
struct Apply {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, index_t n) {
    using W = Simd<T, Bytes>;
    using Math = SimdMath<T, Bytes>;
    for (index_t i = 0; i < n; i += W::lanes) {
      typename W::V v;
      W::load(v, x + i, n - i);
      if constexpr (function == Function::exp) Math::exp(v);
      if constexpr (function == Function::log) Math::log(v);
      if constexpr (function == Function::tanh) Math::tanh(v);
      if constexpr (function == Function::erf) Math::erf(v);
      if constexpr (function == Function::sigmoid) Math::sigmoid(v);
      if constexpr (function == Function::sqrt) W::sqrt(v);
      W::store(y + i, n - i, v);
    }
  }
};

template <Function function, class T>
std::vector<T> apply(const std::vector<T>& x) {
  std::vector<T> y(x.size());
  dispatch<Apply<function, T>>(x.data(), y.data(), static_cast<index_t>(x.size()));
  return y;
}

/// The largest relative error against long double, in units of T's epsilon, on a grid of [low, high]: of
/// numbers, or of exponents of 2 with both signs.
template <Function function, class T, class F>
double error_in_ulp(F exact, double low, double high, bool exponents = false) {
  const int n = 20011;
  std::vector<T> x;
  for (int i = 0; i < n; ++i) {
    const double u = low + (high - low) * i / (n - 1);
    x.push_back(
        static_cast<T>(exponents ? std::exp2(u) * (i % 2 == 0 || function == Function::log ? 1 : -1) : u));
  }
  const std::vector<T> y = apply<function>(x);
  long double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double e = exact(static_cast<long double>(x[i]));
    const long double scale = std::max<long double>(std::abs(e), std::numeric_limits<T>::min());
    const long double error = std::abs(static_cast<long double>(y[i]) - e) / scale;
    if (!(error <= worst)) worst = error;
  }
  return static_cast<double>(worst / std::numeric_limits<T>::epsilon());
}

TEST_CASE_TEMPLATE("elementary functions are accurate to about two units in the last place", T, float,
                   double) {
  constexpr bool single = sizeof(T) == 4;
  using Real = long double;
  for_each_isa([&] {
    CHECK(error_in_ulp<Function::exp, T>([](Real x) { return std::exp(x); }, single ? -87 : -708,
                                         single ? 88.7 : 709.7) < 2);
    CHECK(error_in_ulp<Function::exp, T>([](Real x) { return std::exp(x); }, -1, 1) < 2);
    CHECK(error_in_ulp<Function::log, T>([](Real x) { return std::log(x); }, single ? -148 : -1073,
                                         single ? 127 : 1023, true) < 2);
    CHECK(error_in_ulp<Function::log, T>([](Real x) { return std::log(x); }, 0.5, 2) < 2);
    CHECK(error_in_ulp<Function::tanh, T>([](Real x) { return std::tanh(x); }, -12, 12) < 2);
    CHECK(error_in_ulp<Function::tanh, T>([](Real x) { return std::tanh(x); }, -40, 6, true) < 2);
    CHECK(error_in_ulp<Function::erf, T>([](Real x) { return std::erf(x); }, -7, 7) < 2);
    CHECK(error_in_ulp<Function::erf, T>([](Real x) { return std::erf(x); }, -40, 6, true) < 2);
    CHECK(error_in_ulp<Function::sigmoid, T>([](Real x) { return 1 / (1 + std::exp(-x)); }, -80, 80) < 2);
    CHECK(error_in_ulp<Function::sqrt, T>([](Real x) { return std::sqrt(x); }, 0, 80) < 0.6);
  });
}

TEST_CASE_TEMPLATE("limits are exact and NaN stays NaN", T, float, double) {
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T largest = std::numeric_limits<T>::max();
  for_each_isa([&] {
    const std::vector<T> x = {-infinity, infinity, largest, -largest, T(0), T(-1), nan};
    const auto e = apply<Function::exp>(x);
    CHECK(e[0] == 0);
    CHECK(e[1] == infinity);
    CHECK(e[2] == infinity);
    CHECK(e[3] == 0);
    CHECK(e[4] == 1);
    CHECK(std::isnan(e[6]));
    const auto l = apply<Function::log>(x);
    CHECK(std::isnan(l[0]));
    CHECK(l[1] == infinity);
    CHECK(l[4] == -infinity);
    CHECK(std::isnan(l[5]));
    CHECK(std::isnan(l[6]));
    for (const auto& y : {apply<Function::tanh>(x), apply<Function::erf>(x)}) {
      CHECK(y[0] == -1);
      CHECK(y[1] == 1);
      CHECK(y[2] == 1);
      CHECK(y[3] == -1);
      CHECK(y[4] == 0);
      CHECK(std::isnan(y[6]));
    }
    const auto s = apply<Function::sigmoid>(x);
    CHECK(s[0] == 0);
    CHECK(s[1] == 1);
    CHECK(s[4] == T(0.5));
    CHECK(std::isnan(s[6]));
  });
}

TEST_CASE_TEMPLATE("an element does not depend on its place in the row or the vector", T, float, double) {
  for_each_isa([&] {
    const auto x = eigenformer::testing::random_values<T>(131, 1, 0.1, 3);
    const auto whole = apply<Function::erf>(x);
    for (std::size_t i = 0; i < x.size(); ++i)
      REQUIRE(apply<Function::erf>(std::vector<T>{x[i]})[0] == whole[i]);
  });
}

template <class T>
struct Across {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, index_t n, T* out) {
    using W = Simd<T, Bytes>;
    typename W::V v;
    W::load(v, x, n);
    out[0] = W::sum(v);
    W::load(v, x, n, T(-100));
    out[1] = W::max(v);
  }
};

TEST_CASE_TEMPLATE("sums and maxima over part of a vector", T, float, double) {
  for_each_isa([&] {
    const std::vector<T> x = {T(-3), T(5), T(2)};
    for (index_t n = 1; n <= 2; ++n) {
      T out[2];
      dispatch<Across<T>>(x.data(), n, out);
      CHECK(out[0] == T(n == 1 ? -3 : 2));
      CHECK(out[1] == T(n == 1 ? -3 : 5));
    }
  });
}

}  // namespace
