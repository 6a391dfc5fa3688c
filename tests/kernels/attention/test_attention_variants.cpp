#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/kernels/attention/attention.hpp"
#include "kernels/attention_reference.hpp"
#include "kernels/kernel_tools.hpp"
#include "test_tools.hpp"

namespace ef = eigenformer;
using ef::AttentionMask;
using ef::index_t;
using ef::SequenceLayout;
using ef::Tensor;
using namespace eigenformer::testing;

namespace {

constexpr double lowest = -std::numeric_limits<double>::infinity();

void check_case(const AttentionCase& c) { check_attention_on_every_path(c, 3e-5); }

/// Two sequences of 5 and 4 queries, 7 and 6 keys.
AttentionCase small_case() {
  AttentionCase c;
  c.queries = SequenceLayout::packed({5, 4});
  c.keys = SequenceLayout::packed({7, 6});
  return c;
}

/// Sequences over several tiles and blocks.
AttentionCase long_case() {
  AttentionCase c;
  c.heads = 2;
  c.queries = SequenceLayout::packed({140, 33});
  c.keys = SequenceLayout::packed({170, 65});
  return c;
}

AttentionCase with_mask(AttentionCase c, const AttentionMask& mask, decltype(AttentionCase::bias) bias) {
  c.mask = mask;
  c.bias = std::move(bias);
  return c;
}

double allow(bool allowed) { return allowed ? 0 : lowest; }

}  // namespace

TEST_CASE("attention: heads of queries share heads of keys and values") {
  for (const index_t shared : {1, 2, 3}) {
    CAPTURE(shared);
    AttentionCase c = small_case();
    c.heads = 6;
    c.key_value_heads = shared;
    check_case(c);
    c.rate = 0.3;
    c.queries = SequenceLayout::padded({5, 4, 2}, 6);
    c.key_sequence = {1, 0, 1};
    check_case(c);
  }
  AttentionCase c = long_case();
  c.heads = 4;
  c.key_value_heads = 2;
  check_case(with_mask(c, AttentionMask::causal(),
                       [](index_t, index_t, index_t, index_t i, index_t j) { return allow(j <= i); }));
}

TEST_CASE("attention: slopes, by absolute positions") {
  for (AttentionCase c : {small_case(), long_case()}) {
    c.slope = 0.21;
    check_case(c);
    c.queries = c.queries.with_first_position({9, 2});
    c.keys = c.keys.with_first_position(3);
    check_case(c);
  }
}

TEST_CASE("attention: a bias by distance, within and beyond its reach, of all rows and of each its own") {
  for (const bool by_row : {false, true}) {
    for (const bool sums : {false, true}) {
      for (const index_t reach : {index_t{1}, index_t{4}, index_t{37}, index_t{300}}) {
        CAPTURE(by_row);
        CAPTURE(sums);
        CAPTURE(reach);
        AttentionCase c = reach < 10 ? small_case() : long_case();
        c.reach = reach;
        c.by_row = by_row;
        c.sums = sums;
        check_attention(c, 1e-4, 1e-11);
        if (reach != 37) continue;
        c.rate = 0.2;
        c.queries = SequenceLayout::padded({140, 33}, 144).with_first_position({20, 5});
        check_attention_on_every_path(c, 1e-4, 1e-11);
      }
    }
  }
}

TEST_CASE("attention: everything at once, with beams on one memory") {
  AttentionCase c = small_case();
  c.heads = 4;
  c.key_value_heads = 2;
  c.queries = SequenceLayout::padded({5, 4, 3}, 6).with_first_position({3, 0, 1});
  c.keys = SequenceLayout::padded_left({7, 6}, 9);
  c.key_sequence = {0, 1, 0};
  c.slope = 0.1;
  c.reach = 2;
  c.sums = true;
  c.rate = 0.25;
  check_case(with_mask(c, AttentionMask::window(3, 4), [](index_t b, index_t, index_t, index_t i, index_t j) {
    const index_t query = i + (b == 0 ? 3 : b == 1 ? 0 : 1);
    return allow(j - query <= 4 && query - j <= 3);
  }));
}

