#include "eigenformer/autograd/ops/linear/linear.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr index_t in = 5, out = 8, rank = 3;

detail::LowRankPart<double> part(index_t first_row, index_t rows, double dropout, std::uint64_t seed) {
  detail::LowRankPart<double> p{
      .module = "part " + std::to_string(seed), .first_row = first_row, .rows = rows};
  p.a = Parameter<double>(random({rank, in}, seed));
  p.b = Parameter<double>(random({rows, rank}, seed + 1));
  p.a.set_name(p.module + " A");
  p.b.set_name(p.module + " B");
  p.alpha = 2;
  p.dropout = dropout;
  return p;
}

/// A linear layer of 8 outputs; its rows 0 to 2 and 3 to 7 have an adapter of their own.
struct Adapted {
  Parameter<double> weight{random({out, in}, 1)};
  std::shared_ptr<detail::WeightAdapter<double>> adapter = std::make_shared<detail::WeightAdapter<double>>();

  explicit Adapted(double dropout) {
    weight.set_name("weight");
    adapter->parts = {part(0, 3, dropout, 10), part(3, 5, dropout, 20)};
  }
  std::vector<ParameterHandle<double>> factors() const {
    std::vector<ParameterHandle<double>> all;
    for (const auto& p : adapter->parts) {
      all.push_back(p.a.handle());
      all.push_back(p.b.handle());
    }
    return all;
  }
  Var<double> operator()(const Context<double>& ctx, const Var<double>& x) const {
    auto set = std::make_shared<AdapterSet<double>>();
    set->add(weight, adapter);
    return linear(ctx.with_adapters(std::move(set)), x, weight, Parameter<double>());
  }
};

}  // namespace

TEST_CASE("the terms of an adapter: value of a plain loop, without a tape") {
  const Adapted layer(0.0);
  const Tensor<double> x = random({4, in}, 2);
  const Tensor<double> y = layer(Context<double>::inference(), Var<double>(x)).value();
  for (index_t r = 0; r < 4; ++r) {
    for (index_t o = 0; o < out; ++o) {
      const auto& p = layer.adapter->parts[o < 3 ? 0 : 1];
      double expected = 0;
      for (index_t i = 0; i < in; ++i) {
        double low = 0;
        for (index_t k = 0; k < rank; ++k)
          low += p.b.value().data()[(o - p.first_row) * rank + k] * p.a.value().data()[k * in + i];
        expected += x.data()[r * in + i] * (layer.weight.value().data()[o * in + i] + 2.0 / rank * low);
      }
      CHECK(y.data()[r * out + o] == doctest::Approx(expected).epsilon(1e-12));
    }
  }
}

TEST_CASE("the terms of an adapter: gradients of input, weight and factors, each of them frozen in turn") {
  for (const double dropout : {0.0, 0.4}) {
    const Adapted layer(dropout);
    const auto f = [&](Tape<double>& tape, const Vars& v) {
      return layer(Context<double>::training(tape, detail::DropoutKey{1, 2, 3}), v[0]);
    };
    auto all = layer.factors();
    all.push_back(layer.weight.handle());
    const Tensor<double> x = random({4, in}, 2);
    check_op(f, {x}, all);
    // Every subset of what wants a gradient, with and without the input.
    for (unsigned frozen = 1; frozen < 32; ++frozen) {
      CAPTURE(dropout);
      CAPTURE(frozen);
      std::vector<ParameterHandle<double>> learned;
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i]->frozen = (frozen >> i & 1) != 0;
        if (!all[i]->frozen) learned.push_back(all[i]);
      }
      check_op(f, {x}, learned);
      if (learned.empty()) continue;
      check_op([&](Tape<double>& tape, const Vars&) { return f(tape, {Var<double>(x)}); }, {}, learned);
    }
    for (const auto& p : all) p->frozen = false;
  }
}
