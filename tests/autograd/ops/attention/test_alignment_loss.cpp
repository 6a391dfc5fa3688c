#include "eigenformer/autograd/ops/attention/alignment_loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/attention/attention.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<ExpectedAttention> expected = {
    {0, 0, 2, 1}, {0, 1, 0, 0.5}, {0, 1, 3, 0.5}, {1, 2, 1, 1}, {1, 0, 0, 0.25}};

double plain_loss(const Tensor<double>& w, index_t head, double divisor) {
  double sum = 0;
  for (const ExpectedAttention& e : expected) {
    double mean = 0;
    for (index_t h = 0; h < w.dim(1); ++h) {
      if (head >= 0 && h != head) continue;
      mean += w.at({e.sequence, h, e.query, e.key}) / (head < 0 ? static_cast<double>(w.dim(1)) : 1.0);
    }
    sum -= e.share * std::log(mean + 1e-6);
  }
  return sum / divisor;
}

}  // namespace

TEST_CASE("alignment_loss: the value and the gradient, of one head and of the mean") {
  const Tensor<double> w = positive({2, 3, 3, 4}, 5, 0.1, 0.9);
  for (const index_t head : {-1, 0, 2}) {
    CHECK(alignment_loss(Var<double>(w), expected, head, 7.0).value().item() ==
          doctest::Approx(plain_loss(w, head, 7)).epsilon(1e-12));
    check_op([&](const Vars& v) { return alignment_loss(v[0], expected, head, 7.0); }, {w});
  }
  CHECK(alignment_loss(Var<double>(w), {}, 1, 2.0).value().item() == 0);
  // A weight of 0 costs much and not infinitely much.
  CHECK(alignment_loss(Var<double>(Tensor<double>::zeros({1, 1, 1, 1})), {{0, 0, 0, 1}}, 0, 1.0)
            .value()
            .item() == doctest::Approx(-std::log(1e-6)));
}

TEST_CASE("alignment_loss: the gradient goes through attention weights of packed sequences") {
  const SequenceLayout queries = SequenceLayout::packed({2, 3}), keys = SequenceLayout::packed({4, 3});
  const detail::AttentionOp op{.heads = 2};
  const std::vector<ExpectedAttention> some = {{0, 0, 3, 1}, {1, 2, 0, 0.5}, {1, 2, 2, 0.5}};
  for (const index_t head : {-1, 1}) {
    check_op(
        [&](const Vars& v) {
          const auto ctx = Context<double>::inference();
          return alignment_loss(attention_weights(ctx, v[0], v[1], queries, keys, {}, op), some, head, 3.0);
        },
        {random({5, 6}, 1), random({7, 6}, 2)});
  }
}

TEST_CASE("alignment_loss: what does not fit is refused") {
  const Var<double> w(positive({2, 3, 3, 4}));
  CHECK_THROWS_AS((void)alignment_loss(Var<double>(positive({3, 3, 4})), expected, 0, 1.0), ShapeError);
  CHECK_THROWS_WITH_AS((void)alignment_loss(w, expected, 3, 1.0), doctest::Contains("must be below 3"),
                       ValueError);
  CHECK_THROWS_AS((void)alignment_loss(w, expected, -2, 1.0), ValueError);
  CHECK_THROWS_AS((void)alignment_loss(w, expected, 0, 0.0), ValueError);
  CHECK_THROWS_AS((void)alignment_loss(w, {{0, 3, 0, 1}}, 0, 1.0), IndexError);
  CHECK_THROWS_AS((void)alignment_loss(w, {{0, 0, 4, 1}}, 0, 1.0), IndexError);
  CHECK_THROWS_AS((void)alignment_loss(w, {{2, 0, 0, 1}}, 0, 1.0), IndexError);
}
