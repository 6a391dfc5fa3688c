#include "eigenformer/autograd/ops/normalization/loss.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Reduction = CrossEntropyOptions::Reduction;

Tensor<std::int32_t> targets_of(const Shape& shape, index_t classes, std::uint64_t seed) {
  Tensor<std::int32_t> t(shape);
  RandomGenerator rng(seed);
  for (auto& id : t.span()) id = static_cast<std::int32_t>(rng.uniform_int(classes));
  return t;
}

// PyTorch's definition in plain loops: (1 - e) nll + e / V * sum over all classes of -log p, over the counted
// rows.
double reference(const Tensor<double>& logits, const Tensor<std::int32_t>& targets,
                 const CrossEntropyOptions& o) {
  const index_t n = logits.dim(-1);
  double total = 0, counted = 0;
  for (index_t r = 0; r < targets.numel(); ++r) {
    const index_t id = targets.data()[r];
    if (id == o.ignore_index) continue;
    double sum = 0, all = 0;
    for (index_t c = 0; c < n; ++c) sum += std::exp(logits.data()[r * n + c]);
    for (index_t c = 0; c < n; ++c) all -= logits.data()[r * n + c] - std::log(sum);
    const double nll = std::log(sum) - logits.data()[r * n + id];
    total += (1 - o.label_smoothing) * nll + o.label_smoothing * all / static_cast<double>(n);
    counted += 1;
  }
  if (o.divisor > 0) return total / o.divisor;
  return o.reduction == Reduction::mean ? (counted == 0 ? 0 : total / counted) : total;
}

std::vector<CrossEntropyOptions> all_options() {
  return {{},
          {.label_smoothing = 0.1},
          {.ignore_index = 2},
          {.ignore_index = 2, .label_smoothing = 0.3},
          {.reduction = Reduction::sum},
          {.label_smoothing = 1.0, .reduction = Reduction::sum},
          {.ignore_index = 0, .label_smoothing = 0.2, .divisor = 17}};
}

}  // namespace

