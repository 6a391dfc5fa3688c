// The kernels beside the matrix products (those are in bench_gemm), forward and backward, at the shapes of a
// training step with 2048 tokens. GB/s counts every array once for each time it must be read or written.
// Threads: EIGENFORMER_BENCH_THREADS (default 1).

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../shared/bench_tools.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/kernels/attention/attention.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"
#include "eigenformer/kernels/normalization/cross_entropy.hpp"
#include "eigenformer/kernels/normalization/layer_norm.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"
#include "eigenformer/kernels/sequence/embedding.hpp"

namespace ef = eigenformer;
namespace kernels = eigenformer::detail::kernels;
using ef::Activation;
using ef::index_t;
using ef::LayerNormFormula;
using ef::Shape;
using ef::bench::random_tensor;
using Tensor = ef::Tensor<float>;

namespace {

constexpr index_t tokens = 2048;
constexpr index_t vocab = 8000;
constexpr ef::detail::DropoutKey key{1, 2, 3};

// Times f, which works on `elements` numbers and passes over `arrays` arrays of them. Returns the seconds of
// a call.
template <class F>
double run(benchmark::State& state, index_t elements, double arrays, F&& f) {
  const double seconds = ef::bench::seconds_per_call(state, f);
  const auto n = static_cast<double>(elements);
  state.counters["GB/s"] = n * arrays * sizeof(float) * 1e-9 / seconds;
  state.counters["ns/element"] = seconds * 1e9 / n;
  return seconds;
}

template <class F>
void add(const std::string& name, F f) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(f))->UseRealTime();
}

std::string size(index_t rows, index_t n) { return std::to_string(rows) + "x" + std::to_string(n); }

void add_softmax(index_t rows, index_t n) {
  add("softmax/forward/" + size(rows, n), [=](benchmark::State& s) {
    const Tensor x = random_tensor({rows, n}, 1);
    Tensor y = Tensor::zeros({rows, n});
    run(s, rows * n, 2, [&] { kernels::softmax<float>(x.data(), y.data(), rows, n); });
  });
  add("softmax/backward/" + size(rows, n), [=](benchmark::State& s) {
    const Tensor y = random_tensor({rows, n}, 1), dy = random_tensor({rows, n}, 2);
    Tensor dx = Tensor::zeros({rows, n});
    run(s, rows * n, 3,
        [&] { kernels::softmax_backward<float>(y.data(), dy.data(), dx.data(), 0, rows, n); });
  });
}

void add_layer_norm(index_t rows, index_t n) {
  const auto formula = LayerNormFormula::pytorch;
  add("layer_norm/forward/" + size(rows, n), [=](benchmark::State& s) {
    const Tensor x = random_tensor({rows, n}, 1), gamma = random_tensor({n}, 2), beta = random_tensor({n}, 3);
    Tensor y = Tensor::zeros({rows, n}), mean(Shape{rows}), rstd(Shape{rows});
    run(s, rows * n, 2, [&] {
      kernels::layer_norm_forward<float>(x.data(), gamma.data(), beta.data(), 1e-5f, formula, false, y.data(),
                                         mean.data(), rstd.data(), rows, n);
    });
  });
  add("layer_norm/backward/" + size(rows, n), [=](benchmark::State& s) {
    const Tensor x = random_tensor({rows, n}, 1), gamma = random_tensor({n}, 2),
                 dy = random_tensor({rows, n}, 3);
    const Tensor mean = Tensor::zeros({rows}), rstd = Tensor::ones({rows});
    Tensor dx = Tensor::zeros({rows, n}), dgamma(Shape{n}), dbeta(Shape{n});
    run(s, rows * n, 3, [&] {
      kernels::layer_norm_backward<float>(x.data(), gamma.data(), mean.data(), rstd.data(), dy.data(),
                                          formula, false, dx.data(), 0, dgamma.data(), dbeta.data(), 0, rows,
                                          n);
    });
  });
  // The "add and norm" of a post-norm sub-layer: reads x and r, writes their sum and its norm.
  for (const double rate : {0.0, 0.1}) {
    add("add_layer_norm/forward/" + size(rows, n) + (rate > 0 ? "/dropout" : ""), [=](benchmark::State& s) {
      const Tensor x = random_tensor({rows, n}, 1), r = random_tensor({rows, n}, 2),
                   gamma = random_tensor({n}, 3);
      Tensor sum = Tensor::zeros({rows, n}), y = Tensor::zeros({rows, n}), mean(Shape{rows}),
             rstd(Shape{rows});
      run(s, rows * n, 4, [&] {
        kernels::layer_norm_forward<float>(x.data(), gamma.data(), gamma.data(), 1e-5f, formula, false,
                                           y.data(), mean.data(), rstd.data(), rows, n, r.data(), sum.data(),
                                           {.rate = rate, .key = key});
      });
    });
  }
}

