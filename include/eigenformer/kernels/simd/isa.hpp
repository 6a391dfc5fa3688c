#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/simd/amx.hpp"

#if EIGENFORMER_X86
#include <cpuid.h>
#elif EIGENFORMER_ARM64 && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace eigenformer {

/// The features by which kernels choose their code: those of CPUs, and Eigen.
enum class IsaFeature : std::uint32_t {
  eigen = 1u << 0,         ///< matrix products by Eigen (gemm_backend.hpp); no feature of a CPU
  avx2 = 1u << 1,          ///< AVX2 and FMA: vectors of 32 bytes
  avx_vnni = 1u << 2,      ///< vpdpbusd on 32 bytes, VEX encoded; has avx2
  avx512 = 1u << 3,        ///< AVX-512 F, BW, VL and DQ: vectors of 64 bytes; has avx2
  avx512_vnni = 1u << 4,   ///< vpdpbusd on 64 bytes; has avx512
  avx512_bf16 = 1u << 5,   ///< vdpbf16ps on 64 bytes; has avx512
  neon = 1u << 6,          ///< Advanced SIMD of ARM with 64 bits: vectors of 16 bytes
  neon_dotprod = 1u << 7,  ///< sdot; has neon
  amx_int8 = 1u << 8,      ///< tdpbusd on AMX's tiles; has avx512_vnni
  amx_bf16 = 1u << 9,      ///< tdpbf16ps on AMX's tiles; has avx512_bf16
};

/// A set of features. The empty set is the baseline: the instructions that the compiler may use by its flags.
class Isa {
 public:
  /// The baseline.
  constexpr Isa() = default;
  /// The given features.
  constexpr Isa(std::initializer_list<IsaFeature> features) {
    for (const IsaFeature f : features) bits_ |= static_cast<std::uint32_t>(f);
  }

  /// Whether it has a feature.
  constexpr bool has(IsaFeature f) const noexcept { return (bits_ & static_cast<std::uint32_t>(f)) != 0; }
  /// Whether it has all features of `other`.
  constexpr bool contains(Isa other) const noexcept { return (other.bits_ & ~bits_) == 0; }
  /// A copy with one more feature.
  constexpr Isa with(IsaFeature f) const noexcept { return Isa(bits_ | static_cast<std::uint32_t>(f)); }
  /// A copy without a feature.
  constexpr Isa without(IsaFeature f) const noexcept { return Isa(bits_ & ~static_cast<std::uint32_t>(f)); }
  /// The features that both have.
  friend constexpr Isa operator&(Isa a, Isa b) noexcept { return Isa(a.bits_ & b.bits_); }
  /// The features that one of them has.
  friend constexpr Isa operator|(Isa a, Isa b) noexcept { return Isa(a.bits_ | b.bits_); }
  /// Whether both have the same features.
  friend constexpr bool operator==(Isa, Isa) = default;

 private:
  constexpr explicit Isa(std::uint32_t bits) : bits_(bits) {}

  std::uint32_t bits_ = 0;
};

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

/// A set of features that EIGENFORMER_ISA can name.
struct IsaPath {
  const char* name;  ///< the value of EIGENFORMER_ISA
  Isa isa;           ///< its features
};

/// All paths. A set of features has the name of the last path that it contains. (The build reads the names.)
inline constexpr IsaPath isa_paths[] = {
    {"baseline", {}},
    {"eigen", {IsaFeature::eigen}},
    {"avx2", {IsaFeature::avx2}},
    {"avx2_vnni", {IsaFeature::avx2, IsaFeature::avx_vnni}},
    {"avx512", {IsaFeature::avx2, IsaFeature::avx512}},
    {"avx512_vnni", {IsaFeature::avx2, IsaFeature::avx512, IsaFeature::avx512_vnni}},
    {"avx512_bf16", {IsaFeature::avx2, IsaFeature::avx512, IsaFeature::avx512_vnni, IsaFeature::avx512_bf16}},
    {"amx_int8", {IsaFeature::avx2, IsaFeature::avx512, IsaFeature::avx512_vnni, IsaFeature::amx_int8}},
    {"amx_bf16",
     {IsaFeature::avx2, IsaFeature::avx512, IsaFeature::avx512_vnni, IsaFeature::avx512_bf16,
      IsaFeature::amx_int8, IsaFeature::amx_bf16}},
    {"neon", {IsaFeature::neon}},
    {"neon_dotprod", {IsaFeature::neon, IsaFeature::neon_dotprod}},
};

/// The features with loops of their own that the compiler may use by its flags, as with -march=native. Loops
/// are not compiled for less, so EIGENFORMER_ISA cannot take these features away.
inline constexpr Isa given_isa = {
#if EIGENFORMER_X86 && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
    IsaFeature::avx2,
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    IsaFeature::avx512,
#endif
#endif
};

