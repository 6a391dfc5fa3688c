// Operations on tensors, each beside libtorch's and, where it is one expression, Eigen's: ours/add/4096,
// torch/add/4096, eigen/add/4096. Results are new tensors, as a program gets them. Threads:
// EIGENFORMER_BENCH_THREADS (default 1). libtorch is that of the Python that -DEIGENFORMER_BENCH_PYTHON
// names, as is MLX's CPU backend, beside which the most common operations are: its own thread computes them
// when they are asked for. bench/tensor/table.py makes the table of ratios.

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../shared/bench_tools.hpp"
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/linalg.hpp"
#ifdef EIGENFORMER_WITH_TORCH
// Functions in the macros below call their parameters as the tensors around them.
#pragma GCC diagnostic ignored "-Wshadow"
#include <ATen/Parallel.h>
#include <torch/torch.h>
// An expression of libtorch's in a row below.
#define TORCH(...) [=] { benchmark::DoNotOptimize(__VA_ARGS__); }
// Gradients of the sum of an expression for x, or for x and y.
#define TORCH_GRADIENT(...)                      \
  [=] {                                          \
    const torch::AutoGradMode recorded(true);    \
    const auto x = tx.detach().requires_grad_(); \
    (__VA_ARGS__).sum().backward();              \
    benchmark::DoNotOptimize(x.grad());          \
  }
#define TORCH_GRADIENTS(...)                     \
  [=] {                                          \
    const torch::AutoGradMode recorded(true);    \
    const auto x = tx.detach().requires_grad_(); \
    const auto y = ty.detach().requires_grad_(); \
    (__VA_ARGS__).sum().backward();              \
    benchmark::DoNotOptimize(x.grad());          \
  }
#else
#define TORCH(...) nullptr
#define TORCH_GRADIENT(...) nullptr
#define TORCH_GRADIENTS(...) nullptr
#endif
#ifdef EIGENFORMER_WITH_MLX
#include <mlx/mlx.h>
#endif
#define OURS(...) [=] { benchmark::DoNotOptimize(__VA_ARGS__); }
#define EIGEN(...) [=] { benchmark::DoNotOptimize(__VA_ARGS__); }
#define GRADIENT(...) \
  [=] { benchmark::DoNotOptimize(ef::grad([](const Var& x) { return ef::sum(__VA_ARGS__); })(x)); }
#define GRADIENTS(...)                                                                          \
  [=] {                                                                                         \
    benchmark::DoNotOptimize(                                                                   \
        ef::grad<0, 1>([](const Var& x, const Var& y) { return ef::sum(__VA_ARGS__); })(x, y)); \
  }

namespace ef = eigenformer;
using ef::index_t;
using ef::bench::random_tensor;
using Tensor = ef::Tensor<float>;
using Var = ef::Var<float>;
using Array = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Call = std::function<void()>;

namespace {

constexpr index_t sides[] = {4, 64, 256, 2048};  // of square arrays: 16, 4,096, 65,536 and 4 million numbers

void measure(const std::string& library, const std::string& operation, index_t size, double arrays,
             Call call) {
  if (!call) return;
  const std::string name = library + "/" + operation + "/" + std::to_string(size);
  // A call has copies of its arrays, and Google Benchmark copies what it is given.
  const auto shared = std::make_shared<const Call>(std::move(call));
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
#ifdef EIGENFORMER_WITH_TORCH
    const torch::NoGradGuard none;
#endif
    const double seconds = ef::bench::seconds_per_call(state, *shared);
    if (arrays > 0)
      state.counters["GB/s"] = static_cast<double>(size) * arrays * sizeof(float) * 1e-9 / seconds;
  })->UseRealTime();
}

// An operation on `size` numbers. GB/s counts every array once for each time it must be read or written.
void row(const std::string& operation, index_t size, double arrays, Call ours, Call torch,
         Call eigen = nullptr) {
  measure("ours", operation, size, arrays, std::move(ours));
  measure("torch", operation, size, arrays, std::move(torch));
  measure("eigen", operation, size, arrays, std::move(eigen));
}

