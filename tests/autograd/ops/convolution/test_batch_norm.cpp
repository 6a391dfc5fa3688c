#include "eigenformer/autograd/ops/convolution/batch_norm.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "convolution_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("batch_norm and group_norm and their gradients are PyTorch's", T, float, double) {
  for (const std::string key : {"image", "signal", "row"}) {
    const auto mean = convolutions().get<T>("in.mean." + key), var = convolutions().get<T>("in.var." + key);
    Tensor<T> m = mean.clone(), v = var.clone();
    check_fixture<T>("batch_norm_eval." + key, [&](const auto& x) {
      return ef::batch_norm(x[0], m, v, x[1], x[2], {.momentum = 0.25, .eps = 1e-3});
    });
    CHECK(values(m) == values(mean));
    CHECK(values(v) == values(var));
    check_fixture<T>("batch_norm." + key, [&](const auto& x) {
      m = mean.clone(), v = var.clone();
      return ef::batch_norm(x[0], m, v, x[1], x[2], {.training = true, .momentum = 0.25, .eps = 1e-3});
    });
    CHECK(worst_difference(m, convolutions().get<double>("out.mean." + key)) < 1e-6);
    CHECK(worst_difference(v, convolutions().get<double>("out.var." + key)) < 1e-6);
    for (const bool training : {false, true}) {
      check_fixture<T>("batch_norm_plain." + key, [&](const auto& x) {
        Tensor<T> none, nothing;
        return ef::batch_norm(x[0], none, nothing, {}, {}, {.training = training});
      });
    }
    if (key == "row") continue;
    check_fixture<T>("group_norm." + key,
                     [](const auto& x) { return ef::group_norm(x[0], 2, x[1], x[2], 1e-3); });
    check_fixture<T>("group_norm_plain." + key, [](const auto& x) { return ef::group_norm(x[0], 4); });
  }
}

TEST_CASE("batch_norm and group_norm: gradient checks") {
  const std::vector<Tensor<double>> x = {random({3, 4, 2, 5}), random({4}, 2), random({4}, 3)};
  Tensor<double> none, nothing, mean = random({4}, 5), var = positive({4}, 6);
  check_op([&](const Vars& v) { return ef::batch_norm(v[0], none, nothing, v[1], v[2]); }, x);
  check_op([&](const Vars& v) { return ef::batch_norm(v[0], mean, var, v[1], v[2]); }, x);
  check_op([](const Vars& v) { return ef::group_norm(v[0], 2, v[1], v[2]); }, x);
  // Many elements with a large mean: the sums keep their precision.
  Tensor<float> far = Tensor<float>::full({2, 1, 1 << 16}, 1000);
  for (index_t i = 0; i < far.numel(); i += 2) far.data()[i] = 1001;
  const auto y = ef::group_norm(far, 1).value();
  CHECK(y.data()[0] == doctest::Approx(1).epsilon(1e-4));
  CHECK(y.data()[1] == doctest::Approx(-1).epsilon(1e-4));
}

TEST_CASE("batch_norm and group_norm refuse what does not fit") {
  const Tensor<float> x = Tensor<float>::ones({1, 6, 1});
  Tensor<float> mean = Tensor<float>::zeros({6}), var = Tensor<float>::ones({6}), short_one({5});
  CHECK(ef::batch_norm(x, mean, var).shape() == x.shape());
  CHECK(message_of<ValueError>([&] { (void)ef::batch_norm(x, mean, var, {}, {}, {.training = true}); }) ==
        "[batch_norm] input of shape (1, 6, 1) has 1 elements per channel, training needs two or more");
  CHECK(message_of<ShapeError>([&] { (void)ef::batch_norm(x, mean, short_one); }) ==
        "[batch_norm] an operand of shape (5,) must have one number for each of the 6 channels of the input "
        "of shape (1, 6, 1)");
  CHECK(message_of<ShapeError>([&] { (void)ef::group_norm(x.reshape({6}), 2); }) ==
        "[group_norm] input of shape (6,) must be (N, C, ...)");
  CHECK(message_of<ValueError>([&] { (void)ef::group_norm(x, 4); }) ==
        "[group_norm] num_groups is 4, must divide the 6 channels of the input");
  CHECK(message_of<ValueError>([&] { (void)ef::group_norm(x, 2, {}, {}, -1); }) ==
        "[group_norm] eps is -1, must be finite and not negative");
}
