#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/attention/attention.hpp"
#include "eigenformer/kernels/simd/simd.hpp"
#include "isa.hpp"
#include "kernels/attention_reference.hpp"

namespace ef = eigenformer;
using ef::AttentionMask;
using ef::index_t;
using ef::SequenceLayout;
using ef::Shape;
using ef::Tensor;
using namespace eigenformer::testing;

namespace {

template <class T>
bool all_finite(const std::vector<T>& x) {
  return std::all_of(x.begin(), x.end(), [](T value) { return std::isfinite(value); });
}

bool all_zero(const std::vector<float>& x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return value == 0.0F; });
}

/// Rows [first, first + count) of a matrix.
template <class T>
std::vector<T> rows_of(const std::vector<T>& x, index_t stride, index_t first, index_t count) {
  return {x.begin() + first * stride, x.begin() + (first + count) * stride};
}

AttentionCase batch_case(bool packed) {
  AttentionCase c;
  const std::vector<index_t> queries{37, 1, 150, 6}, keys{70, 5, 131, 64};
  c.queries = packed ? SequenceLayout::packed(queries) : SequenceLayout::padded(queries, 150);
  c.keys = packed ? SequenceLayout::packed(keys) : SequenceLayout::padded(keys, 131);
  return c;
}

/// The numbers of another layout of the same sequences: rows are copied, padding is NaN.
template <class T>
std::vector<T> moved(const std::vector<T>& x, index_t stride, const SequenceLayout& from,
                     const SequenceLayout& to) {
  std::vector<T> y(static_cast<std::size_t>(to.rows() * stride), std::numeric_limits<T>::quiet_NaN());
  for (index_t b = 0; b < from.batch(); ++b) {
    std::copy_n(x.begin() + from.offset(b) * stride, from.length(b) * stride,
                y.begin() + to.offset(b) * stride);
  }
  return y;
}

template <class T>
AttentionNumbers<T> moved(const AttentionNumbers<T>& n, const AttentionCase& from, const AttentionCase& to) {
  return {moved(n.q, from.q_stride(), from.queries, to.queries),
          moved(n.k, from.k_stride(), from.keys, to.keys), moved(n.v, from.v_stride(), from.keys, to.keys),
          moved(n.dout, from.out_stride(), from.queries, to.queries)};
}

/// Whether sequence b of one result is, bit by bit, sequence b2 of another.
template <class T>
bool same_sequence(const AttentionResult<T>& x, const AttentionCase& c, index_t b,
                   const AttentionResult<T>& y, const AttentionCase& c2, index_t b2) {
  const auto equal = [](const std::vector<T>& u, const std::vector<T>& w, index_t stride,
                        const SequenceLayout& l, index_t s, const SequenceLayout& l2, index_t s2) {
    return same_results(rows_of(u, stride, l.offset(s), l.length(s)),
                        rows_of(w, stride, l2.offset(s2), l2.length(s2)));
  };
  return equal(x.out, y.out, c.out_stride(), c.queries, b, c2.queries, b2) &&
         equal(x.dq, y.dq, c.q_stride(), c.queries, b, c2.queries, b2) &&
         equal(x.dk, y.dk, c.k_stride(), c.keys, b, c2.keys, b2) &&
         equal(x.dv, y.dv, c.v_stride(), c.keys, b, c2.keys, b2);
}

}  // namespace

TEST_CASE("attention: a sequence alone, in a packed batch and in a padded batch gives the same bits") {
  for_each_isa([] {
    AttentionCase packed = batch_case(true), padded = batch_case(false);
    for (AttentionCase* c : {&packed, &padded}) {
      c->mask = AttentionMask::causal();
      c->rate = 0.2;
      c->queries = c->queries.with_sequence_numbers({8, 3, 5, 1});
    }
    const auto n = random_numbers<float>(packed);
    const auto in_packed = run_kernel(packed, n);
    // What stands in rows of padding (NaN here) is not looked at.
    const auto in_padded = run_kernel(padded, moved(n, packed, padded));
    CHECK(all_finite(in_padded.out));
    CHECK(all_finite(in_padded.dq));
    CHECK(all_finite(in_padded.dk));
    for (index_t b = 0; b < packed.queries.batch(); ++b) {
      CAPTURE(b);
      CHECK(same_sequence(in_padded, padded, b, in_packed, packed, b));
      AttentionCase alone = packed;
      alone.queries = SequenceLayout::packed({packed.queries.length(b)})
                          .with_sequence_numbers({packed.queries.sequence_number(b)});
      alone.keys = SequenceLayout::packed({packed.keys.length(b)});
      AttentionNumbers<float> own;
      own.q = rows_of(n.q, alone.q_stride(), packed.queries.offset(b), packed.queries.length(b));
      own.k = rows_of(n.k, alone.k_stride(), packed.keys.offset(b), packed.keys.length(b));
      own.v = rows_of(n.v, alone.v_stride(), packed.keys.offset(b), packed.keys.length(b));
      own.dout = rows_of(n.dout, alone.out_stride(), packed.queries.offset(b), packed.queries.length(b));
      CHECK(same_sequence(run_kernel(alone, own), alone, 0, in_packed, packed, b));
    }
  });
}