void add_dropout(index_t rows, index_t n) {
  add("dropout/forward/" + size(rows, n), [=](benchmark::State& s) {
    const Tensor x = random_tensor({rows, n}, 1);
    Tensor y = Tensor::zeros({rows, n});
    run(s, rows * n, 2, [&] { kernels::dropout_rows<float>(x.data(), y.data(), rows, n, n, {0.1, key}); });
  });
  add("dropout/backward/" + size(rows, n), [=](benchmark::State& s) {
    const Tensor dy = random_tensor({rows, n}, 1);
    Tensor dx = Tensor::zeros({rows, n});
    run(s, rows * n, 2, [&] { kernels::dropout_rows<float>(dy.data(), dx.data(), rows, n, n, {0.1, key}); });
  });
}

void add_activation(const std::string& name, Activation activation, index_t n) {
  add(name + "/forward/" + size(tokens, n), [=](benchmark::State& s) {
    const Tensor x = random_tensor({tokens, n}, 1);
    Tensor y = Tensor::zeros({tokens, n});
    run(s, tokens * n, 2,
        [&] { kernels::activation_forward<float>(activation, x.data(), y.data(), tokens * n); });
  });
  add(name + "/backward/" + size(tokens, n), [=](benchmark::State& s) {
    const Tensor x = random_tensor({tokens, n}, 1), dy = random_tensor({tokens, n}, 2);
    Tensor dx = Tensor::zeros({tokens, n});
    run(s, tokens * n, 3, [&] {
      kernels::activation_backward<float>(activation, x.data(), dy.data(), dx.data(), 0, tokens * n);
    });
  });
}

// Blocks of rows as linear_cross_entropy takes them.
void add_cross_entropy(index_t rows, index_t classes) {
  const kernels::CrossEntropyOptions options{.label_smoothing = 0.1};
  add("cross_entropy/forward/" + size(rows, classes), [=](benchmark::State& s) {
    ef::RandomGenerator rng(3);
    const auto targets = ef::bench::random_ids(rows, classes, rng);
    const Tensor logits = random_tensor({rows, classes}, 1);
    Tensor log_sum_exp(Shape{rows});
    run(s, rows * classes, 1, [&] {
      benchmark::DoNotOptimize(kernels::cross_entropy_forward<float>(logits.data(), targets.data(), rows,
                                                                     classes, options, log_sum_exp.data()));
    });
  });
  add("cross_entropy/backward/" + size(rows, classes), [=](benchmark::State& s) {
    ef::RandomGenerator rng(3);
    const auto targets = ef::bench::random_ids(rows, classes, rng);
    const Tensor logits = random_tensor({rows, classes}, 1), log_sum_exp = Tensor::full({rows}, 9);
    Tensor d = Tensor::zeros({rows, classes});
    run(s, rows * classes, 2, [&] {
      kernels::cross_entropy_backward<float>(logits.data(), targets.data(), log_sum_exp.data(), rows, classes,
                                             options, 1.0f / tokens, d.data(), 0);
    });
  });
  // In place, so each pass takes the last one's gradients as logits: the same work.
  add("cross_entropy/forward_backward/" + size(rows, classes), [=](benchmark::State& s) {
    ef::RandomGenerator rng(3);
    const auto targets = ef::bench::random_ids(rows, classes, rng);
    Tensor logits = random_tensor({rows, classes}, 1);
    run(s, rows * classes, 2, [&] {
      benchmark::DoNotOptimize(kernels::cross_entropy_forward<float>(
          logits.data(), targets.data(), rows, classes, options, nullptr, nullptr, logits.data()));
    });
  });
}

void add_embedding(index_t d) {
  add("embedding/forward/" + size(tokens, d), [=](benchmark::State& s) {
    ef::RandomGenerator rng(3);
    const auto ids = ef::bench::random_ids(tokens, vocab, rng);
    const Tensor table = random_tensor({vocab, d}, 1);
    Tensor y = Tensor::zeros({tokens, d});
    run(s, tokens * d, 2, [&] {
      kernels::embedding_forward<float>(table.data(), vocab, d, ids.data(), tokens, 16.0f, y.data());
    });
  });
  // The first gradient of a step writes the whole table, and that is most of the work.
  add("embedding/backward/" + size(tokens, d), [=](benchmark::State& s) {
    ef::RandomGenerator rng(3);
    const auto ids = ef::bench::random_ids(tokens, vocab, rng);
    const Tensor dy = random_tensor({tokens, d}, 1);
    Tensor table = Tensor::zeros({vocab, d});
    run(s, vocab * d, 1 + 2.0 * tokens / vocab, [&] {
      kernels::embedding_backward<float>(dy.data(), ids.data(), tokens, -1, 16.0f, table.data(), 0, vocab, d);
    });
  });
}

