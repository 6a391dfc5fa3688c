#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "autograd/op_check.hpp"
#include "fixtures.hpp"

namespace eigenformer::testing {

/// CHECKs values and gradients of call(name, operands) for the functions of the fixture that are in `names`.
template <class T, class F>
void check_linalg(const std::vector<std::string>& names, const F& call) {
  const Fixture fixture("ops/linalg");
  const double tolerance = std::is_same_v<T, float> ? 2e-3 : 1e-10;
  std::vector<int> counts(names.size());
  const auto options = fixture.options();
  for (const auto& entry : options.at("calls")) {
    const auto key = entry[0].get<std::string>(), f = entry[1].get<std::string>();
    const auto at = std::find(names.begin(), names.end(), f);
    if (at == names.end()) continue;
    ++counts[static_cast<std::size_t>(at - names.begin())];
    CAPTURE(f);
    CAPTURE(key);
    Tape<T> tape;
    std::vector<Var<T>> x;
    for (int i = 0; i < entry[2].get<int>(); ++i) {
      x.push_back(tape.variable(fixture.get<T>("in." + key + "." + std::to_string(i))));
    }
    CAPTURE(x[0].shape().str());
    const Var<T> y = call(f, x);
    CHECK(worst_difference(y.value(), fixture.get<double>("out." + key)) < tolerance);
    if (!y.recorded()) continue;
    Gradients<T> none;
    tape.backward(y, fixture.get<T>("in.cotangent." + key), none);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(worst_difference(tape.gradient(x[i]),
                             fixture.get<double>("grad_in." + key + "." + std::to_string(i))) < tolerance);
    }
  }
  for (const int count : counts) CHECK(count >= 3);
}

}  // namespace eigenformer::testing
