#include "eigenformer/autograd/ops/attention/attention.hpp"

#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "kernels/kernel_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::kernels::RotaryTable;

namespace {

constexpr index_t heads = 3, head_dim = 8, columns = heads * head_dim + 5;

// Each pair is a complex number, turned by its angle.
Tensor<double> turned(const Tensor<double>& x, const SequenceLayout& layout, index_t dim, double base,
                      RotaryPairing pairing) {
  Tensor<double> y = x.clone();
  for (index_t b = 0; b < layout.batch(); ++b) {
    for (index_t i = 0; i < layout.length(b); ++i) {
      const index_t row = (layout.offset(b) + i) * columns;
      for (index_t h = 0; h < heads; ++h) {
        for (index_t p = 0; p < dim / 2; ++p) {
          const bool adjacent = pairing == RotaryPairing::adjacent;
          const index_t first = row + h * head_dim + (adjacent ? 2 * p : p),
                        second = first + (adjacent ? 1 : dim / 2);
          const double angle = static_cast<double>(layout.position(b) + i) /
                               std::pow(base, 2 * static_cast<double>(p) / static_cast<double>(dim));
          const double c = std::cos(angle), s = std::sin(angle);
          y.data()[first] = x.data()[first] * c - x.data()[second] * s;
          y.data()[second] = x.data()[second] * c + x.data()[first] * s;
        }
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE(
    "rotary: equals complex numbers turned by their angles, both pairings, partial, on any instruction set") {
  const auto layout = SequenceLayout::packed({3, 5}).with_first_position({2, 600});
  const Tensor<double> x = random({8, columns}, 1);
  for_each_isa([&] {
    for (const auto pairing : {RotaryPairing::adjacent, RotaryPairing::halves}) {
      for (const index_t dim : {2, 4, 8}) {
        for (const double base : {10000.0, 7.0}) {
          const auto expected = turned(x, layout, dim, base, pairing);
          const RotaryTable<double> table(dim, base);
          CHECK(worst_difference(rotary(Var<double>(x), layout, heads, head_dim, table, pairing).value(),
                                 expected) < 1e-12);
          const RotaryTable<float> single(dim, base);
          CHECK(worst_difference(
                    rotary(Var<float>(x.to<float>()), layout, heads, head_dim, single, pairing).value(),
                    expected) < 1e-5);
        }
      }
    }
  });
}

TEST_CASE("rotary: one head is turned as the first of several") {
  const auto layout = SequenceLayout::packed({3, 5});
  const Tensor<double> x = random({8, columns}, 1);
  const RotaryTable<double> table(head_dim, 10000.0);
  const auto one = rotary(Var<double>(x), layout, 1, head_dim, table).value();
  const auto all = rotary(Var<double>(x), layout, heads, head_dim, table).value();
  for (index_t r = 0; r < 8; ++r) {
    for (index_t c = 0; c < columns; ++c) {
      CHECK(one.data()[r * columns + c] == (c < head_dim ? all : x).data()[r * columns + c]);
    }
  }
}

TEST_CASE("rotary: gradients") {
  const auto layout = SequenceLayout::padded({3, 2}, 4).with_first_position(4);
  for (const auto pairing : {RotaryPairing::adjacent, RotaryPairing::halves}) {
    const RotaryTable<double> table(4, 100);
    check_op([&](const Vars& v) { return rotary(v[0], layout, heads, head_dim, table, pairing); },
             {random({2, 4, columns}, 2)});
  }
}

TEST_CASE("rotary: scores depend on distances alone") {
  const Tensor<double> q = random({5, 2 * head_dim}, 1), k = random({5, 2 * head_dim}, 2);
  const RotaryTable<double> table(head_dim, 50);
  const auto weights = [&](index_t first) {
    const auto layout = SequenceLayout::packed({5}).with_first_position(first);
    const Var<double> a = rotary(Var<double>(q), layout, 2, head_dim, table),
                      b = rotary(Var<double>(k), layout, 2, head_dim, table);
    return attention_weights(Context<double>::inference(), a, b, layout, layout, AttentionMask::none(),
                             detail::AttentionOp{.heads = 2})
        .value();
  };
  CHECK(worst_difference(weights(37), weights(0)) < 1e-12);
}

TEST_CASE("rotary: the angles of any position, in blocks that are kept and beyond them") {
  const RotaryTable<double> table(6, 100);
  std::vector<double> scratch;
  for (const index_t position : {0, 1, 511, 512, 513, 1023, 70000, 512 * 2048 - 1, 512 * 2048, 5000000}) {
    const double* row = table.row(position, scratch);
    for (index_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(position) * std::pow(100.0, -static_cast<double>(i) / 3);
      CHECK(row[i] == doctest::Approx(std::cos(angle)).epsilon(1e-8));
      CHECK(row[3 + i] == doctest::Approx(std::sin(angle)).epsilon(1e-8));
    }
  }
  CHECK(table.row(600, scratch) == table.row(600, scratch));
}

TEST_CASE("rotary: tables of one size share what they keep, others do not") {
  std::vector<double> scratch;
  const RotaryTable<double> first(6, 100), second(6, 100), other(6, 200), wide(8, 200);
  CHECK(first.row(600, scratch) == second.row(600, scratch));
  CHECK(first.row(600, scratch) != other.row(600, scratch));
  CHECK(wide.row(600, scratch) != other.row(600, scratch));
  CHECK(wide.dim() == 8);
}

TEST_CASE("rotary: threads that ask for one block at once get the same angles") {
  const RotaryTable<float> table(64, 10000);
  std::array<const float*, 4> rows{};
  std::vector<std::thread> threads;
  for (const float*& row : rows) {
    threads.emplace_back([&] {
      std::vector<float> scratch;
      row = table.row(3000, scratch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const float* row : rows) CHECK(row == rows[0]);
}

TEST_CASE("rotary: what does not fit is refused") {
  CHECK(message_of<ValueError>([] { RotaryTable<float>(3, 10000); }) ==
        "[rotary] dim is 3, must be even and at least 2");
  CHECK_THROWS_AS(RotaryTable<float>(4, 0), ValueError);
  const auto layout = SequenceLayout::packed({4});
  const Var<double> x = random({4, 10});
  const RotaryTable<double> table(4, 10000);
  CHECK_THROWS_AS((void)rotary(x, layout, 3, 4, table), ShapeError);
  CHECK_THROWS_AS((void)rotary(x, SequenceLayout::packed({5}), 2, 4, table), ShapeError);
  CHECK_THROWS_AS((void)rotary(x, layout, 2, 3, table), ValueError);
}