void add_optimizer(index_t n) {
  add("adam/" + std::to_string(n), [=](benchmark::State& s) {
    Tensor p = random_tensor({n}, 1), m = Tensor::zeros({n}), v = Tensor::zeros({n});
    const Tensor g = random_tensor({n}, 2);
    index_t step = 0;
    run(s, n, 7, [&] {
      kernels::adam_step<float>(p.data(), g.data(), m.data(), v.data(), n, 1e-4, 0.9, 0.98, 1e-9, 0, false,
                                ++step, 1);
    });
  });
  add("sum_of_squares/" + std::to_string(n), [=](benchmark::State& s) {
    const Tensor g = random_tensor({n}, 2);
    run(s, n, 1, [&] { benchmark::DoNotOptimize(kernels::sum_of_squares<float>(g.data(), n)); });
  });
}

struct AttentionCase {
  index_t length, d, heads;
  bool causal;
  double dropout;
  std::string name() const {
    return std::to_string(tokens / length) + "x" + std::to_string(length) + "/d" + std::to_string(d) +
           "/heads" + std::to_string(heads) + (causal ? "/causal" : "") + (dropout > 0 ? "/dropout" : "");
  }
};

// Self-attention of 2048 tokens on a fused projection. Elements are those of q; GFLOP/s counts the products
// with keys and values that the mask leaves, backward those of the gradients and the scores made again.
void add_attention(const AttentionCase& c) {
  const auto with_problem = [c](benchmark::State& s, double products, double arrays, auto&& f) {
    const auto layout = ef::SequenceLayout::packed(
        std::vector<index_t>(static_cast<std::size_t>(tokens / c.length), c.length));
    const auto mask = c.causal ? ef::AttentionMask::causal() : ef::AttentionMask::none();
    const Tensor qkv = random_tensor({tokens, 3 * c.d}, 1);
    Tensor out = Tensor::zeros({tokens, c.d}), log_sum_exp(Shape{c.heads, tokens});
    kernels::AttentionProblem<float> problem;
    problem.q = qkv.data();
    problem.k = qkv.data() + c.d;
    problem.v = qkv.data() + 2 * c.d;
    problem.q_stride = problem.k_stride = problem.v_stride = 3 * c.d;
    problem.heads = c.heads;
    problem.head_dim = problem.value_dim = c.d / c.heads;
    problem.queries = problem.keys = &layout;
    problem.mask = &mask;
    problem.scale = 0.2f;
    problem.dropout_rate = c.dropout;
    problem.dropout_key = key;
    kernels::attention_forward<float>(problem, out.data(), c.d, log_sum_exp.data());
    const double seconds = run(s, tokens * c.d, arrays, [&] { f(problem, out, log_sum_exp); });
    const double keys = c.causal ? 0.5 * static_cast<double>(c.length + 1) : static_cast<double>(c.length);
    s.counters["GFLOP/s"] = 2 * products * keys * static_cast<double>(tokens * c.d) * 1e-9 / seconds;
  };
  add("attention/forward/" + c.name(), [=](benchmark::State& s) {
    with_problem(s, 2, 4, [&](const auto& problem, Tensor& out, Tensor& log_sum_exp) {
      kernels::attention_forward<float>(problem, out.data(), c.d, log_sum_exp.data());
    });
  });
  add("attention/backward/" + c.name(), [=](benchmark::State& s) {
    const Tensor dout = random_tensor({tokens, c.d}, 2);
    Tensor d = Tensor::zeros({tokens, 3 * c.d});
    const kernels::AttentionGradients<float> gradients{.dq = d.data(),
                                                       .dq_stride = 3 * c.d,
                                                       .dq_beta = 0,
                                                       .dk = d.data() + c.d,
                                                       .dk_stride = 3 * c.d,
                                                       .dk_beta = 0,
                                                       .dv = d.data() + 2 * c.d,
                                                       .dv_stride = 3 * c.d,
                                                       .dv_beta = 0};
    with_problem(s, 5, 8, [&](const auto& problem, Tensor& out, Tensor& log_sum_exp) {
      kernels::attention_backward<float>(problem, out.data(), c.d, dout.data(), c.d, log_sum_exp.data(),
                                         gradients);
    });
  });
}

void add_all() {
  add_softmax(16384, 16);  // the weights of 8 heads, 128 sentences of 16 tokens
  add_softmax(tokens, vocab);
  for (const index_t d : {256, 512}) {
    add_layer_norm(tokens, d);
    add_dropout(tokens, d);
    add_embedding(d);
  }
  add_activation("relu", Activation::relu, 1024);
  add_activation("gelu", Activation::gelu, 1024);
  add_activation("gelu_tanh", Activation::gelu_tanh, 1024);
  add_cross_entropy(512, vocab);
  add_optimizer(256 * 1024);
  add_optimizer(vocab * 256);
  for (const AttentionCase& c :
       {AttentionCase{16, 256, 8, false, 0}, AttentionCase{16, 256, 8, true, 0.1},
        AttentionCase{64, 256, 8, true, 0.1}, AttentionCase{512, 256, 8, true, 0},
        AttentionCase{16, 512, 8, true, 0.1}, AttentionCase{2048, 512, 8, false, 0}}) {
    add_attention(c);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ef::bench::use_threads(ef::bench::threads_from_environment());
  add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
