#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/sgd.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct TwoLayers {
  using value_type = double;
  Linear<double> encoder, decoder;
  Parameter<double> gain{Tensor<double>::full({5}, 1.5)};
  explicit TwoLayers(RandomGenerator& rng)
      : encoder({.in_features = 3, .out_features = 5}, rng),
        decoder({.in_features = 5, .out_features = 2}, rng) {
    name_parameters(*this);
  }
  static void fields(auto& self, auto&& visit) {
    visit("encoder", self.encoder);
    visit("decoder", self.decoder);
    visit("gain", self.gain);
  }
};

/// A table that also stands under a second name, as tied embeddings do.
struct Tied {
  using value_type = double;
  Parameter<double> table{Tensor<double>::full({4, 3}, 1.0)};
  Parameter<double> other{Tensor<double>::full({2, 3}, 1.0)};
  static void fields(auto& self, auto&& visit) {
    visit("embedding.weight", self.table);
    visit("other.weight", self.other);
    visit("projection.weight", self.table);
  }
};

void fill_gradients(Gradients<double>& gradients, std::uint64_t seed) {
  RandomGenerator rng(seed);
  for (auto& entry : gradients.entries()) {
    Tensor<double>& g = entry.writable();
    rng.fill_normal(g.data(), g.numel(), 0, 1);
  }
}

/// AdamW as its paper has it, value by value.
struct PlainAdamW {
  std::vector<double> p, m, v;
  double rate, decay;
  int steps = 0;

  void step(const std::vector<double>& g) {
    constexpr double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    m.resize(p.size());
    v.resize(p.size());
    ++steps;
    for (std::size_t i = 0; i < p.size(); ++i) {
      p[i] -= rate * decay * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double first = m[i] / (1 - std::pow(beta1, steps)), second = v[i] / (1 - std::pow(beta2, steps));
      p[i] -= rate * first / (std::sqrt(second) + eps);
    }
  }
};

/// CHECKs five steps of AdamW against the plain loop; expected: (rate, decay) of each parameter in order.
void check_groups(const AdamOptions& options, const std::vector<std::pair<double, double>>& expected) {
  RandomGenerator rng(4);
  TwoLayers model(rng);
  const auto handles = parameters(model);
  REQUIRE(handles.size() == expected.size());
  std::vector<PlainAdamW> plain;
  for (std::size_t i = 0; i < handles.size(); ++i)
    plain.push_back({values(handles[i]->value), {}, {}, 0.01 * expected[i].first, expected[i].second});
  Gradients<double> gradients(handles);
  AdamW<double> optimizer(handles, options);
  for (std::uint64_t step = 1; step <= 5; ++step) {
    fill_gradients(gradients, step);
    for (std::size_t i = 0; i < handles.size(); ++i)
      plain[i].step(values(gradients.find(handles[i]->id)->value));
    optimizer.step(gradients, 0.01);
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    check_close(handles[i]->value, Tensor<double>::from(handles[i]->value.shape(), plain[i].p), 1e-12,
                handles[i]->name);
  }
}

}  // namespace

TEST_CASE("a pattern matches whole names") {
  CHECK(detail::matches_pattern("*.bias", "encoder.norm1.bias"));
  CHECK_FALSE(detail::matches_pattern("*.bias", "encoder.in_proj_bias"));
  CHECK(detail::matches_pattern("*bias", "encoder.in_proj_bias"));
  CHECK_FALSE(detail::matches_pattern("*.bias", "encoder.bias.table"));
  CHECK(detail::matches_pattern("encoder.*", "encoder.layers.0.linear1.weight"));
  CHECK_FALSE(detail::matches_pattern("encoder.*", "decoder.layers.0.linear1.weight"));
  CHECK_FALSE(detail::matches_pattern("encoder", "encoder.weight"));
  CHECK(detail::matches_pattern("*", ""));
  CHECK(detail::matches_pattern("*", "a.b"));
  CHECK(detail::matches_pattern("layers.?.w*t", "layers.3.weight"));
  CHECK_FALSE(detail::matches_pattern("layers.?.w*t", "layers.13.weight"));
  CHECK(detail::matches_pattern("*a*b*", "xxaxxaxxbx"));
  CHECK_FALSE(detail::matches_pattern("a*b", "aabc"));
}

