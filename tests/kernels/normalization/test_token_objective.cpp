#include <doctest/doctest.h>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/normalization/cross_entropy.hpp"
#include "eigenformer/kernels/normalization/token_objective.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

/// Log-probabilities of x / temperature.
std::vector<double> log_softmax(const double* x, index_t n, double temperature = 1) {
  double sum = 0;
  for (index_t i = 0; i < n; ++i) sum += std::exp(x[i] / temperature);
  std::vector<double> y;
  for (index_t i = 0; i < n; ++i) y.push_back(x[i] / temperature - std::log(sum));
  return y;
}

double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

/// The definition, by plain loops.
TokenLosses reference(const std::vector<double>& x, const std::vector<double>& teacher,
                      const std::vector<std::int32_t>& targets, index_t copies, index_t classes,
                      const TokenObjective& o) {
  TokenLosses sum;
  const auto rows = static_cast<index_t>(targets.size());
  for (index_t r = 0; r < rows; ++r) {
    const std::int32_t target = targets[static_cast<std::size_t>(r)];
    if (target == o.ignore_index) continue;
    std::vector<std::vector<double>> p;
    for (index_t c = 0; c < copies; ++c) {
      const double* row = x.data() + (c * rows + r) * classes;
      p.push_back(log_softmax(row, classes));
      double mean = 0, given = 0;
      for (const double v : p.back()) mean += v / static_cast<double>(classes);
      const double plain = -p.back()[static_cast<std::size_t>(target)];
      const double share = 1 / static_cast<double>(copies);
      sum.unsmoothed += share * plain;
      sum.words += share * ((1 - o.label_smoothing) * plain - o.label_smoothing * mean);
      if (teacher.empty()) continue;
      const auto soft = log_softmax(row, classes, o.temperature);
      for (index_t i = 0; i < classes; ++i) {
        const double q = teacher[static_cast<std::size_t>(r * classes + i)];
        if (q > 0) given += q * (std::log(q) - soft[static_cast<std::size_t>(i)]);
      }
      sum.distillation += share * given;
    }
    if (copies == 2) sum.divergence += (divergence(p[0], p[1]) + divergence(p[1], p[0])) / 2;
  }
  return sum;
}

std::vector<double> some_teacher(index_t rows, index_t classes) {
  const auto x = random_values<double>(rows * classes, 9, -3, 3);
  std::vector<double> q;
  for (index_t r = 0; r < rows; ++r) {
    for (const double v : log_softmax(x.data() + r * classes, classes)) q.push_back(std::exp(v));
  }
  if (classes > 2) {  // an id that the teacher never says
    q[0] = 0;
    double sum = 0;
    for (index_t i = 0; i < classes; ++i) sum += q[static_cast<std::size_t>(i)];
    for (index_t i = 0; i < classes; ++i) q[static_cast<std::size_t>(i)] /= sum;
  }
  return q;
}

template <class T>
std::vector<T> converted(const std::vector<double>& x) {
  std::vector<T> y;
  for (const double v : x) y.push_back(static_cast<T>(v));
  return y;
}

const std::vector<TokenObjective> objectives = {
    {.label_smoothing = 0.1, .ignore_index = 1},
    {.ignore_index = 1, .divergence = 3},
    {.label_smoothing = 0.2, .ignore_index = 1, .distillation = 0.4, .temperature = 2.5},
    {.label_smoothing = 0.1, .ignore_index = 1, .divergence = 1.5, .distillation = 1},
    {.label_smoothing = 0.1, .ignore_index = 1, .divergence = 2, .distillation = 0.7, .temperature = 0.5}};

}  // namespace

TEST_CASE_TEMPLATE("token_objective: losses equal a plain loop's", T, float, double) {
  for_each_isa([&] {
    for (const TokenObjective& o : objectives) {
      for (const index_t classes : edge_sizes) {
        CAPTURE(classes);
        const index_t rows = 5, copies = o.divergence > 0 ? 2 : 1;
        const auto x = random_values<double>(copies * rows * classes, 1, -4, 4);
        const auto q = o.distillation > 0 ? some_teacher(rows, classes) : std::vector<double>();
        std::vector<std::int32_t> targets;
        for (index_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 7 % classes));
        const TokenLosses expected = reference(x, q, targets, copies, classes, o);
        auto logits = converted<T>(x);
        const auto teacher = converted<T>(q);
        const TokenLosses found =
            detail::kernels::token_objective<T>(logits.data(), q.empty() ? nullptr : teacher.data(),
                                                targets.data(), rows, copies, classes, o, T(1), false);
        const double close = 30 * tolerance<T>;
        CHECK(found.words == doctest::Approx(expected.words).epsilon(close));
        CHECK(found.unsmoothed == doctest::Approx(expected.unsmoothed).epsilon(close));
        CHECK(found.divergence == doctest::Approx(expected.divergence).epsilon(close));
        CHECK(found.distillation == doctest::Approx(expected.distillation).epsilon(close));
      }
    }
  });
}

