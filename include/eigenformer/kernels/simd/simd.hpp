#pragma once

#include <atomic>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

// GCC warns that passing vector types between functions of different targets changes the ABI; nothing here
// does.
#define EIGENFORMER_TARGET_AVX2 __attribute__((target("avx,avx2,fma,f16c")))
#define EIGENFORMER_TARGET_AVX512 \
  __attribute__((target("avx,avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")))

namespace eigenformer::kernels {

/// The instruction sets a hot loop is compiled for, in rising order.
enum class Isa { baseline = 0, avx2 = 1, avx512 = 2 };

/// The name of an instruction set as EIGENFORMER_ISA spells it.
inline const char* isa_name(Isa isa) {
  return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "baseline";
}

namespace detail {

inline Isa best_isa() {
#if EIGENFORMER_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return Isa::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::baseline;
}

/// What the environment's EIGENFORMER_ISA says; empty: nothing.
inline std::string forced_isa_name() {
  const char* forced = std::getenv("EIGENFORMER_ISA");
  return forced == nullptr ? "" : forced;
}

/// The value of EIGENFORMER_ISA that has Eigen multiply (gemm_backend.hpp); other loops are baseline's.
inline constexpr const char* eigen_isa_name = "eigen";

inline Isa initial_isa() {
  const Isa best = best_isa();
  const std::string name = forced_isa_name();
  if (name.empty()) return best;
  if (name == eigen_isa_name) return Isa::baseline;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (name == isa_name(isa)) return isa < best ? isa : best;
  }
  throw ValueError("isa", "EIGENFORMER_ISA is '" + name + "', expected eigen, baseline, avx2 or avx512");
}

inline std::atomic<int>& isa_slot() {
  static std::atomic<int> slot{static_cast<int>(initial_isa())};
  return slot;
}

}  // namespace detail

/// The instruction set in use: the CPU's best, or what the environment's EIGENFORMER_ISA
/// (baseline, avx2, avx512; eigen: baseline with Eigen's products) lowers it to. Throws ValueError for
/// another value of it.
inline Isa isa() { return static_cast<Isa>(detail::isa_slot().load(std::memory_order_relaxed)); }

/// Switches the instruction set of the whole process (never above the CPU's); for tests of one path against
/// another.
inline void set_isa_for_testing(Isa isa) {
  const Isa best = detail::best_isa();
  detail::isa_slot().store(static_cast<int>(isa < best ? isa : best), std::memory_order_relaxed);
}

namespace detail {

/// A body that calls what is not marked EIGENFORMER_ALWAYS_INLINE, and has it inlined all the same.
template <class Body>
concept FlattenedBody = Body::flatten;

template <class Body, int Bytes, class... Args>
EIGENFORMER_ALWAYS_INLINE void run_body(Args... args) {
  if constexpr (requires { Body::template run<Bytes>(args...); }) {
    Body::template run<Bytes>(args...);
  } else {
    Body::run(args...);
  }
}

template <class Body, class... Args>
void run_baseline(Args... args) {
  run_body<Body, 16>(args...);
}

#if EIGENFORMER_X86
template <class Body, class... Args>
EIGENFORMER_TARGET_AVX2 void run_avx2(Args... args) {
  run_body<Body, 32>(args...);
}
template <FlattenedBody Body, class... Args>
EIGENFORMER_TARGET_AVX2 __attribute__((flatten)) void run_avx2(Args... args) {
  run_body<Body, 32>(args...);
}

template <class Body, class... Args>
EIGENFORMER_TARGET_AVX512 void run_avx512(Args... args) {
  run_body<Body, 64>(args...);
}
template <FlattenedBody Body, class... Args>
EIGENFORMER_TARGET_AVX512 __attribute__((flatten)) void run_avx512(Args... args) {
  run_body<Body, 64>(args...);
}
#endif

/// What dispatch() calls for the instruction set whose vectors have `Bytes`, as a function pointer: for
/// tables, whose callers keep the instruction set that they chose.
template <class Body, int Bytes, class Function>
constexpr Function body_for() {
#if EIGENFORMER_X86
  if constexpr (Bytes == 64) return &run_avx512<Body>;
  if constexpr (Bytes == 32) return &run_avx2<Body>;
#endif
  return &run_baseline<Body>;
}

/// Whether a loop works on double and not on float, by its pointers. Such loops are compiled for the baseline
/// alone: double is what gradients are checked in, and two more copies of every loop would double the time
/// that the kernels take to compile.
template <class... Args>
inline constexpr bool works_in_double =
    ((std::is_same_v<Args, double*> || std::is_same_v<Args, const double*>) || ...) &&
    !((std::is_same_v<Args, float*> || std::is_same_v<Args, const float*>) || ...);

}  // namespace detail

/// Runs Body::run<Bytes>(args...), Bytes being the width of the vectors of the instruction set in use (16, 32
/// or 64), or Body::run(args...) where that is no template, compiled for that set. `run` is a static member
/// marked EIGENFORMER_ALWAYS_INLINE, so that each wrapper compiles its own copy; arguments are pointers and
/// numbers. Body::flatten, if there and true, has what `run` calls inlined, too.
template <class Body, class... Args>
EIGENFORMER_NOINLINE void dispatch(Args... args) {
#if EIGENFORMER_X86
  if constexpr (!detail::works_in_double<Args...>) {
    switch (isa()) {
      case Isa::avx512:
        detail::run_avx512<Body>(args...);
        return;
      case Isa::avx2:
        detail::run_avx2<Body>(args...);
        return;
      case Isa::baseline:
        break;
    }
  }
#endif
  detail::run_baseline<Body>(args...);
}

}  // namespace eigenformer::kernels