TEST_CASE("groups have their own decay and rate, as two groups of PyTorch's AdamW") {
  // encoder.weight, encoder.bias, decoder.weight, decoder.bias, gain
  check_groups({.weight_decay = 0.3}, {{1, 0.3}, {1, 0}, {1, 0.3}, {1, 0}, {1, 0}});
  check_groups({.weight_decay = 0.3, .groups = {{.pattern = "*", .weight_decay = 0.3}}},
               {{1, 0.3}, {1, 0.3}, {1, 0.3}, {1, 0.3}, {1, 0.3}});
  check_groups({.weight_decay = 0.3,
                .groups = {{.pattern = "encoder.*", .weight_decay = 0.1},
                           {.pattern = "decoder.*", .weight_decay = 0.2}}},
               {{1, 0.1}, {1, 0.1}, {1, 0.2}, {1, 0.2}, {1, 0}});
  // The first group that matches holds the parameter; a decay that it does not state is by the default rule.
  check_groups({.weight_decay = 0.3,
                .groups = {{.pattern = "*.bias", .rate = 2},
                           {.pattern = "encoder.*", .rate = 0.5},
                           {.pattern = "gain", .rate = 0}}},
               {{0.5, 0.3}, {2, 0}, {1, 0.3}, {2, 0}, {0, 0}});
}

TEST_CASE("SGD and Adam decay by the same groups") {
  const auto step = [](auto&& make) {
    TwoParameters two;
    Parameter<double> bias(Tensor<double>::full({4}, 1.0));
    bias.set_name("bias");
    auto handles = parameters(two);
    handles.push_back(bias.handle());
    Gradients<double> gradients(handles);
    for (auto& e : gradients.entries()) e.writable().fill(0);
    auto optimizer = make(handles);
    optimizer.step(gradients, 0.1);
    return std::vector<double>{two.a.value().at({0, 0}), two.b.value().at({0}), bias.value().at({0})};
  };
  const ParameterGroups groups{{.pattern = "b", .rate = 0.5, .weight_decay = 0.4}};
  const auto sgd =
      step([&](const auto& p) { return Sgd<double>(p, {.weight_decay = 0.2, .groups = groups}); });
  CHECK(sgd[0] == doctest::Approx(1 - 0.1 * 0.2));
  CHECK(sgd[1] == doctest::Approx(-2 + 0.05 * 0.4 * 2));
  CHECK(sgd[2] == 1);
  // The first step of Adam has the length of the rate where there is a gradient, which is the decay's alone.
  const auto adam =
      step([&](const auto& p) { return Adam<double>(p, {.weight_decay = 0.2, .groups = groups}); });
  CHECK(adam[0] == doctest::Approx(1 - 0.1));
  CHECK(adam[1] == doctest::Approx(-2 + 0.05));
  CHECK(adam[2] == 1);
}

TEST_CASE("a tied parameter matches by any of its names, and its state keeps the first") {
  Tied model;
  name_parameters(model);
  const auto handles = parameters(model);
  REQUIRE(handles.size() == 2);
  CHECK(handles[0]->name == "embedding.weight");
  CHECK(handles[0]->aliases == std::vector<std::string>{"projection.weight"});
  CHECK(handles[1]->aliases.empty());
  Gradients<double> gradients(handles);
  for (auto& e : gradients.entries()) e.writable().fill(1);
  AdamW<double> optimizer(handles, {.weight_decay = 0, .groups = {{.pattern = "projection.*", .rate = 0}}});
  optimizer.step(gradients, 0.1);
  CHECK(model.table.value().at({0, 0}) == 1);
  CHECK(model.other.value().at({0, 0}) == doctest::Approx(0.9));
  const auto state = optimizer.state();
  REQUIRE(state.size() == 6);
  CHECK(state[0].name == "embedding.weight.exp_avg");
  // Asked for a second time, and of a part of the model, the names stay.
  CHECK(parameters(model)[0]->aliases.size() == 1);
}

TEST_CASE("groups that hold nothing are refused with the nearest names") {
  RandomGenerator rng(4);
  TwoLayers model(rng);
  const auto handles = parameters(model);
  const auto refusal = [&](const ParameterGroups& groups) {
    return message_of<ValueError>([&] { AdamW<double>(handles, {.groups = groups}); });
  };
  CHECK(refusal({{.pattern = "encodr.*"}}) ==
        "[adamw] group 'encodr.*' matches no parameter; the nearest names are 'encoder.weight', "
        "'encoder.bias', "
        "'decoder.weight'");
  CHECK(contains(refusal({{.pattern = "*.gain"}}), "the nearest names are 'gain'"));
  CHECK(refusal({{.pattern = "*"}, {.pattern = "encoder.*"}}) ==
        "[adamw] group 'encoder.*' is empty: earlier groups already hold every parameter that it matches");
  CHECK(contains(refusal({{.pattern = "*", .rate = -1}}), "rate of group '*' is -1, must be finite and not"));
  CHECK(contains(refusal({{.pattern = "*", .weight_decay = std::nan("")}}),
                 "weight_decay of group '*' is nan"));
  CHECK(contains(message_of<ValueError>([&] { Sgd<double>(handles, {.groups = {{.pattern = "x"}}}); }),
                 "[sgd] group 'x' matches no parameter"));
}
