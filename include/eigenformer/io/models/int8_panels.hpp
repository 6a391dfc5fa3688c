#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"

// Int8 matrices stored in the layout of the kernels, so that they can be used in the mapped file: see
// quantized_model.hpp.

namespace eigenformer::detail {

/// The value of the metadata "int8_layout" in a file of panels.
inline constexpr const char* int8_panels_layout = "panels_32x4";

/// Rows of a matrix that are used in one product and stored as one set of panels.
struct Int8Rows {
  std::string name;         ///< of the panels in a file
  std::uint64_t parameter;  ///< the matrix's id
  index_t first;
  index_t count;
};

/// The products of a model, by the (first) name of their matrix.
template <class M>
std::map<std::string, std::vector<Int8Rows>> int8_products(const M& model) {
  std::map<std::string, std::vector<Int8Rows>> result;
  using P = Parameter<typename M::value_type>;
  std::unordered_map<std::uint64_t, std::string> names;
  for_each_parameter(model, [&](const std::string& name, const P& p) { names.emplace(p.id(), name); });
  for_each_packed_weight(
      model, WeightFormat::int8, [&](const P& weight, std::initializer_list<index_t> counts) {
        const std::string& name = names.at(weight.id());
        index_t first = 0;
        for (const index_t count : counts) {
          const bool whole = count == weight.shape()[0];
          const std::string rows =
              whole ? "" : "[" + std::to_string(first) + ":" + std::to_string(first + count) + "]";
          result[name].push_back({name + rows, weight.id(), first, count});
          first += count;
        }
      });
  return result;
}

/// The shape of the panels of a matrix (rows, k): (panels, steps, outputs per panel, inputs per step).
inline Shape int8_panels_shape(index_t rows, index_t k) {
  constexpr index_t columns = kernels::PackedMatrix::int8_columns;
  return {(rows + columns - 1) / columns, (k + 3) / 4, columns, 4};
}

/// The value of the metadata "int8_scales" for weights that were quantised by another library.
inline constexpr const char* int8_given_scales = "given";

/// The suffixes of the tensors that make up a set of panels.
inline constexpr const char* int8_parts[] = {"", "_scale", "_sum", "_input_step"};

/// Adds panels, their scales and sums, and the step of their inputs if there is one.
EIGENFORMER_IO_FUNCTION void add_panels(SafetensorsWriter& writer, const std::string& name,
                                        const kernels::PackedMatrix& packed);

/// Quantises rows of a matrix (n, k). Throws ValueError for weights that are not finite.
EIGENFORMER_IO_FUNCTION kernels::PackedMatrix pack_int8_rows(const Tensor<float>& matrix,
                                                             const Int8Rows& rows);

/// The panels of a file, without a copy. Throws IoError when they, their scales or their sums are missing or
/// have another shape than that for `rows` of k numbers, or when a scale is negative or not finite.
EIGENFORMER_IO_FUNCTION kernels::PackedMatrix view_int8_panels(const SafetensorsFile& file,
                                                               const Int8Rows& rows, index_t k);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION void add_panels(SafetensorsWriter& writer, const std::string& name,
                                        const kernels::PackedMatrix& packed) {
  const Shape shape = int8_panels_shape(packed.n(), packed.k());
  const Shape outputs{shape[0] * shape[2]};
  Tensor<std::int8_t> panels(shape);
  Tensor<float> scale(outputs);
  Tensor<std::int32_t> sum(outputs);
  const auto size = static_cast<std::size_t>(outputs.numel());
  std::memcpy(panels.data(), packed.int8_panels(), static_cast<std::size_t>(shape.numel()));
  std::memcpy(scale.data(), packed.int8_scale(), size * sizeof(float));
  std::memcpy(sum.data(), packed.int8_sum(), size * sizeof(std::int32_t));
  writer.add(name, panels).add(name + "_scale", scale).add(name + "_sum", sum);
  if (packed.input_step() > 0)
    writer.add(name + "_input_step", Tensor<float>::full(Shape{1}, packed.input_step()));
}

EIGENFORMER_IO_FUNCTION kernels::PackedMatrix pack_int8_rows(const Tensor<float>& matrix,
                                                             const Int8Rows& rows) {
  const index_t k = matrix.dim(1);
  try {
    return kernels::PackedMatrix::pack(matrix.data() + rows.first * k, rows.count, k, WeightFormat::int8);
  } catch (const ValueError& error) {
    throw ValueError("save_model", {"'", rows.name, "' cannot be int8: ", error.what()});
  }
}

EIGENFORMER_IO_FUNCTION kernels::PackedMatrix view_int8_panels(const SafetensorsFile& file,
                                                               const Int8Rows& rows, index_t k) {
  struct Parts {
    Tensor<std::int8_t> panels;
    Tensor<float> scale;
    Tensor<std::int32_t> sum;
  };
  const auto refuse = [&](std::initializer_list<MessagePart> what) {
    return IoError("load_model",
                   {"'", file.path().string(), "': the int8 panels '", rows.name, "' ", join(what)});
  };
  const Shape shape = int8_panels_shape(rows.count, k);
  const Shape outputs{shape[0] * shape[2]};
  const auto check = [&](const std::string& name, Dtype dtype, const Shape& expected) {
    if (!file.contains(name))
      throw refuse({(name == rows.name ? "are missing" : "have no '" + name + "' beside them")});
    const TensorInfo& info = file.info(name);
    if (info.dtype == dtype && info.shape == expected) return;
    throw refuse({"must have an ", dtype_name(dtype), " '", name, "' of shape ", expected.str(),
                  ", which is ", dtype_name(info.dtype), " of shape ", info.shape.str()});
  };
  check(rows.name, Dtype::i8, shape);
  check(rows.name + "_scale", Dtype::f32, outputs);
  check(rows.name + "_sum", Dtype::i32, outputs);
  auto parts = std::make_shared<Parts>();
  parts->panels = file.tensor<std::int8_t>(rows.name);
  // Kernels read four bytes at a time; a file of another writer may not be aligned.
  if (reinterpret_cast<std::uintptr_t>(parts->panels.data()) % 4 != 0) parts->panels = parts->panels.clone();
  parts->scale = file.tensor<float>(rows.name + "_scale");
  parts->sum = file.tensor<std::int32_t>(rows.name + "_sum");
  for (index_t row = 0; row < rows.count; ++row) {
    const float s = parts->scale.data()[row];
    if (std::isfinite(127.0f * s) && s >= 0) continue;
    throw refuse({"are damaged or not written by this library: the scale of row ", row, " is ", s,
                  ", must be finite and not negative"});
  }
  const std::int8_t* panels = parts->panels.data();
  const float* scale = parts->scale.data();
  const std::int32_t* sum = parts->sum.data();
  const auto packed = kernels::PackedMatrix::view_int8(std::move(parts), panels, scale, sum, rows.count, k);
  const std::string step = rows.name + "_input_step";
  if (!file.contains(step)) return packed;
  check(step, Dtype::f32, Shape{1});
  try {
    return packed.with_input_step(file.tensor<float>(step).data()[0]);
  } catch (const ValueError& error) {
    throw refuse({"are damaged or not written by this library: ", error.what()});
  }
}

}  // namespace eigenformer::detail

#endif