TEST_CASE("attention: prefixes, short ones, those that reach over tiles, and their conjunction") {
  for (const index_t prefix : {0, 3, 64, 100, 500}) {
    CAPTURE(prefix);
    check_case(with_mask(long_case(), AttentionMask::prefix({prefix, 6}),
                         [=](index_t b, index_t, index_t, index_t i, index_t j) {
                           return allow(j <= i || j < (b == 0 ? prefix : 6));
                         }));
  }
  AttentionCase c = small_case();
  c.queries = c.queries.with_first_position({2, 0});
  check_case(with_mask(c, AttentionMask::prefix({4, 2}) & AttentionMask::prefix({6, 1}),
                       [](index_t b, index_t, index_t, index_t i, index_t j) {
                         return allow(j <= i + (b == 0 ? 2 : 0) || j < (b == 0 ? 4 : 1));
                       }));
}

TEST_CASE("attention: documents in one sequence, in order and mixed, causal and with a window") {
  for (const bool ordered : {true, false}) {
    CAPTURE(ordered);
    const AttentionCase c = long_case();
    const auto ids = [&](index_t length) {
      Tensor<std::int32_t> x({2, length});
      for (index_t b = 0; b < 2; ++b) {
        for (index_t i = 0; i < length; ++i)
          x.at({b, i}) = static_cast<std::int32_t>(ordered ? (i + b) / 50 : (i * 7 + b) % 3);
      }
      return x;
    };
    const auto q = ids(140), k = ids(170);
    check_case(with_mask(c, AttentionMask::documents(q, k),
                         [=](index_t b, index_t kb, index_t, index_t i, index_t j) {
                           return allow(q.at({b, i}) == k.at({kb, j}));
                         }));
    check_case(with_mask(c, AttentionMask::documents(q, k) & AttentionMask::window(30, 0),
                         [=](index_t b, index_t kb, index_t, index_t i, index_t j) {
                           return allow(q.at({b, i}) == k.at({kb, j}) && j <= i && i - j <= 30);
                         }));
  }
}

TEST_CASE("attention: padding on the left gives the bits of packed rows, masks count its rows") {
  for_each_isa([] {
    AttentionCase packed = small_case(), left = packed;
    left.queries = SequenceLayout::padded_left({5, 4}, 6);
    left.keys = SequenceLayout::padded_around(std::vector<index_t>{1, 2}, std::vector<index_t>{7, 6}, 9);
    for (AttentionCase* c : {&packed, &left}) {
      c->reach = 3;
      c->rate = 0.3;
      c->mask = AttentionMask::window(2, 3);
    }
    Tensor<bool> blocked = Tensor<bool>::zeros({2, 3, 5, 7}), blocked_left = Tensor<bool>::ones({2, 3, 6, 9});
    for (index_t b = 0; b < 2; ++b) {
      for (index_t h = 0; h < 3; ++h) {
        for (index_t i = 0; i < 5 - b; ++i) {
          for (index_t j = 0; j < 7 - b; ++j) {
            blocked_left.at({b, h, i + 1 + b, j + 1 + b}) = blocked.at({b, h, i, j}) =
                (b + h + i * 3 + j * j) % 4 == 0;
          }
        }
      }
    }
    packed.mask &= AttentionMask::block(blocked);
    left.mask &= AttentionMask::block(blocked_left);
    const auto n = random_numbers<float>(packed);
    AttentionNumbers<float> moved = random_numbers<float>(left);
    const auto move_rows = [](std::vector<float>& to, const std::vector<float>& from, index_t stride,
                              const SequenceLayout& a, const SequenceLayout& b) {
      to.assign(static_cast<std::size_t>(b.rows() * stride), std::numeric_limits<float>::quiet_NaN());
      for (index_t s = 0; s < a.batch(); ++s) {
        std::copy_n(from.begin() + a.offset(s) * stride, a.length(s) * stride,
                    to.begin() + b.offset(s) * stride);
      }
    };
    move_rows(moved.q, n.q, packed.q_stride(), packed.queries, left.queries);
    move_rows(moved.k, n.k, packed.k_stride(), packed.keys, left.keys);
    move_rows(moved.v, n.v, packed.v_stride(), packed.keys, left.keys);
    move_rows(moved.dout, n.dout, packed.out_stride(), packed.queries, left.queries);
    moved.bias = n.bias;
    const auto a = run_kernel(packed, n), b = run_kernel(left, moved);
    CHECK(b.dbias == a.dbias);
    const auto check = [](const std::vector<float>& x, const std::vector<float>& y, index_t stride,
                          index_t columns, const SequenceLayout& from, const SequenceLayout& to) {
      std::vector<float> expected(y.size());
      for (index_t s = 0; s < from.batch(); ++s) {
        std::copy_n(x.begin() + from.offset(s) * stride, from.length(s) * stride,
                    expected.begin() + to.offset(s) * stride);
      }
      for (index_t row = 0; row < to.rows(); ++row) {
        for (index_t c = 0; c < columns; ++c) {
          const auto at = static_cast<std::size_t>(row * stride + c);
          if (y[at] != expected[at]) return false;
        }
      }
      return true;
    };
    CHECK(check(a.out, b.out, packed.out_stride(), 21, packed.queries, left.queries));
    CHECK(check(a.dq, b.dq, packed.q_stride(), 36, packed.queries, left.queries));
    CHECK(check(a.dk, b.dk, packed.k_stride(), 36, packed.keys, left.keys));
    CHECK(check(a.dv, b.dv, packed.v_stride(), 21, packed.keys, left.keys));
    for (index_t h = 0; h < 3; ++h) {
      for (index_t i = 0; i < 6; ++i) {
        for (index_t j = 0; j < 9; ++j) {
          const bool inside = i >= 2 && j >= 2 && j < 8;
          const float expected =
              inside ? a.weights[static_cast<std::size_t>(((3 + h) * 5 + i - 2) * 7 + j - 2)] : 0.0F;
          CHECK(b.weights[static_cast<std::size_t>(((3 + h) * 6 + i) * 9 + j)] == expected);
        }
      }
    }
  });
}

