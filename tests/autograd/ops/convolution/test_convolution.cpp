#include "eigenformer/autograd/ops/convolution/convolution.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "convolution_check.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/random.hpp"
#include "eigenformer/core/tensor/creation.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// The message of the error that f() throws.
template <class E, class F>
std::string message(const F& f) {
  try {
    (void)f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing of that type thrown";
}

}  // namespace

TEST_CASE_TEMPLATE("convolutions and their gradients are PyTorch's", T, float, double) {
  const auto check2 = [](const std::string& key, const detail::ConvOp& o) {
    check_fixture<T>("conv2d." + key, [&](const auto& v) { return ef::conv2d(v[0], v[1], v[2], o); });
  };
  check2("plain", {});
  check2("options", {.stride = {2, 3}, .padding = {2, 1}, .dilation = {2, 3}, .groups = 2});
  check2("depthwise", {.padding = {1, 2}, .groups = 3});
  check2("point", {});
  check2("point_strided", {.stride = {2, 3}, .padding = 1, .groups = 2});
  check2("wide", {.stride = {1, 2}, .padding = {4, 7}});
  check2("single", {.padding = 1});
  check2("none", {});
  const auto check1 = [](const std::string& key, const detail::ConvOp& o) {
    check_fixture<T>("conv1d." + key, [&](const auto& v) { return ef::conv1d(v[0], v[1], v[2], o); });
  };
  check1("plain", {});
  check1("single", {.stride = 2});
  check1("options", {.stride = 3, .padding = 4, .dilation = 2, .groups = 2});
}

TEST_CASE_TEMPLATE("transposed convolutions and their gradients are PyTorch's", T, float, double) {
  const auto check2 = [](const std::string& key, const detail::ConvTransposeOp& o) {
    check_fixture<T>("conv_transpose2d." + key,
                     [&](const auto& v) { return ef::conv_transpose2d(v[0], v[1], v[2], o); });
  };
  check2("plain", {});
  check2("point", {});
  check2("options",
         {.stride = {2, 3}, .padding = {1, 2}, .output_padding = {1, 2}, .groups = 2, .dilation = {3, 2}});
  check2("single", {.stride = 2});
  const auto check1 = [](const std::string& key, const detail::ConvTransposeOp& o) {
    check_fixture<T>("conv_transpose1d." + key,
                     [&](const auto& v) { return ef::conv_transpose1d(v[0], v[1], v[2], o); });
  };
  check1("plain", {});
  check1("options", {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .dilation = 3});
}

TEST_CASE_TEMPLATE("unfold and its gradient are PyTorch's", T, float, double) {
  check_fixture<T>("unfold.plain", [](const auto& v) { return ef::unfold(v[0], {3, 2}); });
  check_fixture<T>("unfold.options", [](const auto& v) {
    return ef::unfold(v[0], {2, 3}, {.stride = {2, 3}, .padding = {2, 1}, .dilation = {3, 1}});
  });
  check_fixture<T>("unfold.single", [](const auto& v) { return ef::unfold(v[0], 2); });
}

TEST_CASE("convolutions: gradient checks, without a bias and with one Var as two operands") {
  const detail::ConvOp options{.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}};
  check_op([&](const Vars& v) { return ef::conv2d(v[0], v[1], v[2], options); },
           {random({2, 3, 4, 5}), random({4, 3, 3, 2}, 2), random({4}, 3)});
  check_op([&](const Vars& v) { return ef::conv2d(v[0], v[1], {}, options); },
           {random({2, 3, 4, 5}), random({4, 3, 3, 2}, 2)});
  check_op([](const Vars& v) { return ef::conv2d(v[0], v[0], {}, {.padding = 1}); }, {random({2, 2, 3, 4})});
  check_op([](const Vars& v) { return ef::conv1d(v[0], v[1]); }, {random({2, 3, 7}), random({4, 3, 2}, 2)});
  check_op(
      [](const Vars& v) {
        return ef::conv_transpose2d(v[0], v[1], v[2], {.stride = {2, 1}});
      },
      {random({2, 3, 4, 5}), random({3, 4, 3, 2}, 2), random({4}, 3)});
  check_op([](const Vars& v) { return ef::conv_transpose1d(v[0], v[1]); },
           {random({2, 3, 7}), random({3, 4, 2}, 2)});
  check_op([](const Vars& v) { return ef::unfold(v[0], {2, 3}, {.padding = 1}); }, {random({2, 3, 4, 5})});
}

