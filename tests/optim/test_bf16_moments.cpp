#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "eigenformer/optim/adam.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

AdamOptions in_bf16(double beta2 = 0.999) { return {.beta2 = beta2, .state = StatePrecision::bf16}; }

struct Trained {
  std::vector<float> first, second;
};

// Two parameters after some steps; of `only`, if it is not empty, that parameter alone is stepped.
Trained train(int threads, const std::string& only = "") {
  const ThreadScope scope(threads);
  RandomGenerator rng(5);
  std::vector<Parameter<float>> p;
  std::vector<ParameterHandle<float>> all, stepped;
  for (const char* name : {"first", "second"}) {
    p.emplace_back(Tensor<float>::full({71, 613}, 0.25f));
    p.back().set_name(name);
    all.push_back(p.back().handle());
    if (only.empty() || only == name) stepped.push_back(all.back());
  }
  Gradients<float> gradients(all);
  Adam<float> optimizer(stepped, in_bf16());
  for (int step = 0; step < 4; ++step) {
    for (const auto& parameter : p) {
      Tensor<float> g(parameter.shape());
      rng.fill_normal(g.data(), g.numel(), 0, 1);
      set_gradient(gradients, parameter, g);
    }
    optimizer.step(gradients, 0.01);
  }
  return {values(p[0].value()), values(p[1].value())};
}

}  // namespace

TEST_CASE("numbers are rounded to one of their two neighbours, with the mean that they are") {
  const float x = 1.0f + 0.25f / 128;  // a quarter of the way from 1 to the next number of bfloat16
  double sum = 0;
  for (std::uint32_t random = 0; random < 65536; ++random)
    sum += detail::from_bf16(detail::round_stochastically(-x, random));
  CHECK(sum / 65536 == doctest::Approx(-x).epsilon(1e-9));
  for (const float exact : {0.0f, 1.0f, -0.15625f, 1.17549435e-38f}) {
    CHECK(detail::from_bf16(detail::round_stochastically(exact, 65535)) == exact);
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(detail::from_bf16(detail::round_stochastically(infinity, 65535)) == infinity);
  CHECK(std::isfinite(
      detail::from_bf16(detail::round_stochastically(std::numeric_limits<float>::max(), 65535))));
  CHECK(std::isnan(
      detail::from_bf16(detail::round_stochastically(std::numeric_limits<float>::signaling_NaN(), 0))));
}

TEST_CASE("moments in bf16 take half the memory, go on from a saved state, and keep Adam's other rules") {
  check_resume([](const auto& p) { return Adam<double>(p, in_bf16()); });
  check_frozen([](const auto& p) { return Adam<double>(p, in_bf16()); });
  TwoParameters two;
  Gradients<double> gradients(parameters(two));
  two.gradients(gradients, 1);
  Adam<double> optimizer(parameters(two), in_bf16());
  optimizer.step(gradients, 0.1);
  const auto state = optimizer.state();
  REQUIRE(state.size() == 6);
  CHECK(state[0].name == "a.exp_avg_bf16");
  CHECK(state[0].value.shape() == Shape{4});  // 15 numbers, four in each double
  CHECK(state[1].name == "a.exp_avg_sq_bf16");
  Adam<double> full(parameters(two));
  CHECK(contains(message_of<ValueError>([&] { full.load(state); }), "unexpected: a.exp_avg_bf16"));

  Parameter<float> large(Tensor<float>::zeros({512, 1024}));
  large.set_name("large");
  MemoryPool& pool = Runtime::instance().pool();
  const auto used = [&](const AdamOptions& options) {
    const std::size_t before = pool.statistics().bytes_in_use;
    const Adam<float> adam({large.handle()}, options);
    return pool.statistics().bytes_in_use - before;
  };
  CHECK(used({}) == 2 * 512 * 1024 * 4);
  CHECK(used(in_bf16()) == 512 * 1024 * 4);
}

TEST_CASE("moments in bf16 depend neither on threads nor on which parameters an optimizer has") {
  const Trained one = train(1), three = train(3);
  CHECK(one.first == three.first);
  CHECK(one.second == three.second);
  CHECK(train(2, "first").first == one.first);
  CHECK(train(2, "second").second == one.second);
}

TEST_CASE("a mean square in bf16 follows slow decay, which rounding to nearest would stop") {
  Parameter<float> w(Tensor<float>::zeros({64, 64}));
  w.set_name("w");
  Gradients<float> gradients({w.handle()});
  Adam<float> optimizer({w.handle()}, in_bf16());
  set_gradient(gradients, w, Tensor<float>::ones({64, 64}));
  optimizer.step(gradients, 0.0);
  set_gradient(gradients, w, Tensor<float>::zeros({64, 64}));
  for (int step = 0; step < 300; ++step) optimizer.step(gradients, 0.0);
  const auto state = optimizer.state();
  std::vector<std::uint16_t> bits(64 * 64);
  std::memcpy(bits.data(), state[1].value.data(), bits.size() * 2);
  double mean = 0;
  for (const std::uint16_t b : bits) mean += detail::from_bf16(b) / static_cast<double>(bits.size());
  const double exact = 0.001 * std::pow(0.999, 300);  // 26 % below where it began
  CHECK(mean == doctest::Approx(exact).epsilon(0.01));
}

TEST_CASE("a toy regression learns as well with moments in bf16") {
  // Least squares: y = x A with 32 inputs and 16 outputs, by gradients of batches of 16 rows.
  const auto loss_with = [](StatePrecision state) {
    RandomGenerator rng(2);
    Parameter<double> w(Tensor<double>::zeros({32, 16}));
    w.set_name("w");
    Tensor<double> target({32, 16}), x({16, 32});
    rng.fill_normal(target.data(), target.numel(), 0, 1);
    Adam<double> optimizer({w.handle()}, {.beta2 = 0.98, .state = state});
    Gradients<double> gradients({w.handle()});
    double last = 0;
    for (int step = 0; step < 400; ++step) {
      rng.fill_normal(x.data(), x.numel(), 0, 1);
      Tensor<double> g = Tensor<double>::zeros({32, 16});
      double loss = 0;
      for (index_t r = 0; r < 16; ++r) {
        for (index_t c = 0; c < 16; ++c) {
          double difference = 0;
          for (index_t k = 0; k < 32; ++k)
            difference += x.at({r, k}) * (w.value().at({k, c}) - target.at({k, c}));
          loss += difference * difference / 256;
          for (index_t k = 0; k < 32; ++k) g.data()[k * 16 + c] += difference * x.at({r, k}) / 16;
        }
      }
      set_gradient(gradients, w, g);
      optimizer.step(gradients, 0.05 * std::pow(0.99, step));
      last = loss;
    }
    return last;
  };
  const double full = loss_with(StatePrecision::float32), half = loss_with(StatePrecision::bf16);
  MESSAGE("loss after 400 steps: " << full << " and " << half);
  CHECK(full < 0.05);
  CHECK(half < 0.05);
}