TEST_CASE("attention: any number of threads gives the same bits, for gradients of a bias too") {
  ef::Runtime& runtime = ef::Runtime::instance();
  const int before = runtime.threads();
  for (const bool by_row : {false, true}) {
    AttentionCase c;
    c.heads = 2;
    c.key_value_heads = 1;
    c.queries = SequenceLayout::packed({300, 20});
    c.keys = SequenceLayout::packed({290, 64});
    c.reach = 20;
    c.by_row = by_row;
    c.mask = AttentionMask::window(100, 20);
    const auto n = random_numbers<float>(c);
    const auto run = [&](int threads) {
      runtime.set_threads(threads);
      return run_kernel(c, n);
    };
    // One thread makes all gradients in one pass, three make them in two.
    const auto one = run(1), three = run(3);
    CHECK(same_results(three.out, one.out));
    CHECK(same_results(three.dq, one.dq));
    CHECK(same_results(three.dk, one.dk));
    CHECK(same_results(three.dv, one.dv));
    CHECK(same_results(three.dbias, one.dbias));
  }
  runtime.set_threads(before);
}

TEST_CASE("attention: gradients of a bias are added to what is there") {
  for (const bool by_row : {false, true}) {
    AttentionCase c = small_case();
    c.reach = 2;
    c.by_row = by_row;
    const auto n = random_numbers<double>(c);
    const auto once = run_kernel(c, n);
    AttentionResult<double> again = once;
    ef::detail::kernels::attention_backward(problem_of(c, n), once.out.data(), c.out_stride(), n.dout.data(),
                                            c.out_stride(), once.log_sum_exp.data(),
                                            gradients_of(c, again, 1));
    for (std::size_t i = 0; i < once.dbias.size(); ++i)
      CHECK(again.dbias[i] == doctest::Approx(2 * once.dbias[i]));
  }
}

TEST_CASE("attention: heads that do not divide and biases without reach are refused") {
  AttentionCase c = small_case();
  const auto n = random_numbers<double>(c);
  AttentionResult<double> r(c);
  const auto message = [&](const ef::detail::kernels::AttentionProblem<double>& p) {
    return message_of<ef::ValueError>([&] {
      ef::detail::kernels::attention_forward(p, r.out.data(), c.out_stride(), r.log_sum_exp.data());
    });
  };
  auto p = problem_of(c, n);
  p.key_value_heads = 2;
  CHECK(message(p) == "[attention] heads is 3, must be divisible by key_value_heads, which is 2");
  p = problem_of(c, n);
  p.distances.bias = n.q.data();
  CHECK(message(p) == "[attention] reach of the bias is 0, must be at least 1");
}