Eigen::Map<const Array> array(const Tensor& x) { return {x.data(), x.shape()[0], x.numel() / x.shape()[0]}; }

#ifdef EIGENFORMER_WITH_TORCH
template <class T>
torch::Tensor torch_tensor(const ef::Tensor<T>& x) {
  std::vector<std::int64_t> shape;
  for (index_t d = 0; d < x.shape().rank(); ++d) shape.push_back(x.shape()[d]);
  return torch::from_blob(const_cast<T*>(x.data()), shape, c10::CppTypeToScalarType<T>::value).clone();
}
#define TORCH_TENSOR(name, x) const torch::Tensor name = torch_tensor(x)
#else
#define TORCH_TENSOR(name, x) static_cast<void>(0)
#endif

void arithmetic(index_t side) {
  const Tensor x = random_tensor({side, side}, 1), y = random_tensor({side, side}, 2),
               bias = random_tensor({side}, 3), p = ef::add(ef::abs(x), 0.1f).value();
  TORCH_TENSOR(tx, x);
  TORCH_TENSOR(ty, y);
  TORCH_TENSOR(tbias, bias);
  TORCH_TENSOR(tp, p);
  const index_t n = side * side;
  row("add", n, 3, OURS(ef::add(x, y)), TORCH(tx + ty), EIGEN(Array(array(x) + array(y))));
  row("multiply", n, 3, OURS(ef::multiply(x, y)), TORCH(tx * ty), EIGEN(Array(array(x) * array(y))));
  row("divide", n, 3, OURS(ef::divide(x, p)), TORCH(tx / tp), EIGEN(Array(array(x) / array(p))));
  row("x y + p in one expression", n, 4, OURS(Tensor(ef::as_array(x) * ef::as_array(y) + ef::as_array(p))),
      TORCH(torch::addcmul(tp, tx, ty)), EIGEN(Array(array(x) * array(y) + array(p))));
  row("add a row", n, 2, OURS(ef::add(x, bias)), TORCH(tx + tbias),
      EIGEN(Array(array(x).rowwise() + Eigen::Map<const Eigen::ArrayXf>(bias.data(), side).transpose())));
  row("maximum", n, 3, OURS(ef::maximum(x, y)), TORCH(torch::maximum(tx, ty)));
  row("pow", n, 3, OURS(ef::pow(p, y)), TORCH(torch::pow(tp, ty)));
  row("atan2", n, 3, OURS(ef::atan2(x, y)), TORCH(torch::atan2(tx, ty)));
  row("logaddexp", n, 3, OURS(ef::logaddexp(x, y)), TORCH(torch::logaddexp(tx, ty)));
  row("remainder", n, 3, OURS(ef::remainder(x, p)), TORCH(torch::remainder(tx, tp)));
  row("less", n, 2.25, OURS(ef::less(x, y)), TORCH(tx < ty));
  row("isclose", n, 2.25, OURS(ef::isclose(x, y)), TORCH(torch::isclose(tx, ty)));
  row("where", n, 3.25, OURS(ef::where(ef::less(x, y), x, y)), TORCH(torch::where(tx < ty, tx, ty)));
  row("masked_fill", n, 2.25, OURS(ef::masked_fill(x, ef::less(x, y), 0.f)),
      TORCH(tx.masked_fill(tx < ty, 0)));
  row("add, gradients", n, 0, GRADIENTS(ef::add(x, y)), TORCH_GRADIENTS(x + y));
  row("multiply, gradients", n, 0, GRADIENTS(ef::multiply(x, y)), TORCH_GRADIENTS(x * y));
  row("maximum, gradients", n, 0, GRADIENTS(ef::maximum(x, y)), TORCH_GRADIENTS(torch::maximum(x, y)));
  row("mse_loss, gradients", n, 0, GRADIENTS(ef::mse_loss(x, y)), TORCH_GRADIENTS(torch::mse_loss(x, y)));
  row("l1_loss, gradients", n, 0, GRADIENTS(ef::l1_loss(x, y)), TORCH_GRADIENTS(torch::l1_loss(x, y)));
  row("huber_loss, gradients", n, 0, GRADIENTS(ef::huber_loss(x, y)),
      TORCH_GRADIENTS(torch::huber_loss(x, y)));
  row("cosine_similarity, gradients", n, 0, GRADIENTS(ef::cosine_similarity(x, y)),
      TORCH_GRADIENTS(torch::cosine_similarity(x, y, -1)));
}