TEST_CASE_TEMPLATE("attention: a query alone in its sequence gives the bits that it gives beside longer ones",
                   T, float, double) {
  for_each_isa([] {
    const std::vector<index_t> lengths{1, 5, 64, 65, 0, 200, 3};
    const index_t singles = 6;
    index_t keys = 0;
    for (const index_t n : lengths) keys += n;
    struct Sizes {
      index_t heads, groups, head_dim, value_dim;
    };
    // Single queries take four heads at a time: 4, 4 and 2 whose groups cross that limit, 4 and 1.
    for (const Sizes& sizes : {Sizes{4, 2, 3, 5}, Sizes{6, 2, 16, 16}, Sizes{5, 1, 70, 130}}) {
      const index_t heads = sizes.heads, groups = sizes.groups, head_dim = sizes.head_dim,
                    value_dim = sizes.value_dim;
      const index_t q_stride = heads * head_dim, k_stride = groups * head_dim, v_stride = groups * value_dim;
      const auto numbers = [](index_t n, std::uint64_t seed) {
        std::vector<T> x(static_cast<std::size_t>(n));
        ef::RandomGenerator(seed).fill_uniform(x.data(), n, -2, 2);
        return x;
      };
      const auto q = numbers((singles + 2) * q_stride, 1), k = numbers(keys * k_stride, 2),
                 v = numbers(keys * v_stride, 3);
      std::vector<index_t> reversed(static_cast<std::size_t>(keys));
      for (index_t r = 0; r < keys; ++r) reversed[static_cast<std::size_t>(r)] = keys - 1 - r;
      // The last sequence has two queries, for which a block of them is attended with; without it there are
      // single queries alone.
      const auto attend = [&](bool with_longer, const index_t* key_rows) {
        const std::size_t batch = with_longer ? 7 : 6;
        std::vector<index_t> counts(batch, 1);
        if (with_longer) counts.back() = 2;
        const auto queries = SequenceLayout::packed(counts),
                   memory = SequenceLayout::packed({lengths.begin(), lengths.begin() + batch});
        ef::detail::kernels::AttentionProblem<T> p;
        p.q = q.data();
        p.k = k.data();
        p.v = v.data();
        p.q_stride = q_stride;
        p.k_stride = k_stride;
        p.v_stride = v_stride;
        p.heads = heads;
        p.key_value_heads = groups;
        p.head_dim = head_dim;
        p.value_dim = value_dim;
        p.queries = &queries;
        p.keys = &memory;
        p.key_rows = key_rows;
        p.scale = T(0.3);
        std::vector<T> out(static_cast<std::size_t>(queries.rows() * heads * value_dim)),
            sums(static_cast<std::size_t>(heads * queries.rows()));
        ef::detail::kernels::attention_forward<T>(p, out.data(), heads * value_dim, sums.data());
        out.resize(static_cast<std::size_t>(singles * heads * value_dim));
        for (index_t h = 0; h < heads; ++h) {
          const auto from = sums.begin() + h * queries.rows();
          out.insert(out.end(), from, from + singles);
        }
        return out;
      };
      for (const index_t* key_rows : {static_cast<const index_t*>(nullptr), std::as_const(reversed).data()}) {
        CHECK(same_results(attend(false, key_rows), attend(true, key_rows)));
        CHECK_FALSE(all_finite(attend(false, key_rows)));  // the sum over no keys is -inf
      }
    }
  });
}

