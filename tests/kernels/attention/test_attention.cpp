#include "eigenformer/kernels/attention/attention.hpp"

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/kernels/simd/simd.hpp"
#include "isa.hpp"
#include "kernels/attention_reference.hpp"
#include "test_tools.hpp"

namespace ef = eigenformer;
using ef::AttentionMask;
using ef::index_t;
using ef::SequenceLayout;
using ef::Shape;
using ef::Tensor;
using namespace eigenformer::testing;

namespace {

constexpr double lowest = -std::numeric_limits<double>::infinity();

/// Two sequences of 5 and 4 queries, 7 and 6 keys, padded or packed.
AttentionCase small_case(bool packed) {
  AttentionCase c;
  c.queries = packed ? SequenceLayout::packed({5, 4}) : SequenceLayout::padded({5, 4}, 5);
  c.keys = packed ? SequenceLayout::packed({7, 6}) : SequenceLayout::padded({7, 6}, 7);
  return c;
}

AttentionCase one_sequence(index_t queries, index_t keys) {
  AttentionCase c;
  c.heads = 1;
  c.queries = SequenceLayout::packed({queries});
  c.keys = SequenceLayout::packed({keys});
  return c;
}

Tensor<bool> random_flags(const Shape& shape, double rate, std::uint64_t seed) {
  ef::RandomGenerator rng(seed);
  Tensor<bool> t(shape);
  for (bool& x : t.span()) x = rng.uniform() < rate;
  return t;
}

Tensor<float> random_bias(const Shape& shape, std::uint64_t seed) {
  ef::RandomGenerator rng(seed);
  Tensor<float> t(shape);
  for (float& x : t.span()) {
    x = rng.uniform() < 0.2 ? -std::numeric_limits<float>::infinity() : static_cast<float>(rng.normal());
  }
  return t;
}

}  // namespace

TEST_CASE("attention: equals the loop, padded and packed") {
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    check_attention_on_every_path(small_case(packed));
  }
}

TEST_CASE("attention: sizes around the blocks") {
  // Queries, keys, head_dim, value_dim.
  const index_t sizes[][4] = {{1, 1, 1, 1},     {1, 63, 4, 16},   {2, 64, 16, 4},    {31, 65, 3, 33},
                              {32, 16, 64, 17}, {33, 17, 65, 64}, {127, 15, 8, 65},  {128, 129, 15, 31},
                              {129, 66, 31, 2}, {259, 131, 9, 5}, {17, 3, 130, 129}, {5, 200, 12, 7}};
  for (const auto& size : sizes) {
    AttentionCase c = one_sequence(size[0], size[1]);
    c.head_dim = size[2];
    c.value_dim = size[3];
    CAPTURE(size[0]);
    CAPTURE(size[1]);
    CAPTURE(size[2]);
    check_attention_on_every_path(c);
  }
}

TEST_CASE("attention: causal") {
  for (const bool packed : {false, true}) {
    AttentionCase c = small_case(packed);
    c.mask = AttentionMask::causal();
    c.bias = [](index_t, index_t, index_t, index_t i, index_t j) { return j <= i ? 0 : lowest; };
    check_attention_on_every_path(c);
    c.queries = c.queries.with_first_position({1, 3});
    c.bias = [](index_t b, index_t, index_t, index_t i, index_t j) {
      return j <= i + (b == 0 ? 1 : 3) ? 0 : lowest;
    };
    check_attention_on_every_path(c);
    c.keys = c.keys.with_first_position(2);
    c.bias = [](index_t b, index_t, index_t, index_t i, index_t j) {
      return j + 2 <= i + (b == 0 ? 1 : 3) ? 0 : lowest;
    };
    check_attention_on_every_path(c);
  }
  AttentionCase c = one_sequence(150, 150);
  c.mask = AttentionMask::causal();
  c.bias = [](index_t, index_t, index_t, index_t i, index_t j) { return j <= i ? 0 : lowest; };
  check_attention_on_every_path(c);
}

