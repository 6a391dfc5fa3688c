// Operations on tensors, each beside libtorch's and, where it is one expression, Eigen's: ours/add/4096,
// torch/add/4096, eigen/add/4096. Results are new tensors, as a program gets them. Threads:
// EIGENFORMER_BENCH_THREADS (default 1). libtorch is that of the Python that -DEIGENFORMER_BENCH_PYTHON
// names. bench/tensor/table.py makes the table of ratios.

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../shared/bench_tools.hpp"
#include "eigenformer/eigenformer.hpp"
#ifdef EIGENFORMER_WITH_TORCH
#include <ATen/Parallel.h>
#include <torch/torch.h>
#endif

namespace ef = eigenformer;
using ef::index_t;
using ef::bench::random_tensor;
using Tensor = ef::Tensor<float>;
using Array = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace {

constexpr index_t sides[] = {4, 64, 256, 2048};  // of square arrays: 16, 4,096, 65,536 and 4 million numbers

// GB/s counts every array once for each time it must be read or written.
template <class F>
void row(const std::string& library, const std::string& operation, index_t size, double arrays, F f) {
  const std::string name = library + "/" + operation + "/" + std::to_string(size);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const double seconds = ef::bench::seconds_per_call(state, f);
    if (arrays > 0)
      state.counters["GB/s"] = static_cast<double>(size) * arrays * sizeof(float) * 1e-9 / seconds;
  })->UseRealTime();
}

Eigen::Map<const Array> array(const Tensor& x) { return {x.data(), x.shape()[0], x.numel() / x.shape()[0]}; }

void ours(index_t side) {
  const Tensor a = random_tensor({side, side}, 1), b = random_tensor({side, side}, 2),
               bias = random_tensor({side}, 3);
  const index_t n = side * side;
  row("ours", "add", n, 3, [=] { benchmark::DoNotOptimize(ef::add(a, b)); });
  row("ours", "multiply", n, 3, [=] { benchmark::DoNotOptimize(ef::multiply(a, b)); });
  row("ours", "add a row", n, 2, [=] { benchmark::DoNotOptimize(ef::add(a, bias)); });
  row("ours", "exp", n, 2, [=] { benchmark::DoNotOptimize(ef::exp(a)); });
  row("ours", "tanh", n, 2, [=] { benchmark::DoNotOptimize(ef::tanh(a)); });
  row("ours", "sum of all", n, 1, [=] { benchmark::DoNotOptimize(ef::sum(a)); });
  row("ours", "sum of each row", n, 1, [=] { benchmark::DoNotOptimize(ef::sum(a, {1})); });
  row("ours", "sum of each column", n, 1, [=] { benchmark::DoNotOptimize(ef::sum(a, {0})); });
  row("ours", "maximum of each row", n, 1, [=] { benchmark::DoNotOptimize(ef::max(a, {1})); });
  row("ours", "softmax", n, 2, [=] { benchmark::DoNotOptimize(ef::softmax(a)); });
  row("ours", "transpose", n, 2, [=] { benchmark::DoNotOptimize(ef::transpose(a, 0, 1)); });
}