TEST_CASE("attention: rows of padding become zero, in results and in gradients") {
  AttentionCase c;
  c.queries = SequenceLayout::padded({3, 0}, 5);
  c.keys = SequenceLayout::padded({2, 4}, 7);
  const auto n = random_numbers<float>(c);
  AttentionResult<float> r(c);
  for (auto* x : {&r.out, &r.dq, &r.dk, &r.dv, &r.weights}) std::fill(x->begin(), x->end(), 3.0F);
  const auto p = problem_of(c, n);
  ef::detail::kernels::attention_forward(p, r.out.data(), c.out_stride(), r.log_sum_exp.data());
  ef::detail::kernels::attention_weights(p, r.log_sum_exp.data(), r.weights.data());
  ef::detail::kernels::attention_backward(p, r.out.data(), c.out_stride(), n.dout.data(), c.out_stride(),
                                          r.log_sum_exp.data(), gradients_of(c, r));
  const auto zero_row = [](const std::vector<float>& x, index_t stride, index_t row, index_t columns) {
    return all_zero({x.begin() + row * stride, x.begin() + row * stride + columns});
  };
  for (const index_t row : {3, 4, 5, 6, 7, 8, 9}) {
    CHECK(zero_row(r.out, c.out_stride(), row, c.heads * c.value_dim));
    CHECK(zero_row(r.dq, c.q_stride(), row, c.heads * c.head_dim));
  }
  // The keys of sequence 1 have no queries.
  for (const index_t row : {2, 6, 7, 8, 10, 13}) {
    CHECK(zero_row(r.dk, c.k_stride(), row, c.heads * c.head_dim));
    CHECK(zero_row(r.dv, c.v_stride(), row, c.heads * c.value_dim));
  }
  CHECK(largest_error(r.weights, run_reference(c, n).weights) < 1e-6);
}

TEST_CASE("attention: one thread or several, the same bits") {
  ef::Runtime& runtime = ef::Runtime::instance();
  const int before = runtime.threads();
  for (const bool packed : {true, false}) {
    AttentionCase c = batch_case(packed);
    c.rate = 0.1;
    c.mask = AttentionMask::window(90, 20);
    const auto n = random_numbers<float>(c);
    runtime.set_threads(1);
    const auto one = run_kernel(c, n);
    for (const int threads : {2, 3}) {
      runtime.set_threads(threads);
      CHECK(same_results(run_kernel(c, n), one));
    }
  }
  runtime.set_threads(before);
}

TEST_CASE("attention: the backward in one task a head or in blocks, the same bits") {
  ef::Runtime& runtime = ef::Runtime::instance();
  const int before = runtime.threads();
  AttentionCase c;
  c.heads = 2;
  c.queries = SequenceLayout::packed({200});
  c.keys = SequenceLayout::packed({300});
  c.mask = AttentionMask::window(150, 70);
  const auto n = random_numbers<float>(c);
  runtime.set_threads(1);
  const auto one = run_kernel(c, n);
  // With four threads two heads are too few tasks.
  runtime.set_threads(4);
  CHECK(same_results(run_kernel(c, n), one));
  runtime.set_threads(before);
}

TEST_CASE(
    "attention: decoding with a cache gives what the whole sequence at once gives, chunks the same bits") {
  for_each_isa([] {
    for (const AttentionMask& mask : {AttentionMask::causal(), AttentionMask::window(40, 0)}) {
      AttentionCase whole;
      const std::vector<index_t> lengths{70, 131};
      whole.queries = whole.keys = SequenceLayout::packed(lengths);
      whole.mask = mask;
      const auto n = random_numbers<float>(whole);
      const auto expected = run_kernel(whole, n);

      const index_t capacity = 192;
      AttentionCase room = whole;
      room.keys = SequenceLayout::cached(lengths, capacity);
      const auto cache = moved(n, whole, room);
      // One token at a time, and in chunks.
      for (const index_t chunk : {1, 3, 40}) {
        CAPTURE(chunk);
        for (index_t first = 0; first + chunk <= 70; first += chunk == 1 ? 7 : chunk) {
          AttentionCase step = whole;
          step.queries = SequenceLayout::packed({chunk, chunk}).with_first_position(first);
          step.keys = SequenceLayout::cached({first + chunk, first + chunk}, capacity);
          // The last token reaches all that is cached, without a rule too.
          if (chunk == 1 && mask.left() == AttentionMask::unlimited) step.mask = AttentionMask::none();
          AttentionNumbers<float> own = cache;
          own.q = rows_of(n.q, whole.q_stride(), whole.queries.offset(0) + first, chunk);
          const auto second = rows_of(n.q, whole.q_stride(), whole.queries.offset(1) + first, chunk);
          own.q.insert(own.q.end(), second.begin(), second.end());
          own.dout.resize(static_cast<std::size_t>(2 * chunk * whole.out_stride()));
          AttentionResult<float> r(step);
          ef::detail::kernels::attention_forward(problem_of(step, own), r.out.data(), step.out_stride(),
                                                 r.log_sum_exp.data());
          for (index_t b = 0; b < 2; ++b) {
            const auto actual = rows_of(r.out, step.out_stride(), b * chunk, chunk);
            const auto wanted =
                rows_of(expected.out, whole.out_stride(), whole.queries.offset(b) + first, chunk);
            if (chunk > 1) {
              CHECK(same_results(actual, wanted));
              continue;
            }
            // A single query sums its scores in another order.
            float worst = 0;
            for (std::size_t i = 0; i < wanted.size(); ++i)
              worst = std::max(worst, std::abs(actual[i] - wanted[i]));
            CHECK(actual.size() == wanted.size());
            CHECK(worst < 1e-5f);
          }
        }
      }
    }
  });
}

