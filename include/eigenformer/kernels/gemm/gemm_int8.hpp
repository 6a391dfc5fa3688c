#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_kernels.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"

#if EIGENFORMER_X86
#include <immintrin.h>

#define EIGENFORMER_TARGET_AVX512_VNNI \
  __attribute__((target("avx,avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#endif

// Products of int8 weights and inputs quantised to 8 bits. Inputs are held as q + 128 (unsigned, which is
// what vpdpbusd multiplies), so a sum is sum(q w) + 128 sum(w); the second part is known per output and
// subtracted. The integers are exact in 32 bits, so every path below gives the same sums.

namespace eigenformer::kernels::detail {

/// Four consecutive elements of k, 8 bits each, the first in the lowest byte.
using Int8Four = std::uint32_t;

inline constexpr index_t int8_columns = 32;

/// The output side of an int8 tile: c = [c +] (sum - offset) * scale * row_scale [+ bias].
struct Int8Output {
  const std::int32_t* offset;  ///< per column
  const float* scale;          ///< per column
  const float* row_scale;      ///< per row
  float* c;
  index_t ldc;
  const float* bias;  ///< per column or nullptr
  index_t rows, cols;
  bool accumulate;
};

/// Finishes a tile from its sums, 32 a row.
inline void finish_int8(const std::int32_t* sums, bool with_offset, const Int8Output& out) {
  for (index_t r = 0; r < out.rows; ++r) {
    float value[int8_columns];
    const std::int32_t* sum = sums + r * int8_columns;
    for (index_t j = 0; j < int8_columns; ++j) {
      value[j] =
          static_cast<float>(sum[j] - (with_offset ? out.offset[j] : 0)) * out.scale[j] * out.row_scale[r];
    }
    // Keeps the products above from being fused with the sums below in some tiles and not in others.
    __asm__ volatile("" : : "r"(value) : "memory");
    float* c = out.c + r * out.ldc;
    for (index_t j = 0; j < out.cols; ++j) {
      float x = value[j];
      if (out.accumulate) x += c[j];
      c[j] = out.bias != nullptr ? x + out.bias[j] : x;
    }
  }
}

/// a: (steps, tile rows), b: (steps, 32).
using Int8Function = void (*)(index_t steps, const Int8Four* a, const Int8Four* b, const Int8Output* out);

/// One row of k floats to bytes q + 128 and its scale, which is NaN if a value is not finite. The bytes of
/// the last step behind k are those of zero.
struct QuantizeRow {
  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, const float* x, std::uint8_t* q, float* scale) {
    // As integers, magnitudes are ordered like floats, and NaN is above all.
    std::int32_t largest = 0;
    for (index_t p = 0; p < k; ++p) {
      const std::int32_t bits = std::bit_cast<std::int32_t>(x[p]) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    const float maximum = std::bit_cast<float>(largest);
    const bool finite = largest < 0x7f800000;
    const float inverse = finite && maximum > 1e-30f ? 127.0f / maximum : 0.0f;
    *scale = finite ? maximum / 127.0f : std::numeric_limits<float>::quiet_NaN();
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    constexpr float magic = 12582912.0f;
    for (index_t p = 0; p < k; ++p) {
      q[p] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x[p] * inverse + magic) + 128u);
    }
    for (index_t p = k; p % 4 != 0; ++p) q[p] = 128;
  }
};

/// Plain loops, for any instruction set.
struct Int8Plain {
  static constexpr index_t tile_rows = 4;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                            const Int8Output* out) {
    std::int32_t sum[tile_rows][int8_columns] = {};
    for (index_t s = 0; s < steps; ++s) {
      const auto* w = reinterpret_cast<const std::int8_t*>(b + s * int8_columns);
      for (index_t r = 0; r < tile_rows; ++r) {
        const auto* q = reinterpret_cast<const std::uint8_t*>(a + s * tile_rows + r);
        const std::int32_t q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];
        for (index_t j = 0; j < int8_columns; ++j) {
          sum[r][j] += q0 * w[4 * j] + q1 * w[4 * j + 1] + q2 * w[4 * j + 2] + q3 * w[4 * j + 3];
        }
      }
    }
    finish_int8(sum[0], true, *out);
  }
};

#if EIGENFORMER_X86
/// AVX2: even and odd bytes of four are widened to 16 bits and multiplied and added in pairs (vpmaddwd).
struct Int8Avx2 {
  static constexpr int tile_rows = 2;

