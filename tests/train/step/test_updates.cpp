#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"
#include "train/loop/line_model.hpp"
#include "train/step/accumulate.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

template <class Loss>
std::pair<detail::UpdateLoss, std::vector<double>> gradient_of(Line& line, Loss loss,
                                                               const std::vector<Points>& batches) {
  Gradients<double> gradients(parameters(line));
  Tape<double> tape;
  const detail::UpdateLoss sum =
      accumulate_gradients(loss, batches, tape, detail::DropoutKey{1, 1, 0}, gradients);
  return {sum, {gradients.of(line.slope).item(), gradients.of(line.offset).item()}};
}

}  // namespace

TEST_CASE("batches count by their weights, so that parts of a batch are the batch") {
  Line line;
  const Points whole{{1, 2, 3, 4, 5, 6, 7}, {2, 1, 5, 3, 0, 9, 4}};
  const std::vector<Points> parts{{{1, 2}, {2, 1}}, {{3, 4, 5, 6, 7}, {5, 3, 0, 9, 4}}};
  const auto mean = [&](const Context<double>& ctx, const Points& p) { return line.loss(ctx, p); };
  const auto size = [](const Points& p) { return p.x.size(); };
  const auto [one, one_gradient] = gradient_of(line, mean, {whole});
  const auto [two, two_gradient] = gradient_of(line, WeightedLoss{mean, size}, parts);
  CHECK(two.weight == 7);
  CHECK(one.weight == 1);
  CHECK(two.loss == doctest::Approx(one.loss).epsilon(1e-14));
  CHECK(two_gradient[0] == doctest::Approx(one_gradient[0]).epsilon(1e-14));
  CHECK(two_gradient[1] == doctest::Approx(one_gradient[1]).epsilon(1e-14));
  const auto [unweighted, other] = gradient_of(line, mean, parts);
  CHECK(unweighted.weight == 2);
  CHECK(std::abs(other[0] - one_gradient[0]) > 1e-3);

  // A loss function that takes the weight of the update divides by it itself.
  const auto share = [&](const Context<double>& ctx, const Points& p, UpdateWeight update) {
    return multiply(line.loss(ctx, p), static_cast<double>(p.x.size()) / update.total);
  };
  const auto [told, told_gradient] = gradient_of(line, WeightedLoss{share, size}, parts);
  CHECK(told.loss == two.loss);
  CHECK(told_gradient == two_gradient);
}

TEST_CASE("gradients of whole batches are added up in their order") {
  Line line;
  const std::vector<Points> batches{{{1, 2}, {2, 1}}, {{0.3, 4, 5}, {5, 3, 1e9}}, {{6.1, 7}, {9, 4}}};
  const auto mean = [&](const Context<double>& ctx, const Points& p) { return line.loss(ctx, p); };
  const auto third = [&](const Context<double>& ctx, const Points& p, UpdateWeight) {
    return multiply(line.loss(ctx, p), 1.0 / 3);
  };
  std::vector<double> sum{0, 0};
  for (const Points& batch : batches) {
    const auto [loss, gradient] = gradient_of(line, third, {batch});
    for (std::size_t i = 0; i < 2; ++i) sum[i] += gradient[i];
  }
  CHECK(gradient_of(line, mean, batches).second == sum);
}

TEST_CASE("impossible weights and losses are refused") {
  Line line;
  const auto mean = [&](const Context<double>& ctx, const Points& p) { return line.loss(ctx, p); };
  const std::vector<Points> batches{{{1, 2}, {2, 1}}};
  const auto refusal = [&](double weight) {
    return message_of<ValueError>([&] {
      gradient_of(line, WeightedLoss{mean, [=](const Points&) { return weight; }}, batches);
    });
  };
  CHECK(contains(refusal(-1), "the weight of a batch is -1, must be finite and not negative"));
  CHECK(contains(refusal(0), "all batches of an update have weight 0"));
  const auto rows = [&](const Context<double>& ctx, const Points& p) { return line.errors(ctx, p); };
  CHECK(contains(
      message_of<ShapeError>([&] { gradient_of(line, rows, batches); }),
      "[training] the loss function returned shape (2,), must be a scalar, the mean loss of the batch"));
}
