#include "eigenformer/autograd/tape/operand.hpp"

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/eigen_interop.hpp"
#include "test_tools.hpp"

namespace ef = eigenformer;
using namespace eigenformer::testing;
using ef::Context;
using ef::index_t;
using ef::Parameter;
using ef::SequenceLayout;
using ef::Shape;
using ef::Tensor;
using ef::Var;

namespace {

using Ids = Tensor<std::int32_t>;

// Calls use(number, operand) for each kind of operand with these values; Eigen has none of rank 0 or above 2.
template <class T, class F>
void for_each_kind(const Tensor<T>& x, F&& use) {
  use(0, Var<T>(x));
  use(1, x);
  if (x.rank() == 1) {
    const Eigen::VectorX<T> vector = ef::as_vector(x);
    use(2, vector);
    use(3, vector.array());
    use(4, ef::as_vector(x));
    use(5, vector / T(2) * T(2));
  } else if (x.rank() == 2) {
    const Eigen::MatrixX<T> matrix = ef::as_eigen(x);
    use(2, matrix);
    use(3, matrix.array());
    use(4, ef::as_eigen(x));
    use(5, matrix / T(2) * T(2));
  }
}

template <class T>
void check_same(const char* op, std::size_t position, int kind, const Tensor<T>& y,
                const Tensor<T>& expected) {
  CAPTURE(op);
  CAPTURE(position);
  CAPTURE(kind);
  CHECK(y.shape() == expected.shape());
  CHECK(values(y) == values(expected));
}
template <class T>
void check_same(const char* op, std::size_t position, int kind, const Var<T>& y, const Var<T>& expected) {
  check_same(op, position, kind, y.value(), expected.value());
}

// That the op refuses an operand without memory, by its name.
void check_refused(const char* op, const char* which, const std::function<void()>& f) {
  CAPTURE(op);
  CAPTURE(which);
  const std::string message = message_of<ef::ValueError>(f);
  CHECK(message.starts_with("[" + std::string(op) + "] an operand of shape "));
  CHECK(contains(message, " has no memory: it was moved from, released or never allocated"));
}

template <class X>
X moved_from(const X& x) {
  X gone = x;
  const X taken = std::move(gone);
  return gone;
}

// Calls use(number, operand) for a Var, a Tensor and an expression of Eigen: what an op's signature may
// refuse. The kinds of Eigen differ in detail::operand() alone, for which a few ops do.
template <class T, class F>
void for_main_kinds(const Tensor<T>& x, F&& use) {
  use(0, Var<T>(x));
  use(1, x);
  if (x.rank() == 1) {
    use(5, ef::as_vector(x) / T(2) * T(2));
  } else if (x.rank() == 2) {
    use(5, ef::as_eigen(x) / T(2) * T(2));
  }
}

// The operand at position J of those of x: the one given at position P.
template <std::size_t P, std::size_t J, class T, class X>
decltype(auto) choose(const std::vector<Tensor<T>>& x, const X& given) {
  if constexpr (J == P) {
    return (given);
  } else {
    return Var<T>(x[J]);
  }
}

// f(operands...) of the tensors at the positions of I: each of them in turn is of each kind, has no memory,
// or was moved from; the others are Vars.
template <class T, class F, std::size_t... I>
void check_positions(const char* op, const F& f, const std::vector<Tensor<T>>& x, std::index_sequence<I...>) {
  const auto expected = f(Var<T>(x[I])...);
  const auto at = [&]<std::size_t P>(std::integral_constant<std::size_t, P>) {
    const auto call = [&](const auto& operand) { return f(choose<P, I>(x, operand)...); };
    for_main_kinds(x[P], [&](int kind, const auto& operand) {
      const auto y = call(operand);
      static_assert(std::is_same_v<decltype(y), decltype(expected)>);
      check_same(op, P, kind, y, expected);
    });
    check_refused(op, "moved-from Var", [&] { (void)call(moved_from(Var<T>(x[P]))); });
    check_refused(op, "moved-from Tensor", [&] { (void)call(moved_from(x[P])); });
  };
  (at(std::integral_constant<std::size_t, I>()), ...);
  // All of one kind.
  check_same(op, sizeof...(I), 1, f(x[I]...), expected);
}

template <std::size_t N, class T, class F>
void check(const char* op, const F& f, const std::vector<Tensor<T>>& x) {
  REQUIRE(x.size() == N);
  check_positions<T>(op, f, x, std::make_index_sequence<N>());
}

template <class T>
Tensor<T> random(const Shape& shape, std::uint64_t seed = 1) {
  Tensor<T> t(shape);
  ef::RandomGenerator(seed).fill_uniform(t.data(), t.numel(), T(0.5), T(2));
  return t;
}

// A number in each position of an op of two operands, the other of each kind.
template <class T, class F>
void check_numbers(const char* op, const F& f, const Tensor<T>& x) {
  const Var<T> v(x), two(Tensor<T>::scalar(T(2)));
  for_main_kinds(x, [&](int kind, const auto& operand) {
    check_same(op, 0, kind, f(operand, 2), f(v, two));
    check_same(op, 1, kind, f(2.0, operand), f(two, v));
  });
}

}  // namespace

