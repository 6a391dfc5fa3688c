#include <doctest/doctest.h>

#include "eigenformer/optim/sgd.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("SGD steps as PyTorch's, with momentum, Nesterov's and weight decay", T, float, double) {
  check_steps<T>("sgd", 0.1, [](const auto& p) { return Sgd<T>(p); });
  check_steps<T>("sgd_momentum", 0.1, [](const auto& p) { return Sgd<T>(p, {.momentum = 0.9}); });
  check_steps<T>("sgd_nesterov", 0.1,
                 [](const auto& p) { return Sgd<T>(p, {.momentum = 0.9, .nesterov = true}); });
  check_steps<T>("sgd_weight_decay", 0.1,
                 [](const auto& p) { return Sgd<T>(p, {.momentum = 0.9, .weight_decay = 0.01}); });
}

TEST_CASE("SGD goes on from its saved state, skips frozen parameters, and scales gradients") {
  check_resume([](const auto& p) { return Sgd<double>(p, {.momentum = 0.9}); });
  check_frozen([](const auto& p) { return Sgd<double>(p, {.momentum = 0.9}); });
  check_scale([](const auto& p) { return Sgd<double>(p, {.momentum = 0.9}); });
}

TEST_CASE("SGD refuses impossible options and states") {
  const auto refuses = [](const SgdOptions& options) {
    return message_of<ValueError>([&] { Sgd<float>({}, options); });
  };
  CHECK(contains(refuses({.momentum = 1}), "momentum is 1"));
  CHECK(contains(refuses({.nesterov = true}), "nesterov needs a momentum"));
  CHECK(contains(refuses({.weight_decay = -1}), "weight_decay is -1"));
  TwoParameters two;
  Sgd<double> optimizer(parameters(two), {.momentum = 0.9});
  CHECK(optimizer.state().empty());
  CHECK(message_of<ValueError>([&] {
          optimizer.load({{"c.momentum_buffer", Tensor<double>::ones({2}), {}},
                          {"a.momentum_buffer", Tensor<double>::ones({2}), {}}});
        }) == "[sgd] unexpected: c.momentum_buffer. wrong shape: a.momentum_buffer is (2,), must be (3, 5).");
  CHECK(optimizer.state().empty());
}