#define UNARY(name, ours, torch)                                                \
  row(name, n, 2, OURS(ours), TORCH([&](const auto& x) { return torch; }(tx))); \
  row(name ", gradient", n, 0, GRADIENT(ours), TORCH_GRADIENT(torch))

void elementwise(index_t side) {
  // Between 0.1 and 0.9, where all of these functions are defined.
  const Tensor x = ef::add(ef::multiply(ef::abs(random_tensor({side, side}, 1)), 0.8f), 0.1f).value();
  TORCH_TENSOR(tx, x);
  const index_t n = side * side;
  row("exp", n, 2, OURS(ef::exp(x)), TORCH(tx.exp()), EIGEN(Array(array(x).exp())));
  row("tanh", n, 2, OURS(ef::tanh(x)), TORCH(tx.tanh()), EIGEN(Array(array(x).tanh())));
  row("sin", n, 2, OURS(ef::sin(x)), TORCH(tx.sin()), EIGEN(Array(array(x).sin())));
  row("exp, gradient", n, 0, GRADIENT(ef::exp(x)), TORCH_GRADIENT(x.exp()));
  row("sign", n, 2, OURS(ef::sign(x)), TORCH(tx.sign()));
  row("floor", n, 2, OURS(ef::floor(x)), TORCH(tx.floor()));
  row("round", n, 2, OURS(ef::round(x)), TORCH(tx.round()));
  row("nan_to_num", n, 2, OURS(ef::nan_to_num(x)), TORCH(tx.nan_to_num()));
  row("isnan", n, 1.25, OURS(ef::isnan(x)), TORCH(tx.isnan()));
  UNARY("abs", ef::abs(x), x.abs());
  UNARY("clip", ef::clip(x, 0.2f, 0.8f), x.clip(0.2, 0.8));
  UNARY("square", ef::square(x), x.square());
  UNARY("sqrt", ef::sqrt(x), x.sqrt());
  UNARY("rsqrt", ef::rsqrt(x), x.rsqrt());
  UNARY("reciprocal", ef::reciprocal(x), x.reciprocal());
  UNARY("log", ef::log(x), x.log());
  UNARY("log2", ef::log2(x), x.log2());
  UNARY("log1p", ef::log1p(x), x.log1p());
  UNARY("exp2", ef::exp2(x), x.exp2());
  UNARY("expm1", ef::expm1(x), x.expm1());
  UNARY("cos", ef::cos(x), x.cos());
  UNARY("tan", ef::tan(x), x.tan());
  UNARY("asin", ef::asin(x), x.asin());
  UNARY("atan", ef::atan(x), x.atan());
  UNARY("sinh", ef::sinh(x), x.sinh());
  UNARY("asinh", ef::asinh(x), x.asinh());
  UNARY("atanh", ef::atanh(x), x.atanh());
  UNARY("erf", ef::erf(x), x.erf());
  UNARY("sigmoid", ef::sigmoid(x), x.sigmoid());
  UNARY("relu", ef::relu(x), x.relu());
  UNARY("gelu", ef::gelu(x), torch::gelu(x));
  UNARY("silu", ef::silu(x), torch::silu(x));
  UNARY("softplus", ef::softplus(x), torch::softplus(x));
  UNARY("mish", ef::mish(x), torch::mish(x));
  UNARY("logsigmoid", ef::logsigmoid(x), torch::log_sigmoid(x));
  UNARY("hard_tanh", ef::hard_tanh(x), torch::hardtanh(x));
  UNARY("hard_swish", ef::hard_swish(x), torch::hardswish(x));
  UNARY("leaky_relu", ef::leaky_relu(x), torch::leaky_relu(x));
  UNARY("elu", ef::elu(x), torch::elu(x));
}

