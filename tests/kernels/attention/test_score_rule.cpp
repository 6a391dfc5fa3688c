#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/kernels/attention/attention.hpp"
#include "kernels/attention_reference.hpp"
#include "kernels/kernel_tools.hpp"
#include "test_tools.hpp"

namespace ef = eigenformer;
using ef::AttentionMask;
using ef::index_t;
using ef::ScoreTile;
using ef::SequenceLayout;
using namespace eigenformer::testing;

namespace {

constexpr double lowest = -std::numeric_limits<double>::infinity();

/// The score falls by slope / (head + 1) * sqrt(|distance|).
struct RootSlope {
  static constexpr bool additive = true;
  double slope;

  template <class T>
  void operator()(ScoreTile<T>& tile) const {
    const T factor = static_cast<T>(slope / static_cast<double>(tile.head + 1));
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j) {
        const index_t distance = tile.key + j - tile.query - i;
        tile.row(i)[j] -= factor * std::sqrt(static_cast<T>(std::abs(distance)));
      }
    }
  }
};

/// c tanh(score / c).
struct SoftCap {
  double cap;

  template <class T>
  void operator()(ScoreTile<T>& tile) const {
    const T c = static_cast<T>(cap);
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j) tile.row(i)[j] = c * std::tanh(tile.row(i)[j] / c);
    }
  }
  template <class T>
  void backward(const ScoreTile<T>& tile, T* gradient) const {
    const T c = static_cast<T>(cap);
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j) {
        const T y = tile.row(i)[j] / c;
        gradient[i * tile.stride + j] *= 1 - y * y;
      }
    }
  }
};

/// ALiBi's slopes.
struct Linear {
  static constexpr bool additive = true;
  const float* slopes;
  void operator()(ScoreTile<float>& tile) const {
    const float slope = slopes[tile.head];
    for (index_t i = 0; i < tile.rows; ++i) {
      const auto first = static_cast<std::int32_t>(tile.key - tile.query - i);
      float* row = tile.row(i);
      for (std::int32_t j = 0; j < static_cast<std::int32_t>(tile.columns); ++j)
        row[j] -= slope * static_cast<float>(std::abs(first + j));
    }
  }
};

/// Notes each tile.
struct Seen {
  static constexpr bool additive = true;
  std::vector<std::array<index_t, 8>>* tiles;
  void operator()(ScoreTile<float>& t) const {
    tiles->push_back({t.head, t.sequence, t.key_sequence, t.query, t.key, t.rows, t.columns, t.stride});
  }
};

struct FloatsOnly {
  static constexpr bool additive = true;
  void operator()(ScoreTile<float>&) const {}
};

AttentionCase with_root_slope(AttentionCase c) {
  c.rule = RootSlope{0.4};
  c.by_rule = [](double score, index_t h, index_t distance) {
    const double fall = 0.4 / static_cast<double>(h + 1) * std::sqrt(std::abs(static_cast<double>(distance)));
    return std::pair(score - fall, 1.0);
  };
  return c;
}

AttentionCase with_soft_cap(AttentionCase c) {
  c.rule = SoftCap{1.5};
  c.by_rule = [](double score, index_t, index_t) {
    const double y = std::tanh(score / 1.5);
    return std::pair(1.5 * y, 1 - y * y);
  };
  return c;
}

AttentionCase long_case() {
  AttentionCase c;
  c.heads = 4;
  c.key_value_heads = 2;
  c.queries = SequenceLayout::packed({140, 33});
  c.keys = SequenceLayout::packed({170, 65});
  return c;
}

AttentionCase small_case() {
  AttentionCase c;
  c.queries = SequenceLayout::padded({5, 4, 2}, 6).with_first_position({3, 0, 1});
  c.keys = SequenceLayout::padded_left({7, 6}, 9);
  c.key_sequence = {1, 0, 1};
  c.slope = 0.1;
  c.reach = 2;
  c.sums = true;
  c.rate = 0.25;
  return c;
}

void check_case(const AttentionCase& c) { check_attention_on_every_path(c, 5e-5); }

}  // namespace

TEST_CASE("score rule: additive and differentiated rules against plain loops, with masks and without") {
  for (AttentionCase c : {small_case(), long_case()}) {
    for (const bool causal : {false, true}) {
      CAPTURE(causal);
      if (causal) {
        const auto positions = std::pair(c.queries, c.keys);
        c.mask = AttentionMask::causal();
        c.bias = [positions, sequence = c.key_sequence](index_t b, index_t kb, index_t, index_t i,
                                                        index_t j) {
          return positions.second.position(kb) + j <= positions.first.position(b) + i ? 0 : lowest;
        };
      }
      check_case(with_root_slope(c));
      check_case(with_soft_cap(c));
    }
  }
}

TEST_CASE("score rule: linear slopes written as a rule give the numbers of the built-in ones") {
  // To rounding: a compiler that does not optimise this file does not fuse what the built-in loop fuses.
  const auto same = [](const auto& a, const auto& b) {
    double worst = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
    return worst < 1e-5;
  };
  for_each_isa([&] {
    AttentionCase c = long_case();
    c.queries = c.queries.with_first_position({9, 2});
    c.mask = AttentionMask::window(50, 20);
    const auto plain = random_numbers<float>(c);
    c.slope = 0.2;
    const auto numbers = random_numbers<float>(c);
    const auto expected = run_kernel(c, numbers);
    c.slope = 0;
    c.rule = Linear{numbers.slopes.data()};
    const auto got = run_kernel(c, plain);
    CHECK(same(got.out, expected.out));
    CHECK(same(got.weights, expected.weights));
    CHECK(same(got.dq, expected.dq));
    CHECK(same(got.dk, expected.dk));
    CHECK(same(got.dv, expected.dv));
  });
}

