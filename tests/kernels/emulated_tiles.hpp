#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "eigenformer/kernels/simd/amx.hpp"

namespace eigenformer::testing {

/// AMX's tiles in plain C++, by the instructions' descriptions in Intel's Software Developer's Manual, volume
/// 2: what the CPU would raise a fault for throws std::logic_error. Each thread has its own.
class EmulatedTiles {
 public:
  static constexpr int vector_bytes = 16;

  struct Tile {
    int rows = 0, row_bytes = 0;
    alignas(64) unsigned char data[16][64] = {};
  };
  struct State {
    bool configured = false;
    int times_configured = 0, times_released = 0;
    Tile tiles[8];
  };
  static State& state() {
    thread_local State s;
    return s;
  }

  // LDTILECFG: #GP for what the palette lacks and for reserved bytes that are not zero; all tiles become
  // zero.
  static void configure(const detail::kernels::detail::TileConfig& config) {
    require(config.palette == 1, "ldtilecfg: palette");
    require(config.start_row == 0, "ldtilecfg: no load was interrupted");
    for (const std::uint8_t byte : config.reserved) require(byte == 0, "ldtilecfg: reserved bytes");
    for (int t = 0; t < 16; ++t) {
      const int rows = config.rows[t], row_bytes = config.row_bytes[t];
      require(t < 8 || (rows == 0 && row_bytes == 0), "ldtilecfg: tile 8 or later");
      require(rows <= 16 && row_bytes <= 64, "ldtilecfg: size of a tile");
      require((rows == 0) == (row_bytes == 0), "ldtilecfg: a tile with rows or columns alone");
      if (t < 8) {
        state().tiles[t] = {};
        state().tiles[t].rows = rows;
        state().tiles[t].row_bytes = row_bytes;
      }
    }
    state().configured = true;
    ++state().times_configured;
  }
  static void release() {
    for (Tile& tile : state().tiles) tile = {};
    state().configured = false;
    ++state().times_released;
  }

  template <int T>
  static void zero() {
    std::memset(tile<T>().data, 0, sizeof(Tile::data));
  }
  template <int T>
  static void load(const void* from, index_t stride) {
    Tile& to = tile<T>();
    std::memset(to.data, 0, sizeof(to.data));
    for (int r = 0; r < to.rows; ++r) {
      std::memcpy(to.data[r], static_cast<const char*>(from) + r * stride,
                  static_cast<std::size_t>(to.row_bytes));
    }
  }
  template <int T>
  static void store(void* to, index_t stride) {
    const Tile& from = tile<T>();
    for (int r = 0; r < from.rows; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride, from.data[r],
                  static_cast<std::size_t>(from.row_bytes));
    }
  }

  // TDPBUSD
  template <int C, int A, int B>
  static void dot_int8() {
    Tile &c = tile<C>(), &a = tile<A>(), &b = tile<B>();
    check_product(C, A, B);
    for (int m = 0; m < c.rows; ++m) {
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        for (int n = 0; n < c.row_bytes / 4; ++n) {
          auto sum = static_cast<std::uint32_t>(get<std::int32_t>(c, m, n));
          for (int byte = 0; byte < 4; ++byte) {
            const int x = a.data[m][4 * k + byte];
            const int w = static_cast<std::int8_t>(b.data[k][4 * n + byte]);
            sum += static_cast<std::uint32_t>(x * w);
          }
          set(c, m, n, static_cast<std::int32_t>(sum));
        }
      }
    }
    clear_above(c);
  }

  // TDPBF16PS: within a product the first elements of the pairs have one sum and the second another, each a
  // chain of fused multiply-adds from zero; their sum is added to C. Denormal numbers count as zero and
  // become zero; MXCSR is not consulted.
  template <int C, int A, int B>
  static void dot_bf16() {
    Tile &c = tile<C>(), &a = tile<A>(), &b = tile<B>();
    check_product(C, A, B);
    for (int m = 0; m < c.rows; ++m) {
      float sum[32] = {};
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        for (int i = 0; i < c.row_bytes / 2; ++i) {
          const float x = from_bf16(get<std::uint16_t>(a, m, 2 * k + i % 2));
          const float w = from_bf16(get<std::uint16_t>(b, k, i));
          sum[i] = flush(std::fma(x, w, sum[i]));
        }
      }
      for (int n = 0; n < c.row_bytes / 4; ++n) {
        const float both = flush(sum[2 * n] + sum[2 * n + 1]);
        set(c, m, n, flush(flush(get<float>(c, m, n)) + both));
      }
    }
    clear_above(c);
  }

 private:
  static void require(bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("fault: ") + what);
  }
  template <int T>
  static Tile& tile() {
    static_assert(T >= 0 && T < 8);
    require(state().configured, "tiles are not configured");
    require(state().tiles[T].rows != 0, "the tile has no rows");
    return state().tiles[T];
  }
  static void check_product(int c_number, int a_number, int b_number) {
    const Tile &c = state().tiles[c_number], &a = state().tiles[a_number], &b = state().tiles[b_number];
    require(c_number != a_number && c_number != b_number && a_number != b_number, "a tile is there twice");
    require(c.row_bytes % 4 == 0 && a.row_bytes % 4 == 0 && b.row_bytes % 4 == 0, "not whole elements");
    require(c.rows == a.rows && c.row_bytes == b.row_bytes && a.row_bytes == 4 * b.rows, "sizes of operands");
  }
  template <class T>
  static T get(const Tile& tile, int row, int i) {
    T value;
    std::memcpy(&value, tile.data[row] + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  static void set(Tile& tile, int row, int i, T value) {
    std::memcpy(tile.data[row] + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  static void clear_above(Tile& tile) {
    for (int r = 0; r < 16; ++r) {
      const int from = r < tile.rows ? tile.row_bytes : 0;
      std::memset(tile.data[r] + from, 0, static_cast<std::size_t>(64 - from));
    }
  }
  static float flush(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  }
  static float from_bf16(std::uint16_t bits) {
    return flush(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
};

}  // namespace eigenformer::testing