void reductions(index_t side) {
  const Tensor x = random_tensor({side, side}, 1), y = random_tensor({side, side}, 2);
  TORCH_TENSOR(tx, x);
  const index_t n = side * side;
  row("sum of all", n, 1, OURS(ef::sum(x)), TORCH(tx.sum()), EIGEN(array(x).sum()));
  row("sum of each row", n, 1, OURS(ef::sum(x, {1})), TORCH(tx.sum(1)),
      EIGEN(Eigen::ArrayXf(array(x).rowwise().sum())));
  row("sum of each column", n, 1, OURS(ef::sum(x, {0})), TORCH(tx.sum(0)),
      EIGEN(Eigen::ArrayXf(array(x).colwise().sum().transpose())));
  row("maximum of each row", n, 1, OURS(ef::max(x, {1})), TORCH(tx.amax(1)),
      EIGEN(Eigen::ArrayXf(array(x).rowwise().maxCoeff())));
  row("minimum of each column", n, 1, OURS(ef::min(x, {0})), TORCH(tx.amin(0)));
  row("product of each row", n, 1, OURS(ef::prod(x, {1})), TORCH(tx.prod(1)));
  row("variance of each row", n, 1, OURS(ef::var(x, {1})), TORCH(tx.var(1)));
  row("variance of each column", n, 1, OURS(ef::var(x, {0})), TORCH(tx.var(0)));
  row("norm of each row", n, 1, OURS(ef::norm(x, {1})), TORCH(tx.norm(2, 1)));
  row("logsumexp of each row", n, 1, OURS(ef::logsumexp(x, {1})), TORCH(tx.logsumexp(1)));
  row("any", n, 1, OURS(ef::any(x, {1})), TORCH(tx.any(1)));
  row("count_nonzero", n, 1, OURS(ef::count_nonzero(x)), TORCH(tx.count_nonzero()));
  row("argmax of each row", n, 1, OURS(ef::argmax(x, 1)), TORCH(tx.argmax(1)));
  row("argmin of each column", n, 1, OURS(ef::argmin(x, 0)), TORCH(tx.argmin(0)));
  row("cumsum of each row", n, 2, OURS(ef::cumsum(x, 1)), TORCH(tx.cumsum(1)));
  row("cumprod of each column", n, 2, OURS(ef::cumprod(x, 0)), TORCH(tx.cumprod(0)));
  row("cummax of each row", n, 4, OURS(ef::cummax(x, 1)), TORCH(tx.cummax(1)));
  row("logcumsumexp of each row", n, 2, OURS(ef::logcumsumexp(x, 1)), TORCH(tx.logcumsumexp(1)));
  row("sort", n, 4, OURS(ef::sort(x, 1)), TORCH(tx.sort(true, 1, false)));
  row("argsort of columns", n, 3, OURS(ef::argsort(x, 0)), TORCH(tx.argsort(true, 0, false)));
  row("topk 3", n, 1, OURS(ef::topk(x, 3)), TORCH(tx.topk(3)));
  row("median of each row", n, 1, OURS(ef::median(x, 1)), TORCH(tx.median(1)));
  row("softmax", n, 2, OURS(ef::softmax(x)), TORCH(tx.softmax(-1)));
  row("log_softmax", n, 2, OURS(ef::log_softmax(x)), TORCH(tx.log_softmax(-1)));
  row("sum of each row, gradient", n, 0, GRADIENT(ef::sum(x, {1})), TORCH_GRADIENT(x.sum(1)));
  row("maximum of each row, gradient", n, 0, GRADIENT(ef::max(x, {1})), TORCH_GRADIENT(x.amax(1)));
  row("variance of each row, gradient", n, 0, GRADIENT(ef::var(x, {1})), TORCH_GRADIENT(x.var(1)));
  row("logsumexp of each row, gradient", n, 0, GRADIENT(ef::logsumexp(x, {1})),
      TORCH_GRADIENT(x.logsumexp(1)));
  row("cumsum of each row, gradient", n, 0, GRADIENT(ef::cumsum(x, 1)), TORCH_GRADIENT(x.cumsum(1)));
  row("sort, gradient", n, 0, GRADIENT(ef::sort(x, 1).values),
      TORCH_GRADIENT(std::get<0>(x.sort(true, 1, false))));
  row("softmax, gradient", n, 0, GRADIENT(ef::softmax(x)), TORCH_GRADIENT(x.softmax(-1)));
  if (side == 4) return;
  row("quantile of each row", n, 1, OURS(ef::quantile(x, 0.3, 1)), TORCH(tx.quantile(0.3, 1)));
}

