// Loops other than matrix products beside the same Eigen expressions, on one thread: the table of kernels in
// docs/design/design.md. Two sizes: one that stays in the second-level cache, one that does not.
//   bench_eigen --benchmark_repetitions=7 --benchmark_enable_random_interleaving=true
//   --benchmark_report_aggregates_only=true

#include <Eigen/Core>
#include <string>
#include <utility>

#include "../shared/bench_tools.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/normalization/layer_norm.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"
#include "eigenformer/kernels/reduction/permute.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"
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

using Array = Eigen::Map<Eigen::ArrayXf>;
using Rows = Eigen::Map<Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
using Matrix = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

// Operands of (rows, n) and vectors of both lengths; positive, so that roots and logarithms exist.
struct Data {
  index_t rows, n;
  Tensor a, b, c, d, out, row, column, result;
  ef::Tensor<std::int32_t> ids;
  ef::Tensor<bool> flags;

  Data(index_t rows_, index_t n_)
      : rows(rows_),
        n(n_),
        a(random_tensor({rows, n}, 1)),
        b(random_tensor({rows, n}, 2)),
        c(random_tensor({rows, n}, 3)),
        d(random_tensor({rows, n}, 4)),
        out(Tensor::zeros({rows, n})),
        row(random_tensor({n}, 5)),
        column(random_tensor({rows}, 6)),
        result(Tensor::zeros({rows + n})),
        ids(Shape{rows}),
        flags(Shape{rows, n}) {
    for (Tensor* t : {&a, &b, &c, &d}) {
      for (float& x : t->span()) x = 1.5f + x;
    }
    for (index_t r = 0; r < rows; ++r) ids.data()[r] = static_cast<std::int32_t>(r * 7 % rows);
    for (index_t i = 0; i < rows * n; ++i) flags.data()[i] = a.data()[i] > 1.5f;
  }
  index_t size() const { return rows * n; }
  Array array(Tensor& t) const { return {t.data(), size()}; }
  Rows by_row(Tensor& t) const { return {t.data(), rows, n}; }
};

template <class Ours, class Eigens>
void add(const std::string& name, Ours ours, Eigens eigens) {
  for (const index_t rows : {index_t{64}, index_t{4096}}) {
    const std::string size = "/" + std::to_string(rows) + "x512";
    benchmark::RegisterBenchmark((name + size + "/ours").c_str(), [=](benchmark::State& s) {
      Data data(rows, 512);
      ef::bench::seconds_per_call(s, [&] { ours(data); });
    });
    benchmark::RegisterBenchmark((name + size + "/eigen").c_str(), [=](benchmark::State& s) {
      Data data(rows, 512);
      ef::bench::seconds_per_call(s, [&] { eigens(data); });
    });
  }
}

template <class F>
void add_unary(const std::string& name, kernels::UnaryOp op, F f) {
  add(
      name, [=](Data& t) { kernels::unary<float>(op, t.a.data(), t.out.data(), t.size()); },
      [=](Data& t) { t.array(t.out) = f(t.array(t.a)); });
}

template <class F>
void add_unary_backward(const std::string& name, kernels::UnaryOp op, F f) {
  add(
      name + "/backward",
      [=](Data& t) {
        kernels::unary_backward<float>(op, t.a.data(), t.b.data(), t.c.data(), t.out.data(), 0, t.size());
      },
      [=](Data& t) { t.array(t.out) = f(t.array(t.a), t.array(t.b), t.array(t.c)); });
}

template <kernels::BinaryOp op, class F>
void add_binary(const std::string& name, F f) {
  add(
      name,
      [](Data& t) { kernels::binary<op>(t.a.data(), t.a.shape(), t.b.data(), t.b.shape(), t.out.data()); },
      [=](Data& t) { t.array(t.out) = f(t.array(t.a), t.array(t.b)); });
}

template <class F>
void add_activation(const std::string& name, Activation activation, F f) {
  add(
      name,
      [=](Data& t) { kernels::activation_forward<float>(activation, t.a.data(), t.out.data(), t.size()); },
      [=](Data& t) { t.array(t.out) = f(t.array(t.a)); });
}