TEST_CASE("attention: what a masked key holds changes nothing, bit by bit") {
  AttentionCase c;
  c.keys = SequenceLayout::packed({69, 70});
  // Keys 3 and 66 of sequence 0 and 68 of sequence 1 are masked, for all or for some queries.
  Tensor<bool> padding = Tensor<bool>::zeros(Shape{2, 70});
  padding.at({0, 3}) = padding.at({0, 66}) = padding.at({1, 68}) = true;
  Tensor<bool> kept = Tensor<bool>::full(Shape{2, 1, 1, 70}, true);
  Tensor<float> bias = Tensor<float>::zeros(Shape{2, 1, 1, 70});
  for (const auto& at : {std::pair{0, 3}, std::pair{0, 66}, std::pair{1, 68}}) {
    kept.at({at.first, 0, 0, at.second}) = false;
    bias.at({at.first, 0, 0, at.second}) = -std::numeric_limits<float>::infinity();
  }
  const AttentionMask masks[] = {AttentionMask::key_padding(padding), AttentionMask::allow(kept),
                                 AttentionMask::additive(bias),
                                 AttentionMask::key_padding(padding) & AttentionMask::causal()};
  // Also with one query alone, which takes another way through the values.
  for (const index_t queries : {37, 1})
    for_each_isa([&] {
      c.queries = SequenceLayout::packed({queries, 70});
      for (const AttentionMask& mask : masks) {
        c.mask = mask;
        const auto n = random_numbers<float>(c);
        const auto expected = run_kernel(c, n);
        for (const float poison :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
              -std::numeric_limits<float>::infinity(), 1e30F}) {
          CAPTURE(poison);
          auto poisoned = n;
          for (const index_t row : {index_t{3}, index_t{66}, 69 + index_t{68}}) {
            std::fill_n(poisoned.k.begin() + row * c.k_stride(), c.k_stride(), poison);
            std::fill_n(poisoned.v.begin() + row * c.v_stride(), c.v_stride(), poison);
          }
          CHECK(same_results(run_kernel(c, poisoned), expected));
        }
      }
    });
}

TEST_CASE("attention: a key that only later queries reach does not touch the earlier ones") {
  AttentionCase c;
  c.queries = c.keys = SequenceLayout::packed({70});
  c.mask = AttentionMask::causal();
  const auto n = random_numbers<float>(c);
  const auto expected = run_kernel(c, n);
  auto poisoned = n;
  const index_t row = 50;
  std::fill_n(poisoned.k.begin() + row * c.k_stride(), c.k_stride(), std::numeric_limits<float>::quiet_NaN());
  std::fill_n(poisoned.v.begin() + row * c.v_stride(), c.v_stride(), std::numeric_limits<float>::infinity());
  const auto got = run_kernel(c, poisoned);
  CHECK(
      same_results(rows_of(got.out, c.out_stride(), 0, row), rows_of(expected.out, c.out_stride(), 0, row)));
  CHECK(same_results(rows_of(got.dq, c.q_stride(), 0, row), rows_of(expected.dq, c.q_stride(), 0, row)));
  CHECK(!std::isfinite(got.out[static_cast<std::size_t>(row * c.out_stride())]));
}