TEST_CASE("attention: windows, inside a tile and over many") {
  for (const index_t left : {index_t{0}, index_t{3}, index_t{70}, AttentionMask::unlimited}) {
    for (const index_t right : {index_t{0}, index_t{2}, index_t{65}, AttentionMask::unlimited - 1}) {
      CAPTURE(left);
      CAPTURE(right);
      AttentionCase c = one_sequence(140, 170);
      c.queries = c.queries.with_first_position(9);
      c.mask = AttentionMask::window(left, right);
      c.bias = [=](index_t, index_t, index_t, index_t i, index_t j) {
        const index_t query = i + 9;
        return j >= query ? (j - query <= right ? 0 : lowest) : (query - j <= left ? 0 : lowest);
      };
      check_attention(c);
    }
  }
}

TEST_CASE("attention: boolean masks of every rank") {
  for (const bool packed : {false, true}) {
    for (const Shape& shape :
         {Shape{5, 7}, Shape{2, 5, 7}, Shape{2, 3, 5, 7}, Shape{1, 3, 1, 7}, Shape{2, 1, 5, 7}}) {
      CAPTURE(shape.str());
      AttentionCase c = small_case(packed);
      const Tensor<bool> flags = random_flags(shape, 0.5, 8);
      const auto flag = [=](index_t b, index_t h, index_t i, index_t j) {
        if (shape.rank() == 2) return flags.at({i, j});
        if (shape.rank() == 3) return flags.at({b, i, j});
        return flags.at({shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i, j});
      };
      c.mask = AttentionMask::allow(flags);
      c.bias = [=](index_t b, index_t, index_t h, index_t i, index_t j) {
        return flag(b, h, i, j) ? 0 : lowest;
      };
      check_attention_on_every_path(c);
      c.mask = AttentionMask::block(flags);
      c.bias = [=](index_t b, index_t, index_t h, index_t i, index_t j) {
        return flag(b, h, i, j) ? lowest : 0;
      };
      check_attention_on_every_path(c);
    }
  }
}

TEST_CASE("attention: additive masks and their conjunction with others") {
  AttentionCase c = small_case(false);
  const Tensor<float> bias = random_bias(Shape{2, 3, 5, 7}, 4), more = random_bias(Shape{5, 7}, 5);
  c.mask = AttentionMask::additive(bias);
  c.bias = [=](index_t b, index_t, index_t h, index_t i, index_t j) { return double{bias.at({b, h, i, j})}; };
  check_attention_on_every_path(c);
  c.mask = AttentionMask::additive(bias) & AttentionMask::causal() & AttentionMask::additive(more);
  c.bias = [=](index_t b, index_t, index_t h, index_t i, index_t j) {
    return j <= i ? double{bias.at({b, h, i, j})} + double{more.at({i, j})} : lowest;
  };
  check_attention_on_every_path(c);
}

TEST_CASE("attention: additive masks over several tiles") {
  AttentionCase c = one_sequence(70, 150);
  const Tensor<float> bias = random_bias(Shape{70, 150}, 6);
  c.mask = AttentionMask::additive(bias);
  c.bias = [=](index_t, index_t, index_t, index_t i, index_t j) { return double{bias.at({i, j})}; };
  check_attention_on_every_path(c);
}

TEST_CASE("attention: several sequences of queries look at one of keys") {
  AttentionCase c;
  c.queries = SequenceLayout::packed({2, 1, 4, 0, 3});
  c.keys = SequenceLayout::padded({7, 3, 6}, 7);
  c.key_sequence = {2, 0, 2, 1, 0};
  check_attention_on_every_path(c);
  // Key padding belongs to the keys' sequences.
  const Tensor<bool> padding = random_flags(Shape{3, 7}, 0.4, 3);
  c.mask = AttentionMask::key_padding(padding);
  c.bias = [=](index_t, index_t kb, index_t, index_t, index_t j) { return padding.at({kb, j}) ? lowest : 0; };
  check_attention_on_every_path(c);
}

TEST_CASE("attention: groups of queries over several tiles of keys") {
  AttentionCase c;
  c.heads = 2;
  c.queries = SequenceLayout::packed({33, 5, 130});
  c.keys = SequenceLayout::packed({70, 150});
  c.key_sequence = {1, 0, 1};
  check_attention_on_every_path(c);
}

TEST_CASE("attention: dropout on the weights") {
  AttentionCase c = small_case(false);
  c.rate = 0.4;
  c.queries = c.queries.with_sequence_numbers({9, 2});
  check_attention_on_every_path(c);
  c.queries = c.queries.with_first_position({1, 6});
  check_attention_on_every_path(c);
  AttentionCase large = one_sequence(70, 150);
  large.rate = 0.1;
  check_attention_on_every_path(large);
}

