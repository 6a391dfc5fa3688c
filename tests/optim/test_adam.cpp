#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "eigenformer/optim/adam.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("Adam and AdamW step as PyTorch's", T, float, double) {
  check_steps<T>("adam", 0.01, [](const auto& p) { return Adam<T>(p); });
  check_steps<T>("adam_transformer", 0.01,
                 [](const auto& p) { return Adam<T>(p, {.beta2 = 0.98, .eps = 1e-9}); });
  check_steps<T>("adam_weight_decay", 0.01, [](const auto& p) { return Adam<T>(p, {.weight_decay = 0.1}); });
  check_steps<T>("adamw", 0.01, [](const auto& p) { return AdamW<T>(p, {.weight_decay = 0.1}); });
}

TEST_CASE("without a weight decay Adam's is 0, and AdamW shrinks parameters by 0.01 times the rate") {
  const auto stepped = [](auto&& make) {
    TwoParameters two;
    Gradients<double> gradients(parameters(two));
    set_gradient(gradients, two.a, Tensor<double>::zeros({3, 5}));
    auto optimizer = make(parameters(two));
    optimizer.step(gradients, 0.5);
    return two.a.value().at({0, 0});
  };
  CHECK(stepped([](const auto& p) { return Adam<double>(p); }) == 1);
  CHECK(stepped([](const auto& p) { return AdamW<double>(p); }) == doctest::Approx(1 - 0.5 * 0.01));
}

TEST_CASE("Adam goes on from its saved state, skips frozen parameters, and scales gradients") {
  check_resume([](const auto& p) { return Adam<double>(p); });
  check_resume([](const auto& p) { return AdamW<double>(p); });
  check_frozen([](const auto& p) { return Adam<double>(p); });
  check_scale([](const auto& p) { return Adam<double>(p); });
}

TEST_CASE("each parameter counts its own steps, so one that joins late is corrected as in PyTorch") {
  TwoParameters two;
  Gradients<double> gradients(parameters(two));
  Adam<double> optimizer(parameters(two));
  two.b.set_frozen(true);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    two.gradients(gradients, step);
    optimizer.step(gradients, 0.1);
  }
  two.b.set_frozen(false);
  two.gradients(gradients, 4);
  optimizer.step(gradients, 0.1);
  // The first step of Adam has the length of the learning rate, whatever the gradient.
  CHECK(std::abs(two.b.value().at({0}) + 2.0) == doctest::Approx(0.1));
  const auto state = optimizer.state();
  REQUIRE(state.size() == 6);
  CHECK(state[0].name == "a.exp_avg");
  CHECK(state[1].name == "a.exp_avg_sq");
  CHECK(state[2].name == "a.step");
  CHECK(state[2].value.item() == 4);
  CHECK(state[5].value.item() == 1);
}

TEST_CASE("Adam refuses impossible options and states that do not fit, changing nothing") {
  const auto refuses = [](const AdamOptions& options) {
    return message_of<ValueError>([&] { Adam<float>({}, options); });
  };
  CHECK(contains(refuses({.beta1 = 1}), "[adam] beta1 is 1"));
  CHECK(contains(refuses({.beta2 = -0.5}), "beta2 is -0.5"));
  CHECK(contains(refuses({.eps = -1}), "eps is -1"));
  CHECK(contains(refuses({.weight_decay = -1}), "weight_decay is -1"));
  CHECK(contains(message_of<ValueError>([] { AdamW<float>({}, {.beta1 = 2}); }), "[adamw] beta1 is 2"));
  CHECK(contains(message_of<ValueError>([] { Adam<float>({nullptr}); }), "a parameter is null"));
  TwoParameters two;
  Adam<double> optimizer(parameters(two));
  CHECK(message_of<ValueError>([&] {
          optimizer.load(
              {{"a.exp_avg", Tensor<double>::ones({3, 5}), {}}, {"b.step", Tensor<double>::ones({2}), {}}});
        }) ==
        "[adam] missing: a.exp_avg_sq, a.step, b.exp_avg, b.exp_avg_sq. wrong shape: b.step is (2,), must be "
        "().");
  CHECK(optimizer.state().empty());
  // A damaged count would make the first step divide by zero.
  for (const double count : {-1.0, 0.5, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(count);
    CHECK(contains(message_of<ValueError>([&] {
                     optimizer.load({{"a.exp_avg", Tensor<double>::ones({3, 5}), {}},
                                     {"a.exp_avg_sq", Tensor<double>::ones({3, 5}), {}},
                                     {"a.step", Tensor<double>::scalar(count), {}}});
                   }),
                   detail::join({"[adam] wrong value: a.step is ", count, ", must be a number of steps."})));
    CHECK(optimizer.state().empty());
  }
  // A state that was loaded belongs to the optimizer alone.
  std::vector<StateEntry<double>> entries = {{"a.exp_avg", Tensor<double>::ones({3, 5}), {}},
                                             {"a.exp_avg_sq", Tensor<double>::ones({3, 5}), {}},
                                             {"a.step", Tensor<double>::scalar(7), {}}};
  optimizer.load(entries);
  entries[0].value.fill(3);
  REQUIRE(optimizer.state().size() == 3);
  CHECK(optimizer.state()[0].value.at({2, 4}) == 1);
  CHECK(optimizer.state()[2].value.item() == 7);
  optimizer.load(optimizer.state());  // its own tensors
  CHECK(optimizer.state()[0].value.at({2, 4}) == 1);
}

TEST_CASE("a parameter that was assigned another shape is an error, not memory beyond its end") {
  Parameter<double> a(Tensor<double>::ones({3, 5}));
  a.set_name("a");
  Adam<double> optimizer({a.handle()});
  Parameter<double> other(Tensor<double>::ones({2}));
  other.set_name("a");
  a = other;  // keeps its id
  Gradients<double> gradients({a.handle()});
  gradients.entries()[0].writable().fill(1);
  CHECK(
      message_of<ValueError>([&] { optimizer.step(gradients, 0.1); }) ==
      "[adam] the gradient of parameter 'a' has shape (2,), must have (3, 5); make the optimizer anew when a "
      "parameter was assigned another shape");
}
