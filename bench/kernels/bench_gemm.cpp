// Matrix products of a Transformer's training step and of decoding: this library, Eigen, oneDNN and BLAS in
// one run. Each case runs the candidates one after the other; --benchmark_enable_random_interleaving=true
// --benchmark_repetitions=5 alternates between them. Threads: EIGENFORMER_BENCH_THREADS (default 1); with
// more than one set OMP_WAIT_POLICY=passive, or the peers' idle threads spin on the cores of the next
// candidate.

#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

#if defined(EIGENFORMER_WITH_ONEDNN)
#include <dnnl.hpp>
#endif
#if defined(EIGENFORMER_WITH_BLAS)
#include <cblas.h>
#endif
// oneDNN and OpenBLAS may bring OpenMP along; nothing else here needs it.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));

namespace ef = eigenformer;
using ef::index_t;

namespace {

struct Case {
  const char* layout;  // NN, NT or TN
  index_t m, n, k;
  bool transpose_a() const { return layout[0] == 'T'; }
  bool transpose_b() const { return layout[1] == 'T'; }
  std::string name() const {
    return std::string(layout) + "/" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
  }
};

std::vector<float> random_matrix(index_t elements, std::uint64_t seed) {
  std::vector<float> v(static_cast<std::size_t>(elements));
  ef::RandomGenerator rng(seed);
  for (float& x : v) x = static_cast<float>(rng.uniform(-1.0, 1.0));
  return v;
}

// f(a, lda, b, ldb, c) computes one product.
template <class F>
void run(benchmark::State& state, const Case& p, F&& f) {
  const auto a = random_matrix(p.m * p.k, 1), b = random_matrix(p.k * p.n, 2);
  std::vector<float> c(static_cast<std::size_t>(p.m * p.n));
  const index_t lda = p.transpose_a() ? p.m : p.k, ldb = p.transpose_b() ? p.k : p.n;
  f(a.data(), lda, b.data(), ldb, c.data());
  for (auto _ : state) {
    f(a.data(), lda, b.data(), ldb, c.data());
    benchmark::ClobberMemory();
  }
  const double flop = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  state.counters["GFLOP/s"] = benchmark::Counter(flop * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void ours(benchmark::State& state, const Case& p, ef::GemmPrecision precision) {
  run(state, p, [&](const float* a, index_t lda, const float* b, index_t ldb, float* c) {
    ef::detail::kernels::gemm<float>(p.transpose_a(), p.transpose_b(), p.m, p.n, p.k, 1.0f, a, lda, b, ldb,
                                     0.0f, c, p.n, {}, precision);
  });
}

void eigen(benchmark::State& state, const Case& p) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Map = Eigen::Map<const Matrix>;
  run(state, p, [&](const float* a, index_t, const float* b, index_t, float* c) {
    Eigen::Map<Matrix> out(c, p.m, p.n);
    if (p.transpose_a()) {
      out.noalias() = Map(a, p.k, p.m).transpose() * Map(b, p.k, p.n);
    } else if (p.transpose_b()) {
      out.noalias() = Map(a, p.m, p.k) * Map(b, p.n, p.k).transpose();
    } else {
      out.noalias() = Map(a, p.m, p.k) * Map(b, p.k, p.n);
    }
  });
}

#if defined(EIGENFORMER_WITH_ONEDNN)
void onednn(benchmark::State& state, const Case& p) {
  run(state, p, [&](const float* a, index_t lda, const float* b, index_t ldb, float* c) {
    dnnl_sgemm(p.transpose_a() ? 'T' : 'N', p.transpose_b() ? 'T' : 'N', p.m, p.n, p.k, 1.0f, a, lda, b, ldb,
               0.0f, c, p.n);
  });
}

// Products in bf16 or int8 from float to float, as ours are: converts a in each call, in layouts that oneDNN
// chooses. Int8 is rounded without the scales that ours computes for each row, so it has less to do.
class OneDnnProduct {
 public:
  OneDnnProduct(const Case& p, dnnl::memory::data_type type)
      : a_(p.transpose_a() ? columns(p.m, p.k) : rows(p.m, p.k)),
        b_(p.transpose_b() ? columns(p.k, p.n) : rows(p.k, p.n)),
        c_(rows(p.m, p.n)),
        product_(describe({{p.m, p.k}, type, Tag::any}, {{p.k, p.n}, type, Tag::any})),
        matmul_(product_),
        a_converted_(product_.src_desc(), engine_),
        convert_a_(memory(a_, nullptr), a_converted_) {}

  [[nodiscard]] dnnl::memory convert_b(const float* b) {
    dnnl::memory from = memory(b_, b), to(product_.weights_desc(), engine_);
    dnnl::reorder(from, to).execute(stream_, from, to);
    return to;
  }

  void run(const float* a, const dnnl::memory& b, float* c) {
    dnnl::memory from = memory(a_, a);
    convert_a_.execute(stream_, from, a_converted_);
    matmul_.execute(stream_,
                    {{DNNL_ARG_SRC, a_converted_}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, memory(c_, c)}});
    stream_.wait();
  }

 private:
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;

  static Desc rows(index_t m, index_t n) { return {{m, n}, dnnl::memory::data_type::f32, Tag::ab}; }
  static Desc columns(index_t m, index_t n) { return {{m, n}, dnnl::memory::data_type::f32, Tag::ba}; }
  dnnl::memory memory(const Desc& desc, const float* data) {
    return {desc, engine_, const_cast<float*>(data)};
  }
  dnnl::matmul::primitive_desc describe(const Desc& a, const Desc& b) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine_, a, b, c_};
#else
    return {dnnl::matmul::desc(a, b, c_), engine_};
#endif
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Desc a_, b_, c_;
  dnnl::matmul::primitive_desc product_;
  dnnl::matmul matmul_;
  dnnl::memory a_converted_;
  dnnl::reorder convert_a_;
};