TEST_CASE("token_objective: the gradient is that of finite differences, in floats that of doubles") {
  for (const TokenObjective& o : objectives) {
    const index_t rows = 3, classes = 11, copies = o.divergence > 0 ? 2 : 1;
    const auto x = random_values<double>(copies * rows * classes, 4, -3, 3);
    const auto q = o.distillation > 0 ? some_teacher(rows, classes) : std::vector<double>();
    const std::vector<std::int32_t> targets = {4, 1, 10};  // 1 does not count
    const auto run = [&](std::vector<double>& logits, bool gradient) {
      return detail::kernels::token_objective<double>(logits.data(), q.empty() ? nullptr : q.data(),
                                                      targets.data(), rows, copies, classes, o, 0.25,
                                                      gradient)
                 .objective(o) *
             0.25;
    };
    auto gradient = x;
    const double value = run(gradient, true);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double step = 1e-5;
      auto up = x, down = x;
      up[i] += step;
      down[i] -= step;
      CAPTURE(i);
      CHECK(std::abs((run(up, false) - run(down, false)) / (2 * step) - gradient[i]) < 1e-8);
    }
    auto plain = x;
    CHECK(run(plain, false) == value);
    for_each_isa([&] {
      auto floats = converted<float>(x);
      const auto teacher = converted<float>(q);
      (void)detail::kernels::token_objective<float>(floats.data(), q.empty() ? nullptr : teacher.data(),
                                                    targets.data(), rows, copies, classes, o, 0.25f, true);
      CHECK(worst_error(floats, gradient) < 30 * tolerance<float>);
    });
  }
}

TEST_CASE("token_objective: one copy without a teacher is the cross entropy; equal copies do not differ") {
  const index_t rows = 4, classes = 37;
  const std::vector<std::int32_t> targets = {3, 36, 0, 7};
  const auto x = random_values<float>(rows * classes, 5, -3, 3);
  auto logits = x, once = x;
  double unsmoothed = 0;
  const double sum = detail::kernels::cross_entropy_forward<float>(
      logits.data(), targets.data(), rows, classes, {0.1, -100}, nullptr, &unsmoothed, logits.data(), 0.5f);
  const TokenLosses found = detail::kernels::token_objective<float>(
      once.data(), nullptr, targets.data(), rows, 1, classes, {.label_smoothing = 0.1}, 0.5f, true);
  CHECK(found.words == doctest::Approx(sum).epsilon(1e-6));
  CHECK(found.unsmoothed == doctest::Approx(unsmoothed).epsilon(1e-6));
  CHECK(unsmoothed < sum - 0.01);
  CHECK(worst_error(once, logits) < 1e-6);

  auto twice = x;
  twice.insert(twice.end(), x.begin(), x.end());
  const TokenLosses equal = detail::kernels::token_objective<float>(
      twice.data(), nullptr, targets.data(), rows, 2, classes, {.divergence = 5}, 1.0f, false);
  CHECK(equal.divergence == 0);
}

TEST_CASE("token_objective: impossible ids, of infinite negative logits, make no NaN") {
  const float none = -std::numeric_limits<float>::infinity();
  std::vector<float> logits = {1, none, 0.5f, -1, 0, none, 0.25f, 1};
  const std::vector<float> teacher = {0.5f, 0, 0.25f, 0.25f};
  const std::vector<std::int32_t> targets = {2};
  const TokenObjective o{.divergence = 1, .distillation = 0.5, .temperature = 2};
  const TokenLosses found = detail::kernels::token_objective<float>(logits.data(), teacher.data(),
                                                                    targets.data(), 1, 2, 4, o, 1.0f, true);
  CHECK(std::isfinite(found.objective(o)));
  for (const float g : logits) CHECK(std::isfinite(g));
  CHECK(logits[1] == 0);
  CHECK(logits[5] == 0);
}

TEST_CASE_TEMPLATE("token_objective: NaN in a row's logits reaches the gradients of all of that row", T,
                   float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<std::int32_t> targets = {2, 0};
  for_each_isa([&] {
    // The second row of each copy stays finite.
    std::vector<T> logits = {1, nan, T(0.5), 0, 1, 2, 0, T(0.25), 1, 2, 1, 0};
    const TokenObjective o{.divergence = 1};
    const TokenLosses found =
        detail::kernels::token_objective<T>(logits.data(), nullptr, targets.data(), 2, 2, 3, o, T(1), true);
    CHECK(std::isnan(found.words));
    CHECK(std::isnan(found.divergence));
    for (const std::size_t i : {0, 1, 2, 6, 7, 8}) CHECK(std::isnan(logits[i]));
    for (const std::size_t i : {3, 4, 5, 9, 10, 11}) CHECK(std::isfinite(logits[i]));

    std::vector<T> once = {1, nan, T(0.5), 0, 1, 2};
    (void)detail::kernels::token_objective<T>(once.data(), nullptr, targets.data(), 2, 1, 3, {}, T(1), true);
    for (const std::size_t i : {0, 1, 2}) CHECK(std::isnan(once[i]));
    for (const std::size_t i : {3, 4, 5}) CHECK(std::isfinite(once[i]));
  });
}

TEST_CASE("token_objective: what does not fit is refused") {
  std::vector<float> x(12, 0.0f);
  const std::vector<std::int32_t> bad = {0, 4};
  CHECK_THROWS_AS(
      (void)detail::kernels::token_objective<float>(x.data(), nullptr, bad.data(), 2, 1, 4, {}, 1.0f, false),
      IndexError);
  const std::vector<std::int32_t> good = {0};
  CHECK_THROWS_AS(
      (void)detail::kernels::token_objective<float>(x.data(), nullptr, good.data(), 1, 3, 4, {}, 1.0f, false),
      ValueError);
}