void add_elementwise() {
  using kernels::BinaryOp;
  using kernels::UnaryOp;
  add_unary("negate", UnaryOp::negate, [](auto x) { return -x; });
  add_unary("absolute", UnaryOp::absolute, [](auto x) { return x.abs(); });
  add_unary("square", UnaryOp::square, [](auto x) { return x.square(); });
  add_unary("reciprocal", UnaryOp::reciprocal, [](auto x) { return x.inverse(); });
  add_unary("sqrt", UnaryOp::sqrt, [](auto x) { return x.sqrt(); });
  add_unary("exp", UnaryOp::exp, [](auto x) { return x.exp(); });
  add_unary("log", UnaryOp::log, [](auto x) { return x.log(); });
  add_unary_backward("square", UnaryOp::square, [](auto x, auto, auto dy) { return 2 * x * dy; });
  add_unary_backward("sqrt", UnaryOp::sqrt, [](auto, auto y, auto dy) { return dy / (2 * y); });
  add_binary<BinaryOp::add>("add", [](auto x, auto y) { return x + y; });
  add_binary<BinaryOp::multiply>("multiply", [](auto x, auto y) { return x * y; });
  add_binary<BinaryOp::divide>("divide", [](auto x, auto y) { return x / y; });
  add(
      "add a row",
      [](Data& t) {
        kernels::binary<BinaryOp::add>(t.a.data(), t.a.shape(), t.row.data(), t.row.shape(), t.out.data());
      },
      [](Data& t) {
        for (index_t r = 0; r < t.rows; ++r) {
          Array(t.out.data() + r * t.n, t.n) = Array(t.a.data() + r * t.n, t.n) + Array(t.row.data(), t.n);
        }
      });
  add(
      "compare",
      [](Data& t) {
        kernels::compare<float>(kernels::Comparison::less, t.a.data(), t.a.shape(), t.b.data(), t.b.shape(),
                                t.flags.data());
      },
      [](Data& t) {
        Eigen::Map<Eigen::Array<bool, Eigen::Dynamic, 1>>(t.flags.data(), t.size()) =
            t.array(t.a) < t.array(t.b);
      });
  add(
      "where",
      [](Data& t) {
        kernels::where<float>(t.flags.data(), t.flags.shape(), t.a.data(), t.a.shape(), t.b.data(),
                              t.b.shape(), t.out.data());
      },
      [](Data& t) {
        t.array(t.out) = Eigen::Map<Eigen::Array<bool, Eigen::Dynamic, 1>>(t.flags.data(), t.size())
                             .select(t.array(t.a), t.array(t.b));
      });
  add(
      "broadcast_to",
      [](Data& t) {
        kernels::broadcast_to<float>(t.row.data(), t.row.shape(), t.out.data(), t.a.shape(), 1, 0);
      },
      [](Data& t) {
        for (index_t r = 0; r < t.rows; ++r) Array(t.out.data() + r * t.n, t.n) = Array(t.row.data(), t.n);
      });
  add(
      "axpby", [](Data& t) { kernels::axpby<float>(0.5f, t.a.data(), 1, t.out.data(), t.size()); },
      [](Data& t) { t.array(t.out) += 0.5f * t.array(t.a); });
  add(
      "multiply_add",
      [](Data& t) { kernels::multiply_add<float>(t.a.data(), t.b.data(), t.out.data(), 1, t.size()); },
      [](Data& t) { t.array(t.out) += t.array(t.a) * t.array(t.b); });
  add_activation("relu", Activation::relu, [](auto x) { return x.max(0.0f); });
  add_activation("sigmoid", Activation::sigmoid, [](auto x) { return 1 / (1 + (-x).exp()); });
  add_activation("tanh", Activation::tanh, [](auto x) { return x.tanh(); });
  add_activation("silu", Activation::silu, [](auto x) { return x / (1 + (-x).exp()); });
  add_activation("gelu_tanh", Activation::gelu_tanh,
                 [](auto x) { return 0.5f * x * (1 + (0.7978845608f * (x + 0.044715f * x.cube())).tanh()); });
  add(
      "adam_step",
      [](Data& t) {
        kernels::adam_step<float>(t.a.data(), t.b.data(), t.c.data(), t.d.data(), t.size(), 1e-9, 0.9, 0.98,
                                  1e-9, 0, true, 1000, 1);
      },
      [](Data& t) {
        Array p = t.array(t.a), g = t.array(t.b), m = t.array(t.c), v = t.array(t.d);
        m += 0.1f * (g - m);
        v = 0.98f * v + 0.02f * g * g;
        p -= 1e-9f * m / (v.sqrt() + 1e-9f);
      });
  add(
      "sum_of_squares",
      [](Data& t) { benchmark::DoNotOptimize(kernels::sum_of_squares<float>(t.a.data(), t.size())); },
      [](Data& t) { benchmark::DoNotOptimize(t.array(t.a).cast<double>().square().sum()); });
}

