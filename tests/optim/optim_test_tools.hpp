#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "fixtures.hpp"
#include "test_tools.hpp"

namespace eigenformer::testing {

/// Gives a parameter its gradient.
template <class T>
void set_gradient(Gradients<T>& gradients, const Parameter<T>& parameter, const Tensor<T>& value) {
  auto* entry = gradients.find(parameter.id());
  entry->writable().copy_from(value);
}

/// CHECKs eight steps of an optimizer against the fixture.
template <class T, class Make>
void check_steps(const std::string& name, double learning_rate, Make&& make) {
  const Fixture fixture("training/optimizers");
  Parameter<T> w(fixture.get<T>("param.w"));
  w.set_name("w");
  auto optimizer = make(std::vector<ParameterHandle<T>>{w.handle()});
  Gradients<T> gradients({w.handle()});
  const auto given = fixture.get<T>("in.gradients"), expected = fixture.get<T>("out." + name);
  for (index_t step = 0; step < 8; ++step) {
    set_gradient(gradients, w, given.rows(step, 1).reshape({3, 5}));
    optimizer.step(gradients, learning_rate);
    check_close(w.value(), expected.rows(step, 1).reshape({3, 5}), std::is_same_v<T, float> ? 1e-5 : 1e-12,
                name + ", step " + std::to_string(step + 1));
  }
}

struct TwoParameters {
  using value_type = double;
  Parameter<double> a{Tensor<double>::full({3, 5}, 1.0)};
  Parameter<double> b{Tensor<double>::full({7}, -2.0)};
  static void fields(auto& self, auto&& visit) {
    visit("a", self.a);
    visit("b", self.b);
  }
  void gradients(Gradients<double>& out, std::uint64_t seed) const {
    RandomGenerator rng(seed);
    for (const auto* p : {&a, &b}) {
      Tensor<double> g(p->shape());
      rng.fill_normal(g.data(), g.numel(), 0, 1);
      set_gradient(out, *p, g);
    }
  }
};

/// CHECKs that an interrupted and resumed run ends where an uninterrupted one does, bit by bit.
template <class Make>
void check_resume(Make&& make) {
  const auto run = [&](bool interrupted) {
    TwoParameters two;
    Gradients<double> gradients(parameters(two));
    auto optimizer = make(parameters(two));
    for (std::uint64_t step = 1; step <= 7; ++step) {
      two.gradients(gradients, step);
      optimizer.step(gradients, 0.1);
      if (!interrupted || step != 4) continue;
      std::vector<StateEntry<double>> saved;
      for (const auto& e : optimizer.state()) saved.push_back({e.name, e.value.clone(), {}});
      CHECK(!saved.empty());
      optimizer = make(parameters(two));
      optimizer.load(saved);
    }
    return std::make_pair(values(two.a.value()), values(two.b.value()));
  };
  CHECK(run(true) == run(false));
}

/// CHECKs that frozen parameters and those without a gradient stay, and that a forgotten one is an error.
template <class Make>
void check_frozen(Make&& make) {
  TwoParameters two;
  Gradients<double> gradients(parameters(two));
  auto optimizer = make(parameters(two));
  two.gradients(gradients, 1);
  two.a.set_frozen(true);
  optimizer.step(gradients, 0.1);
  CHECK(values(two.a.value()) == std::vector<double>(15, 1.0));
  CHECK(two.b.value().at({0}) != -2.0);
  two.a.set_frozen(false);
  gradients.zero();
  const auto before = values(two.b.value());
  optimizer.step(gradients, 0.1);
  CHECK(values(two.b.value()) == before);

  const Gradients<double> forgotten({two.b.handle()});
  CHECK(contains(message_of<ValueError>([&] { optimizer.step(forgotten, 0.1); }),
                 "there is no gradient of parameter 'a' of shape (3, 5)"));
  CHECK(contains(
      message_of<ValueError>([&] { optimizer.step(gradients, std::numeric_limits<double>::quiet_NaN()); }),
      "must be finite"));
  Parameter<double> twin(Tensor<double>::ones({2}));
  twin.set_name("a");
  auto confused = make(std::vector<ParameterHandle<double>>{two.a.handle(), twin.handle()});
  CHECK(contains(message_of<ValueError>([&] { (void)confused.state(); }), "two parameters are named 'a'"));
}

/// CHECKs that a step with a scale is a step with scaled gradients.
template <class Make>
void check_scale(Make&& make) {
  const auto run = [&](bool scaled) {
    TwoParameters two;
    Gradients<double> gradients(parameters(two));
    auto optimizer = make(parameters(two));
    for (std::uint64_t step = 1; step <= 3; ++step) {
      two.gradients(gradients, step);
      if (!scaled) gradients.scale(0.25);
      optimizer.step(gradients, 0.1, scaled ? 0.25 : 1.0);
    }
    return two.a.value();
  };
  check_close(run(true), run(false), 1e-12);
}

}  // namespace eigenformer::testing