/// The features of this CPU. A feature is included only with all features that it implies.
inline Isa detect_cpu() {
  Isa isa;
#if EIGENFORMER_X86
  // These also check that the operating system saves the registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return isa;
  isa = isa.with(IsaFeature::avx2);
  // clang 14 has no name for AVX-VNNI: leaf 7, subleaf 1, bit 4 of EAX.
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && a >= 1 &&
      __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1u) != 0) {
    isa = isa.with(IsaFeature::avx_vnni);
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return isa;
  }
  isa = isa.with(IsaFeature::avx512);
  if (__builtin_cpu_supports("avx512vnni")) isa = isa.with(IsaFeature::avx512_vnni);
  if (__builtin_cpu_supports("avx512bf16")) isa = isa.with(IsaFeature::avx512_bf16);
  const detail::AmxFeatures amx = detail::detect_amx();
  if (amx.int8 && isa.has(IsaFeature::avx512_vnni)) isa = isa.with(IsaFeature::amx_int8);
  if (amx.bf16 && isa.has(IsaFeature::avx512_bf16)) isa = isa.with(IsaFeature::amx_bf16);
#elif EIGENFORMER_ARM64
  isa = isa.with(IsaFeature::neon);
#if defined(__linux__)
  constexpr unsigned long asimddp = 1ul << 20;  // HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & asimddp) != 0) isa = isa.with(IsaFeature::neon_dotprod);
#elif defined(__ARM_FEATURE_DOTPROD)
  isa = isa.with(IsaFeature::neon_dotprod);
#endif
#endif
  return isa;
}

/// All features that this machine has: the CPU's, and Eigen.
inline Isa available_isa() {
  static const Isa available = detect_cpu().with(IsaFeature::eigen);
  return available;
}

/// The features of a CPU that are used by default: not Intel's vdpbf16ps without AMX, which has half the rate
/// of the multiply-add of floats.
inline Isa worthwhile_isa(Isa available, bool intel) {
  return intel && !available.has(IsaFeature::amx_bf16) ? available.without(IsaFeature::avx512_bf16)
                                                       : available;
}

/// The features used by default: those of the CPU that make products faster; Eigen's products where the
/// library has no register tiles of its own. In WebAssembly Eigen has no vectors, and the baseline's tiles
/// are five times as fast.
inline Isa default_isa() {
#if EIGENFORMER_X86
  return worthwhile_isa(available_isa().without(IsaFeature::eigen), __builtin_cpu_is("intel") != 0);
#elif EIGENFORMER_ARM64 || defined(__wasm__)
  return available_isa().without(IsaFeature::eigen);
#else
  return available_isa();
#endif
}

/// The features that a value of EIGENFORMER_ISA selects on a CPU with `available`; `otherwise` for null and
/// "".
inline Isa isa_from_name(const char* name, Isa available, Isa otherwise) {
  if (name == nullptr || *name == '\0') return otherwise;
  std::string names;
  for (const IsaPath& path : isa_paths) {
    if (name == std::string(path.name)) return path.isa & available;
    names += (names.empty() ? "" : ", ") + std::string(path.name);
  }
  throw ValueError("isa", {"EIGENFORMER_ISA is '", name, "', expected one of ", names});
}

inline std::atomic<Isa>& isa_slot() {
  static std::atomic<Isa> slot{given_isa |
                               isa_from_name(std::getenv("EIGENFORMER_ISA"), available_isa(), default_isa())};
  return slot;
}

/// Sets the features of the whole process to those of `isa` that are available; for tests of one path against
/// another. No other thread may run kernels at the time.
inline void set_isa_for_testing(Isa isa) {
  isa_slot().store(given_isa | (isa & available_isa()), std::memory_order_relaxed);
}

}  // namespace eigenformer::detail::kernels

namespace eigenformer {

/// The name of the last path that the set contains, in the order of docs/design/design.md, "Instruction
/// sets".
inline const char* isa_name(Isa isa) {
  const char* name = "";
  for (const detail::kernels::IsaPath& path : detail::kernels::isa_paths) {
    if (isa.contains(path.isa)) name = path.name;
  }
  return name;
}

/// The features in use: those of the CPU that make products faster, or those of the path that the environment
/// variable EIGENFORMER_ISA names, without the ones that the CPU lacks and with those that the compiler may
/// use by its flags. The variable is read once; throws ValueError for a name that is not that of a path.
inline Isa isa() { return detail::kernels::isa_slot().load(std::memory_order_relaxed); }

}  // namespace eigenformer