void shapes(index_t side) {
  const Tensor x = random_tensor({side, side}, 1), y = random_tensor({side, side}, 2);
  ef::RandomGenerator rng(1);
  const auto rows = ef::randint(0, side, {side}, rng), places = ef::randint(0, side, {side, side}, rng);
  const Tensor sorted = ef::sort(random_tensor({side}, 3)).values.value();
  TORCH_TENSOR(tx, x);
  TORCH_TENSOR(ty, y);
  TORCH_TENSOR(trows, rows);
  TORCH_TENSOR(tplaces, places);
  TORCH_TENSOR(tsorted, sorted);
  const index_t n = side * side;
  row("transpose", n, 2, OURS(ef::transpose(x, 0, 1)), TORCH(tx.transpose(0, 1).contiguous()),
      EIGEN(Array(array(x).transpose())));
  row("concat", n, 2, OURS(ef::concat({x, y}, 1)), TORCH(torch::cat({tx, ty}, 1)));
  row("pad", n, 2, OURS(ef::pad(x, {{1, 1}, {1, 1}})), TORCH(torch::constant_pad_nd(tx, {1, 1, 1, 1})));
  row("flip", n, 2, OURS(ef::flip(x, {1})), TORCH(tx.flip({1})));
  row("roll", n, 2, OURS(ef::roll(x, 1, 1)), TORCH(tx.roll(1, 1)));
  row("tile", n, 3, OURS(ef::tile(x, {1, 2})), TORCH(tx.repeat({1, 2})));
  row("repeat", n, 3, OURS(ef::repeat(x, 2, 1)), TORCH(tx.repeat_interleave(2, 1)));
  row("tril", n, 2, OURS(ef::tril(x)), TORCH(tx.tril()));
  row("rows by number", n, 2, OURS(ef::take(x, rows, 0)), TORCH(tx.index_select(0, trows)));
  row("gather", n, 4, OURS(ef::gather(x, 1, places)), TORCH(tx.gather(1, tplaces)));
  row("scatter_add", n, 4, OURS(ef::scatter_add(x, 1, places, y)), TORCH(tx.scatter_add(1, tplaces, ty)));
  row("index_add", n, 3, OURS(ef::index_add(x, 0, rows, y)), TORCH(tx.index_add(0, trows, ty)));
  row("masked_select", n, 2, OURS(ef::masked_select(x, ef::less(x, y))), TORCH(tx.masked_select(tx < ty)));
  row("nonzero", n, 5, OURS(ef::nonzero(x)), TORCH(tx.nonzero()));
  row("searchsorted", n, 3, OURS(ef::searchsorted(sorted, x)), TORCH(torch::searchsorted(tsorted, tx)));
}

