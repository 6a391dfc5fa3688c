#pragma once

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer::bench {

/// Peak resident memory of this process so far, in MiB.
inline double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

/// Resident memory of this process now, in MiB; the peak where the system does not say.
inline double resident_mib() {
  std::ifstream pages("/proc/self/statm");
  double total = 0, resident = 0;
  if (!(pages >> total >> resident)) return peak_mib();
  return resident * 4096.0 / (1024.0 * 1024.0);
}

/// The smallest value that a share of all values does not exceed.
inline double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

/// Uniform numbers in [-1, 1), the same for every run.
inline Tensor<float> random_tensor(const Shape& shape, std::uint64_t seed) {
  Tensor<float> t(shape);
  RandomGenerator rng(seed);
  rng.fill_uniform(t.data(), t.numel(), -1, 1);
  return t;
}

/// Token ids above the four special ones.
inline Tensor<std::int32_t> random_ids(index_t n, index_t vocab, RandomGenerator& rng) {
  Tensor<std::int32_t> ids(Shape{n});
  for (index_t i = 0; i < n; ++i) ids.data()[i] = static_cast<std::int32_t>(4 + rng.uniform_int(vocab - 4));
  return ids;
}

/// Runs f once, then as often as the benchmark wants. Returns the mean seconds of a call.
template <class F>
double seconds_per_call(benchmark::State& state, F&& f) {
  f();
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    f();
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(state.iterations());
}

/// Sets the number of threads and says so, with the instruction set, in the benchmark's header.
inline void use_threads(int threads) {
  Runtime::instance().set_threads(threads);
  benchmark::AddCustomContext("threads", std::to_string(threads));
  benchmark::AddCustomContext("isa", isa_name(isa()));
}

/// EIGENFORMER_BENCH_THREADS, for the programs without flags of their own; 1 without it.
inline int threads_from_environment() {
  const char* wanted = std::getenv("EIGENFORMER_BENCH_THREADS");
  return wanted != nullptr ? std::max(1, std::atoi(wanted)) : 1;
}

}  // namespace eigenformer::bench
