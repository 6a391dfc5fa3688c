#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/simd/isa.hpp"

namespace eigenformer::detail::kernels {

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

  /// Packs w, row-major: (n, k), or (k, n) if transposed. Throws ShapeError for negative sizes, ValueError
  /// for int8 with k over 65536 (sums could overflow 32 bits).
  static PackedMatrix pack(const float* w, index_t n, index_t k, bool transposed = false,
                           Format format = Format::float32);

  /// Packs w as pack() in bf16, for products that always round their inputs: bit-identical to gemm() with
  /// GemmPrecision::bf16.
  static PackedMatrix pack_to_round(const float* w, index_t n, index_t k, bool transposed = false);

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

  /// Whether it has no outputs or no inputs, as after default construction.
  bool empty() const noexcept { return n_ == 0 || k_ == 0; }
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
  /// Memory for panels of so many columns; for int8 weights, of zeros, and with their scales and sums.
  void allocate(index_t columns);
  void check_rows(const char* op, const std::int32_t* rows, index_t count) const;
  /// Writes columns [first, first + count) of W^T, rounded as the format rounds them, to out (k, count);
  /// those of int8 as integers, in steps * 4 rows.
  void write_columns(index_t first, index_t count, float* out) const;
  void run_int8_by_eigen(index_t m, const std::uint32_t* quantized, const float* row_scale, float beta,
                         float* c, index_t ldc, const GemmEpilogue<float>& epilogue) const;
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
#include "eigenformer/kernels/packed/gemm_packed-inl.hpp"
#endif