TEST_CASE("convolutions are the same for any number of threads and tiles of columns") {
  // Several tiles for each image, as many images as threads and fewer.
  RandomGenerator rng(3);
  const auto x = ef::normal<float>({3, 160, 19, 13}, rng), w = ef::normal<float>({8, 160, 3, 3}, rng);
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<float> tape;
    const Var<float> vx = tape.variable(x), vw = tape.variable(w);
    const Var<float> y = ef::conv2d(vx, vw, {}, {.padding = 1});
    tape.backward(sum(square(y)));
    return std::vector<Tensor<float>>{y.value(), tape.gradient(vx), tape.gradient(vw)};
  };
  const auto one = run(1);
  for (const int threads : {2, 5}) {
    const auto several = run(threads);
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(std::equal(one[i].data(), one[i].data() + one[i].numel(), several[i].data()));
    }
  }
  // Against unfold() and a product, in double; a signal so long that its row is in several tiles.
  const Tensor<double> xd = random({2, 3, 1, 30000}), wd = random({2, 3, 1, 5}, 2);
  const auto y = ef::conv2d(xd, wd);
  const auto columns = ef::unfold(xd, {1, 5});
  const auto expected = ef::matmul(wd.reshape({2, 15}), columns).value().reshape({2, 2, 1, 29996});
  CHECK(worst_difference(y.value(), expected) < 1e-13);
}

TEST_CASE("convolutions refuse what does not fit") {
  const Tensor<float> x = Tensor<float>::ones({2, 6, 5, 7}), w = Tensor<float>::ones({4, 6, 3, 3});
  CHECK(message<ShapeError>([&] {
          return ef::conv2d(x.reshape({12, 35}), w);
        }) == "[conv2d] input of shape (12, 35) must be (N, C, H, W) or (C, H, W)");
  CHECK(message<ShapeError>([&] { return ef::conv1d(x, w); }) ==
        "[conv1d] input of shape (2, 6, 5, 7) must be (N, C, L) or (C, L)");
  CHECK(message<ShapeError>([&] {
          return ef::conv2d(x, w.reshape({4, 6, 9}));
        }) == "[conv2d] weight of shape (4, 6, 9) must have rank 4, with channels and kernel size");
  CHECK(message<ShapeError>([&] { return ef::conv2d(x, w, {}, {.groups = 2}); }) ==
        "[conv2d] input of shape (2, 6, 5, 7) has 6 channels, weight of shape (4, 6, 3, 3) in 2 groups needs "
        "12");
  CHECK(message<ValueError>([&] { return ef::conv2d(x, w, {}, {.groups = 3}); }) ==
        "[conv2d] groups is 3, must divide the 6 channels of the input and the 4 of the weight");
  CHECK(message<ShapeError>([&] { return ef::conv2d(x, w, Tensor<float>::ones({6})); }) ==
        "[conv2d] bias of shape (6,) must be (4,)");
  CHECK(message<ShapeError>([&] {
          return ef::conv2d(x, w, {}, {.dilation = {3, 1}});
        }) == "[conv2d] kernel of 3 entries covers 7, must be at most the input's size with padding, 5");
  CHECK(message<ValueError>([&] { return ef::conv2d(x, w, {}, {.stride = 0}); }) ==
        "[conv2d] stride is 0, must be in [1, 2^31)");
  CHECK(message<ValueError>([&] {
          return ef::conv2d(x, w, {}, {.padding = {0, -1}});
        }) == "[conv2d] padding is -1, must be in [0, 2^31)");
  CHECK(message<ValueError>([&] { return ef::conv2d(x, w, {}, {.dilation = index_t(1) << 62}); }) ==
        "[conv2d] dilation is 4611686018427387904, must be in [1, 2^31)");
  const Tensor<float> v = Tensor<float>::ones({6, 4, 3, 3});
  CHECK(message<ValueError>([&] {
          return ef::conv_transpose2d(x, v, {}, {.output_padding = {1, 0}});
        }) == "[conv_transpose2d] output padding is 1, must be less than the stride 1 or the dilation 1");
  CHECK(message<ShapeError>([&] {
          return ef::conv_transpose2d(x, v, {}, {.padding = {4, 0}});
        }) ==
        "[conv_transpose2d] input of shape (2, 6, 5, 7) gives a size of -1 with these options, must be "
        "positive");
  CHECK(message<ShapeError>([&] {
          return ef::unfold(x, {6, 1});
        }) == "[unfold] kernel of 6 entries covers 6, must be at most the input's size with padding, 5");
  CHECK(message<ValueError>([&] {
          return ef::unfold(x, {0, 1});
        }) == "[unfold] kernel size is 0, must be in [1, 2^31)");
  Tensor<float> moved = w.clone();
  const Tensor<float> elsewhere = std::move(moved);
  CHECK_THROWS_AS((void)ef::conv2d(x, moved), ValueError);
}