TEST_CASE("attention: a query with nothing to attend to gives zeros and zero gradients") {
  for_each_isa([] {
    AttentionCase c;
    c.queries = SequenceLayout::packed({5, 3});
    c.keys = SequenceLayout::packed({7, 0});
    Tensor<bool> blocked = Tensor<bool>::zeros(Shape{5, 7});
    for (index_t j = 0; j < 7; ++j) blocked.at({2, j}) = true;
    c.mask = AttentionMask::block(blocked);
    const auto n = random_numbers<float>(c);
    const auto expected = run_kernel(c, n);
    const auto empty_rows = [&](const std::vector<float>& x, index_t stride, index_t columns) {
      for (const index_t row : {2, 5, 6, 7}) {
        for (index_t e = 0; e < columns; ++e) {
          if (x[static_cast<std::size_t>(row * stride + e)] != 0.0F) return false;
        }
      }
      return true;
    };
    CHECK(empty_rows(expected.out, c.out_stride(), c.heads * c.value_dim));
    CHECK(empty_rows(expected.dq, c.q_stride(), c.heads * c.head_dim));
    CHECK(all_finite(expected.dk));
    CHECK(all_finite(expected.dv));
    CHECK(all_finite(expected.weights));
    CHECK(expected.log_sum_exp[2] == -std::numeric_limits<float>::infinity());
    // What such a query holds, and the gradient it receives, do not matter either.
    auto poisoned = n;
    std::fill_n(poisoned.q.begin() + 2 * c.q_stride(), c.q_stride(), std::numeric_limits<float>::quiet_NaN());
    std::fill_n(poisoned.dout.begin() + 2 * c.out_stride(), c.out_stride(),
                std::numeric_limits<float>::infinity());
    CHECK(same_results(run_kernel(c, poisoned), expected));
  });
}

TEST_CASE("attention: no sequences, and no keys") {
  AttentionCase none;
  CHECK(run_kernel(none, random_numbers<float>(none)).out.empty());
  AttentionCase keyless;
  keyless.queries = SequenceLayout::packed({2});
  keyless.keys = SequenceLayout::packed({0});
  CHECK(all_zero(run_kernel(keyless, random_numbers<float>(keyless)).out));
}

TEST_CASE("attention: scores far apart neither overflow nor lose the largest") {
  AttentionCase c;
  c.heads = 1;
  c.head_dim = 2;
  c.queries = SequenceLayout::packed({3});
  c.keys = SequenceLayout::packed({130});
  c.scale = 1;
  auto n = random_numbers<float>(c);
  for (float& x : n.q) x *= 100.0F;
  for (float& x : n.k) x *= 100.0F;
  const auto r = run_kernel(c, n);
  CHECK(all_finite(r.out));
  CHECK(all_finite(r.dq));
  CHECK(largest_error(r.out, run_reference(c, n).out) < 1e-2);
}

TEST_CASE("attention: dropout keeps the mean, and its mask depends on the sequence's number alone") {
  AttentionCase c;
  c.heads = 2;
  c.value_dim = 1;
  c.queries = c.keys = SequenceLayout::packed({100, 100});
  c.rate = 0.3;
  auto n = random_numbers<float>(c);
  // Equal weights on values of 1: an output is the mean multiplier of its row.
  std::fill(n.q.begin(), n.q.end(), 0.0F);
  std::fill(n.v.begin(), n.v.end(), 1.0F);
  const auto first = run_kernel(c, n);
  double sum = 0;
  for (index_t row = 0; row < 200; ++row) {
    for (index_t h = 0; h < 2; ++h) sum += first.out[static_cast<std::size_t>(row * c.out_stride() + h)];
  }
  // 40,000 draws with standard deviation sqrt(0.3 / 0.7): the mean's is 0.0033.
  CHECK(std::abs(sum / 400 - 1) < 0.015);
  CHECK(same_results(run_kernel(c, n), first));

  AttentionCase numbered = c;
  numbered.queries = c.queries.with_sequence_numbers({1, 0});
  const auto swapped = run_kernel(numbered, n);
  CHECK(same_results(rows_of(swapped.out, c.out_stride(), 0, 100),
                     rows_of(first.out, c.out_stride(), 100, 100)));
  CHECK(!same_results(swapped.out, first.out));
  for (const ef::detail::DropoutKey key : {ef::detail::DropoutKey{12, 5, 3}, ef::detail::DropoutKey{11, 6, 3},
                                           ef::detail::DropoutKey{11, 5, 4}}) {
    AttentionCase other = c;
    other.key = key;
    CHECK(!same_results(run_kernel(other, n).out, first.out));
  }
}
