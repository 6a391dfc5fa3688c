#include <doctest/doctest.h>

#include "eigenformer/optim/adafactor.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Ten updates of a matrix, a list of two matrices and a vector, against transformers'.
template <class T>
void check_fixture(const std::string& kind, double learning_rate, const AdafactorOptions& options) {
  const Fixture fixture("training/adafactor");
  std::vector<Parameter<T>> parameters;
  std::vector<ParameterHandle<T>> handles;
  for (const char* name : {"matrix", "tensor", "vector"}) {
    parameters.emplace_back(fixture.get<T>(std::string("param.") + name).clone());
    parameters.back().set_name(name);
    handles.push_back(parameters.back().handle());
  }
  Adafactor<T> optimizer(handles, options);
  Gradients<T> gradients(handles);
  for (index_t step = 0; step < 10; ++step) {
    const auto part = [&](const std::string& name, const Parameter<T>& p) {
      const auto all = fixture.get<T>(name + "." + p.name());
      return all.reshape({10, p.shape().numel()}).rows(step, 1).reshape(p.shape());
    };
    for (const auto& p : parameters) set_gradient(gradients, p, part("in", p));
    optimizer.step(gradients, learning_rate);
    for (const auto& p : parameters) {
      check_close(p.value(), part("out." + kind, p), std::is_same_v<T, float> ? 1e-5 : 1e-12,
                  kind + ", " + p.name() + ", step " + std::to_string(step + 1));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("Adafactor steps as transformers'", T, float, double) {
  check_fixture<T>("plain", 0.01, {.scale_parameter = false});
  check_fixture<T>("scaled", 0.05, {});
  check_fixture<T>("relative", 1, {.relative_step = true});
  check_fixture<T>("momentum", 0.01, {.beta1 = 0.9, .scale_parameter = false});
  // transformers' decays vectors, too.
  check_fixture<T>("weight_decay", 0.02,
                   {.clip_threshold = 0.5, .decay_rate = 0.7, .groups = {{"*", 1, 0.1}}});
}

TEST_CASE("Adafactor goes on from its saved state, skips frozen parameters, and scales gradients") {
  const auto plain = [](const auto& p) { return Adafactor<double>(p); };
  check_resume(plain);
  check_resume([](const auto& p) { return Adafactor<double>(p, {.beta1 = 0.9}); });
  check_frozen(plain);
  check_scale(plain);
}

TEST_CASE("Adafactor keeps a number a row and a column, and its groups have their own rates and decay") {
  TwoParameters two;
  Gradients<double> gradients(parameters(two));
  two.gradients(gradients, 1);
  Adafactor<double> optimizer(parameters(two), {.weight_decay = 0.5, .groups = {{"b", 0}}});
  optimizer.step(gradients, 0.1);
  CHECK(values(two.b.value()) == std::vector<double>(7, -2.0));
  const auto state = optimizer.state();
  REQUIRE(state.size() == 5);
  CHECK(state[0].name == "a.exp_avg_sq_row");
  CHECK(state[0].value.shape() == Shape{3});
  CHECK(state[1].name == "a.exp_avg_sq_col");
  CHECK(state[1].value.shape() == Shape{5});
  CHECK(state[2].name == "a.step");
  CHECK(state[3].name == "b.exp_avg_sq");
  // Steps are relative to the parameter, which is 1 everywhere: 1 - 0.5 * 0.1.
  two.a.value().fill(1);
  gradients.zero();
  set_gradient(gradients, two.a, Tensor<double>::zeros({3, 5}));
  optimizer.step(gradients, 0.1);
  check_close(two.a.value(), Tensor<double>::full({3, 5}, 0.95), 1e-12);
}

TEST_CASE("Adafactor's steps do not depend on threads") {
  const auto run = [](int threads) {
    const ThreadScope scope(threads);
    Parameter<float> w(Tensor<float>::full({257, 130}, 0.5f));
    w.set_name("w");
    Gradients<float> gradients({w.handle()});
    Adafactor<float> optimizer({w.handle()});
    RandomGenerator rng(3);
    for (int step = 0; step < 3; ++step) {
      Tensor<float> g(w.shape());
      rng.fill_normal(g.data(), g.numel(), 0, 1);
      set_gradient(gradients, w, g);
      optimizer.step(gradients, 0.1);
    }
    return values(w.value());
  };
  CHECK(run(1) == run(3));
}

TEST_CASE("Adafactor refuses impossible options and states that do not fit") {
  const auto refuses = [](const AdafactorOptions& options) {
    return message_of<ValueError>([&] { Adafactor<float>({}, options); });
  };
  CHECK(contains(refuses({.eps1 = -1}), "[adafactor] eps1 is -1"));
  CHECK(contains(refuses({.clip_threshold = 0}), "clip_threshold is 0"));
  CHECK(contains(refuses({.decay_rate = 0}), "decay_rate is 0"));
  CHECK(contains(refuses({.beta1 = 1}), "beta1 is 1"));
  CHECK(contains(refuses({.weight_decay = -1}), "weight_decay is -1"));
  TwoParameters two;
  Adafactor<double> optimizer(parameters(two));
  const std::string message = message_of<ValueError>([&] {
    optimizer.load({{"a.step", Tensor<double>::scalar(1), {}}});
  });
  CHECK(contains(message, "missing: a.exp_avg_sq_row, a.exp_avg_sq_col."));
  CHECK(optimizer.state().empty());
  CHECK(contains(message_of<ValueError>([&] {
                   optimizer.load({{"a.exp_avg_sq_row", Tensor<double>::ones({3}), {}},
                                   {"a.exp_avg_sq_col", Tensor<double>::ones({5}), {}},
                                   {"a.step", Tensor<double>::scalar(-1), {}}});
                 }),
                 "[adafactor] wrong value: a.step is -1"));
  CHECK(optimizer.state().empty());
}