void creation(index_t side) {
  const index_t n = side * side;
  const auto rng = std::make_shared<ef::RandomGenerator>(1);
  row("zeros", n, 1, OURS(Tensor::zeros({side, side})), TORCH(torch::zeros({side, side})));
  row("arange", n, 1, OURS(ef::arange(n)), TORCH(torch::arange(n, torch::kFloat)));
  row("linspace", n, 1, OURS(ef::linspace(0, 1, n)), TORCH(torch::linspace(0, 1, n)));
  row("uniform", n, 1, OURS(ef::uniform({side, side}, *rng)), TORCH(torch::rand({side, side})));
  row("normal", n, 1, OURS(ef::normal({side, side}, *rng)), TORCH(torch::randn({side, side})));
}

void products(index_t side) {
  const Tensor x = random_tensor({side, side}, 1), y = random_tensor({side, side}, 2),
               u = random_tensor({8, side, side}, 3), v = random_tensor({8, side, side}, 4);
  TORCH_TENSOR(tx, x);
  TORCH_TENSOR(ty, y);
  TORCH_TENSOR(tu, u);
  TORCH_TENSOR(tv, v);
  row("matmul", side, 0, OURS(ef::matmul(x, y)), TORCH(torch::matmul(tx, ty)),
      EIGEN(Matrix(array(x).matrix() * array(y).matrix())));
  row("matmul, gradients", side, 0, GRADIENTS(ef::matmul(x, y)), TORCH_GRADIENTS(torch::matmul(x, y)));
  row("8 products", side, 0, OURS(ef::matmul(u, v)), TORCH(torch::matmul(tu, tv)));
  row("einsum bij,bkj->bik", side, 0, OURS(ef::einsum("bij,bkj->bik", u, v)),
      TORCH(torch::einsum("bij,bkj->bik", {tu, tv})));
  row("outer", side, 0, OURS(ef::outer(x(0, ef::all), y(0, ef::all))), TORCH(torch::outer(tx[0], ty[0])));
  row("kron with 2 x 2", side, 0, OURS(ef::kron(x, y(ef::range(0, 2), ef::range(0, 2)))),
      TORCH(torch::kron(tx, ty.slice(0, 0, 2).slice(1, 0, 2).contiguous())));
}

void decompositions(index_t side) {
  const Tensor x = ef::add(random_tensor({side, side}, 1),
                           ef::multiply(ef::eye(side), 2 * std::sqrt(float(side))))
                       .value(),
               y = random_tensor({side, side}, 2), s = ef::matmul(x, x, false, true).value();
  TORCH_TENSOR(tx, x);
  TORCH_TENSOR(ty, y);
  TORCH_TENSOR(ts, s);
  row("solve", side, 0, OURS(ef::solve(x, y)), TORCH(torch::linalg_solve(tx, ty)));
  row("inverse", side, 0, OURS(ef::inverse(x)), TORCH(torch::linalg_inv(tx)));
  row("det", side, 0, OURS(ef::det(x)), TORCH(torch::linalg_det(tx)));
  row("cholesky", side, 0, OURS(ef::cholesky(s)), TORCH(torch::linalg_cholesky(ts)));
  row("qr", side, 0, OURS(ef::qr(x)), TORCH(torch::linalg_qr(tx)));
  row("svd", side, 0, OURS(ef::svd(x)), TORCH(torch::linalg_svd(tx, false)));
  row("eigh", side, 0, OURS(ef::eigh(s)), TORCH(torch::linalg_eigh(ts)));
  row("lstsq", side, 0, OURS(ef::lstsq(x, y)), TORCH(std::get<0>(torch::linalg_lstsq(tx, ty))));
}

