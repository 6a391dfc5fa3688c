#include "eigenformer/autograd/ops/losses/losses.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "autograd/ops/reduction/reduction_check.hpp"
#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using R = LossReduction;
const std::vector<std::pair<std::string, R>> reductions_of_all = {
    {"none", R::none}, {"mean", R::mean}, {"sum", R::sum}};

const Fixture& fixture() {
  static const Fixture file("ops/losses");
  return file;
}

// CHECKs the value and both gradients of f(a, b) against the fixture's; where PyTorch's gradient is NaN or
// infinite, nothing.
template <class T, class F>
void check_case(const std::string& key, const std::string& a, const std::string& b, const F& f) {
  CAPTURE(key);
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 1e-12;
  Tape<T> tape;
  const Var<T> va = tape.variable(fixture().get<T>("in." + a));
  const Var<T> vb = tape.variable(fixture().get<T>("in." + b));
  const Var<T> y = f(va, vb);
  check_all_close(y.value(), fixture().get<double>("out." + key), tolerance);
  Gradients<T> none;
  tape.backward(y, fixture().get<T>("in.cotangent." + key), none);
  for (const auto& [v, side] : {std::pair(va, "a"), std::pair(vb, "b")}) {
    const std::string name = std::string("grad_in.") + side + "." + key;
    CAPTURE(name);
    auto actual = tape.gradient(v).clone();
    auto expected = fixture().get<double>(name).clone();
    for (index_t i = 0; i < actual.numel(); ++i) {
      if (std::isfinite(expected.data()[i])) continue;
      actual.data()[i] = T(0);
      expected.data()[i] = 0;
    }
    check_all_close(actual, expected, tolerance * 10);
  }
}

template <class T, class F>
void check_reductions(const std::string& name, const std::string& a, const std::string& b, const F& f) {
  for (const auto& [word, r] : reductions_of_all) {
    check_case<T>(name + "." + word, a, b,
                  [&, r = r](const Var<T>& x, const Var<T>& y) { return f(x, y, r); });
  }
}

}  // namespace

TEST_CASE("losses: gradients of both operands, broadcast, for every reduction") {
  const Tensor<double> x = random({3, 4}, 1), t = random({3, 4}, 2), row = random({1, 4}, 3);
  const Tensor<double> p = positive({3, 4}, 4, 0.1, 0.9), q = positive({3, 4}, 5, 0.1, 0.9);
  const Tensor<double> weight = positive({4}, 6), positives = positive({3, 1}, 7);
  for (const auto& [word, r] : reductions_of_all) {
    const R reduction = r;
    check_op([&](const Vars& v) { return ef::mse_loss(v[0], v[1], reduction); }, {x, t});
    check_op([&](const Vars& v) { return ef::mse_loss(v[0], v[1], reduction); }, {x, row});
    check_op([&](const Vars& v) { return ef::l1_loss(v[0], v[1], reduction); }, {row, t});
    check_op([&](const Vars& v) { return ef::smooth_l1_loss(v[0], v[1], reduction, 0.7); }, {x, t});
    check_op([&](const Vars& v) { return ef::huber_loss(v[0], v[1], reduction, 0.7); }, {x, t});
    check_op([&](const Vars& v) { return ef::binary_cross_entropy(v[0], v[1], reduction, weight); }, {p, q});
    check_op(
        [&](const Vars& v) {
          return ef::binary_cross_entropy_with_logits(v[0], v[1], reduction, weight, positives);
        },
        {x, q});
    check_op([&](const Vars& v) { return ef::kl_div(v[0], v[1], reduction); }, {x, q});
    check_op([&](const Vars& v) { return ef::kl_div(v[0], v[1], reduction, true); }, {x, row});
    const Tensor<std::int32_t> targets({3}, {2, -100, 1});
    check_op([&](const Vars& v) { return ef::nll_loss(v[0], targets, reduction); }, {x});
  }
  check_op([&](const Vars& v) { return ef::kl_div(v[0], v[1], R::batchmean); }, {x, q});
  for (const index_t axis : {0, 1, -1}) {
    check_op([&](const Vars& v) { return ef::cosine_similarity(v[0], v[1], axis); }, {x, t});
    check_op([&](const Vars& v) { return ef::cosine_similarity(v[0], v[1], axis); }, {x, row});
  }
  check_op([](const Vars& v) { return ef::mse_loss(v[0], v[0] * 3); }, {x});
}

