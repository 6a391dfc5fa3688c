#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/simd/isa.hpp"

namespace eigenformer::detail::kernels {

namespace detail {
struct Int8Problem;
}

/// A weight matrix W (n, k), n outputs of k inputs, packed once for many products x W^T. Immutable; copies
/// share the memory. Its layout is that of the features in use (isa()) when it was packed.
class PackedMatrix {
 public:
  /// The storage format of packed weights.
  enum class Format {
    float32,  ///< unchanged: products are bit-identical to gemm()
    bf16,     ///< rounded to bfloat16. If bf16_products_pay(), inputs are rounded too, and products are
              ///< bit-identical to gemm() with GemmPrecision::bf16; otherwise to gemm() with rounded weights
    int8  ///< symmetric, one scale per output; each row of the input is quantised on the way (its own scale,
          ///< unless with_input_step() gave one for all)
  };

  /// An empty matrix.
  PackedMatrix() = default;

  /// Packs w (n, k), row-major. Throws ShapeError for negative sizes, ValueError for int8 with k over 65536
  /// (sums could overflow 32 bits).
  static PackedMatrix pack(const float* w, index_t n, index_t k, Format format = Format::float32);

  /// Packs w, (n, k) or (k, n) if transposed, in bf16, for products that always round their inputs:
  /// bit-identical to gemm() with GemmPrecision::bf16.
  static PackedMatrix pack_to_round(const float* w, index_t n, index_t k, bool transposed);

  /// Packs int8 weights: w (n, k) row-major, with the values w * scale[output]; scale: (n).
  static PackedMatrix pack_int8(const std::int8_t* w, const float* scale, index_t n, index_t k);

  /// Int8 weights that are already packed, as in a file, without a copy; `owner` keeps the memory alive. The
  /// layout is the same for every instruction set.
  ///
  /// panels: (n / int8_columns rounded up, k / 4 rounded up, int8_columns, 4), four inputs of an output
  /// together; zero beyond the last output or input. scale, sum: one for each output of whole panels, sum
  /// being 128 times the sum of its weights. All 4 bytes aligned.
  static PackedMatrix view_int8(std::shared_ptr<const void> owner, const std::int8_t* panels,
                                const float* scale, const std::int32_t* sum, index_t n, index_t k);

  /// The same int8 weights (sharing memory) for inputs quantised with one calibrated step for all rows: q =
  /// round(x / step), at most 127 in magnitude, instead of a scale for each row. Throws ValueError for
  /// weights of another format and for a step outside 1e-30 .. 1e30.
  PackedMatrix with_input_step(float step) const;
  /// The step of with_input_step(); 0: each row of the input has its own scale.
  float input_step() const noexcept { return input_step_; }

  /// A copy with only the outputs rows[0] .. rows[count - 1]: (count, k). Throws IndexError, in the name of
  /// `op`, for a row outside 0 .. n - 1.
  PackedMatrix select(const char* op, const std::int32_t* rows, index_t count) const;

  /// Outputs in one panel of int8 weights.
  static constexpr index_t int8_columns = 32;

  /// The panels of int8 weights, as view_int8() takes them.
  const std::int8_t* int8_panels() const noexcept { return static_cast<const std::int8_t*>(data_.get()); }
  /// The scales of int8 weights, as view_int8() takes them.
  const float* int8_scale() const noexcept { return scale_.get(); }
  /// The sums of int8 weights, as view_int8() takes them.
  const std::int32_t* int8_sum() const noexcept { return sum_.get(); }

  /// Number of outputs.
  index_t n() const noexcept { return n_; }
  /// Number of inputs.
  index_t k() const noexcept { return k_; }
  /// The format it was packed in.
  Format format() const noexcept { return format_; }
  /// out[i] = scale * the weights of output rows[i], i < count, rounded as the format rounds them; out:
  /// (count, k). Throws IndexError, in the name of `op`, for a row outside 0 .. n - 1. For embeddings tied to
  /// the output projection: slower than reading a table, because the elements of a row are in different cache
  /// lines, but it saves the table's memory.
  void read_rows(const char* op, const std::int32_t* rows, index_t count, float scale, float* out) const;
  /// The memory of the weights in bytes, including padding and scales.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  friend void gemm_packed(index_t m, const float* x, index_t ldx, const PackedMatrix& w, float beta, float* c,
                          index_t ldc, const GemmEpilogue<float>& epilogue, float alpha);

