#include "eigenformer/autograd/random.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "isa.hpp"
#include "test_tools.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::for_each_isa;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

using Ints = std::vector<std::int64_t>;

TEST_CASE(
    "uniform and normal: the generator's numbers in order, on every path and for any number of threads") {
  for_each_isa([] {
    for (const int threads : {1, 3}) {
      Runtime::instance().set_threads(threads);
      // Starts in the first and the second half of a counter, in the middle of a number, and where the lower
      // 32 bits of the counter overflow.
      for (const std::uint64_t start : {0u, 2u, 3u, 4u}) {
        for (const std::uint64_t more : {std::uint64_t{0}, (std::uint64_t{1} << 34) - 400}) {
          CAPTURE(start);
          RandomGenerator a(5), b(5);
          a.set_state({0x123456789abcdef, start + more});
          b.set_state(a.state());
          for (const index_t n : {0, 1, 15, 16, 127, 128, 129, 20000}) {
            const auto u = ef::uniform<double>({n}, a, -1, 3);
            for (const double x : u.span()) REQUIRE(x == b.uniform(-1, 3));
            const auto f = ef::uniform<float>({n}, a, -1, 3);
            for (const float x : f.span()) REQUIRE(x == static_cast<float>(b.uniform(-1, 3)));
            const auto z = ef::normal<double>({n}, a, 2, 0.5);
            for (const double x : z.span()) REQUIRE(x == 2 + 0.5 * b.normal());
            const auto g = ef::normal<float>({n}, a, 2, 0.5);
            for (const float x : g.span()) REQUIRE(x == static_cast<float>(2 + 0.5 * b.normal()));
            REQUIRE(a.state() == b.state());
          }
        }
      }
    }
    Runtime::instance().set_threads(Runtime::default_threads());
  });
}

TEST_CASE("uniform: where the position overflows, and of integers") {
  RandomGenerator a, b;
  a.set_state({7, ~std::uint64_t{0} - 31});
  b.set_state(a.state());
  const auto last = ef::uniform({64}, a);
  for (const float x : last.span()) CHECK(x == static_cast<float>(b.uniform()));
  const auto whole = ef::uniform<std::int64_t>({100}, a, 0, 10);
  for (const auto x : whole.span()) CHECK_UNARY(x >= 0 && x < 10);
}

TEST_CASE("uniform: below the upper bound also where rounding would reach it") {
  CHECK(RandomGenerator::rounded_below<float>(1 - 0x1p-53, 1) == 0x1.fffffep-1F);
  CHECK(RandomGenerator::rounded_below<float>(101 - 1e-9, 101) < 101);
  CHECK(RandomGenerator::rounded_below<float>(3, 3) == 3);
  RandomGenerator a(1), b(1);
  const auto x = ef::uniform({4000000}, a, 100, 101);
  CHECK(*std::max_element(x.span().begin(), x.span().end()) < 101);
  std::vector<float> y(4000000);
  b.fill_uniform(y.data(), 4000000, 100, 101);
  CHECK(std::equal(y.begin(), y.end(), x.data()));
}

TEST_CASE("randint, permutation: ranges that the type cannot hold") {
  RandomGenerator rng(1);
  CHECK_THROWS_AS((void)ef::randint<std::int8_t>(0, 1000, {2}, rng), ValueError);
  CHECK_THROWS_AS((void)ef::randint<std::int32_t>(0, index_t{1} << 40, {2}, rng), ValueError);
  CHECK_THROWS_AS((void)ef::randint(std::numeric_limits<index_t>::min(), 5, {2}, rng), ValueError);
  CHECK_THROWS_AS((void)ef::permutation<std::int8_t>(300, rng), ValueError);
  CHECK(ef::permutation<std::int8_t>(128, rng).numel() == 128);
  CHECK(ef::randint<std::int8_t>(127, 128, {1}, rng)(0) == 127);
}