TEST_CASE_TEMPLATE("losses and their gradients are PyTorch's", T, float, double) {
  const auto get = [](const char* name) { return fixture().get<T>(std::string("in.") + name); };
  const auto mse = [](const auto& a, const auto& b, R r) { return ef::mse_loss(a, b, r); };
  const auto l1 = [](const auto& a, const auto& b, R r) { return ef::l1_loss(a, b, r); };
  check_reductions<T>("mse", "x", "t", mse);
  check_reductions<T>("mse_row", "x", "row", mse);
  check_reductions<T>("mse_odd", "odd", "odd_t", mse);
  check_reductions<T>("mse_none", "none", "none", mse);
  check_reductions<T>("l1", "x", "t", l1);
  check_reductions<T>("l1_row", "row", "t", l1);
  check_reductions<T>("l1_odd", "odd", "odd_t", l1);
  check_reductions<T>("smooth", "x", "t",
                      [](const auto& a, const auto& b, R r) { return ef::smooth_l1_loss(a, b, r, 0.5); });
  check_reductions<T>("smooth_0", "x", "t",
                      [](const auto& a, const auto& b, R r) { return ef::smooth_l1_loss(a, b, r, 0); });
  check_reductions<T>("smooth_odd", "odd", "odd_t",
                      [](const auto& a, const auto& b, R r) { return ef::smooth_l1_loss(a, b, r); });
  check_reductions<T>("huber", "x", "t",
                      [](const auto& a, const auto& b, R r) { return ef::huber_loss(a, b, r, 0.5); });
  check_reductions<T>("huber_odd", "odd", "odd_t",
                      [](const auto& a, const auto& b, R r) { return ef::huber_loss(a, b, r); });
  const Tensor<T> weight = get("weight"), positives = get("pos_weight"), absent;
  for (const std::string kind : {"", "_weight"}) {
    check_reductions<T>("bce" + kind, "p", "q", [&](const auto& a, const auto& b, R r) {
      return ef::binary_cross_entropy(a, b, r, kind.empty() ? absent : weight);
    });
  }
  for (const std::string kind : {"", "_weight", "_pos", "_both"}) {
    check_reductions<T>("logit" + kind, "logits", "q", [&](const auto& a, const auto& b, R r) {
      return ef::binary_cross_entropy_with_logits(a, b, r,
                                                  kind == "_weight" || kind == "_both" ? weight : absent,
                                                  kind == "_pos" || kind == "_both" ? positives : absent);
    });
  }
  for (const auto& [name, target] :
       {std::pair("kl", "prob"), std::pair("kl_zero", "q"), std::pair("kl_log", "log_target")}) {
    const bool log = std::string(name) == "kl_log";
    const auto f = [log](const auto& a, const auto& b, R r) { return ef::kl_div(a, b, r, log); };
    check_reductions<T>(name, "log", target, f);
    check_case<T>(std::string(name) + ".batchmean", "log", target,
                  [&](const auto& a, const auto& b) { return f(a, b, R::batchmean); });
  }
  for (const index_t axis : {0, 1, 2}) {
    const std::string number = std::to_string(axis);
    check_case<T>("cosine." + number, "x", "near",
                  [&](const auto& a, const auto& b) { return ef::cosine_similarity(a, b, axis); });
    check_case<T>("cosine_row." + number, "x", "row",
                  [&](const auto& a, const auto& b) { return ef::cosine_similarity(a, b, axis - 3, 0.5); });
  }
  const auto targets = fixture().file().template tensor<std::int64_t>("in.targets");
  for (const auto& [word, r] : reductions_of_all) {
    Tape<T> tape;
    const Var<T> x = tape.variable(get("log"));
    const Var<T> y = ef::nll_loss(x, targets, r);
    check_all_close(y.value(), fixture().get<double>("out.nll." + word), 1e-6);
    Gradients<T> none;
    tape.backward(y, fixture().get<T>("in.cotangent.nll." + word), none);
    check_all_close(tape.gradient(x), fixture().get<double>("grad_in.a.nll." + word), 1e-6);
  }
}

