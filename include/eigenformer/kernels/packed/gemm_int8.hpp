#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_kernels.hpp"
#include "eigenformer/kernels/packed/gemm_int8_neon.hpp"
#include "eigenformer/kernels/packed/gemm_int8_tile.hpp"
#include "eigenformer/kernels/packed/gemm_int8_x86.hpp"

namespace eigenformer::detail::kernels::detail {

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

/// The same with a given step; values beyond 127 steps are taken as 127.
struct QuantizeRowByStep {
  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, const float* x, float step, std::uint8_t* q,
                                            float* scale) {
    std::int32_t largest = 0;
    for (index_t p = 0; p < k; ++p) {
      const std::int32_t bits = std::bit_cast<std::int32_t>(x[p]) & 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
    const bool finite = largest < 0x7f800000;
    *scale = finite ? step : std::numeric_limits<float>::quiet_NaN();
    const float inverse = 1.0f / step;
    constexpr float magic = 12582912.0f;
    for (index_t p = 0; p < k; ++p) {
      const float steps = x[p] * inverse;
      const float below = steps < 127.0f ? steps : 127.0f;
      const float within = below > -127.0f ? below : -127.0f;
      q[p] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(within + magic) + 128u);
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

/// The int8 tiles for a set of features.
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

  /// The tiles of Tile<Rows>, by rising Rows.
  template <template <int> class Tile, int... Rows>
  static const Int8Kernels& of() {
    static const Int8Kernels kernels = [] {
      Int8Kernels k;
      (k.add(Rows, &Tile<Rows>::run), ...);
      return k;
    }();
    return kernels;
  }

  static const Int8Kernels& get([[maybe_unused]] Isa isa) {
#if EIGENFORMER_X86
    if (isa.has(IsaFeature::avx512_vnni)) return of<Int8Vnni, 1, 2, 4, 8, 14>();
    if (isa.has(IsaFeature::avx_vnni)) return of<Int8AvxVnni, 1, 2, 3>();
    if (isa.has(IsaFeature::avx2)) return of<Int8Avx2, 2>();
#elif EIGENFORMER_ARM64
    if (isa.has(IsaFeature::neon_dotprod)) return of<Int8NeonDot, 1, 2, 4, 6>();
    if (isa.has(IsaFeature::neon)) return of<Int8Neon, 1, 2, 4>();
#endif
    static const Int8Kernels plain = [] {
      Int8Kernels k;
      k.add(Int8Plain::tile_rows, body_for<Int8Plain, 16, Int8Function>());
      return k;
    }();
    return plain;
  }
};

}  // namespace eigenformer::detail::kernels::detail
