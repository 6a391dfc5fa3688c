#include "eigenformer/autograd/ops/normalization/loss.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// softmax(logits) of a fixed tensor (N, V), row by row as it is asked for.
detail::TeacherRows<double> teacher_of(const Tensor<double>& logits) {
  return [p = softmax(Var<double>(logits)).value()](index_t first, index_t count, double* out) {
    const auto rows = p.rows(first, count);
    std::copy_n(rows.data(), rows.numel(), out);
  };
}

const std::vector<TokenObjective> objectives = {
    {.label_smoothing = 0.1, .divergence = 3},
    {.label_smoothing = 0.2, .distillation = 0.4, .temperature = 2.5},
    {.label_smoothing = 0.1, .divergence = 2, .distillation = 0.7, .temperature = 0.5}};

/// exp of a Var, which a tape records: sigmoid and logarithms would do, and log_softmax is at hand.
Var<double> divergence(const Var<double>& p, const Var<double>& q) {
  return sum(multiply(exp(p), subtract(p, q)));
}

}  // namespace

TEST_CASE("linear_token_objective: value and gradients, those of the plain ops") {
  const index_t n = 6, d = 4, classes = 9;
  Parameter<double> w(random({classes, d}, 2)), b(random({classes}, 3));
  w.set_name("w");
  b.set_name("b");
  const auto targets = Tensor<std::int32_t>::from({n}, {3, 8, 0, 1, 1, 5});
  const Tensor<double> teacher_logits = random({n, classes}, 7);
  for (const TokenObjective& o : objectives) {
    const index_t copies = o.divergence > 0 ? 2 : 1;
    const Tensor<double> x = random({copies * n, d}, 5);
    const detail::TeacherRows<double> teacher =
        o.distillation > 0 ? teacher_of(teacher_logits) : detail::TeacherRows<double>();
    TokenLosses losses;
    const auto fused = [&](Tape<double>& t, const Vars& v) {
      return linear_token_objective(Context<double>::checking(t), v[0], w, b, targets, o, 17, teacher,
                                    losses);
    };
    check_op(fused, {x}, {w.handle(), b.handle()});
    // PyTorch's formulas, op by op.
    const auto plain = [&](Tape<double>& t, const Vars& v) {
      const auto ctx = Context<double>::checking(t);
      const Var<double> logits = linear(ctx, v[0], w, b);
      std::vector<Var<double>> p;
      Var<double> total(Tensor<double>::scalar(0));
      for (index_t c = 0; c < copies; ++c) {
        const Var<double> part = slice(logits, 0, c * n, (c + 1) * n);
        p.push_back(log_softmax(part));
        const double share = 1 / static_cast<double>(copies);
        total = total + cross_entropy(part, targets,
                                      {.label_smoothing = o.label_smoothing,
                                       .reduction = CrossEntropyOptions::Reduction::sum}) *
                            (share * (1 - o.distillation));
        if (o.distillation == 0) continue;
        const Var<double> q(log_softmax(Var<double>(teacher_logits)).value());
        total = total + divergence(q, log_softmax(part * (1 / o.temperature))) *
                            (share * o.distillation * o.temperature * o.temperature);
      }
      if (copies == 2) total = total + (divergence(p[0], p[1]) + divergence(p[1], p[0])) * (o.divergence / 4);
      return total * (1.0 / 17);
    };
    const auto gradients_of = [&](const auto& f) {
      Tape<double> tape;
      const Var<double> v = tape.variable(x.clone());
      Gradients<double> gradients({w.handle(), b.handle()});
      const Var<double> y = f(tape, Vars{v});
      const double value = y.item();
      tape.backward(y, gradients);
      std::vector<double> all{value};
      const Tensor<double> dx = tape.gradient(v);
      all.insert(all.end(), dx.span().begin(), dx.span().end());
      for (const auto& e : gradients.entries())
        all.insert(all.end(), e.value.span().begin(), e.value.span().end());
      return all;
    };
    const auto found = gradients_of(fused), expected = gradients_of(plain);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-10));
    CHECK(losses.objective(o) / 17 == doctest::Approx(expected[0]).epsilon(1e-12));
  }
}