TEST_CASE("attention: dense masks that forbid whole tiles, of every kind") {
  const AttentionCase c = long_case();
  // Blocks of 70 queries and keys, so that tiles are forbidden, mixed and allowed; nothing for the last ones.
  const auto allowed = [](index_t b, index_t i, index_t j) {
    return i / 70 == j / 70 && (b == 0 || j < 20) && i < 130;
  };
  Tensor<bool> may({2, 140, 170}), may_not({2, 140, 170});
  Tensor<float> bias({2, 140, 170});
  for (index_t b = 0; b < 2; ++b) {
    for (index_t i = 0; i < 140; ++i) {
      for (index_t j = 0; j < 170; ++j) {
        const bool here = allowed(b, i, j);
        may.at({b, i, j}) = here;
        may_not.at({b, i, j}) = !here;
        bias.at({b, i, j}) = here ? 0.25F : static_cast<float>(lowest);
      }
    }
  }
  const auto flags = [&](index_t b, index_t, index_t, index_t i, index_t j) {
    return allow(allowed(b, i, j));
  };
  check_case(with_mask(c, AttentionMask::allow(may), flags));
  check_case(with_mask(c, AttentionMask::block(may_not), flags));
  check_case(with_mask(
      c, AttentionMask::additive(bias),
      [&](index_t b, index_t, index_t, index_t i, index_t j) { return allow(allowed(b, i, j)) + 0.25; }));
  // By head, with groups, dropout and a bias by distance; the second head sees the last keys alone.
  AttentionCase grouped = c;
  grouped.key_value_heads = 1;
  grouped.rate = 0.25;
  grouped.reach = 5;
  grouped.sums = true;
  Tensor<bool> by_head({1, 2, 1, 170});
  for (index_t j = 0; j < 170; ++j) {
    by_head.at({0, 0, 0, j}) = j < 60;
    by_head.at({0, 1, 0, j}) = j >= 64;
  }
  check_case(with_mask(
      grouped, AttentionMask::allow(by_head),
      [](index_t, index_t, index_t h, index_t, index_t j) { return allow(h == 0 ? j < 60 : j >= 64); }));
  Tensor<bool> padding = Tensor<bool>::zeros({2, 170});
  for (index_t j = 0; j < 130; ++j) padding.at({0, j}) = true;
  check_case(with_mask(grouped, AttentionMask::key_padding(padding) & AttentionMask::causal(),
                       [](index_t b, index_t, index_t, index_t i, index_t j) {
                         return allow(j <= i && (b == 1 || j >= 130));
                       }));
}

TEST_CASE("attention: a block-diagonal dense mask gives the bits of documents") {
  for_each_isa([] {
    AttentionCase dense = long_case(), rule = dense;
    Tensor<bool> may({2, 140, 170});
    Tensor<std::int32_t> q({2, 140}), k({2, 170});
    for (index_t b = 0; b < 2; ++b) {
      for (index_t i = 0; i < 140; ++i) q.at({b, i}) = static_cast<std::int32_t>(i / 50);
      for (index_t j = 0; j < 170; ++j) k.at({b, j}) = static_cast<std::int32_t>(j / 50);
      for (index_t i = 0; i < 140; ++i) {
        for (index_t j = 0; j < 170; ++j) may.at({b, i, j}) = i / 50 == j / 50;
      }
    }
    dense.mask = AttentionMask::allow(may);
    rule.mask = AttentionMask::documents(q, k);
    const auto numbers = random_numbers<float>(dense);
    const auto a = run_kernel(dense, numbers), b = run_kernel(rule, numbers);
    CHECK(a.out == b.out);
    CHECK(a.weights == b.weights);
    CHECK(a.dq == b.dq);
    CHECK(a.dk == b.dk);
    CHECK(a.dv == b.dv);
  });
}