// Images of `side` x `side` elements in 32 channels, 4 of them.
void images(index_t side) {
  const Tensor x = random_tensor({4, 32, side, side}, 1), y = random_tensor({48, 32, 3, 3}, 2),
               each = random_tensor({32, 1, 3, 3}, 3), grouped = random_tensor({64, 8, 3, 3}, 6),
               up = random_tensor({32, 24, 2, 2}, 4), gain = random_tensor({32}, 5),
               signal = random_tensor({4, 32, side * side}, 7), taps = random_tensor({48, 32, 5}, 8);
  TORCH_TENSOR(tx, x);
  TORCH_TENSOR(ty, y);
  TORCH_TENSOR(teach, each);
  TORCH_TENSOR(tgrouped, grouped);
  TORCH_TENSOR(tup, up);
  TORCH_TENSOR(tgain, gain);
  TORCH_TENSOR(tsignal, signal);
  TORCH_TENSOR(ttaps, taps);
  const auto gradients = [](auto f, Tensor a, Tensor b) {
    return [=] {
      benchmark::DoNotOptimize(
          ef::grad<0, 1>([&](const Var& p, const Var& q) { return ef::sum(f(p, q)); })(a, b));
    };
  };
  const Var none;
  row("conv2d", side, 0, OURS(ef::conv2d(x, y, none, {.padding = 1})),
      TORCH(torch::conv2d(tx, ty, {}, 1, 1)));
  row("conv2d, stride 2", side, 0, OURS(ef::conv2d(x, y, none, {.stride = 2, .padding = 1})),
      TORCH(torch::conv2d(tx, ty, {}, 2, 1)));
  row("conv2d, depthwise", side, 0, OURS(ef::conv2d(x, each, none, {.padding = 1, .groups = 32})),
      TORCH(torch::conv2d(tx, teach, {}, 1, 1, 1, 32)));
  row("conv2d, 4 groups", side, 0, OURS(ef::conv2d(x, grouped, none, {.padding = 1, .groups = 4})),
      TORCH(torch::conv2d(tx, tgrouped, {}, 1, 1, 1, 4)));
  row("conv1d", side, 0, OURS(ef::conv1d(signal, taps, none, {.padding = 2})),
      TORCH(torch::conv1d(tsignal, ttaps, {}, 1, 2)));
  row("conv_transpose2d", side, 0, OURS(ef::conv_transpose2d(x, up, none, {.stride = 2})),
      TORCH(torch::conv_transpose2d(tx, tup, {}, 2)));
  row("conv2d, gradients", side, 0,
      gradients([](auto& p, auto& q) { return ef::conv2d(p, q, Var(), {.padding = 1}); }, x, y),
      TORCH_GRADIENTS(torch::conv2d(x, y, {}, 1, 1)));
  {
    TORCH_TENSOR(ty, each);
    row("conv2d, depthwise, gradients", side, 0,
        gradients([](auto& p, auto& q) { return ef::conv2d(p, q, Var(), {.padding = 1, .groups = 32}); }, x,
                  each),
        TORCH_GRADIENTS(torch::conv2d(x, y, {}, 1, 1, 1, 32)));
  }
  row("max_pool2d", side, 0, OURS(ef::max_pool2d(x, 2)), TORCH(torch::max_pool2d(tx, 2)));
  row("avg_pool2d", side, 0, OURS(ef::avg_pool2d(x, 2)), TORCH(torch::avg_pool2d(tx, 2)));
  row("max_pool2d, gradient", side, 0, GRADIENT(ef::max_pool2d(x, 2)),
      TORCH_GRADIENT(torch::max_pool2d(x, 2)));
  row("unfold", side, 0, OURS(ef::unfold(x, 3)), TORCH(torch::im2col(tx, {3, 3}, {1, 1}, {0, 0}, {1, 1})));
  row("group_norm", side, 0, OURS(ef::group_norm(x, 4, gain, gain)),
      TORCH(torch::group_norm(tx, 4, tgain, tgain)));
}

