#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/normalization/cross_entropy.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::kernels::CrossEntropyOptions;

struct Reference {
  std::vector<double> losses, gradient;
  double total = 0;
};

/// PyTorch's definition: cross entropy with (1 - e) onehot + e / V, in double.
template <class T>
Reference reference(const std::vector<T>& x, const std::vector<std::int32_t>& targets, index_t classes,
                    const CrossEntropyOptions& options, double scale) {
  Reference out;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const T* row = x.data() + static_cast<index_t>(r) * classes;
    double sum = 0, loss = 0;
    for (index_t i = 0; i < classes; ++i) sum += std::exp(static_cast<double>(row[i]));
    for (index_t i = 0; i < classes; ++i) {
      const double p = std::exp(static_cast<double>(row[i])) / sum;
      const double wanted = options.label_smoothing / static_cast<double>(classes) +
                            (i == targets[r] ? 1 - options.label_smoothing : 0);
      const bool ignored = targets[r] == options.ignore_index;
      if (!ignored && wanted > 0) loss -= wanted * std::log(p);
      out.gradient.push_back(ignored ? 0 : scale * (p - wanted));
    }
    out.losses.push_back(loss);
    out.total += loss;
  }
  return out;
}

TEST_CASE_TEMPLATE("cross entropy and its gradient equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const index_t classes : edge_sizes) {
        CAPTURE(classes);
        CAPTURE(smoothing);
        const CrossEntropyOptions options{smoothing, 0};
        const index_t rows = 7;
        const auto x = random_values<T>(rows * classes, 1, -5, 5);
        std::vector<std::int32_t> targets;
        for (index_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 5 % classes));
        const auto expected = reference(x, targets, classes, options, 0.25);
        const double close = 10 * tolerance<T>;

        std::vector<T> lse(7);
        std::vector<double> losses;
        for (index_t r = 0; r < rows; ++r) {
          losses.push_back(detail::kernels::cross_entropy_forward<T>(
              x.data() + r * classes, targets.data() + r, 1, classes, options, nullptr));
        }
        CHECK(worst_error(losses, expected.losses) < close);
        const double total = detail::kernels::cross_entropy_forward(x.data(), targets.data(), rows, classes,
                                                                    options, lse.data());
        CHECK(total == doctest::Approx(expected.total).epsilon(1e-5));

        std::vector<T> dx(x.size(), std::numeric_limits<T>::quiet_NaN());
        detail::kernels::cross_entropy_backward<T>(x.data(), targets.data(), lse.data(), rows, classes,
                                                   options, T(0.25), dx.data(), T(0));
        CHECK(worst_error(dx, expected.gradient) < close);
        std::vector<double> added;
        for (const double g : expected.gradient) added.push_back(0.5 + g);
        dx.assign(x.size(), T(0.5));
        detail::kernels::cross_entropy_backward(x.data(), targets.data(), lse.data(), rows, classes, options,
                                                T(0.25), dx.data(), T(1));
        CHECK(worst_error(dx, added) < close);

        auto logits = x;
        const double both = detail::kernels::cross_entropy_forward<T>(
            logits.data(), targets.data(), rows, classes, options, nullptr, nullptr, logits.data(), T(0.25));
        CHECK(both == total);
        CHECK(worst_error(logits, expected.gradient) < close);
      }
    }
  });
}

TEST_CASE_TEMPLATE("a batch is the sum of its rows, and padding adds nothing", T, float, double) {
  for_each_isa([&] {
    const index_t classes = 23;
    const CrossEntropyOptions options{0.1, 2};
    const std::vector<std::int32_t> targets = {5, 2, 22, 0, 2};
    const auto x = random_values<T>(5 * classes, 1, -5, 5);
    auto batch = x;
    const double total = detail::kernels::cross_entropy_forward<T>(batch.data(), targets.data(), 5, classes,
                                                                   options, nullptr, nullptr, batch.data());
    double sum = 0;
    for (index_t r = 0; r < 5; ++r) {
      std::vector<T> row(x.begin() + r * classes, x.begin() + (r + 1) * classes);
      sum += detail::kernels::cross_entropy_forward<T>(row.data(), targets.data() + r, 1, classes, options,
                                                       nullptr, nullptr, row.data());
      for (index_t i = 0; i < classes; ++i) {
        const auto at = static_cast<std::size_t>(i);
        REQUIRE(row[at] == batch[static_cast<std::size_t>(r * classes + i)]);
        if (targets[static_cast<std::size_t>(r)] == 2) REQUIRE(row[at] == T(0));
      }
    }
    CHECK(total == sum);
    CHECK(detail::kernels::count_targets(targets.data(), 5, 2) == 3);
  });
}