TEST_CASE("score rule: the gradient of the weights is that of an output made with them") {
  AttentionCase c = with_soft_cap(long_case());
  c.mask = AttentionMask::window(70, 3);
  for_each_isa([&] {
    const auto n = random_numbers<double>(c);
    auto expected = run_kernel(c, n);
    // out = weights v, so dweights = dout v^T.
    std::vector<double> dweights(expected.weights.size());
    for (index_t b = 0; b < 2; ++b) {
      for (index_t h = 0; h < c.heads; ++h) {
        for (index_t i = 0; i < c.queries.length(b); ++i) {
          for (index_t j = 0; j < c.keys.length(b); ++j) {
            double dot = 0;
            for (index_t e = 0; e < c.value_dim; ++e) {
              dot += n.dout[static_cast<std::size_t>((c.queries.offset(b) + i) * c.out_stride() +
                                                     h * c.value_dim + e)] *
                     n.v[static_cast<std::size_t>((c.keys.offset(b) + j) * c.v_stride() +
                                                  c.kv_head(h) * c.value_dim + e)];
            }
            const index_t row = (b * c.heads + h) * c.queries.max_length() + i;
            dweights[static_cast<std::size_t>(row * c.keys.max_length() + j)] = dot;
          }
        }
      }
    }
    AttentionResult<double> got(c);
    ef::detail::kernels::attention_weights_backward(problem_of(c, n), expected.weights.data(),
                                                    dweights.data(), gradients_of(c, got));
    CHECK(largest_error(got.dq, expected.dq) < 1e-12);
    CHECK(largest_error(got.dk, expected.dk) < 1e-12);
  });
}

TEST_CASE("score rule: a single query finds keys through a list of rows") {
  AttentionCase c = with_soft_cap(AttentionCase{});
  c.queries = SequenceLayout::packed({1, 1}).with_first_position({79, 4});
  c.keys = SequenceLayout::packed({80, 5});
  const auto n = random_numbers<float>(c);
  const auto expected = run_reference(c, n);
  const index_t rows = c.keys.rows();
  auto moved = n;
  std::vector<index_t> row_of;
  for (index_t r = 0; r < rows; ++r) {
    const index_t to = (r * 7) % rows;
    row_of.push_back(to);
    std::copy_n(n.k.begin() + r * c.k_stride(), c.k_stride(), moved.k.begin() + to * c.k_stride());
    std::copy_n(n.v.begin() + r * c.v_stride(), c.v_stride(), moved.v.begin() + to * c.v_stride());
  }
  for_each_isa([&] {
    auto p = problem_of(c, moved);
    p.key_rows = row_of.data();
    AttentionResult<float> got(c);
    ef::detail::kernels::attention_forward(p, got.out.data(), c.out_stride(), got.log_sum_exp.data());
    CHECK(largest_error(got.out, expected.out) < 3e-5);
  });
}

TEST_CASE("score rule: what masks forbid has no gradient, whatever its score") {
  AttentionCase c = with_soft_cap(AttentionCase{});
  c.queries = SequenceLayout::packed({5});
  c.keys = SequenceLayout::packed({7});
  c.mask = AttentionMask::causal();
  for_each_isa([&] {
    auto n = random_numbers<float>(c);
    const auto clean = run_kernel(c, n);
    for (index_t j = 5; j < 7; ++j)
      n.k[static_cast<std::size_t>(j * c.k_stride())] = std::numeric_limits<float>::quiet_NaN();
    const auto got = run_kernel(c, n);
    CHECK(got.out == clean.out);
    CHECK(got.dq == clean.dq);
    CHECK(got.dk == clean.dk);
  });
}

TEST_CASE("score rule: sees each admitted tile with its place") {
  const int threads = ef::Runtime::instance().threads();
  ef::Runtime::instance().set_threads(1);
  AttentionCase c;
  c.heads = 1;
  c.queries = SequenceLayout::packed({2, 40}).with_first_position({5, 10});
  c.keys = SequenceLayout::packed({70, 3}).with_first_position({0, 10});
  c.key_sequence = {1, 0};
  c.mask = AttentionMask::causal();
  std::vector<std::array<index_t, 8>> tiles;
  c.rule = Seen{&tiles};
  const auto n = random_numbers<float>(c);
  AttentionResult<float> r(c);
  ef::detail::kernels::attention_forward(problem_of(c, n), r.out.data(), c.out_stride(),
                                         r.log_sum_exp.data());
  ef::Runtime::instance().set_threads(threads);
  // The keys of sequence 0 of queries are all later; of 40 queries at 10 to 49, none reaches key 50.
  REQUIRE(tiles.size() == 2);
  CHECK(tiles[0] == std::array<index_t, 8>{0, 1, 0, 10, 0, 32, 50, 64});
  CHECK(tiles[1] == std::array<index_t, 8>{0, 1, 0, 42, 0, 8, 50, 64});
}

TEST_CASE("score rule: one that takes no scores of the problem's type is refused") {
  AttentionCase c;
  c.queries = c.keys = SequenceLayout::packed({3});
  c.rule = FloatsOnly{};
  const auto n = random_numbers<double>(c);
  AttentionResult<double> r(c);
  CHECK(message_of<ef::ValueError>([&] {
          ef::detail::kernels::attention_forward(problem_of(c, n), r.out.data(), c.out_stride(),
                                                 r.log_sum_exp.data());
        }) ==
        "[attention] the score rule has no operator()(ScoreTile<double>&) const, which attention in this "
        "precision calls");
}