// The most common operations by MLX, beside the rows of the same names.
void mlx_rows([[maybe_unused]] index_t side) {
#ifdef EIGENFORMER_WITH_MLX
  namespace mx = mlx::core;
  const auto array_of = [=](std::uint64_t seed) {
    const Tensor x = random_tensor({side, side}, seed);
    mx::array a(x.data(), {static_cast<int>(side), static_cast<int>(side)}, mx::float32);
    mx::eval(a);
    return a;
  };
  const mx::array x = array_of(1), y = array_of(2), p = mx::abs(x) + mx::array(0.1f),
                  b = mx::flatten(mx::take(y, 0, 0));
  mx::eval(p);
  mx::eval(b);
  const auto row = [side](const char* operation, auto f) {
    measure("mlx", operation, side * side, 0, [f] { mx::eval(f()); });
  };
  row("add", [=] { return mx::add(x, y); });
  row("multiply", [=] { return mx::multiply(x, y); });
  row("divide", [=] { return mx::divide(x, p); });
  row("add a row", [=] { return mx::add(x, b); });
  row("maximum", [=] { return mx::maximum(x, y); });
  row("exp", [=] { return mx::exp(x); });
  row("log", [=] { return mx::log(p); });
  row("tanh", [=] { return mx::tanh(x); });
  row("sin", [=] { return mx::sin(x); });
  row("pow", [=] { return mx::power(p, y); });
  row("sigmoid", [=] { return mx::sigmoid(x); });
  row("erf", [=] { return mx::erf(x); });
  row("sum of all", [=] { return mx::sum(x); });
  row("sum of each row", [=] { return mx::sum(x, 1); });
  row("sum of each column", [=] { return mx::sum(x, 0); });
  row("maximum of each row", [=] { return mx::max(x, 1); });
  row("variance of each row", [=] { return mx::var(x, 1); });
  row("argmax of each row", [=] { return mx::argmax(x, 1); });
  row("cumsum of each row", [=] { return mx::cumsum(x, 1); });
  row("sort", [=] { return mx::sort(x, 1); });
  row("softmax", [=] { return mx::softmax(x, -1); });
  row("transpose", [=] { return mx::contiguous(mx::transpose(x)); });
  row("concat", [=] { return mx::concatenate({x, y}, 1); });
  row("normal", [=] { return mx::random::normal({static_cast<int>(side), static_cast<int>(side)}); });
  row("uniform", [=] { return mx::random::uniform({static_cast<int>(side), static_cast<int>(side)}); });
#endif
}

struct Network {
  using value_type = float;
  ef::Linear<float> first, second;
  static void fields(auto& self, auto&& visit) {
    visit("first", self.first);
    visit("second", self.second);
  }
};

// Two layers of 16 units on 8 inputs: their loss and its gradients.
void network() {
  ef::RandomGenerator rng(1);
  const ef::LinearOptions options{.in_features = 16, .out_features = 16};
  const auto network = std::make_shared<Network>(Network{{options, rng}, {options, rng}});
  const auto gradients = std::make_shared<ef::Gradients<float>>(ef::parameters(*network));
  const Tensor x = random_tensor({8, 16}, 1);
  const Call ours = [=] {
    ef::Tape<float> tape;
    gradients->zero();
    const auto ctx = ef::Context<float>::checking(tape);
    tape.backward(ef::mean(network->second(ctx, ef::tanh(network->first(ctx, x)))), *gradients);
  };
  Call torch;
#ifdef EIGENFORMER_WITH_TORCH
  const auto first = std::make_shared<torch::nn::LinearImpl>(16, 16);
  const auto second = std::make_shared<torch::nn::LinearImpl>(16, 16);
  torch = [=, x = torch_tensor(x)] {
    const torch::AutoGradMode recorded(true);
    first->zero_grad();
    second->zero_grad();
    second->forward(torch::tanh(first->forward(x))).mean().backward();
  };
#endif
  row("two layers of 16, forward and backward", 0, 0, ours, torch);
}

}  // namespace

int main(int argc, char** argv) {
  ef::bench::use_threads(ef::bench::threads_from_environment());
#ifdef EIGENFORMER_WITH_TORCH
  at::set_num_threads(static_cast<int>(ef::Runtime::instance().threads()));
#endif
  for (const index_t side : sides) {
    arithmetic(side);
    elementwise(side);
    reductions(side);
    shapes(side);
    creation(side);
    mlx_rows(side);
  }
  for (const index_t side : {8, 64, 256}) products(side);
  for (const index_t side : {8, 64, 256}) decompositions(side);
  for (const index_t side : {8, 28, 56}) images(side);
  network();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