TEST_CASE("linear_token_objective: many blocks of rows are one") {
  const index_t n = 150, d = 3, classes = 70000;  // 64 rows a block, 64 for two copies
  Parameter<float> w(random({classes, d}, 2).to<float>()), absent;
  w.set_name("w");
  Tensor<std::int32_t> targets(Shape{n});
  RandomGenerator rng(4);
  for (auto& id : targets.span()) id = static_cast<std::int32_t>(rng.uniform_int(classes));
  const Tensor<float> x = random({2 * n, d}, 5).to<float>();
  const TokenObjective o{.divergence = 1};
  TokenLosses parts;
  const auto loss_of = [&](index_t begin, index_t count, Tensor<float>& dx) {
    Tensor<float> part(Shape{2 * count, d});
    std::copy_n(x.rows(begin, count).data(), count * d, part.data());
    std::copy_n(x.rows(n + begin, count).data(), count * d, part.data() + count * d);
    Tape<float> tape;
    const Var<float> v = tape.variable(part);
    Gradients<float> gradients({w.handle()});
    const Var<float> y = linear_token_objective(Context<float>::checking(tape), v, w, absent,
                                                targets.rows(begin, count), o, 100, {}, parts);
    const double value = static_cast<double>(y.item());
    tape.backward(y, gradients);
    dx = tape.gradient(v);
    return value;
  };
  Tensor<float> whole, first, last;
  const double all = loss_of(0, n, whole);
  const TokenLosses sums = parts;
  // Neither begins or ends where a block does.
  const index_t split = 100, after = n - split;
  const double head = loss_of(0, split, first);
  const TokenLosses of_head = parts;
  const double rest = loss_of(split, after, last);
  CHECK(all == doctest::Approx(head + rest).epsilon(1e-6));
  CHECK(sums.words == doctest::Approx(of_head.words + parts.words).epsilon(1e-6));
  CHECK(sums.unsmoothed == doctest::Approx(of_head.unsmoothed + parts.unsmoothed).epsilon(1e-6));
  CHECK(sums.divergence == doctest::Approx(of_head.divergence + parts.divergence).epsilon(1e-6));
  for (index_t c = 0; c < 2; ++c) {
    for (index_t i = 0; i < after * d; ++i) {
      CHECK(whole.data()[(c * n + split) * d + i] ==
            doctest::Approx(static_cast<double>(last.data()[c * after * d + i])).epsilon(1e-5));
    }
  }
}

TEST_CASE("linear_token_objective: what does not fit is refused") {
  Parameter<double> w(random({5, 3}, 1)), absent;
  w.set_name("w");
  const auto ctx = Context<double>::inference();
  const auto targets = Tensor<std::int32_t>::from({2}, {1, 4});
  TokenLosses losses;
  const auto message = [&](const TokenObjective& o, index_t rows, double divisor, bool teacher) {
    return message_of<Error>([&] {
      (void)linear_token_objective(ctx, Var<double>(random({rows, 3})), w, absent, targets, o, divisor,
                                   teacher ? teacher_of(random({2, 5})) : detail::TeacherRows<double>(),
                                   losses);
    });
  };
  CHECK(contains(message({}, 2, 0, false), "divisor is 0"));
  CHECK(contains(message({.divergence = -1}, 4, 1, false), "divergence is -1"));
  CHECK(contains(message({.divergence = 1}, 2, 1, false), "one target for two rows"));
  CHECK(contains(message({.distillation = 1.5}, 2, 1, true), "distillation is 1.5"));
  CHECK(contains(message({.distillation = 0.5, .temperature = 0}, 2, 1, true), "temperature is 0"));
  CHECK(contains(message({.distillation = 0.5}, 2, 1, false), "no teacher is given"));
  CHECK(contains(message({}, 2, 1, true), "distillation is 0, must be above 0"));
}
