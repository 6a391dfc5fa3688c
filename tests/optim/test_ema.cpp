#include "eigenformer/optim/average.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

std::vector<double> values_of(const Tensor<double>& t) { return {t.span().begin(), t.span().end()}; }

}  // namespace

TEST_CASE("the moving average is that of a plain loop, and is exchanged with the parameters") {
  TwoParameters two;
  name_parameters(two);
  ExponentialAverage<double> average(parameters(two), 0.75);
  average.exchange();
  CHECK(two.a.value().at({0, 0}) == 1);
  average.exchange();
  std::vector<double> a(15), b(7);
  RandomGenerator rng(3);
  for (int n = 0; n < 40; ++n) {
    rng.fill_normal(two.a.value().data(), 15, 0, 1);
    rng.fill_normal(two.b.value().data(), 7, 2, 1);
    average.update();
    const double kept = std::min(0.75, (1.0 + n) / (10.0 + n));
    const auto move = [&](std::vector<double>& to, const Tensor<double>& from) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = n == 0 ? from.data()[i] : (1 - kept) * from.data()[i] + kept * to[i];
    };
    move(a, two.a.value());
    move(b, two.b.value());
  }
  CHECK(average.updates() == 40);
  const auto last = values_of(two.a.value());
  {
    average.exchange();
    CHECK(average.exchanged());
    for (std::size_t i = 0; i < 15; ++i)
      CHECK(two.a.value().data()[i] == doctest::Approx(a[i]).epsilon(1e-12));
    for (std::size_t i = 0; i < 7; ++i)
      CHECK(two.b.value().data()[i] == doctest::Approx(b[i]).epsilon(1e-12));
    CHECK(values_of(average.trained(0)) == last);
    CHECK(values_of(average.state()[0].value) == values_of(two.a.value()));
    CHECK_THROWS_AS(average.update(), ValueError);
    average.exchange();
  }
  CHECK(values_of(two.a.value()) == last);
}

TEST_CASE("the moving average of what stays as it is, is that, to the last bit") {
  Parameter<float> w(Tensor<float>::full({33}, 0.3f));
  ExponentialAverage<float> average({w.handle()}, 0.9999);
  for (int n = 0; n < 3000; ++n) average.update();
  average.exchange();
  for (const float x : w.value().span()) CHECK(x == doctest::Approx(0.3f).epsilon(1e-6));
}

TEST_CASE("the moving average is saved and loaded; frozen parameters stay out of it") {
  TwoParameters two;
  name_parameters(two);
  two.b.set_frozen(true);
  ExponentialAverage<double> average(parameters(two), 0.9), other(parameters(two), 0.9);
  RandomGenerator rng(5);
  const auto go_on = [&](ExponentialAverage<double>& some) {
    rng.fill_normal(two.a.value().data(), 15, 0, 1);
    some.update();
  };
  for (int n = 0; n < 5; ++n) go_on(average);
  REQUIRE(average.state().size() == 1);
  CHECK(average.state()[0].name == "a");
  other.load(average.state(), average.updates());
  average.update();
  other.update();
  CHECK(values_of(other.state()[0].value) == values_of(average.state()[0].value));
  CHECK(other.updates() == 6);

  // While the averages are in the parameters, there is nothing to load them into.
  other.exchange();
  CHECK(contains(message_of<ValueError>([&] { other.load(average.state(), 6); }), "call exchange() first"));
  other.exchange();
  CHECK(values_of(other.state()[0].value) == values_of(average.state()[0].value));

  const std::vector<StateEntry<double>> strange{{"c", Tensor<double>::ones({2}), {}}};
  CHECK(contains(message_of<ValueError>([&] { other.load(strange, 1); }), "unexpected: c"));
  CHECK(contains(message_of<ValueError>([&] { ExponentialAverage<double>(parameters(two), 1.0); }),
                 "decay is 1"));
}