  /// pack() in float32 or bf16.
  static PackedMatrix pack_floats(const float* w, index_t n, index_t k, bool transposed, Format format);
  /// Without memory.
  static PackedMatrix int8_of_size(index_t n, index_t k);
  PackedMatrix(index_t n, index_t k, Format format);
  /// Memory for the panels; for int8 weights, of zeros, and with their scales and sums.
  void allocate();
  /// Columns of a panel.
  index_t panel_columns() const;
  /// Step 0 of an output; its next one is 4 * panel_columns() bytes further. A step of a column is four bytes
  /// in every format: a float, a pair of bf16, or four int8.
  std::byte* first_step(index_t output) const;
  void check_rows(const char* op, const std::int32_t* rows, index_t count) const;
  /// Writes columns [first, first + count) of W^T, rounded as the format rounds them, to out (k, count);
  /// those of int8 as integers, in steps * 4 rows.
  void write_columns(index_t first, index_t count, float* out) const;
  void run_int8_by_eigen(const detail::Int8Problem& g) const;
  void run_int8(index_t m, const float* x, index_t ldx, float beta, float* c, index_t ldc,
                const GemmEpilogue<float>& epilogue) const;

  std::shared_ptr<void> data_;           // panels
  std::shared_ptr<float[]> scale_;       // int8: per output, padded to whole panels
  std::shared_ptr<std::int32_t[]> sum_;  // int8: per output, 128 * sum of its weights
  index_t n_ = 0;
  index_t k_ = 0;
  index_t steps_ = 0;  // of a panel: elements, pairs or fours of k
  std::size_t bytes_ = 0;
  float input_step_ = 0;
  Format format_ = Format::float32;
  bool rounds_inputs_ = false;
  // run_int8 for int8 weights: programs without them do not compile it.
  decltype(&PackedMatrix::run_int8) run_int8_ = nullptr;
  Isa isa_;
};

/// C (m, n) = alpha * x (m, k) W^T + beta * C + bias. beta = 0 does not read C. A row's result is
/// bit-identical whatever the other rows and the number of threads. Throws ShapeError for a negative m,
/// ValueError for int8 weights with an alpha other than 1.
void gemm_packed(index_t m, const float* x, index_t ldx, const PackedMatrix& w, float beta, float* c,
                 index_t ldc, const GemmEpilogue<float>& epilogue = {}, float alpha = 1.0f);

/// Quantises each row of w (n, k) to int8, symmetrically: q = round(w / scale), |q| <= 127, scale = max |w| /
/// 127. A row of zeros (nothing above 1.5e-36) gets scale 0. The values q * scale, in float, quantise to the
/// same q and scale, bit by bit. Throws ValueError for values that are not finite.
void quantize_int8(const float* w, index_t n, index_t k, std::int8_t* q, float* scale);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/gemm/gemm_driver.hpp"
#include "eigenformer/kernels/gemm/gemm_eigen.hpp"
#include "eigenformer/kernels/packed/gemm_int8.hpp"
#include "eigenformer/kernels/packed/gemm_int8_driver.hpp"