TEST_CASE_TEMPLATE("smoothing 0 is the negative log-likelihood; smoothing 1 looks at no target", T, float,
                   double) {
  const std::vector<T> x = {T(1), T(2), T(4)};
  const double lse = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(4.0));
  for (std::int32_t target = 0; target < 3; ++target) {
    const double plain = detail::kernels::cross_entropy_forward<T>(x.data(), &target, 1, 3, {}, nullptr);
    CHECK(plain == doctest::Approx(lse - static_cast<double>(x[static_cast<std::size_t>(target)])));
    const double uniform =
        detail::kernels::cross_entropy_forward<T>(x.data(), &target, 1, 3, {1.0, -100}, nullptr);
    CHECK(uniform == doctest::Approx(lse - 7.0 / 3));
  }
}

TEST_CASE_TEMPLATE("logits of -inf give no NaN without smoothing", T, float, double) {
  const T minus = -std::numeric_limits<T>::infinity();
  for_each_isa([&] {
    const std::vector<T> x = {minus, 1, 1, minus, minus, minus};
    const std::vector<std::int32_t> targets = {1, 0};
    auto logits = x;
    std::vector<T> lse(2), dx(6);
    const double first =
        detail::kernels::cross_entropy_forward<T>(x.data(), targets.data(), 1, 3, {}, nullptr);
    CHECK(first == doctest::Approx(std::log(2.0)));
    const double total = detail::kernels::cross_entropy_forward<T>(logits.data(), targets.data(), 2, 3, {},
                                                                   nullptr, nullptr, logits.data());
    CHECK(total == std::numeric_limits<double>::infinity());
    CHECK(logits == std::vector<T>{0, T(-0.5), T(0.5), 0, 0, 0});
    detail::kernels::cross_entropy_forward<T>(x.data(), targets.data(), 2, 3, {}, lse.data());
    detail::kernels::cross_entropy_backward<T>(x.data(), targets.data(), lse.data(), 2, 3, {}, T(1),
                                               dx.data(), T(0));
    for (const T g : dx) CHECK(std::isfinite(g));
  });
}

TEST_CASE("the loss does not depend on the number of threads") {
  const index_t rows = 500, classes = 301;
  const auto x = random_values<float>(rows * classes, 1, -5, 5);
  std::vector<std::int32_t> targets;
  for (index_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r % classes));
  std::vector<std::vector<float>> gradients;
  std::vector<double> totals;
  for (const int count : {1, 3}) {
    const ThreadScope threads(count);
    gradients.push_back(x);
    totals.push_back(detail::kernels::cross_entropy_forward<float>(gradients.back().data(), targets.data(),
                                                                   rows, classes, {0.1, -100}, nullptr,
                                                                   nullptr, gradients.back().data()));
  }
  CHECK(totals[0] == totals[1]);
  CHECK(gradients[0] == gradients[1]);
}

TEST_CASE("targets and options outside their range are refused") {
  std::vector<float> x(6);
  const std::vector<std::int32_t> targets = {0, 3};
  CHECK_THROWS_WITH_AS(
      detail::kernels::cross_entropy_forward<float>(x.data(), targets.data(), 2, 3, {}, nullptr),
      "[cross_entropy] target 3 at position 1 is outside the 3 classes", IndexError);
  CHECK_THROWS_AS(
      detail::kernels::cross_entropy_forward<float>(x.data(), targets.data(), 1, 3, {1.5, -100}, nullptr),
      ValueError);
}

}  // namespace
