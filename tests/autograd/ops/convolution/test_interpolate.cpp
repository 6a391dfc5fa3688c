#include "eigenformer/autograd/ops/convolution/interpolate.hpp"

#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "convolution_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("interpolate and its gradients are PyTorch's", T, float, double) {
  const auto check = [](const std::string& key, const detail::SizePair& size) {
    check_fixture<T>("interpolate.nearest." + key,
                     [&](const auto& v) { return ef::interpolate(v[0], size); });
    check_fixture<T>("interpolate.bilinear." + key,
                     [&](const auto& v) { return ef::interpolate(v[0], size, InterpolateMode::bilinear); });
  };
  check("up", {11, 17});
  check("down", {3, 4});
  check("both", {5, 23});
  check("same", {7, 10});
  check("one", 1);
}

TEST_CASE("interpolate: gradient checks, infinities, errors") {
  for (const auto mode : {InterpolateMode::nearest, InterpolateMode::bilinear}) {
    check_op([&](const Vars& v) { return ef::interpolate(v[0], {7, 3}, mode); }, {random({2, 3, 4, 5})});
  }
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor<double> x({1, 1, 1, 2}, {inf, 1});
  CHECK(values(ef::interpolate(x, {1, 4}).value()) == std::vector<double>{inf, inf, 1, 1});
  CHECK(ef::interpolate(Tensor<float>::zeros({0, 3, 4, 4}), 2).shape() == Shape{0, 3, 2, 2});
  CHECK(message_of<ShapeError>([&] {
          (void)ef::interpolate(x.reshape({1, 1, 2}), 2);
        }) == "[interpolate] input of shape (1, 1, 2) must be (N, C, H, W), H and W not 0");
  CHECK(message_of<ShapeError>([&] {
          (void)ef::interpolate(Tensor<float>::zeros({1, 1, 0, 2}), 2);
        }) == "[interpolate] input of shape (1, 1, 0, 2) must be (N, C, H, W), H and W not 0");
  CHECK(message_of<ValueError>([&] {
          (void)ef::interpolate(x, {2, 0});
        }) == "[interpolate] size is 0, must be in [1, 2^31)");
}