TEST_CASE("losses: numbers, constants, infinities, NaN") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor<double> x({3}, {1, 2, 4});
  CHECK(ef::mse_loss(x, 2).item() == doctest::Approx(5.0 / 3));
  CHECK(ef::l1_loss(2, x, R::sum).item() == 3);
  CHECK(ef::huber_loss(x, 0, R::sum, inf).item() == doctest::Approx(10.5));
  CHECK(ef::binary_cross_entropy_with_logits(Tensor<double>({2}, {1e4, -1e4}), Tensor<double>({2}, {0, 1}))
            .item() == 1e4);
  CHECK(std::isnan(ef::l1_loss(Tensor<double>({1}, {nan}), 1).item()));
  Tape<double> tape;
  const Var<double> v = tape.variable(Tensor<double>({3}, {nan, 2, 3}));
  tape.backward(ef::smooth_l1_loss(v, 2, R::sum));
  CHECK(std::isnan(tape.gradient(v).data()[0]));
  CHECK(tape.gradient(v).data()[1] == 0);
  CHECK(ef::cosine_similarity(Tensor<float>::zeros({2, 3}), Tensor<float>::ones({3})).value()(1) == 0);
}

TEST_CASE("nll_loss of log_softmax is cross_entropy, and of ignored targets 0") {
  const Tensor<double> x = random({2, 3, 5});
  const Tensor<std::int32_t> targets({2, 3}, {0, 4, 2, -100, 1, 3}), ignored({2}, {7, 7});
  CHECK(ef::nll_loss(ef::log_softmax(x), targets).item() ==
        doctest::Approx(cross_entropy(x, targets).item()));
  CHECK(ef::nll_loss(random({2, 3}), ignored, R::mean, 7).item() == 0);
  CHECK(ef::nll_loss(random({2, 3, 5}), targets, R::none).shape() == Shape{2, 3});
  CHECK(ef::nll_loss(Tensor<float>(Shape{0, 3}), Tensor<std::int64_t>(Shape{0})).item() == 0);
}

TEST_CASE("losses: the same bits for any number of threads") {
  const Tensor<float> x = random({37, 2003}, 5).to<float>(), t = random({37, 2003}, 6).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    return std::vector<float>{ef::mse_loss(x, t).item(), ef::l1_loss(x, t).item(), ef::kl_div(x, 0.5).item()};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("losses: what is refused") {
  const Tensor<float> x = Tensor<float>::zeros({2, 3}), y = Tensor<float>::zeros({2, 4});
  CHECK_THROWS_AS((void)ef::mse_loss(x, y), ShapeError);
  CHECK_THROWS_AS((void)ef::cosine_similarity(x, y), ShapeError);
  CHECK_THROWS_AS((void)ef::cosine_similarity(x, x, 2), IndexError);
  CHECK_THROWS_AS((void)ef::binary_cross_entropy(x, y), ShapeError);
  CHECK_THROWS_AS((void)ef::binary_cross_entropy(x, x, R::mean, Tensor<float>::ones({2, 2, 3})), ShapeError);
  CHECK_THROWS_AS((void)ef::kl_div(Tensor<float>::scalar(1), Tensor<float>::scalar(1), R::batchmean),
                  ShapeError);
  CHECK(message_of<ValueError>([&] { (void)ef::mse_loss(x, x, R::batchmean); }) ==
        "[mse_loss] the reduction batchmean is that of kl_div alone");
  CHECK(message_of<ValueError>([&] { (void)ef::smooth_l1_loss(x, x, R::mean, -1); }) ==
        "[smooth_l1_loss] beta is -1, must be at least 0");
  CHECK(message_of<ValueError>([&] { (void)ef::huber_loss(x, x, R::mean, 0); }) ==
        "[huber_loss] delta is 0, must be positive");
  CHECK(message_of<ValueError>([&] {
          (void)ef::binary_cross_entropy(Tensor<float>::full({2, 3}, 2), x);
        }) == "[binary_cross_entropy] the input has an element 2, must be probabilities in [0, 1]");
  CHECK(message_of<IndexError>([&] {
          (void)ef::nll_loss(x, Tensor<std::int32_t>({2}, {0, 3}));
        }) == "[nll_loss] target 3 is outside 3 classes");
  CHECK_THROWS_AS((void)ef::nll_loss(x, Tensor<std::int32_t>({3}, {0, 1, 2})), ShapeError);
}