TEST_CASE("normal: the same numbers in one call and in several") {
  RandomGenerator a(9), b(9);
  const auto whole = ef::normal({300}, a);
  index_t at = 0;
  for (const index_t n : {1, 7, 60, 64, 168}) {
    const auto part = ef::normal({n}, b);
    for (const float x : part.span()) CHECK(x == whole(at++));
  }
  CHECK(a.state() == b.state());
}

TEST_CASE("normal: the moments that normal numbers have") {
  RandomGenerator rng(6);
  const auto z = ef::normal<double>({400, 100}, rng, 2, 0.5);
  double sum = 0, squares = 0;
  for (const double x : z.span()) sum += x, squares += (x - 2) * (x - 2);
  CHECK(sum / 40000 == doctest::Approx(2).epsilon(0.005));
  CHECK(squares / 40000 == doctest::Approx(0.25).epsilon(0.03));
}

TEST_CASE("an idle generator draws no uniform and no normal numbers") {
  RandomGenerator rng = RandomGenerator::idle();
  const auto before = rng.state();
  CHECK(ef::uniform({100}, rng).numel() == 100);
  CHECK(ef::normal({100}, rng).numel() == 100);
  CHECK(rng.state() == before);
}

TEST_CASE("truncated_normal: within its bounds, with the truncated distribution's mean") {
  RandomGenerator rng(7);
  // The mean of a standard normal number between a and b is (pdf(a) - pdf(b)) / (cdf(b) - cdf(a)).
  const auto mean_of = [&](double low, double high) {
    const auto x = ef::truncated_normal<double>({20000}, rng, 0, 1, low, high);
    double sum = 0;
    for (const double v : x.span()) {
      CHECK_UNARY(v >= low && v <= high);
      sum += v;
    }
    return sum / 20000;
  };
  const auto expected = [](double a, double b) {
    const auto pdf = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * 3.141592653589793); };
    const auto cdf = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
    return (pdf(a) - pdf(b)) / (cdf(-a) - cdf(-b));
  };
  CHECK(mean_of(-2, 2) == doctest::Approx(0).scale(1).epsilon(0.02));
  CHECK(mean_of(0.5, 1.5) == doctest::Approx(expected(0.5, 1.5)).epsilon(0.01));
  CHECK(mean_of(-1, 3) == doctest::Approx(expected(-1, 3)).epsilon(0.05));
  // Far in the tail, where the distribution function is 1 in double: about 10 + 1 / 10.
  CHECK(mean_of(10, 100) == doctest::Approx(10.0981).epsilon(0.001));
  // Where the distribution function is 0 in double: about 50 + 1 / 50, to either side.
  CHECK(mean_of(50, 51) == doctest::Approx(50.01998).epsilon(1e-5));
  CHECK(mean_of(-51, -50) == doctest::Approx(-50.01998).epsilon(1e-5));
  CHECK(mean_of(50, std::numeric_limits<double>::infinity()) == doctest::Approx(50.01998).epsilon(1e-5));
  CHECK(ef::truncated_normal({3}, rng, 0, 1, 5, 5)(1) == 5);
  CHECK_THROWS_AS((void)ef::truncated_normal({3}, rng, 0, 1, 2, 1), ValueError);
  CHECK_THROWS_AS((void)ef::truncated_normal({3}, rng, 0, 0), ValueError);
  CHECK_THROWS_AS((void)ef::truncated_normal({3}, rng, std::numeric_limits<double>::quiet_NaN()), ValueError);
}

TEST_CASE("uniform, normal: parameters that describe no distribution are errors") {
  RandomGenerator rng(7);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(message_of<ValueError>([&] { (void)ef::uniform({3}, rng, 2, 1); }) ==
        "[uniform] needs finite low <= high, got 2 and 1");
  CHECK_THROWS_AS((void)ef::uniform({3}, rng, 0, infinity), ValueError);
  CHECK(ef::uniform({3}, rng, 2, 2)(1) == 2);
  CHECK(contains(message_of<ValueError>([&] { (void)ef::normal({3}, rng, 1, -2); }),
                 "[normal] needs a finite mean and a finite deviation of at least 0, got 1 and -2"));
  CHECK_THROWS_AS((void)ef::normal({3}, rng, infinity, 1), ValueError);
  CHECK(ef::normal({3}, rng, 4, 0)(1) == 4);
}