TEST_CASE("attention: keys found through a list of rows") {
  AttentionCase c = small_case(true);
  const auto n = random_numbers<float>(c);
  const auto expected = run_kernel(c, n);
  // The same rows of k and v, stored in another order with gaps.
  const index_t rows = c.keys.rows();
  std::vector<index_t> row_of(static_cast<std::size_t>(rows));
  auto moved = n;
  moved.k.assign(static_cast<std::size_t>(2 * rows * c.k_stride()), std::numeric_limits<float>::quiet_NaN());
  moved.v.assign(static_cast<std::size_t>(2 * rows * c.v_stride()), std::numeric_limits<float>::quiet_NaN());
  for (index_t r = 0; r < rows; ++r) {
    const index_t to = 2 * ((r * 5) % rows) + 1;
    row_of[static_cast<std::size_t>(r)] = to;
    std::copy_n(n.k.begin() + r * c.k_stride(), c.k_stride(), moved.k.begin() + to * c.k_stride());
    std::copy_n(n.v.begin() + r * c.v_stride(), c.v_stride(), moved.v.begin() + to * c.v_stride());
  }
  auto p = problem_of(c, moved);
  p.key_rows = row_of.data();
  AttentionResult<float> got(c);
  ef::detail::kernels::attention_forward(p, got.out.data(), c.out_stride(), got.log_sum_exp.data());
  ef::detail::kernels::attention_weights(p, got.log_sum_exp.data(), got.weights.data());
  CHECK(got.out == expected.out);
  CHECK(got.log_sum_exp == expected.log_sum_exp);
  CHECK(got.weights == expected.weights);
  CHECK(message_of<ef::ValueError>([&] {
          ef::detail::kernels::attention_backward(p, got.out.data(), c.out_stride(), n.dout.data(),
                                                  c.out_stride(), got.log_sum_exp.data(),
                                                  gradients_of(c, got));
        }) == "[attention] key_rows is given, but backward does not support it; expected none");
}

TEST_CASE("attention: gradients are added to beta times what was there, each where wanted") {
  const AttentionCase c = small_case(false);
  const auto n = random_numbers<double>(c);
  const auto p = problem_of(c, n);
  const auto plain = run_kernel(c, n);
  AttentionResult<double> r(c);
  for (auto* x : {&r.dq, &r.dk, &r.dv}) std::fill(x->begin(), x->end(), 2.0);
  const auto backward = [&](const ef::detail::kernels::AttentionGradients<double>& g) {
    ef::detail::kernels::attention_backward(p, plain.out.data(), c.out_stride(), n.dout.data(),
                                            c.out_stride(), plain.log_sum_exp.data(), g);
  };
  backward(gradients_of(c, r, 0.5));
  const auto expect = [](std::vector<double> x, index_t rows, index_t stride, index_t columns,
                         const SequenceLayout& l) {
    // Elements between the rows, and with beta other than 0 the rows of padding, are not touched.
    for (index_t row = 0; row < rows; ++row) {
      bool padding = true;
      for (index_t b = 0; b < l.batch(); ++b)
        padding &= row < l.offset(b) || row >= l.offset(b) + l.length(b);
      for (index_t col = 0; col < stride; ++col) {
        double& value = x[static_cast<std::size_t>(row * stride + col)];
        value = col < columns && !padding ? value + 1.0 : 2.0;
      }
    }
    return x;
  };
  CHECK(largest_error(
            r.dq, expect(plain.dq, c.queries.rows(), c.q_stride(), c.heads * c.head_dim, c.queries)) < 1e-14);
  CHECK(largest_error(r.dk, expect(plain.dk, c.keys.rows(), c.k_stride(), c.heads * c.head_dim, c.keys)) <
        1e-14);
  CHECK(largest_error(r.dv, expect(plain.dv, c.keys.rows(), c.v_stride(), c.heads * c.value_dim, c.keys)) <
        1e-14);

  AttentionResult<double> single(c);
  auto g = gradients_of(c, single);
  g.dk = g.dv = nullptr;
  backward(g);
  CHECK(single.dq == plain.dq);
  g = gradients_of(c, single);
  g.dq = g.dk = nullptr;
  backward(g);
  CHECK(single.dv == plain.dv);
  g = gradients_of(c, single);
  g.dq = g.dv = nullptr;
  backward(g);
  CHECK(single.dk == plain.dk);
}

