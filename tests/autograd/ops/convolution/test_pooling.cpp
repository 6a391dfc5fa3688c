#include "eigenformer/autograd/ops/convolution/pooling.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "convolution_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("pooling and its gradients are PyTorch's: ties, -infinity, padding, partial windows", T,
                   float, double) {
  const auto max = [](const std::string& key, const detail::SizePair& kernel, const detail::MaxPoolOp& o) {
    check_fixture<T>("max_pool2d." + key, [&](const auto& v) { return ef::max_pool2d(v[0], kernel, o); });
  };
  max("plain", 2, {});
  max("options", {3, 2}, {.stride = {1, 2}, .padding = 1, .dilation = {2, 3}, .ceil_mode = true});
  max("ceil", {2, 3}, {.stride = 3, .padding = {1, 0}, .ceil_mode = true});
  max("single", {3, 4}, {.stride = 1});
  check_fixture<T>("max_pool1d.plain", [](const auto& v) {
    return ef::max_pool1d(v[0], 3, {.stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true});
  });
  const auto avg = [](const std::string& key, const detail::SizePair& kernel, const detail::AvgPoolOp& o) {
    check_fixture<T>("avg_pool2d." + key, [&](const auto& v) { return ef::avg_pool2d(v[0], kernel, o); });
  };
  avg("plain", 2, {});
  avg("options", {3, 4}, {.stride = {2, 3}, .padding = {1, 2}, .ceil_mode = true});
  avg("exclude", {3, 4},
      {.stride = {2, 3}, .padding = {1, 2}, .ceil_mode = true, .count_include_pad = false});
  avg("single", {3, 4}, {.stride = 1});
  check_fixture<T>("avg_pool1d.plain", [](const auto& v) {
    return ef::avg_pool1d(v[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true});
  });
}

TEST_CASE("pooling: gradient checks") {
  check_op(
      [](const Vars& v) {
        return ef::max_pool2d(v[0], {2, 3}, {.stride = 1, .padding = 1});
      },
      {random({2, 3, 4, 5})});
  check_op(
      [](const Vars& v) {
        return ef::avg_pool2d(v[0], {2, 3}, {.stride = 1, .padding = 1});
      },
      {random({2, 3, 4, 5})});
  check_op([](const Vars& v) { return ef::max_pool1d(v[0], 3); }, {random({2, 3, 7})});
  check_op([](const Vars& v) { return ef::avg_pool1d(v[0], 3); }, {random({2, 3, 7})});
}

TEST_CASE("max pooling passes NaN on, and its gradient goes to the last NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tape<double> tape;
  const auto x = tape.variable(Tensor<double>({1, 6}, {1, nan, 2, nan, 3, 4}));
  const auto y = ef::max_pool1d(x, 5);
  CHECK(std::isnan(y.item()));
  tape.backward(sum(y));
  CHECK(values(tape.gradient(x)) == std::vector<double>{0, 0, 0, 1, 0, 0});
  CHECK(ef::max_pool2d(Tensor<float>::zeros({0, 3, 4, 4}), 2).shape() == Shape{0, 3, 2, 2});
  CHECK(ef::avg_pool2d(Tensor<float>::zeros({2, 0, 4, 4}), 2).shape() == Shape{2, 0, 2, 2});
}

TEST_CASE("pooling refuses what does not fit") {
  const Tensor<float> x = Tensor<float>::ones({2, 6, 5, 7});
  CHECK(message_of<ShapeError>([&] {
          (void)ef::max_pool2d(x, {6, 2});
        }) == "[max_pool2d] kernel of 6 entries covers 6, must be at most the input's size with padding, 5");
  CHECK(message_of<ValueError>([&] {
          (void)ef::max_pool2d(x, 3, {.padding = {0, 2}});
        }) == "[max_pool2d] padding is 2, must be at most half the kernel, 1");
  CHECK(message_of<ShapeError>([&] { (void)ef::avg_pool1d(x, 3); }) ==
        "[avg_pool1d] input of shape (2, 6, 5, 7) must be (N, C, L) or (C, L)");
  CHECK(message_of<ValueError>([&] {
          (void)ef::avg_pool2d(x, {2, 0});
        }) == "[avg_pool2d] kernel size is 0, must be in [1, 2^31)");
  CHECK(message_of<ValueError>([&] {
          (void)ef::avg_pool2d(x, 2, {.stride = {1, 0}});
        }) == "[avg_pool2d] stride is 0, must be in [1, 2^31)");
}
