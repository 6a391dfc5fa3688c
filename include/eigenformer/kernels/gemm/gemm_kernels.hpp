#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_bf16.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer::kernels::detail {

inline constexpr index_t gemm_max_rows = 14;

/// The compiled pieces of a product of T, whose packed operands hold P, for one instruction set.
template <class T, class P = T>
struct GemmKernels {
  using Packed = P;
  index_t rows;     ///< of the largest register tile
  index_t columns;  ///< of every register tile
  index_t step;     ///< elements of k in a P
  /// By number of rows wanted: the rows of the smallest tile that has them, and that tile.
  std::array<index_t, gemm_max_rows + 1> tile_rows;
  std::array<MicroFunction<T, P>, gemm_max_rows + 1> micro;
  PackFunction<T, P> pack_transposed;
  PackFunction<T, P> pack_adjacent;

  /// Enters a tile; tiles come in rising order of their rows.
  void add(index_t tile, MicroFunction<T, P> function) {
    for (index_t r = rows + 1; r <= tile; ++r) {
      tile_rows[static_cast<std::size_t>(r)] = tile;
      micro[static_cast<std::size_t>(r)] = function;
    }
    rows = tile;
  }
};

// Instantiates a body for the instruction set that has registers of `Bytes`.
template <class Body, int Bytes, class Function>
constexpr Function body_for() {
#if EIGENFORMER_X86
  if constexpr (Bytes == 64) return &run_avx512<Body>;
  if constexpr (Bytes == 32) return &run_avx2<Body>;
#endif
  return &run_baseline<Body>;
}

template <class T, int Bytes, bool Rounded, int... Rows>
const GemmKernels<T>& make_gemm_kernels() {
  using Transposed = PackTransposed<T, Bytes>;
  using Adjacent = PackAdjacent<T, Bytes>;
  static const GemmKernels<T> kernels = [] {
    GemmKernels<T> result{};
    result.columns = 2 * VectorOf<T, Bytes>::lanes;
    result.step = 1;
    (result.add(Rows, body_for<GemmMicro<T, Bytes, Rows>, Bytes, MicroFunction<T, T>>()), ...);
    if constexpr (Rounded) {
      result.pack_transposed = body_for<PackRounded<Transposed>, Bytes, PackFunction<T, T>>();
      result.pack_adjacent = body_for<PackRounded<Adjacent>, Bytes, PackFunction<T, T>>();
    } else {
      result.pack_transposed = body_for<Transposed, Bytes, PackFunction<T, T>>();
      result.pack_adjacent = body_for<Adjacent, Bytes, PackFunction<T, T>>();
    }
    return result;
  }();
  return kernels;
}

/// The tiles for an instruction set: 14 x 32 floats fill the 32 registers of AVX-512, 6 x 16 the 16 of AVX2.
/// With Rounded, inputs become bfloat16 while packing. double has the baseline's tile alone, as in
/// dispatch().
template <class T, bool Rounded = false>
const GemmKernels<T>& gemm_kernels([[maybe_unused]] Isa isa) {
#if EIGENFORMER_X86
  if constexpr (std::is_same_v<T, float>) {
    switch (isa) {
      case Isa::avx512:
        return make_gemm_kernels<T, 64, Rounded, 1, 2, 4, 6, 8, 10, 12, 14>();
      case Isa::avx2:
        return make_gemm_kernels<T, 32, Rounded, 1, 2, 4, 6>();
      case Isa::baseline:
        break;
    }
  }
#endif
  return make_gemm_kernels<T, 16, Rounded, 1, 2, 4, 6>();
}

#if EIGENFORMER_X86
/// The tiles of avx512_bf16.
inline const GemmKernels<float, Bf16Pair>& gemm_kernels_bf16() {
  static const GemmKernels<float, Bf16Pair> kernels = [] {
    GemmKernels<float, Bf16Pair> result{};
    result.columns = 32;
    result.step = 2;
    result.add(1, &GemmMicroBf16<1>::run);
    result.add(2, &GemmMicroBf16<2>::run);
    result.add(4, &GemmMicroBf16<4>::run);
    result.add(6, &GemmMicroBf16<6>::run);
    result.add(8, &GemmMicroBf16<8>::run);
    result.add(10, &GemmMicroBf16<10>::run);
    result.add(12, &GemmMicroBf16<12>::run);
    result.add(14, &GemmMicroBf16<14>::run);
    result.pack_transposed = &PackBf16::transposed;
    result.pack_adjacent = &PackBf16::adjacent;
    return result;
  }();
  return kernels;
}
#endif

/// Whether bfloat16 products use the CPU's instruction for them.
inline bool bf16_in_hardware(Isa isa) {
#if EIGENFORMER_X86
  return isa == Isa::avx512 && cpu_has_bf16();
#else
  (void)isa;
  return false;
#endif
}

/// Memory of a thread for packed operands: grows, is never freed before the thread ends, and is not cleared.
class GemmScratch {
 public:
  /// Room for `count` elements, 64-byte aligned; the contents are lost when it grows.
  template <class P>
  P* reserve(index_t count) {
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(P) + 4095) / 4096 * 4096;
    if (bytes > bytes_) {
      data_.reset();
      bytes_ = 0;
      data_.reset(std::aligned_alloc(64, bytes));
      if (data_ == nullptr) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return static_cast<P*>(data_.get());
  }

  /// The calling thread's memory for operand A (0), B (1) or quantised inputs (2).
  static GemmScratch& of_thread(std::size_t operand) {
    thread_local std::array<GemmScratch, 3> scratch;
    return scratch[operand];
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

/// How k is cut: blocks of equal size (the last may be smaller), by k alone, which fixes the order of every
/// sum.
struct DepthBlocks {
  index_t count;
  index_t size;

  explicit DepthBlocks(index_t k, index_t limit) {
    count = (k + limit - 1) / limit;
    size = count == 0 ? 0 : ((k + count - 1) / count + 15) / 16 * 16;
    count = count == 0 ? 0 : (k + size - 1) / size;
  }
};

}  // namespace eigenformer::kernels::detail