  EIGENFORMER_TARGET_AVX2 static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                          const Int8Output* out) {
    __m256i sum[tile_rows][4];
    for (auto& row : sum) {
      for (auto& v : row) v = _mm256_setzero_si256();
    }
    const __m256i offset = _mm256_set1_epi16(128), low = _mm256_set1_epi16(255);
    for (index_t s = 0; s < steps; ++s) {
      __m256i even[tile_rows], odd[tile_rows];
      for (int r = 0; r < tile_rows; ++r) {
        const __m256i q = _mm256_set1_epi32(static_cast<int>(a[s * tile_rows + r]));
        even[r] = _mm256_sub_epi16(_mm256_and_si256(q, low), offset);
        odd[r] = _mm256_sub_epi16(_mm256_srli_epi16(q, 8), offset);
      }
      for (int v = 0; v < 4; ++v) {
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + s * int8_columns + v * 8));
        const __m256i w_even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), w_odd = _mm256_srai_epi16(w, 8);
        for (int r = 0; r < tile_rows; ++r) {
          sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_add_epi32(_mm256_madd_epi16(w_even, even[r]),
                                                                   _mm256_madd_epi16(w_odd, odd[r])));
        }
      }
    }
    alignas(32) std::int32_t total[tile_rows][int8_columns];
    for (int r = 0; r < tile_rows; ++r) {
      for (int v = 0; v < 4; ++v) _mm256_store_si256(reinterpret_cast<__m256i*>(total[r] + v * 8), sum[r][v]);
    }
    // The inputs were widened to signed numbers: these sums have no offset.
    finish_int8(total[0], false, *out);
  }
};

/// avx512_vnni: vpdpbusd multiplies and adds four steps of k in each 32-bit lane.
template <int Rows>
struct Int8Vnni {
  using Float = GemmMicro<float, 64, Rows>;
  using V = typename Float::V;
  using RowSequence = typename Float::RowSequence;
  typedef std::int32_t I __attribute__((vector_size(64)));

  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void clear(I (&x)[Rows], I (&y)[Rows], std::integer_sequence<int, R...>) {
    ((x[R] = I{}, y[R] = I{}), ...);
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX512_VNNI static EIGENFORMER_ALWAYS_INLINE void step(
      I (&x)[Rows], I (&y)[Rows], const Int8Four* a, const Int8Four* b, std::integer_sequence<int, R...>) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
    ((x[R] = (I)_mm512_dpbusd_epi32((__m512i)x[R], _mm512_set1_epi32(static_cast<int>(a[R])), b0),
      y[R] = (I)_mm512_dpbusd_epi32((__m512i)y[R], _mm512_set1_epi32(static_cast<int>(a[R])), b1)),
     ...);
  }
  EIGENFORMER_TARGET_AVX512_VNNI static EIGENFORMER_ALWAYS_INLINE void keep_product(V& x) {
    __asm__("" : "+v"(x));
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX512_VNNI static EIGENFORMER_ALWAYS_INLINE void scale(
      const I (&sum)[Rows], V (&x)[Rows], const std::int32_t* offset, const float* scale,
      const float* row_scale, index_t rows, std::integer_sequence<int, R...>) {
    I o;
    V s;
    std::memcpy(&o, offset, sizeof(I));
    std::memcpy(&s, scale, sizeof(V));
    ((x[R] = __builtin_convertvector(sum[R] - o, V) * s * row_scale[R < rows ? R : 0]), ...);
    // As above: no fusing with what is added.
    (keep_product(x[R]), ...);
  }

  EIGENFORMER_TARGET_AVX512_VNNI static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                                 const Int8Output* out) {
    typename Float::Output tile;
    tile.begin(out->c, out->ldc, out->accumulate, out->bias, out->rows, out->cols);
    I p[Rows], q[Rows];
    clear(p, q, RowSequence{});
    for (index_t s = 0; s < steps; ++s) {
      step(p, q, a, b, RowSequence{});
      a += Rows;
      b += int8_columns;
    }
    V x[Rows], y[Rows];
    scale(p, x, out->offset, out->scale, out->row_scale, out->rows, RowSequence{});
    scale(q, y, out->offset + 16, out->scale + 16, out->row_scale, out->rows, RowSequence{});
    tile.end(x, y, 1.0f, out->accumulate);
  }
};

/// Whether the CPU has vpdpbusd on 512 bits.
inline bool cpu_has_vnni() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni") != 0;
  }();
  return has;
}
#endif

/// The int8 tiles for an instruction set.
struct Int8Kernels {
  index_t rows = 0;
  std::array<index_t, gemm_max_rows + 1> tile_rows{};
  std::array<Int8Function, gemm_max_rows + 1> micro{};

  void add(index_t tile, Int8Function function) {
    for (index_t r = rows + 1; r <= tile; ++r) {
      tile_rows[static_cast<std::size_t>(r)] = tile;
      micro[static_cast<std::size_t>(r)] = function;
    }
    rows = tile;
  }

  static const Int8Kernels& get(Isa isa) {
    static const Int8Kernels plain = [] {
      Int8Kernels k;
      k.add(Int8Plain::tile_rows, body_for<Int8Plain, 16, Int8Function>());
      return k;
    }();
#if EIGENFORMER_X86
    static const Int8Kernels avx2 = [] {
      Int8Kernels k;
      k.add(Int8Avx2::tile_rows, &Int8Avx2::run);
      return k;
    }();
    static const Int8Kernels vnni = [] {
      Int8Kernels k;
      k.add(1, &Int8Vnni<1>::run);
      k.add(2, &Int8Vnni<2>::run);
      k.add(4, &Int8Vnni<4>::run);
      k.add(8, &Int8Vnni<8>::run);
      k.add(14, &Int8Vnni<14>::run);
      return k;
    }();
    if (isa == Isa::avx512 && cpu_has_vnni()) return vnni;
    if (isa != Isa::baseline) return avx2;
#else
    (void)isa;
#endif
    return plain;
  }
};

}  // namespace eigenformer::kernels::detail