void add_reductions() {
  const auto all = std::span<const index_t>();
  static constexpr index_t last[] = {-1};
  add(
      "sum of all",
      [=](Data& t) { kernels::reduce_sum<float>(t.a.data(), t.a.shape(), all, t.result.data(), 1, 0); },
      [](Data& t) { t.result.data()[0] = t.array(t.a).sum(); });
  add(
      "sum of each row",
      [](Data& t) { kernels::reduce_sum<float>(t.a.data(), t.a.shape(), last, t.result.data(), 1, 0); },
      [](Data& t) { Array(t.result.data(), t.rows) = t.by_row(t.a).rowwise().sum(); });
  add(
      "sum of each column",
      [](Data& t) { kernels::sum_rows<float>(t.a.data(), t.result.data(), 0, t.rows, t.n); },
      [](Data& t) { Array(t.result.data(), t.n) = t.by_row(t.a).colwise().sum().transpose(); });
  add(
      "max of each row",
      [](Data& t) { kernels::reduce_max<float>(t.a.data(), t.a.shape(), last, t.result.data()); },
      [](Data& t) { Array(t.result.data(), t.rows) = t.by_row(t.a).rowwise().maxCoeff(); });
  add(
      "argmax", [](Data& t) { kernels::argmax<float>(t.a.data(), t.ids.data(), t.rows, t.n); },
      [](Data& t) {
        for (index_t r = 0; r < t.rows; ++r) {
          Eigen::Index at;
          Array(t.a.data() + r * t.n, t.n).maxCoeff(&at);
          t.ids.data()[r] = static_cast<std::int32_t>(at);
        }
      });
  add(
      "transpose",
      [](Data& t) {
        static constexpr index_t order[] = {1, 0};
        kernels::permute<float>(t.a.data(), Shape{t.rows, t.n}, order, t.out.data(), 0);
      },
      [](Data& t) { Matrix(t.out.data(), t.n, t.rows) = Matrix(t.a.data(), t.rows, t.n).transpose(); });
  add(
      "permute (0, 2, 1, 3)",
      [](Data& t) {
        static constexpr index_t order[] = {0, 2, 1, 3};
        kernels::permute<float>(t.a.data(), Shape{4, t.rows / 4, 8, t.n / 8}, order, t.out.data(), 0);
      },
      [](Data& t) {
        const index_t length = t.rows / 4, width = t.n / 8;
        for (index_t b = 0; b < 4; ++b) {
          for (index_t h = 0; h < 8; ++h) {
            Rows(t.out.data() + (b * 8 + h) * length * width, length, width) =
                t.by_row(t.a).block(b * length, h * width, length, width);
          }
        }
      });
  add(
      "embedding",
      [](Data& t) {
        kernels::embedding_forward<float>(t.a.data(), t.rows, t.n, t.ids.data(), t.rows, 2, t.out.data());
      },
      [](Data& t) {
        for (index_t r = 0; r < t.rows; ++r) t.by_row(t.out).row(r) = 2 * t.by_row(t.a).row(t.ids.data()[r]);
      });
}

void add_normalization() {
  add(
      "softmax", [](Data& t) { kernels::softmax<float>(t.a.data(), t.out.data(), t.rows, t.n); },
      [](Data& t) {
        for (index_t r = 0; r < t.rows; ++r) {
          Array x(t.a.data() + r * t.n, t.n), y(t.out.data() + r * t.n, t.n);
          y = (x - x.maxCoeff()).exp();
          y /= y.sum();
        }
      });
  add(
      "layer_norm",
      [](Data& t) {
        kernels::layer_norm_forward<float>(t.a.data(), t.row.data(), t.row.data(), 1e-5f,
                                           LayerNormFormula::pytorch, false, t.out.data(), t.result.data(),
                                           t.column.data(), t.rows, t.n);
      },
      [](Data& t) {
        const Array gain(t.row.data(), t.n);
        for (index_t r = 0; r < t.rows; ++r) {
          Array x(t.a.data() + r * t.n, t.n), y(t.out.data() + r * t.n, t.n);
          const float mean = x.mean();
          const float scale = 1 / std::sqrt((x - mean).square().mean() + 1e-5f);
          y = (x - mean) * scale * gain + gain;
          t.result.data()[r] = mean;
          t.column.data()[r] = scale;
        }
      });
}

}  // namespace

int main(int argc, char** argv) {
  ef::bench::use_threads(1);
  add_elementwise();
  add_reductions();
  add_normalization();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