void onednn_bf16(benchmark::State& state, const Case& p) {
  OneDnnProduct product(p, dnnl::memory::data_type::bf16);
  run(state, p, [&](const float* a, index_t, const float* b, index_t, float* c) {
    product.run(a, product.convert_b(b), c);
  });
}
#endif

#if defined(EIGENFORMER_WITH_BLAS)
void blas(benchmark::State& state, const Case& p) {
  run(state, p, [&](const float* a, index_t lda, const float* b, index_t ldb, float* c) {
    const auto size = [](index_t n) { return static_cast<int>(n); };
    cblas_sgemm(CblasRowMajor, p.transpose_a() ? CblasTrans : CblasNoTrans,
                p.transpose_b() ? CblasTrans : CblasNoTrans, size(p.m), size(p.n), size(p.k), 1.0f, a,
                size(lda), b, size(ldb), 0.0f, c, size(p.n));
  });
}
#endif

// x times weights that are packed once. A row of weights is read once for all rows of x: what counts with few
// rows is the weights' bytes per second. pack(weights) packs them; multiply(x, packed, c) computes a product.
template <class Pack, class Multiply>
void packed(benchmark::State& state, const Case& p, double bytes, Pack&& pack, Multiply&& multiply) {
  const auto weights = random_matrix(p.n * p.k, 2), x = random_matrix(p.m * p.k, 1);
  std::vector<float> c(static_cast<std::size_t>(p.m * p.n));
  // As many copies as the caches do not hold, as a model's many matrices.
  const std::size_t copies =
      static_cast<std::size_t>(std::max<index_t>(1, (index_t{96} << 18) / (p.n * p.k)));
  std::vector<decltype(pack(weights.data()))> w;
  for (std::size_t i = 0; i < copies; ++i) w.push_back(pack(weights.data()));
  std::size_t next = 0;
  for (auto _ : state) {
    multiply(x.data(), w[next], c.data());
    benchmark::ClobberMemory();
    next = next + 1 == copies ? 0 : next + 1;
  }
  const double weight_count = static_cast<double>(p.n) * static_cast<double>(p.k);
  const auto rate = [&](double each) {
    return benchmark::Counter(each * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GB/s"] = rate(bytes * weight_count);
  state.counters["GFLOP/s"] = rate(2.0 * static_cast<double>(p.m) * weight_count);
}

using Format = ef::detail::kernels::PackedMatrix::Format;

double bytes(Format format) { return format == Format::float32 ? 4 : format == Format::bf16 ? 2 : 1; }

void packed_ours(benchmark::State& state, const Case& p, Format format) {
  using ef::detail::kernels::PackedMatrix;
  packed(
      state, p, bytes(format), [&](const float* w) { return PackedMatrix::pack(w, p.n, p.k, format); },
      [&](const float* x, const PackedMatrix& w, float* c) {
        ef::detail::kernels::gemm_packed(p.m, x, p.k, w, 0.0f, c, p.n);
      });
}

#if defined(EIGENFORMER_WITH_ONEDNN)
void packed_onednn(benchmark::State& state, const Case& p, Format format) {
  using Type = dnnl::memory::data_type;
  OneDnnProduct product(p, format == Format::float32 ? Type::f32
                           : format == Format::bf16  ? Type::bf16
                                                     : Type::s8);
  packed(
      state, p, bytes(format), [&](const float* w) { return product.convert_b(w); },
      [&](const float* x, const dnnl::memory& w, float* c) { product.run(x, w, c); });
}
#endif

const Case training_shapes[] = {{"", 2048, 512, 512},  {"", 2048, 256, 256},  {"", 2048, 1024, 256},
                                {"", 2048, 256, 1024}, {"", 2048, 8000, 256}, {"", 256, 256, 2048},
                                {"", 8000, 256, 2048}, {"", 512, 512, 512}};

void register_all() {
  using benchmark::RegisterBenchmark;
  for (const Case& shape : training_shapes) {
    for (const char* layout : {"NN", "NT", "TN"}) {
      const Case p{layout, shape.m, shape.n, shape.k};
      const auto add = [&](const char* who, auto function) {
        RegisterBenchmark((p.name() + "/" + who).c_str(), [=](benchmark::State& state) {
          function(state, p);
        })->UseRealTime();
      };
      add("eigenformer", [](benchmark::State& s, const Case& q) { ours(s, q, ef::GemmPrecision::full); });
#if defined(EIGENFORMER_WITH_ONEDNN)
      add("onednn", onednn);
#endif
#if defined(EIGENFORMER_WITH_BLAS)
      add("blas", blas);
#endif
      add("eigen", eigen);
      add("eigenformer_bf16",
          [](benchmark::State& s, const Case& q) { ours(s, q, ef::GemmPrecision::bf16); });
#if defined(EIGENFORMER_WITH_ONEDNN)
      add("onednn_bf16", onednn_bf16);
#endif
    }
  }
  for (const index_t m : {1, 4, 32}) {
    for (const auto& [n, k] :
         {std::pair<index_t, index_t>{256, 256}, {1024, 256}, {256, 1024}, {8000, 256}, {2048, 512}}) {
      const Case p{"NT", m, n, k};
      for (const auto& [name, format] : {std::pair<std::string, Format>{"packed_float32", Format::float32},
                                         {"packed_bf16", Format::bf16},
                                         {"packed_int8", Format::int8}}) {
        const auto add = [&, f = format](const std::string& who, auto function) {
          RegisterBenchmark((p.name() + "/" + who).c_str(), [=](benchmark::State& s) {
            function(s, p, f);
          })->UseRealTime();
        };
        add("eigenformer_" + name, packed_ours);
#if defined(EIGENFORMER_WITH_ONEDNN)
        add("onednn_" + name, packed_onednn);
#endif
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* wanted = std::getenv("EIGENFORMER_BENCH_THREADS");
  const int threads = wanted != nullptr ? std::max(1, std::atoi(wanted)) : 1;
  ef::Runtime::instance().set_threads(threads);
  Eigen::setNbThreads(threads);
  if (omp_set_num_threads != nullptr) omp_set_num_threads(threads);
#if defined(EIGENFORMER_WITH_BLAS) && defined(OPENBLAS_VERSION)
  openblas_set_num_threads(threads);
#endif
  benchmark::AddCustomContext("threads", std::to_string(threads));
  benchmark::AddCustomContext("isa", ef::isa_name(ef::isa()));
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