TEST_CASE("cross entropy: the sum without smoothing, of rows that count") {
  auto targets = targets_of({10}, 23, 1);
  targets.at({3}) = 2;
  const Tensor<double> x = random({10, 7}, 4);
  Parameter<double> w(random({23, 7}, 2)), absent;
  w.set_name("w");
  const Tensor<double> logits = linear(Context<double>::inference(), Var<double>(x), w, absent).value();
  for (CrossEntropyOptions o : all_options()) {
    CrossEntropyOptions plain{.ignore_index = o.ignore_index, .reduction = Reduction::sum};
    const double expected = reference(logits, targets, plain);
    double apart = 0, fused = 0, recorded = 0;
    o.unsmoothed = &apart;
    (void)cross_entropy(Var<double>(logits), targets, o);
    o.unsmoothed = &fused;
    (void)linear_cross_entropy(Context<double>::inference(), Var<double>(x), w, absent, targets, o);
    o.unsmoothed = &recorded;
    Tape<double> tape;
    (void)linear_cross_entropy(Context<double>::checking(tape), Var<double>(x), w, absent, targets, o);
    CHECK(apart == doctest::Approx(expected).epsilon(1e-12));
    CHECK(fused == doctest::Approx(expected).epsilon(1e-12));
    CHECK(recorded == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("cross_entropy: gradients and values for every option") {
  auto targets = targets_of({2, 5}, 23, 1);
  targets.at({0, 1}) = 2;
  targets.at({1, 4}) = 0;
  const Tensor<double> logits = random({2, 5, 23}, 2);
  for (const auto& o : all_options()) {
    check_op([&](const Vars& v) { return cross_entropy(v[0], targets, o); }, {logits});
    check_op([&](const Vars& v) { return cross_entropy(v[0], targets, o) * -2.5; }, {logits});
    CHECK(cross_entropy(Var<double>(logits), targets, o).item() ==
          doctest::Approx(reference(logits, targets, o)).epsilon(1e-12));
    CHECK(static_cast<double>(cross_entropy(Var<float>(logits.to<float>()), targets, o).item()) ==
          doctest::Approx(reference(logits, targets, o)).epsilon(1e-5));
  }
  check_op([&](const Vars& v) { return cross_entropy(v[0], Tensor<std::int32_t>::scalar(3)); },
           {random({7})});
}

TEST_CASE("cross_entropy: every target ignored gives 0 and zero gradients") {
  Tape<double> tape;
  const Var<double> x = tape.variable(random({3, 5}));
  const Var<double> loss = cross_entropy(x, Tensor<std::int32_t>::full({3}, -100));
  CHECK(loss.item() == 0);
  tape.backward(loss);
  CHECK(values(tape.gradient(x)) == std::vector<double>(15, 0.0));
}

TEST_CASE("cross_entropy: ignored rows have no effect, whatever they hold") {
  const double nan = std::nan("");
  Tensor<double> logits = random({3, 5});
  const auto targets = Tensor<std::int32_t>::from({3}, {1, -100, 4});
  const CrossEntropyOptions o{.label_smoothing = 0.1};
  const double before = cross_entropy(Var<double>(logits), targets, o).item();
  for (index_t c = 0; c < 5; ++c) logits.at({1, c}) = nan;
  Tape<double> tape;
  const Var<double> x = tape.variable(logits);
  const Var<double> loss = cross_entropy(x, targets, o);
  CHECK(loss.item() == before);
  tape.backward(loss);
  for (const double g : values(tape.gradient(x))) CHECK(std::isfinite(g));
  CHECK(values(tape.gradient(x).rows(1, 1)) == std::vector<double>(5, 0.0));
}

TEST_CASE("cross_entropy: micro-batches with the total divisor add up to the batch") {
  const Tensor<double> logits = random({7, 11}, 3);
  auto targets = targets_of({7}, 11, 4);
  targets.at({2}) = -100;
  Tape<double> tape;
  const Var<double> x = tape.variable(logits);
  tape.backward(cross_entropy(x, targets));
  const auto whole = values(tape.gradient(x));
  const Var<double> y = tape.variable(logits);
  const CrossEntropyOptions o{.divisor = 6};
  const Var<double> parts = cross_entropy(reshape(slice(y, 0, 0, 3), {3, 11}), targets.rows(0, 3), o) +
                            cross_entropy(slice(y, 0, 3), targets.rows(3, 4), o);
  CHECK(parts.item() == doctest::Approx(cross_entropy(Var<double>(logits), targets).item()).epsilon(1e-12));
  tape.backward(parts);
  const auto sum_of_parts = values(tape.gradient(y));
  for (std::size_t i = 0; i < whole.size(); ++i)
    CHECK(sum_of_parts[i] == doctest::Approx(whole[i]).epsilon(1e-10));
}

TEST_CASE("cross_entropy: large logits stay finite") {
  const Var<float> x = Tensor<float>::from({2, 3}, {1e4f, 0, -1e4f, 0, 0, 3e4f});
  const auto targets = Tensor<std::int32_t>::from({2}, {0, 0});
  CHECK(static_cast<double>(cross_entropy(x, targets).item()) == doctest::Approx(1.5e4));
}

TEST_CASE("linear_cross_entropy: gradients and values for every option") {
  Parameter<double> w(random({23, 7}, 2)), b(random({23}, 3));
  const Parameter<double> absent;
  auto targets = targets_of({10}, 23, 1);
  targets.at({3}) = 2;
  targets.at({4}) = 0;
  const Tensor<double> x = random({10, 7}, 4);
  for (const auto& o : all_options()) {
    check_op(
        [&](Tape<double>& t, const Vars& v) {
          return linear_cross_entropy(Context<double>::checking(t), v[0], w, b, targets, o);
        },
        {x}, {w.handle(), b.handle()});
    CHECK(linear_cross_entropy(Context<double>::inference(), Var<double>(x), w, b, targets, o).item() ==
          doctest::Approx(
              cross_entropy(linear(Context<double>::inference(), Var<double>(x), w, b), targets, o).item())
              .epsilon(1e-12));
  }
  const CrossEntropyOptions o{.label_smoothing = 0.1};
  // Without a bias; times a factor, so that the gradient arriving is not 1; twice in one graph; each input
  // frozen.
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        const auto ctx = Context<double>::checking(t);
        return linear_cross_entropy(ctx, v[0], w, absent, targets, o) * 3 +
               linear_cross_entropy(ctx, v[0] * 2, w, b, targets, o);
      },
      {x}, {w.handle(), b.handle()});
  check_op(
      [&](Tape<double>& t, const Vars&) {
        return linear_cross_entropy(Context<double>::checking(t), Var<double>(x), w, b, targets, o);
      },
      {}, {w.handle(), b.handle()});
  w.set_frozen(true);
  check_op(
      [&](Tape<double>& t, const Vars& v) {
        return linear_cross_entropy(Context<double>::checking(t), v[0], w, b, targets, o);
      },
      {x}, {b.handle()});
}

TEST_CASE("linear_cross_entropy: many blocks of rows and parts of the classes give what one product gives") {
  for (const auto& shape : {std::pair<index_t, index_t>{2300, 5}, {150, 4101}}) {
    const index_t rows = shape.first, classes = shape.second;
    CAPTURE(classes);
    const Parameter<double> w(random({classes, 3}, 2)), b(random({classes}, 3));
    auto targets = targets_of({rows}, classes, 1);
    for (index_t r = rows / 20; r < rows / 5; ++r) targets.at({r}) = -100;
    const Tensor<double> x = random({rows, 3}, 4);
    const CrossEntropyOptions o{.label_smoothing = 0.1};
    const auto run = [&](bool fused) {
      Tape<double> tape;
      Gradients<double> gradients({w.handle(), b.handle()});
      const Var<double> v = tape.variable(x);
      const auto ctx = Context<double>::checking(tape);
      const Var<double> loss = fused ? linear_cross_entropy(ctx, v, w, b, targets, o)
                                     : cross_entropy(linear(ctx, v, w, b), targets, o);
      tape.backward(loss, gradients);
      return std::vector<Tensor<double>>{Tensor<double>::scalar(loss.item()), tape.gradient(v),
                                         gradients.of(w).clone(), gradients.of(b).clone()};
    };
    const auto fused = run(true), apart = run(false);
    for (std::size_t i = 0; i < fused.size(); ++i) CHECK(worst_difference(fused[i], apart[i]) < 1e-12);
    const CrossEntropyOptions sum_up{.reduction = Reduction::sum};
    CHECK(
        linear_cross_entropy(Context<double>::inference(), Var<double>(x), w, b, targets, sum_up).item() ==
        doctest::Approx(
            cross_entropy(linear(Context<double>::inference(), Var<double>(x), w, b), targets, sum_up).item())
            .epsilon(1e-12));
  }
}

TEST_CASE("linear_cross_entropy in bf16: cached weights give the same bits in parts of the classes") {
  const Parameter<float> w(random({4101, 6}, 2).to<float>()), b(random({4101}, 3).to<float>());
  const auto targets = targets_of({70}, 4101, 1);
  const Tensor<float> x = random({70, 6}, 4).to<float>();
  const auto run = [&](std::shared_ptr<detail::kernels::WeightCache> cache) {
    Tape<float> tape;
    Gradients<float> gradients({w.handle(), b.handle()});
    const Var<float> v = tape.variable(x);
    const auto ctx = Context<float>::checking(tape)
                         .with_precision(GemmPrecision::bf16)
                         .with_weight_cache(std::move(cache));
    const Var<float> loss = linear_cross_entropy(ctx, v, w, b, targets);
    tape.backward(loss, gradients);
    return std::vector<std::vector<float>>{
        {loss.item()}, values(tape.gradient(v)), values(gradients.of(w)), values(gradients.of(b))};
  };
  CHECK(run(nullptr) == run(std::make_shared<detail::kernels::WeightCache>()));
}

TEST_CASE("linear_cross_entropy: no rows at all") {
  const Parameter<double> w(random({5, 3}, 2)), b(random({5}, 3));
  Tape<double> tape;
  Gradients<double> gradients({w.handle(), b.handle()});
  const Var<double> x = tape.variable(Tensor<double>(Shape{0, 3}));
  const Var<double> loss =
      linear_cross_entropy(Context<double>::checking(tape), x, w, b, Tensor<std::int32_t>(Shape{0}));
  CHECK(loss.item() == 0);
  tape.backward(loss, gradients);
  CHECK(values(gradients.of(w)) == std::vector<double>(15, 0.0));
  CHECK(values(gradients.of(b)) == std::vector<double>(5, 0.0));
}

TEST_CASE("losses: the same bits for any number of threads") {
  const Parameter<float> w(random({301, 17}, 2).to<float>()), b(random({301}, 3).to<float>());
  const auto targets = targets_of({1500}, 301, 1);
  const Tensor<float> x = random({1500, 17}, 4).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<float> tape;
    Gradients<float> gradients({w.handle(), b.handle()});
    const Var<float> v = tape.variable(x);
    const auto ctx = Context<float>::checking(tape);
    const Var<float> loss =
        linear_cross_entropy(ctx, v, w, b, targets) + cross_entropy(linear(ctx, v, w, b), targets);
    tape.backward(loss, gradients);
    return std::vector<std::vector<float>>{
        {loss.item()}, values(tape.gradient(v)), values(gradients.of(w)), values(gradients.of(b))};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("losses: targets, shapes and options that do not fit") {
  const Var<double> x = random({3, 5});
  const auto good = Tensor<std::int32_t>::from({3}, {0, 1, 2});
  for (const std::int32_t bad : {5, -1, -99}) {
    const std::string message = message_of<IndexError>([&] {
      (void)cross_entropy(x, Tensor<std::int32_t>::from({3}, {0, bad, 2}));
    });
    CAPTURE(message);
    CHECK(contains(message, "[cross_entropy]"));
    CHECK(contains(message, std::to_string(bad)));
  }
  CHECK(message_of<ShapeError>([&] { (void)cross_entropy(x, Tensor<std::int32_t>::zeros({4})); }) ==
        "[cross_entropy] targets of shape (4,) must be the logits' shape (3, 5) without the classes");
  CHECK_THROWS_AS((void)cross_entropy(x, Tensor<std::int32_t>::zeros({3, 5})), ShapeError);
  CHECK_THROWS_AS((void)cross_entropy(x, good, {.label_smoothing = -0.1}), ValueError);
  CHECK_THROWS_AS((void)cross_entropy(x, good, {.label_smoothing = 1.1}), ValueError);
  CHECK_THROWS_AS((void)cross_entropy(x, good, {.divisor = -3}), ValueError);

  const auto ctx = Context<double>::inference();
  const Parameter<double> w(random({7, 5}, 1)), narrow(random({7, 4}, 1)), flat(random({5}, 1)),
      bias(random({3}, 1)), absent;
  CHECK_THROWS_AS((void)linear_cross_entropy(ctx, x, narrow, absent, good), ShapeError);
  CHECK_THROWS_AS((void)linear_cross_entropy(ctx, x, flat, absent, good), ShapeError);
  CHECK_THROWS_AS((void)linear_cross_entropy(ctx, x, w, bias, good), ShapeError);
  CHECK_THROWS_AS((void)linear_cross_entropy(ctx, x, w, absent, Tensor<std::int32_t>::zeros({4})),
                  ShapeError);
  CHECK_THROWS_AS((void)linear_cross_entropy(ctx, x, w, absent, Tensor<std::int32_t>::from({3}, {0, 7, 1})),
                  IndexError);
}

TEST_CASE("cross_entropy: an ignored id that no target can have is refused, not cut to 32 bits") {
  const Var<double> logits = Tensor<double>::ones({2, 3});
  const auto targets = Tensor<std::int32_t>::from({2}, {0, 1});
  for (const index_t wrong : {index_t{1} << 32, std::numeric_limits<index_t>::min()}) {
    CAPTURE(wrong);
    CHECK(message_of<ValueError>([&] { (void)cross_entropy(logits, targets, {.ignore_index = wrong}); }) ==
          "[cross_entropy] ignore_index is " + std::to_string(wrong) +
              ", must fit into 32 bits, as targets do");
  }
}
