#include "eigenformer/autograd/ops/elementwise/dropout.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Context<double> training(Tape<double>& tape) {
  return Context<double>::training(tape, detail::DropoutKey{9, 4, 0});
}

}  // namespace

TEST_CASE("dropout, add_dropout: gradients") {
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    check_op([&](Tape<double>& t, const Vars& v) { return dropout(training(t), v[0], rate); },
             {random({2, 5, 7})});
    check_op([&](Tape<double>& t, const Vars& v) { return add_dropout(training(t), v[0], v[1], rate); },
             {random({2, 5, 7}, 1), random({2, 5, 7}, 2)});
    check_op([&](Tape<double>& t, const Vars& v) { return add_dropout(training(t), v[0], v[0], rate); },
             {random({5, 7}, 1)});
    check_op([&](Tape<double>& t,
                 const Vars& v) { return add_dropout(training(t), v[0], exp(v[0]), rate) + v[0]; },
             {random({5, 7}, 1)});
  }
  check_op([&](Tape<double>& t, const Vars& v) { return dropout(training(t), v[0], 0.5); }, {random({})});
}

TEST_CASE("dropout: the identity outside training and at rate 0") {
  const Var<double> x = random({5, 7});
  Tape<double> tape;
  CHECK(values(dropout(Context<double>::inference(), x, 0.5).value()) == values(x.value()));
  CHECK(values(dropout(Context<double>::checking(tape), x, 0.5).value()) == values(x.value()));
  CHECK(values(dropout(training(tape), x, 0).value()) == values(x.value()));
  CHECK(values(add_dropout(Context<double>::inference(), x, x, 0.5).value()) == values((x + x).value()));
}

TEST_CASE_TEMPLATE("dropout: drops the rate, scales the rest, keeps the mean", T, float, double) {
  const Var<T> x = Tensor<T>::ones({200, 500});
  for (const double rate : {0.1, 0.5, 0.8}) {
    Tape<T> tape;
    const Tensor<T> y = dropout(Context<T>::training(tape, detail::DropoutKey{1, 2, 3}), x, rate).value();
    double sum = 0;
    index_t dropped = 0;
    bool scaled = true;
    for (const T value : y.span()) {
      sum += static_cast<double>(value);
      if (value == T(0))
        ++dropped;
      else
        scaled = scaled && std::abs(static_cast<double>(value) - 1 / (1 - rate)) < 1e-5;
    }
    CHECK(scaled);
    CHECK(std::abs(static_cast<double>(dropped) / 100000 - rate) < 0.006);
    CHECK(std::abs(sum / 100000 - 1) < 0.03);
  }
}

TEST_CASE("dropout: every site, step and seed has its own mask, and the same one again") {
  const Var<double> x = Tensor<double>::ones({40, 50});
  Tape<double> tape;
  const auto ctx = training(tape);
  const auto first = values(dropout(ctx, x, 0.5).value()), second = values(dropout(ctx, x, 0.5).value());
  CHECK(first != second);
  CHECK(values(dropout(training(tape), x, 0.5).value()) == first);
  CHECK(values(dropout(Context<double>::training(tape, detail::DropoutKey{9, 5, 0}), x, 0.5).value()) !=
        first);
  CHECK(values(dropout(Context<double>::training(tape, detail::DropoutKey{8, 4, 0}), x, 0.5).value()) !=
        first);
  int agree = 0;
  for (std::size_t i = 0; i < first.size(); ++i) agree += first[i] == second[i];
  CHECK(std::abs(agree - 1000) < 120);
}

TEST_CASE("dropout: a sequence's mask does not depend on padding, packing, batch or threads") {
  const std::vector<std::uint32_t> numbers{70, 3, 12};
  const auto padded = SequenceLayout::padded({4, 2, 5}, 5).with_sequence_numbers(numbers);
  const auto packed = SequenceLayout::packed({4, 2, 5}).with_sequence_numbers(numbers);
  const auto alone = SequenceLayout::packed({2}).with_sequence_numbers({3});
  const auto run = [](const SequenceLayout& layout, int threads) {
    const ThreadScope scope(threads);
    Tape<double> tape;
    return dropout(training(tape).for_rows(layout), Var<double>(Tensor<double>::ones({layout.rows(), 300})),
                   0.5)
        .value();
  };
  const Tensor<double> a = run(padded, 1), b = run(packed, 3), c = run(alone, 2);
  CHECK(values(a.rows(0, 4)) == values(b.rows(0, 4)));
  CHECK(values(a.rows(5, 2)) == values(b.rows(4, 2)));
  CHECK(values(a.rows(10, 5)) == values(b.rows(6, 5)));
  CHECK(values(c) == values(b.rows(4, 2)));
  CHECK(values(a.rows(0, 1)) != values(a.rows(1, 1)));
}

TEST_CASE("dropout: rates and rows that cannot be") {
  const Var<double> x = random({5, 7});
  Tape<double> tape;
  for (const double rate : {-0.1, 1.0, 1.5, std::nan("")}) {
    CHECK_THROWS_AS((void)dropout(training(tape), x, rate), ValueError);
    CHECK_THROWS_AS((void)dropout(Context<double>::inference(), x, rate), ValueError);
  }
  CHECK(message_of<ValueError>([&] { (void)dropout(training(tape), x, 1.5); }) ==
        "[dropout] dropout rate is 1.5, must be in [0, 1)");
  CHECK(message_of<ShapeError>([&] {
          (void)dropout(training(tape).for_rows(SequenceLayout::packed({3})), x, 0.5);
        }) == "[dropout] 5 rows do not fit the context's layout of 3 rows");
  CHECK(message_of<ShapeError>([&] {
          (void)add_dropout(training(tape), x, Var<double>(random({7})), 0.5);
        }) == "[add_dropout] residual of shape (7,) must have the input's shape (5, 7)");
}