void eigen(index_t side) {
  const Tensor a = random_tensor({side, side}, 1), b = random_tensor({side, side}, 2),
               bias = random_tensor({side}, 3);
  const index_t n = side * side;
  row("eigen", "add", n, 3, [=] { benchmark::DoNotOptimize(Array(array(a) + array(b))); });
  row("eigen", "multiply", n, 3, [=] { benchmark::DoNotOptimize(Array(array(a) * array(b))); });
  row("eigen", "add a row", n, 2, [=] {
    benchmark::DoNotOptimize(
        Array(array(a).rowwise() + Eigen::Map<const Eigen::ArrayXf>(bias.data(), side).transpose()));
  });
  row("eigen", "exp", n, 2, [=] { benchmark::DoNotOptimize(Array(array(a).exp())); });
  row("eigen", "tanh", n, 2, [=] { benchmark::DoNotOptimize(Array(array(a).tanh())); });
  row("eigen", "sum of all", n, 1, [=] { benchmark::DoNotOptimize(array(a).sum()); });
  row("eigen", "sum of each row", n, 1,
      [=] { benchmark::DoNotOptimize(Eigen::ArrayXf(array(a).rowwise().sum())); });
  row("eigen", "sum of each column", n, 1,
      [=] { benchmark::DoNotOptimize(Eigen::ArrayXf(array(a).colwise().sum().transpose())); });
  row("eigen", "maximum of each row", n, 1,
      [=] { benchmark::DoNotOptimize(Eigen::ArrayXf(array(a).rowwise().maxCoeff())); });
  row("eigen", "transpose", n, 2, [=] { benchmark::DoNotOptimize(Array(array(a).transpose())); });
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
void our_network() {
  ef::RandomGenerator rng(1);
  const ef::LinearOptions options{.in_features = 16, .out_features = 16};
  const auto network = std::make_shared<Network>(Network{{options, rng}, {options, rng}});
  const auto gradients = std::make_shared<ef::Gradients<float>>(ef::parameters(*network));
  const Tensor x = random_tensor({8, 16}, 1);
  row("ours", "two layers of 16, forward and backward", 0, 0, [=] {
    ef::Tape<float> tape;
    gradients->zero();
    const auto ctx = ef::Context<float>::checking(tape);
    tape.backward(ef::mean(network->second(ctx, ef::tanh(network->first(ctx, x)))), *gradients);
  });
}

#ifdef EIGENFORMER_WITH_TORCH
torch::Tensor torch_tensor(const Tensor& x) {
  std::vector<std::int64_t> shape;
  for (index_t d = 0; d < x.shape().rank(); ++d) shape.push_back(x.shape()[d]);
  return torch::from_blob(const_cast<float*>(x.data()), shape).clone();
}

void libtorch(index_t side) {
  const auto a = torch_tensor(random_tensor({side, side}, 1)),
             b = torch_tensor(random_tensor({side, side}, 2)), bias = torch_tensor(random_tensor({side}, 3));
  const index_t n = side * side;
  row("torch", "add", n, 3, [=] { benchmark::DoNotOptimize(a + b); });
  row("torch", "multiply", n, 3, [=] { benchmark::DoNotOptimize(a * b); });
  row("torch", "add a row", n, 2, [=] { benchmark::DoNotOptimize(a + bias); });
  row("torch", "exp", n, 2, [=] { benchmark::DoNotOptimize(a.exp()); });
  row("torch", "tanh", n, 2, [=] { benchmark::DoNotOptimize(a.tanh()); });
  row("torch", "sum of all", n, 1, [=] { benchmark::DoNotOptimize(a.sum()); });
  row("torch", "sum of each row", n, 1, [=] { benchmark::DoNotOptimize(a.sum(1)); });
  row("torch", "sum of each column", n, 1, [=] { benchmark::DoNotOptimize(a.sum(0)); });
  row("torch", "maximum of each row", n, 1, [=] { benchmark::DoNotOptimize(a.amax(1)); });
  row("torch", "softmax", n, 2, [=] { benchmark::DoNotOptimize(a.softmax(-1)); });
  row("torch", "transpose", n, 2, [=] { benchmark::DoNotOptimize(a.transpose(0, 1).contiguous()); });
}

void torch_network() {
  const auto first = std::make_shared<torch::nn::LinearImpl>(16, 16);
  const auto second = std::make_shared<torch::nn::LinearImpl>(16, 16);
  const auto x = torch_tensor(random_tensor({8, 16}, 1));
  row("torch", "two layers of 16, forward and backward", 0, 0, [=] {
    const torch::AutoGradMode recorded(true);
    first->zero_grad();
    second->zero_grad();
    second->forward(torch::tanh(first->forward(x))).mean().backward();
  });
}
#endif

void matrices(index_t side) {
  const Tensor a = random_tensor({side, side}, 1), b = random_tensor({side, side}, 2);
  row("ours", "matmul", side, 0, [=] { benchmark::DoNotOptimize(ef::matmul(a, b)); });
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  row("eigen", "matmul", side, 0,
      [=] { benchmark::DoNotOptimize(Matrix(array(a).matrix() * array(b).matrix())); });
#ifdef EIGENFORMER_WITH_TORCH
  const auto c = torch_tensor(a), d = torch_tensor(b);
  row("torch", "matmul", side, 0, [=] { benchmark::DoNotOptimize(torch::matmul(c, d)); });
#endif
}

}  // namespace

int main(int argc, char** argv) {
  ef::bench::use_threads(ef::bench::threads_from_environment());
  for (const index_t side : sides) {
    ours(side);
    eigen(side);
  }
  for (const index_t side : {8, 64, 256}) matrices(side);
  our_network();
#ifdef EIGENFORMER_WITH_TORCH
  at::set_num_threads(static_cast<int>(ef::Runtime::instance().threads()));
  const torch::NoGradGuard none;
  for (const index_t side : sides) libtorch(side);
  torch_network();
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