TEST_CASE("attention: finite differences of the output and of the weights") {
  AttentionCase c;
  c.heads = 2;
  c.head_dim = 3;
  c.value_dim = 2;
  c.queries = SequenceLayout::packed({5, 2});
  c.keys = SequenceLayout::packed({4, 6});
  c.mask = AttentionMask::causal();
  c.rate = 0.25;
  auto n = random_numbers<double>(c);
  const auto r = run_kernel(c, n);
  std::vector<double> dweights(r.weights.size());
  ef::RandomGenerator(3).fill_normal(dweights.data(), static_cast<index_t>(dweights.size()), 0.0, 1.0);
  AttentionResult<double> of_weights(c);
  ef::detail::kernels::attention_weights_backward(problem_of(c, n), r.weights.data(), dweights.data(),
                                                  gradients_of(c, of_weights));
  // <out, dout> + <weights, dweights>
  const auto loss = [&](double& x, double to, bool weights) {
    const double before = x;
    x = to;
    const auto result = run_kernel(c, n);
    x = before;
    double sum = 0;
    if (weights) {
      for (std::size_t i = 0; i < dweights.size(); ++i) sum += result.weights[i] * dweights[i];
    } else {
      for (index_t row = 0; row < c.queries.rows(); ++row) {
        for (index_t e = 0; e < c.heads * c.value_dim; ++e) {
          const auto i = static_cast<std::size_t>(row * c.out_stride() + e);
          sum += result.out[i] * n.dout[i];
        }
      }
    }
    return sum;
  };
  const double step = 1e-5;
  const auto check = [&](std::vector<double>& x, const std::vector<double>& gradient, bool weights) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double numeric =
          (loss(x[i], x[i] + step, weights) - loss(x[i], x[i] - step, weights)) / (2 * step);
      CHECK(std::abs(numeric - gradient[i]) < 1e-8);
    }
  };
  check(n.q, r.dq, false);
  check(n.k, r.dk, false);
  check(n.v, r.dv, false);
  check(n.q, of_weights.dq, true);
  check(n.k, of_weights.dk, true);
}

TEST_CASE("attention: impossible problems are refused") {
  const AttentionCase c = small_case(true);
  const auto n = random_numbers<float>(c);
  AttentionResult<float> r(c);
  const auto message = [&](auto&& change) {
    auto p = problem_of(c, n);
    change(p);
    return message_of<ef::ValueError>(
        [&] { ef::detail::kernels::attention_forward(p, r.out.data(), c.out_stride(), {}); });
  };
  using P = ef::detail::kernels::AttentionProblem<float>;
  CHECK(message([](P& p) { p.heads = 0; }) == "[attention] heads is 0, must be at least 1");
  CHECK(message([](P& p) { p.head_dim = -2; }) == "[attention] head_dim is -2, must be at least 1");
  CHECK(message([](P& p) { p.value_dim = 0; }) == "[attention] value_dim is 0, must be at least 1");
  CHECK(message([](P& p) { p.queries = nullptr; }) ==
        "[attention] the layouts of queries and keys must be given");
  CHECK(contains(message([](P& p) { p.dropout_rate = 1; }), "must be in [0, 1)"));
  const SequenceLayout one = SequenceLayout::packed({7});
  CHECK(message([&](P& p) { p.keys = &one; }) ==
        "[attention] there are 2 sequences of queries and 1 of keys, must be equal numbers unless "
        "key_sequence is given");
  const std::int32_t wrong[] = {0, 2};
  CHECK(message([&](P& p) { p.key_sequence = wrong; }) ==
        "[attention] key_sequence[1] is 2, there are 2 sequences of keys");
  const AttentionMask mask = AttentionMask::block(Tensor<bool>::zeros(Shape{4, 7}));
  auto p = problem_of(c, n);
  p.mask = &mask;
  CHECK(message_of<ef::ShapeError>(
            [&] { ef::detail::kernels::attention_forward(p, r.out.data(), c.out_stride(), {}); }) ==
        "[attention] mask of shape (4, 7) must be (5, 7), (2, 5, 7) or (2 or 1, 3 or 1, 5 or 1, 7) for "
        "(batch, heads, "
        "queries, keys)");
}
