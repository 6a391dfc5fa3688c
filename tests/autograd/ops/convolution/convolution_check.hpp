#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "autograd/op_check.hpp"
#include "fixtures.hpp"

namespace eigenformer::testing {

namespace ef = eigenformer;

/// PyTorch's results; generate.py says what is in them.
inline const Fixture& convolutions() {
  static const Fixture fixture("ops/convolution");
  return fixture;
}

/// CHECKs the value and all gradients of f(inputs) against the results of `key` there. Gradients are added to
/// those of a second use of each input.
template <class T, class F>
void check_fixture(const std::string& key, const F& f) {
  CAPTURE(key);
  const Fixture& fixture = convolutions();
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 1e-12;
  const auto& infos = fixture.file().infos();
  const auto has = [&](const std::string& name) {
    return std::any_of(infos.begin(), infos.end(), [&](const TensorInfo& i) { return i.name == name; });
  };
  for (const bool twice : {false, true}) {
    Tape<T> tape;
    std::vector<Var<T>> x;
    for (int i = 0; has("in." + std::to_string(i) + "." + key); ++i) {
      x.push_back(tape.variable(fixture.get<T>("in." + std::to_string(i) + "." + key)));
    }
    REQUIRE(!x.empty());
    const Var<T> y = f(x);
    const auto finite = [](auto t) {
      t = t.clone();
      for (auto& e : t.span()) e = std::isinf(e) ? std::copysign(decltype(+e)(1e9), e) : e;
      return t;
    };
    CHECK(worst_difference(finite(y.value()), finite(fixture.get<double>("out." + key))) < tolerance);
    Var<T> loss = sum(y * fixture.get<T>("in.cotangent." + key));
    // Recorded later, so that its gradient is there first.
    for (const Var<T>& v : x) loss = twice ? loss + sum(v) : loss;
    tape.backward(loss);
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto expected = fixture.get<double>("grad_in." + std::to_string(i) + "." + key).clone();
      for (double& e : expected.span()) e += twice ? 1 : 0;
      CHECK_MESSAGE(worst_difference(tape.gradient(x[i]), expected) < 10 * tolerance, "input " << i);
    }
  }
}

}  // namespace eigenformer::testing