TEST_CASE_TEMPLATE("an operand is of any kind", T, float, double) {
  const Tensor<T> x = random<T>({4, 6}), g = random<T>({6}, 2);
  for_each_kind(x, [&](int kind, const auto& operand) {
    check_same("relu", 0, kind, ef::relu(operand), ef::relu(x));
    check_same("matmul", 0, kind, ef::matmul(operand, x, false, true), ef::matmul(x, x, false, true));
    check_same("rms_norm", 0, kind, ef::rms_norm(operand, g), ef::rms_norm(x, g));
  });
  for_each_kind(g, [&](int kind, const auto& operand) {
    check_same("rms_norm", 1, kind, ef::rms_norm(x, operand), ef::rms_norm(x, g));
  });
}

TEST_CASE("every op of one operand takes each kind, and refuses what has no memory") {
  using T = float;
  const std::vector<Tensor<T>> x = {random<T>({4, 6})};
#define CHECK_OP(OP) \
  check<1, T>(       \
      #OP, [](const auto& v) { return ef::OP(v); }, x)
  CHECK_OP(relu);
  CHECK_OP(gelu);
  CHECK_OP(gelu_tanh);
  CHECK_OP(silu);
  CHECK_OP(sigmoid);
  CHECK_OP(tanh);
  CHECK_OP(relu_squared);
  CHECK_OP(elu_plus_one);
  CHECK_OP(negate);
  CHECK_OP(exp);
  CHECK_OP(log);
  CHECK_OP(sqrt);
  CHECK_OP(square);
  CHECK_OP(abs);
  CHECK_OP(sign);
  CHECK_OP(floor);
  CHECK_OP(ceil);
  CHECK_OP(round);
  CHECK_OP(trunc);
  CHECK_OP(exp2);
  CHECK_OP(expm1);
  CHECK_OP(log1p);
  CHECK_OP(log2);
  CHECK_OP(log10);
  CHECK_OP(rsqrt);
  CHECK_OP(reciprocal);
  CHECK_OP(sin);
  CHECK_OP(cos);
  CHECK_OP(tan);
  CHECK_OP(atan);
  CHECK_OP(sinh);
  CHECK_OP(cosh);
  CHECK_OP(asinh);
  CHECK_OP(erf);
  CHECK_OP(erfc);
  CHECK_OP(softplus);
  CHECK_OP(mish);
  CHECK_OP(hard_tanh);
  CHECK_OP(hard_sigmoid);
  CHECK_OP(hard_swish);
  CHECK_OP(leaky_relu);
  CHECK_OP(elu);
  CHECK_OP(selu);
  CHECK_OP(softsign);
  CHECK_OP(logsigmoid);
  CHECK_OP(nan_to_num);
  CHECK_OP(isnan);
  CHECK_OP(isinf);
  CHECK_OP(isfinite);
  CHECK_OP(sum);
  CHECK_OP(mean);
  CHECK_OP(max);
  CHECK_OP(min);
  CHECK_OP(prod);
  CHECK_OP(var);
  CHECK_OP(std);
  CHECK_OP(norm);
  CHECK_OP(logsumexp);
  CHECK_OP(any);
  CHECK_OP(all);
  CHECK_OP(count_nonzero);
  CHECK_OP(argmin);
  CHECK_OP(argmax);
  CHECK_OP(argsort);
  CHECK_OP(softmax);
  CHECK_OP(log_softmax);
  CHECK_OP(glu);
  CHECK_OP(transpose);
  CHECK_OP(squeeze);
  CHECK_OP(flatten);
  CHECK_OP(atleast_1d);
  CHECK_OP(atleast_2d);
  CHECK_OP(atleast_3d);
  CHECK_OP(flip);
  CHECK_OP(diag);
  CHECK_OP(diagonal);
  CHECK_OP(tril);
  CHECK_OP(triu);
  CHECK_OP(trace);
  const std::vector<Tensor<T>> small = {ef::multiply(x[0], 0.25).value()}, large = {ef::add(x[0], 1).value()};
  check<1, T>(
      "asin", [](const auto& v) { return ef::asin(v); }, small);
  check<1, T>(
      "acos", [](const auto& v) { return ef::acos(v); }, small);
  check<1, T>(
      "atanh", [](const auto& v) { return ef::atanh(v); }, small);
  check<1, T>(
      "acosh", [](const auto& v) { return ef::acosh(v); }, large);
#undef CHECK_OP
#define CHECK_CALL(OP, ...) \
  check<1, T>(              \
      #OP, [](const auto& v) { return ef::OP(__VA_ARGS__); }, x)
  CHECK_CALL(clip, v, 0, 1);
  CHECK_CALL(threshold, v, 1, 0);
  CHECK_CALL(broadcast_to, v, Shape{2, 4, 6});
  CHECK_CALL(unsqueeze, v, 1);
  CHECK_CALL(moveaxis, v, 0, 1);
  CHECK_CALL(swapaxes, v, 0, 1);
  CHECK_CALL(repeat, v, 2, 0);
  CHECK_CALL(tile, v, {2, 2});
  CHECK_CALL(roll, v, 1, 0);
  CHECK_CALL(pad, v, {{1, 2}});
  CHECK_CALL(take, v, Tensor<std::int64_t>::arange(2), 1);
  CHECK_CALL(take, v, Tensor<std::int64_t>::arange(2));
  CHECK_CALL(take_along_axis, v, Tensor<std::int64_t>::zeros({4, 1}), 1);
  CHECK_CALL(masked_fill, v, Tensor<bool>::full({6}, true), 1);
  CHECK_CALL(masked_select, v, Tensor<bool>::full({6}, true));
  CHECK_CALL(nonzero, v);
  CHECK_CALL(cumsum, v, 1);
  CHECK_CALL(cumprod, v, 1);
  CHECK_CALL(logcumsumexp, v, 1);
  CHECK_CALL(quantile, v, 0.3);
  CHECK_CALL(quantile, v, 0.3, 1);
  CHECK_CALL(median, v);
  CHECK_CALL(nll_loss, v, Tensor<std::int64_t>::arange(4));
#undef CHECK_CALL
  check<1, T>(
      "sort", [](const auto& v) { return ef::sort(v, 0).values; }, x);
  check<1, T>(
      "median", [](const auto& v) { return ef::median(v, 0).values; }, x);
  check<1, T>(
      "cummax", [](const auto& v) { return ef::cummax(v, 0).values; }, x);
  check<1, T>(
      "cummin", [](const auto& v) { return ef::cummin(v, 0).values; }, x);
  check<1, T>(
      "topk", [](const auto& v) { return ef::topk(v, 2).values; }, x);
  check<1, T>(
      "split", [](const auto& v) { return ef::split(v, 4)[0]; }, x);
  check<1, T>(
      "chunk", [](const auto& v) { return ef::chunk(v, 2)[0]; }, x);
  check<1, T>(
      "unstack", [](const auto& v) { return ef::unstack(v)[0]; }, x);
  check<1, T>(
      "activate", [](const auto& v) { return ef::activate(v, ef::Activation::none); }, x);
  check<1, T>(
      "sum", [](const auto& v) { return ef::sum(v, {0}, true); }, x);
  check<1, T>(
      "mean", [](const auto& v) { return ef::mean(v, {-1}); }, x);
  check<1, T>(
      "max", [](const auto& v) { return ef::max(v, {0}, true); }, x);
  check<1, T>(
      "softmax", [](const auto& v) { return ef::softmax(v, 0); }, x);
  check<1, T>(
      "log_softmax", [](const auto& v) { return ef::log_softmax(v, 0); }, x);
  check<1, T>(
      "glu", [](const auto& v) { return ef::glu(v, ef::Activation::silu); }, x);
  check<1, T>(
      "reshape",
      [](const auto& v) {
        return ef::reshape(v, Shape{3, 8});
      },
      x);
  check<1, T>(
      "reshape",
      [](const auto& v) {
        return ef::reshape(v, {2, -1});
      },
      x);
  check<1, T>(
      "permute",
      [](const auto& v) {
        return ef::permute(v, {1, 0});
      },
      x);
  check<1, T>(
      "slice", [](const auto& v) { return ef::slice(v, 1, 2, -1); }, x);
  check<1, T>(
      "stack",
      [](const auto& v) {
        return ef::stack({v, v});
      },
      x);
  check<1, T>(
      "concat",
      [](const auto& v) {
        return ef::concat(std::vector{v, v}, 1);
      },
      x);
  check<1, T>("softmax", [](const auto& v) { return ef::softmax(v); }, {random<T>({5})});
}

TEST_CASE("every op of several operands takes each kind in each position") {
  using T = float;
  const std::vector<Tensor<T>> pair = {random<T>({4, 6}), random<T>({4, 6}, 2)};
  check<2, T>(
      "assign", [](const auto& a, const auto& b) { return ef::assign(a, {ef::all}, b); }, pair);
  check<2, T>(
      "put_along_axis",
      [](const auto& a, const auto& b) {
        return ef::put_along_axis(a, Ids::zeros({4, 6}), b, 1);
      },
      pair);
  check<2, T>(
      "scatter_add",
      [](const auto& a, const auto& b) {
        return ef::scatter_add(a, 1, Ids::zeros({4, 6}), b);
      },
      pair);
  check<2, T>(
      "index_add", [](const auto& a, const auto& b) { return ef::index_add(a, 0, Ids::zeros({4}), b); },
      pair);
  check<2, T>(
      "searchsorted", [](const auto& a, const auto& b) { return ef::searchsorted(a, b); }, pair);
  check<2, T>(
      "binary_cross_entropy_with_logits",
      [](const auto& a, const auto& b) { return ef::binary_cross_entropy_with_logits(a, b); }, pair);
  check<2, T>(
      "kl_div", [](const auto& a, const auto& b) { return ef::kl_div(a, b, ef::LossReduction::sum, true); },
      pair);
  check<2, T>(
      "cosine_similarity", [](const auto& a, const auto& b) { return ef::cosine_similarity(a, b); }, pair);
  const std::vector<Tensor<T>> inside = {ef::sigmoid(pair[0]).value(), ef::sigmoid(pair[1]).value()};
  check<2, T>(
      "binary_cross_entropy", [](const auto& a, const auto& b) { return ef::binary_cross_entropy(a, b); },
      inside);
#define CHECK_PAIR(OP)                                                       \
  check<2, T>(                                                               \
      #OP, [](const auto& a, const auto& b) { return ef::OP(a, b); }, pair); \
  check_numbers<T>(                                                          \
      #OP, [](const auto& a, const auto& b) { return ef::OP(a, b); }, pair[0])
  CHECK_PAIR(add);
  CHECK_PAIR(subtract);
  CHECK_PAIR(multiply);
  CHECK_PAIR(divide);
  CHECK_PAIR(mse_loss);
  CHECK_PAIR(l1_loss);
  CHECK_PAIR(smooth_l1_loss);
  CHECK_PAIR(huber_loss);
  CHECK_PAIR(less);
  CHECK_PAIR(less_equal);
  CHECK_PAIR(greater);
  CHECK_PAIR(greater_equal);
  CHECK_PAIR(equal);
  CHECK_PAIR(not_equal);
  CHECK_PAIR(pow);
  CHECK_PAIR(maximum);
  CHECK_PAIR(minimum);
  CHECK_PAIR(atan2);
  CHECK_PAIR(logaddexp);
  CHECK_PAIR(remainder);
  CHECK_PAIR(isclose);
#undef CHECK_PAIR
  const Tensor<bool> mask = ef::greater(pair[0], pair[1]);
  const auto where = [&](const auto& a, const auto& b) { return ef::where(mask, a, b); };
  check<2, T>(
      "prelu", [](const auto& a, const auto& b) { return ef::prelu(a, b); },
      std::vector<Tensor<T>>{pair[0], random<T>({1})});
  check<2, T>("where", where, pair);
  check_numbers<T>("where", where, pair[0]);
  check_refused("logical_not", "x", [&] { return ef::logical_not(moved_from(mask)); });
  check_refused("logical_and", "a", [&] { return ef::logical_and(moved_from(mask), mask); });
  check_refused("logical_or", "a", [&] { return ef::logical_or(moved_from(mask), mask); });
  check_refused("logical_xor", "a", [&] { return ef::logical_xor(moved_from(mask), mask); });
  check_refused("where", "mask", [&] { return ef::where(moved_from(mask), pair[0], 0); });

  check<2, T>(
      "matmul", [](const auto& a, const auto& b) { return ef::matmul(a, b, false, true); }, pair);
  check<2, T>(
      "einsum", [](const auto& a, const auto& b) { return ef::einsum("ij,kj", a, b); }, pair);
  check<2, T>(
      "tensordot", [](const auto& a, const auto& b) { return ef::tensordot(a, b, {1}, {1}); }, pair);
  check<2, T>(
      "inner", [](const auto& a, const auto& b) { return ef::inner(a, b); }, pair);
  check<2, T>(
      "kron", [](const auto& a, const auto& b) { return ef::kron(a, b); }, pair);
  check<2, T>("outer", [](const auto& a, const auto& b) { return ef::outer(a, b); },
              {random<T>({4}, 1), random<T>({3}, 2)});
  check<2, T>(
      "recurrence",
      [](const auto& f, const auto& x) {
        return ef::recurrence(f, x, SequenceLayout::packed({3, 1}));
      },
      pair);
  check<2, T>(
      "stack",
      [](const auto& a, const auto& b) {
        return ef::stack({a, b, a}, 1);
      },
      pair);
  check<2, T>(
      "concat",
      [](const auto& a, const auto& b) {
        return ef::concat({a, b}, -1);
      },
      pair);
  const std::vector<Tensor<T>> images = {random<T>({2, 3, 4, 5}), random<T>({3, 3, 2, 2}, 2),
                                         random<T>({3}, 3)};
  const std::vector<Tensor<T>> signals = {random<T>({2, 3, 5}), random<T>({3, 3, 2}, 2), random<T>({3}, 3)};
  check<3, T>(
      "conv2d", [](const auto& x, const auto& w, const auto& b) { return ef::conv2d(x, w, b); }, images);
  check<3, T>(
      "conv1d", [](const auto& x, const auto& w, const auto& b) { return ef::conv1d(x, w, b); }, signals);
  check<3, T>(
      "conv_transpose2d",
      [](const auto& x, const auto& w, const auto& b) { return ef::conv_transpose2d(x, w, b); }, images);
  check<3, T>(
      "conv_transpose1d",
      [](const auto& x, const auto& w, const auto& b) { return ef::conv_transpose1d(x, w, b); }, signals);
  check<1, T>("unfold", [](const auto& v) { return ef::unfold(v, 2); }, {images[0]});
  check<1, T>("max_pool2d", [](const auto& v) { return ef::max_pool2d(v, 2); }, {images[0]});
  check<1, T>("avg_pool2d", [](const auto& v) { return ef::avg_pool2d(v, 2); }, {images[0]});
  check<1, T>("max_pool1d", [](const auto& v) { return ef::max_pool1d(v, 2); }, {signals[0]});
  check<1, T>("avg_pool1d", [](const auto& v) { return ef::avg_pool1d(v, 2); }, {signals[0]});
  const std::vector<Tensor<T>> normed = {images[0], images[2], random<T>({3}, 4)};
  check<1, T>("interpolate", [](const auto& v) { return ef::interpolate(v, {3, 7}); }, {images[0]});
  check<3, T>(
      "batch_norm",
      [](const auto& x, const auto& w, const auto& b) {
        Tensor<T> mean = Tensor<T>::zeros({3}), var = Tensor<T>::ones({3});
        return ef::batch_norm(x, mean, var, w, b, {.training = true});
      },
      normed);
  check<3, T>(
      "group_norm", [](const auto& x, const auto& w, const auto& b) { return ef::group_norm(x, 3, w, b); },
      normed);
  check<3, T>("layer_norm",
              [](const auto& x, const auto& g, const auto& b) { return ef::layer_norm(x, g, b); },
              {pair[0], random<T>({6}, 3), random<T>({6}, 4)});
  check<1, T>("layer_norm", [](const auto& x) { return ef::layer_norm(x, {}, {}, {.eps = 1e-3}); },
              {pair[0]});
  check<2, T>("rms_norm", [](const auto& x, const auto& g) { return ef::rms_norm(x, g); },
              {pair[0], random<T>({6}, 3)});
  check<1, T>("rms_norm", [](const auto& x) { return ef::rms_norm(x, {}, 1e-3); }, {pair[0]});
  check<3, T>("attention", [](const auto& q, const auto& k, const auto& v) { return ef::attention(q, k, v); },
              {random<T>({2, 3, 4}, 1), random<T>({2, 5, 4}, 2), random<T>({2, 5, 6}, 3)});
  check<3, T>("linear_attention",
              [](const auto& q, const auto& k, const auto& v) {
                const auto layout = SequenceLayout::packed({3, 1});
                return ef::linear_attention(q, k, v, layout, layout);
              },
              {pair[0], pair[1], random<T>({4, 2}, 3)});
}

TEST_CASE("every op with ids takes each kind of operand, and refuses ids without memory") {
  using T = float;
  const Tensor<T> x = random<T>({4, 6});
  const Ids targets({4}, {0, 5, 2, 3}), index({2, 6}, {0, 1, 2, 3, 0, 1, 3, 2, 1, 0, 3, 2});
  check<1, T>("cross_entropy", [&](const auto& v) { return ef::cross_entropy(v, targets); }, {x});
  check<1, T>("cross_entropy",
              [&](const auto& v) { return ef::cross_entropy(v, targets, {.label_smoothing = 0.1}); }, {x});
  check<1, T>("gather", [&](const auto& v) { return ef::gather(v, 0, index); }, {x});
  check<1, T>("embedding", [&](const auto& v) { return ef::embedding(v, Ids({2}, {3, 1}), 2.0); }, {x});
  check<1, T>("index_select", [&](const auto& v) { return ef::index_select(v, Ids({2}, {3, 1})); }, {x});
  check_refused("cross_entropy", "targets", [&] { return ef::cross_entropy(x, moved_from(targets)); });
  check_refused("gather", "index", [&] { return ef::gather(x, 0, moved_from(index)); });
  check_refused("embedding", "ids", [&] { return ef::embedding(x, moved_from(index)); });
  check_refused("index_select", "rows", [&] { return ef::index_select(x, moved_from(Ids({1}, {0}))); });
  const Eigen::VectorXi rows = Eigen::VectorXi::LinSpaced(2, 0, 1);
  CHECK(values(ef::index_select(x, rows).value()) == values(x.rows(0, 2)));

  check<1, T>("pool", [](const auto& v) { return ef::pool(v, SequenceLayout::packed({3, 1})); }, {x});
  check<1, T>(
      "alignment_loss",
      [](const auto& v) { return ef::alignment_loss(v, {{.sequence = 0, .query = 1, .key = 2}}, -1, 2.0); },
      {random<T>({1, 2, 3, 4})});
  check<1, T>(
      "rotary",
      [](const auto& v) {
        return ef::rotary(v, SequenceLayout::packed({3, 1}), 2, 2, ef::detail::kernels::RotaryTable<T>(2, 4));
      },
      {x});
}

TEST_CASE("every op with a context takes each kind of operand") {
  using T = float;
  const auto ctx = Context<T>::inference();
  const auto layout = SequenceLayout::packed({3, 1});
  const Tensor<T> x = random<T>({4, 6}), r = random<T>({4, 6}, 2);
  const Parameter<T> w(random<T>({5, 6}, 3)), b(random<T>({5}, 4)), w2(random<T>({3, 5}, 5)), none;
  const ef::detail::AttentionOp op{.heads = 2};
  check<1, T>("dropout", [&](const auto& v) { return ef::dropout(ctx, v, 0.5); }, {x});
  check<2, T>("add_dropout", [&](const auto& v, const auto& u) { return ef::add_dropout(ctx, v, u, 0.5); },
              {x, r});
  check<1, T>("stochastic_depth", [&](const auto& v) { return ef::stochastic_depth(ctx, v, 0.5); }, {x});
  check<1, T>("linear", [&](const auto& v) { return ef::linear(ctx, v, w, b); }, {x});
  check<1, T>("linear_slice", [&](const auto& v) { return ef::linear_slice(ctx, v, w, b, 1, 3); }, {x});
  check<1, T>(
      "feed_forward",
      [&](const auto& v) { return ef::feed_forward(ctx, v, w, b, w2, none, ef::Activation::relu, 0.1); },
      {x});
  check<1, T>("gated_feed_forward",
              [&](const auto& v) {
                return ef::gated_feed_forward(ctx, v, w, b, w, none, w2, none, ef::Activation::silu, 0.1);
              },
              {x});
  check<4, T>("add_layer_norm",
              [&](const auto& v, const auto& u, const auto& g, const auto& s) {
                return ef::add_layer_norm(ctx, v, u, 0.1, g, s);
              },
              {x, r, random<T>({6}, 3), random<T>({6}, 4)});
  check<3, T>(
      "add_rms_norm",
      [&](const auto& v, const auto& u, const auto& g) { return ef::add_rms_norm(ctx, v, u, 0.1, g); },
      {x, r, random<T>({6}, 3)});
  check<3, T>("attention",
              [&](const auto& q, const auto& k, const auto& v) {
                return ef::attention(ctx, q, k, v, layout, layout, {}, op);
              },
              {x, r, random<T>({4, 2}, 3)});
  check<1, T>("self_attention", [&](const auto& qkv) { return ef::self_attention(ctx, qkv, layout, {}, op); },
              {random<T>({4, 12})});
  check<2, T>(
      "cross_attention",
      [&](const auto& q, const auto& kv) { return ef::cross_attention(ctx, q, kv, layout, layout, {}, op); },
      {x, random<T>({4, 12})});
  check<2, T>(
      "attention_weights",
      [&](const auto& q, const auto& k) { return ef::attention_weights(ctx, q, k, layout, layout, {}, op); },
      {x, r});
  const Ids targets({4}, {0, 4, 2, 3});
  check<1, T>("linear_cross_entropy",
              [&](const auto& v) { return ef::linear_cross_entropy(ctx, v, w, b, targets); }, {x});
  ef::TokenLosses losses;
  const auto objective = [&](const auto& v, const Ids& ids) {
    return ef::linear_token_objective(ctx, v, w, b, ids, ef::TokenObjective{}, 4.0, {}, losses);
  };
  check<1, T>("token_objective", [&](const auto& v) { return objective(v, targets); }, {x});
  check_refused("token_objective", "targets", [&] { return objective(x, moved_from(targets)); });
  check_refused("linear_cross_entropy", "targets",
                [&] { return ef::linear_cross_entropy(ctx, x, w, b, moved_from(targets)); });
  check<2, T>("add",
              [&](const auto& a, const auto& c) {
                return ef::checkpoint(
                    ctx, [](const auto&, const auto& u, const auto& v) { return ef::add(u, v); }, a, c);
              },
              {x, r});
  ef::Tape<T> tape;
  check<2, T>("add",
              [&](const auto& a, const auto& c) {
                const auto y = ef::checkpoint(
                    Context<T>::checking(tape),
                    [](const auto&, const auto& u, const auto& v) { return ef::add(u, v); }, a, c);
                return y;
              },
              {x, r});
}

TEST_CASE_TEMPLATE("operators take a Var or a Tensor beside each kind, and leave Eigen's own", T, float,
                   double) {
  const Tensor<T> x = random<T>({4, 6}), y = random<T>({4, 6}, 2);
  const Var<T> v(x);
  const auto check_operators = [&](const char* own, const auto& a) {
    for_each_kind(y, [&](int kind, const auto& b) {
      check_same(own, 0, kind, a + b, ef::add(x, y));
      check_same(own, 1, kind, b + a, ef::add(y, x));
      check_same(own, 0, kind, a - b, ef::subtract(x, y));
      check_same(own, 1, kind, b - a, ef::subtract(y, x));
      check_same(own, 0, kind, a * b, ef::multiply(x, y));
      check_same(own, 1, kind, b * a, ef::multiply(y, x));
      check_same(own, 0, kind, a / b, ef::divide(x, y));
      check_same(own, 1, kind, b / a, ef::divide(y, x));
    });
    check_same(own, 0, 6, -a, ef::negate(x));
    check_same(own, 0, 6, a + 1, ef::add(x, 1));
    check_same(own, 1, 6, 2 / a, ef::divide(2, x));
  };
  check_operators("Var", v);
  check_operators("Tensor", x);
  using ef::operator+;
  using ef::operator-;
  const Eigen::MatrixX<T> m = ef::as_eigen(x);
  static_assert(!std::is_same_v<decltype(m + m), Var<T>> && !std::is_same_v<decltype(-m), Var<T>>);
}

TEST_CASE("a Var operand is neither copied nor shared, a Tensor is shared") {
  const Tensor<float> x = random<float>({4, 6});
  const Var<float> v(x);
  CHECK(&ef::detail::operand<float>(v) == &v);
  CHECK(ef::detail::operand<float>(x).value().data() == x.data());
  CHECK(ef::reshape(x, {24}).value().data() == x.data());
}

TEST_CASE("what is no operand is not taken") {
  const auto relu = []<class X>(const X&) {
    return requires(const X& x) { ef::relu(x); };
  };
  CHECK(relu(Tensor<float>()));
  CHECK_FALSE(relu(Tensor<std::int32_t>()));
  CHECK_FALSE(relu(Eigen::MatrixXi()));
  CHECK_FALSE(relu(2.0));
  CHECK_FALSE(relu(std::string()));
  const auto both = []<class A, class B>(const A&, const B&) {
    return requires(const A& a, const B& b) { ef::add(a, b); }
    || requires(const A& a, const B& b) { a + b; }
    || requires(const A& a, const B& b) { ef::matmul(a, b); };
  };
  CHECK(both(Tensor<float>(), Var<float>()));
  CHECK_FALSE(both(Tensor<float>(), Tensor<double>()));
  CHECK_FALSE(both(Var<double>(), Eigen::MatrixXf()));
  CHECK_FALSE(both(Var<float>(), true));
  CHECK_FALSE(both(Var<float>(), std::string()));
}

TEST_CASE("operands without memory: undefined ones, those of optional inputs, and empty ones") {
  const Tensor<float> x = random<float>({4, 6});
  check_refused("relu", "undefined", [] { return ef::relu(Var<float>()); });
  check_refused("matmul", "undefined", [&] { return ef::matmul(x, Tensor<float>()); });
  check_refused("layer_norm", "gain", [&] { return ef::layer_norm(x, moved_from(random<float>({6})), {}); });
  check_refused("rms_norm", "gain", [&] { return ef::rms_norm(x, moved_from(random<float>({6}))); });
  CHECK(ef::layer_norm(x, Tensor<float>(), Var<float>()).shape() == x.shape());
  const auto layout = SequenceLayout::packed({4});
  check_refused("attention", "bias", [&] {
    return ef::attention(Context<float>::inference(), x, x, x, layout, layout, {}, {.heads = 2},
                         {.bias = moved_from(Var<float>(random<float>({2, 3})))});
  });
  check_refused("linear_attention", "admitted", [&] {
    return ef::linear_attention(x, x, x, layout, layout,
                                {.admitted = moved_from(Tensor<bool>::full({4}, true))});
  });
  CHECK(ef::relu(Tensor<float>(Shape{0, 3})).shape() == Shape{0, 3});
  CHECK(ef::relu(Tensor<float>::borrow(nullptr, Shape{0})).shape() == Shape{0});
}

TEST_CASE("options that are not numbers are refused by name") {
  const Tensor<float> x = random<float>({4, 6});
  const auto ctx = Context<float>::inference();
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (const double eps : {-1.0, nan, infinity}) {
    CAPTURE(eps);
    const auto refused = [&](const std::string& op, const auto& f) {
      const std::string message = message_of<ef::ValueError>([&] { (void)f(); });
      CHECK(message == ef::detail::join({"[", op, "] eps is ", eps, ", must be 0 or a positive number"}));
    };
    refused("layer_norm", [&] { return ef::layer_norm(x, {}, {}, {.eps = eps}); });
    refused("add_layer_norm", [&] { return ef::add_layer_norm(ctx, x, x, 0.0, {}, {}, {.eps = eps}); });
    refused("rms_norm", [&] { return ef::rms_norm(x, {}, eps); });
    refused("add_rms_norm", [&] { return ef::add_rms_norm(ctx, x, x, 0.0, {}, eps); });
  }
  CHECK(ef::layer_norm(x, {}, {}, {.eps = 0}).shape() == x.shape());
  const auto layout = SequenceLayout::packed({4});
  for (const double scale : {nan, infinity, -infinity}) {
    CAPTURE(scale);
    const auto refused = [&](const std::string& op, const auto& f) {
      const std::string message = message_of<ef::ValueError>([&] { (void)f(); });
      CHECK(message ==
            ef::detail::join({"[", op, "] scale is ", scale, ", must be finite; 0 is 1 / sqrt(head width)"}));
    };
    const ef::detail::AttentionOp op{.scale = scale};
    refused("attention", [&] { return ef::attention(ctx, x, x, x, layout, layout, {}, op); });
    refused("self_attention", [&] { return ef::self_attention(ctx, x, layout, {}, op); });
    refused("cross_attention", [&] { return ef::cross_attention(ctx, x, x, layout, layout, {}, op); });
    refused("attention_weights", [&] { return ef::attention_weights(ctx, x, x, layout, layout, {}, op); });
  }
}