namespace eigenformer::detail::kernels {
namespace detail {

static_assert(PackedMatrix::int8_columns == int8_columns);

inline index_t whole_panels(index_t n, index_t columns) { return (n + columns - 1) / columns * columns; }

inline void check_packed_sizes(index_t n, index_t k, bool int8) {
  if (n < 0 || k < 0) {
    throw ShapeError("packed_matrix", {"sizes n = ", n, ", k = ", k, " must not be negative"});
  }
  if (int8 && k > 65536) {
    throw ValueError("packed_matrix", {"k is ", k, ", must be at most 65536 for int8 weights"});
  }
}

/// The kernels that weights of a format were packed for.
inline const GemmKernels<float>& packed_kernels(PackedMatrix::Format format, Isa isa) {
  return gemm_kernels_for<float>(
      format == PackedMatrix::Format::bf16 ? GemmPrecision::bf16 : GemmPrecision::full, isa);
}

/// The place of element p of k in the packed column of int8 weights.
inline index_t int8_place(index_t p) { return p / 4 * (4 * int8_columns) + p % 4; }

/// Element p of k in the packed column that begins at `at`.
inline float packed_value(const GemmKernels<float>& kernels, const float* at, index_t p) {
  if (kernels.step == 1) return at[p * kernels.columns];
  const auto pair = std::bit_cast<std::uint32_t>(at[p / 2 * kernels.columns]);
  return std::bit_cast<float>(p % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
}

}  // namespace detail

EIGENFORMER_INLINE PackedMatrix::PackedMatrix(index_t n, index_t k, Format format)
    : n_(n), k_(k), format_(format), isa_(isa()) {
  detail::check_packed_sizes(n, k, format == Format::int8);
}

EIGENFORMER_INLINE void PackedMatrix::allocate() {
  const auto outputs = static_cast<std::size_t>(detail::whole_panels(n_, panel_columns()));
  bytes_ = (outputs * static_cast<std::size_t>(steps_) * 4 + 63) / 64 * 64;
  void* p = std::aligned_alloc(64, std::max<std::size_t>(64, bytes_));
  if (p == nullptr) throw std::bad_alloc();
  data_ = std::shared_ptr<void>(p, [](void* q) { std::free(q); });
  if (format_ != Format::int8) return;
  std::memset(p, 0, bytes_);
  scale_ = std::shared_ptr<float[]>(new float[outputs]());
  sum_ = std::shared_ptr<std::int32_t[]>(new std::int32_t[outputs]());
  bytes_ += 8 * outputs;
}

EIGENFORMER_INLINE index_t PackedMatrix::panel_columns() const {
  return format_ == Format::int8 ? detail::int8_columns : detail::packed_kernels(format_, isa_).columns;
}

EIGENFORMER_INLINE std::byte* PackedMatrix::first_step(index_t output) const {
  const index_t at = output % panel_columns();
  return static_cast<std::byte*>(data_.get()) + 4 * ((output - at) * steps_ + at);
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::pack(const float* w, index_t n, index_t k, Format format) {
  if (format != Format::int8) return pack_floats(w, n, k, false, format);
  detail::check_packed_sizes(n, k, true);
  std::vector<std::int8_t> q(static_cast<std::size_t>(n * k));
  std::vector<float> scale(static_cast<std::size_t>(n));
  quantize_int8(w, n, k, q.data(), scale.data());
  return pack_int8(q.data(), scale.data(), n, k);
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::pack_floats(const float* w, index_t n, index_t k,
                                                          bool transposed, Format format) {
  PackedMatrix result(n, k, format);
  const detail::GemmKernels<float>& kernels = detail::packed_kernels(format, result.isa_);
  const detail::DepthBlocks depth = detail::depth_blocks<float>(k, kernels.step);
  const index_t columns = kernels.columns;
  result.steps_ = kernels.steps_of(k);
  result.allocate();
  // Elsewhere rounding them would take time without a benefit.
  result.rounds_inputs_ = kernels.step > 1;
  parallel_for((n + columns - 1) / columns, 16, [&](index_t begin, index_t end) {
    for (index_t j = begin * columns; j < std::min(n, end * columns); j += columns) {
      auto* panel = reinterpret_cast<float*>(result.first_step(j));
      for (index_t p = 0; p < k; p += depth.size) {
        const index_t kc = std::min(depth.size, k - p), cols = std::min(columns, n - j);
        detail::pack_panel(kernels, transposed, kc, cols, columns, transposed ? w + p * n + j : w + j * k + p,
                           transposed ? n : k, panel);
        panel += kernels.steps_of(kc) * columns;
      }
    }
  });
  return result;
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::pack_to_round(const float* w, index_t n, index_t k,
                                                            bool transposed) {
  PackedMatrix result = pack_floats(w, n, k, transposed, Format::bf16);
  result.rounds_inputs_ = true;
  return result;
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::int8_of_size(index_t n, index_t k) {
  PackedMatrix result(n, k, Format::int8);
  result.steps_ = (k + 3) / 4;
  result.run_int8_ = &PackedMatrix::run_int8;
  return result;
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::pack_int8(const std::int8_t* w, const float* scale, index_t n,
                                                        index_t k) {
  PackedMatrix result = int8_of_size(n, k);
  result.allocate();
  std::copy(scale, scale + n, result.scale_.get());
  for (index_t j = 0; j < n; ++j) {
    auto* weights = reinterpret_cast<std::int8_t*>(result.first_step(j));
    std::int32_t sum = 0;
    for (index_t p = 0; p < k; ++p) {
      const std::int8_t q = w[j * k + p];
      sum += q;
      weights[detail::int8_place(p)] = q;
    }
    result.sum_[static_cast<std::ptrdiff_t>(j)] = 128 * sum;
  }
  return result;
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::view_int8(std::shared_ptr<const void> owner,
                                                        const std::int8_t* panels, const float* scale,
                                                        const std::int32_t* sum, index_t n, index_t k) {
  PackedMatrix result = int8_of_size(n, k);
  // Weights are only read.
  const std::shared_ptr<void> memory = std::const_pointer_cast<void>(owner);
  result.data_ = std::shared_ptr<void>(memory, const_cast<std::int8_t*>(panels));
  result.scale_ = std::shared_ptr<float[]>(memory, const_cast<float*>(scale));
  result.sum_ = std::shared_ptr<std::int32_t[]>(memory, const_cast<std::int32_t*>(sum));
  const index_t padded = detail::whole_panels(n, detail::int8_columns);
  result.bytes_ = static_cast<std::size_t>(padded * (4 * result.steps_ + 8));
  return result;
}

EIGENFORMER_INLINE void PackedMatrix::check_rows(const char* op, const std::int32_t* rows,
                                                 index_t count) const {
  for (index_t i = 0; i < count; ++i) {
    if (rows[i] >= 0 && rows[i] < n_) continue;
    throw IndexError(op, {"id ", rows[i], " at position ", i, " is outside the vocabulary of ", n_});
  }
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::with_input_step(float step) const {
  if (format_ != Format::int8) throw ValueError("packed_matrix", "an input step is for int8 weights");
  // Outside this range, steps and their inverses lose precision.
  if (!(step >= 1e-30f && step <= 1e30f)) {
    throw ValueError("packed_matrix", {"the input step is ", step, ", must be between 1e-30 and 1e30"});
  }
  PackedMatrix result = *this;
  result.input_step_ = step;
  return result;
}

EIGENFORMER_INLINE PackedMatrix PackedMatrix::select(const char* op, const std::int32_t* rows,
                                                     index_t count) const {
  check_rows(op, rows, count);
  PackedMatrix result = *this;
  result.n_ = count;
  const bool int8 = format_ == Format::int8;
  result.allocate();
  if (!int8) std::memset(result.data_.get(), 0, result.bytes_);
  const index_t step = 4 * panel_columns();
  parallel_each(count, row_grain(steps_, 8192), [&](index_t j) {
    const std::byte* from = first_step(rows[j]);
    std::byte* to = result.first_step(j);
    for (index_t s = 0; s < steps_; ++s) std::memcpy(to + s * step, from + s * step, 4);
  });
  if (!int8) return result;
  for (index_t j = 0; j < count; ++j) {
    result.scale_.get()[j] = scale_.get()[rows[j]];
    result.sum_.get()[j] = sum_.get()[rows[j]];
  }
  return result;
}

EIGENFORMER_INLINE void PackedMatrix::read_rows(const char* op, const std::int32_t* rows, index_t count,
                                                float scale, float* out) const {
  check_rows(op, rows, count);
  parallel_each(count, row_grain(k_, 8192), [&](index_t i) {
    float* to = out + i * k_;
    if (format_ == Format::int8) {
      const auto* weights = reinterpret_cast<const std::int8_t*>(first_step(rows[i]));
      const float factor = scale_.get()[rows[i]] * scale;
      for (index_t p = 0; p < k_; ++p) to[p] = static_cast<float>(weights[detail::int8_place(p)]) * factor;
      return;
    }
    const detail::GemmKernels<float>& kernels = detail::packed_kernels(format_, isa_);
    // Blocks of k are whole steps, so a panel is one run of steps.
    const auto* weights = reinterpret_cast<const float*>(first_step(rows[i]));
    for (index_t p = 0; p < k_; ++p) to[p] = detail::packed_value(kernels, weights, p) * scale;
  });
}

EIGENFORMER_INLINE void PackedMatrix::write_columns(index_t first, index_t count, float* out) const {
  if (format_ == Format::int8) {
    for (index_t j = 0; j < count; ++j) {
      const auto* weights = reinterpret_cast<const std::int8_t*>(first_step(first + j));
      for (index_t p = 0; p < 4 * steps_; ++p)
        out[p * count + j] = static_cast<float>(weights[detail::int8_place(p)]);
    }
    return;
  }
  const detail::GemmKernels<float>& kernels = detail::packed_kernels(format_, isa_);
  for (index_t j = 0; j < count;) {
    const index_t together = std::min(count - j, kernels.columns - (first + j) % kernels.columns);
    const auto* weights = reinterpret_cast<const float*>(first_step(first + j));
    for (index_t p = 0; p < k_; ++p) {
      for (index_t i = 0; i < together; ++i)
        out[p * count + j + i] = detail::packed_value(kernels, weights + i, p);
    }
    j += together;
  }
}

EIGENFORMER_INLINE void PackedMatrix::run_int8_by_eigen(const detail::Int8Problem& g) const {
  const index_t k = 4 * steps_;
  detail::eigen_blocks(g.m, g.n, k, [&](index_t i0, index_t rows, index_t j0, index_t columns) {
    // Sums of this many products are whole numbers that float holds.
    constexpr index_t depth = 1024, tile = detail::int8_columns;
    const detail::GemmScratch<0> memory_a;
    const detail::GemmScratch<1> memory_b;
    const detail::GemmScratch<4> memory_sums;
    float* const a = memory_a->reserve<float>(rows * depth);
    float* const b = memory_b->reserve<float>(columns * k);
    float* const part = memory_sums->reserve<float>(2 * rows * detail::eigen_block);
    auto* const sums = reinterpret_cast<std::int32_t*>(part + rows * detail::eigen_block);
    write_columns(j0, columns, b);
    std::fill_n(sums, rows * detail::eigen_block, 0);
    for (index_t p = 0; p < k; p += depth) {
      const index_t kc = std::min(depth, k - p);
      for (index_t i = 0; i < rows; ++i) {
        const auto* q = reinterpret_cast<const std::uint8_t*>(g.x + (i0 + i) * g.stride) + p;
        for (index_t l = 0; l < kc; ++l) a[i * kc + l] = static_cast<float>(q[l]) - 128.0f;
      }
      std::fill_n(part, rows * columns, 0.0f);
      detail::eigen_product<float>(rows, columns, kc, 1.0f, a, kc, b + p * columns, columns, part, columns);
      // Tiles of 32 columns, as finish_int8 needs them.
      for (index_t i = 0; i < rows; ++i) {
        for (index_t j = 0; j < columns; ++j)
          sums[(j / tile * rows + i) * tile + j % tile] += static_cast<std::int32_t>(part[i * columns + j]);
      }
    }
    if (g.beta != 0.0f && g.beta != 1.0f) detail::scale_rows(g, i0, i0 + rows, j0, j0 + columns);
    for (index_t j = 0; j < columns; j += tile) {
      detail::finish_int8(sums + j * rows, false, g.output(i0, rows, j0 + j, std::min(tile, columns - j)));
    }
    detail::apply_epilogue(g, i0, rows, j0, columns, columns);
  });
}

EIGENFORMER_INLINE void PackedMatrix::run_int8(index_t m, const float* x, index_t ldx, float beta, float* c,
                                               index_t ldc, const GemmEpilogue<float>& epilogue) const {
  using detail::Int8Four;
  const bool eigen = multiplies_by_eigen();
  const bool by_tiles = !eigen && isa_.has(IsaFeature::amx_int8) && m >= detail::amx_smallest_rows;
  // Rows are quantised once, by the caller's threads, and read by all ranges.
  const index_t stride = by_tiles ? detail::int8_tile_stride(steps_) : steps_;
  const index_t rows_held = by_tiles ? detail::int8_tile_rows(m) : m;
  const detail::GemmScratch<2> memory;
  Int8Four* const quantized = memory->reserve<Int8Four>(rows_held * stride + m);
  auto* const row_scale = reinterpret_cast<float*>(quantized + rows_held * stride);
  detail::quantize_rows(m, k_, x, ldx, input_step_, quantized, stride, row_scale);
  const auto* const panels = static_cast<const Int8Four*>(data_.get());
  const detail::Int8Problem problem{
      m, n_, steps_, quantized, stride, row_scale, panels, scale_.get(), sum_.get(), beta, c, ldc, epilogue};
  if (eigen) return run_int8_by_eigen(problem);
  const detail::Int8Kernels& kernels = detail::Int8Kernels::get(isa_);
  const index_t tile = by_tiles ? 2 * detail::amx_rows : kernels.rows;
  const auto range = [&](index_t i0, index_t i1, index_t j0, index_t j1) {
#if EIGENFORMER_X86
    if (by_tiles) return detail::int8_range_by_tiles<detail::HardwareTiles>(problem, i0, i1, j0, j1);
#endif
    detail::int8_range(problem, kernels, detail::gemm_kernels<float>(isa_).pack_transposed, i0, i1, j0, j1);
  };
  // A step of int8 costs a quarter of a float's.
  detail::gemm_ranges(m, n_, detail::gemm_threads(m, n_, steps_), tile, detail::int8_columns, range);
}

EIGENFORMER_INLINE void gemm_packed(index_t m, const float* x, index_t ldx, const PackedMatrix& w, float beta,
                                    float* c, index_t ldc, const GemmEpilogue<float>& epilogue, float alpha) {
  if (alpha != 1.0f && w.format_ == PackedMatrix::Format::int8) {
    throw ValueError("gemm_packed", {"alpha is ", alpha, ", must be 1 for int8 weights"});
  }
  if (m < 0) throw ShapeError("gemm_packed", {"m = ", m, " must not be negative"});
  if (m == 0 || w.n_ == 0) return;
  eigenformer::detail::count_product(m, w.n_, w.k_);
  const detail::GemmProblem<float> problem{false, true,    m, w.n_, w.k_, alpha, x,
                                           ldx,   nullptr, 0, beta, c,    ldc,   epilogue};
  if (w.k_ == 0) {
    detail::gemm_empty(problem);
    return;
  }
  if (w.format_ == PackedMatrix::Format::int8) {
    (w.*w.run_int8_)(m, x, ldx, beta, c, ldc, epilogue);
    return;
  }
  if (multiplies_by_eigen()) {
    const auto write = [](const void* matrix, index_t first, index_t count, float* out) {
      static_cast<const PackedMatrix*>(matrix)->write_columns(first, count, out);
    };
    detail::eigen_gemm(problem, w.rounds_inputs_, {&w, write});
    return;
  }
  const auto precision = w.rounds_inputs_ ? GemmPrecision::bf16 : GemmPrecision::full;
  detail::gemm_run(problem, detail::gemm_kernels_for<float>(precision, w.isa_),
                   {static_cast<const float*>(w.data_.get()), w.steps_});
}

EIGENFORMER_INLINE void quantize_int8(const float* w, index_t n, index_t k, std::int8_t* q, float* scale) {
  for (index_t j = 0; j < n; ++j) {
    const float* row = w + j * k;
    float largest = 0.0f;
    for (index_t p = 0; p < k; ++p) {
      if (!std::isfinite(row[p])) {
        throw ValueError("quantize_int8",
                         {"weight (", j, ", ", p, ") is ", row[p], ", expected finite weights"});
      }
      largest = std::max(largest, std::abs(row[p]));
    }
    // Below this the scale would lose its precision.
    const bool zero = largest < 127.0f * std::numeric_limits<float>::min();
    scale[j] = zero ? 0.0f : largest / 127.0f;
    // One scale in 128 changes its last bit on the way to a float weight and back, and then never again.
    scale[j] = 127.0f * scale[j] / 127.0f;
    const float inverse = zero ? 0.0f : 127.0f / largest;
    for (index_t p = 0; p < k; ++p) {
      q[j * k + p] = static_cast<std::int8_t>(std::clamp(std::nearbyint(row[p] * inverse), -127.0f, 127.0f));
    }
  }
}

}  // namespace eigenformer::detail::kernels
#endif