TEST_CASE("bernoulli, randint, permutation") {
  RandomGenerator rng(11);
  const auto b = ef::bernoulli({100, 100}, rng, 0.3);
  CHECK(std::count(b.span().begin(), b.span().end(), true) == doctest::Approx(3000).epsilon(0.05));
  CHECK(values(ef::bernoulli({3}, rng, 0)) == std::vector<bool>(3, false));
  CHECK(values(ef::bernoulli({3}, rng, 1)) == std::vector<bool>(3, true));
  CHECK_THROWS_AS((void)ef::bernoulli({3}, rng, 1.5), ValueError);
  const auto r = ef::randint(-2, 3, {1000}, rng);
  CHECK(std::set<std::int64_t>(r.span().begin(), r.span().end()) == std::set<std::int64_t>{-2, -1, 0, 1, 2});
  CHECK_THROWS_AS((void)ef::randint(3, 3, {1}, rng), ValueError);
  auto p = ef::permutation<std::int32_t>(50, rng);
  CHECK_FALSE(std::is_sorted(p.span().begin(), p.span().end()));
  std::sort(p.span().begin(), p.span().end());
  CHECK(values(p) == values(Tensor<std::int32_t>::arange(50)));
}

TEST_CASE("multinomial: in proportion to the weights, with and without replacement") {
  RandomGenerator rng(13);
  const auto weights = Tensor<float>::from({2, 4}, {1, 0, 3, 0, 0, 1, 0, 0});
  const auto drawn = ef::multinomial(weights, 8000, rng, true);
  CHECK(drawn.shape() == Shape{2, 8000});
  index_t counts[4] = {};
  for (index_t i = 0; i < 8000; ++i) ++counts[drawn(0, i)];
  CHECK(counts[1] + counts[3] == 0);
  CHECK(counts[2] == doctest::Approx(6000).epsilon(0.03));
  for (index_t i = 0; i < 8000; ++i) CHECK_UNARY(drawn(1, i) == 1);
  auto both = ef::multinomial(Tensor<double>::from({4}, {1, 0, 3, 0}), 2, rng);
  std::sort(both.span().begin(), both.span().end());
  CHECK(values(both) == Ints{0, 2});
  // The first of two without replacement is index 2 in three of four draws.
  index_t first = 0;
  for (int i = 0; i < 2000; ++i)
    first += ef::multinomial(Tensor<double>::from({4}, {1, 0, 3, 0}), 2, rng)(0) == 2;
  CHECK(first == doctest::Approx(1500).epsilon(0.05));
  CHECK(contains(message_of<ValueError>([&] { (void)ef::multinomial(weights, 2, rng); }), "cannot be drawn"));
  CHECK_THROWS_AS((void)ef::multinomial(Tensor<float>::zeros({2}), 1, rng, true), ValueError);
  CHECK_THROWS_AS((void)ef::multinomial(Tensor<float>::from({1}, {-1}), 1, rng), ValueError);
  CHECK_THROWS_AS((void)ef::multinomial(Tensor<float>::zeros({}), 1, rng), ShapeError);
  CHECK(contains(message_of<ValueError>([&] {
                   (void)ef::multinomial(Tensor<double>::full({2}, std::numeric_limits<double>::max()), 1,
                                         rng);
                 }),
                 "the sum of the weights is not finite"));
  // All indices, each once, with weights from 1 to 1e-300.
  auto many = Tensor<double>(Shape{1000});
  for (index_t i = 0; i < 1000; ++i) many.data()[i] = std::pow(10, -0.3 * static_cast<double>(i));
  auto order = ef::multinomial(many, 1000, rng);
  CHECK(order(999) > 900);
  std::sort(order.span().begin(), order.span().end());
  CHECK(values(order) == values(Tensor<std::int64_t>::arange(1000)));
}
