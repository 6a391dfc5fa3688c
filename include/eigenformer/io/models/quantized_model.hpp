#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"

/// Weights in a smaller format than float32. In a safetensors file, every matrix (linear weights and
/// embeddings) is
///
///   bf16   BF16
///   int8   I8, -127 to 127, and "<name>_scale", F32, one for each row: the weight is int8 * scale. The
///   largest entry
///          of each row is 127 or -127, so what is read quantises to the same bytes and scales again.
///
/// and vectors (norms, biases) stay F32. A tied matrix is stored once.
namespace eigenformer {

template <>
struct EnumNames<WeightFormat> {
  static constexpr std::array names = {"float32", "bf16", "int8"};
};

namespace detail {

inline std::string scale_name(const std::string& name) { return name + "_scale"; }

inline Dtype matrix_dtype(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return Dtype::bf16;
    case WeightFormat::int8:
      return Dtype::i8;
    default:
      return Dtype::f32;
  }
}

template <class T>
void add_quantized(SafetensorsWriter& writer, const std::string& name, const Tensor<T>& value,
                   WeightFormat format) {
  if (!value.defined() && value.numel() > 0) {
    throw ValueError("save_model", "'" + name + "' was released; it cannot be saved");
  }
  if (value.rank() != 2) {
    writer.add(name, value.template to<float>());
  } else if (format == WeightFormat::bf16) {
    writer.add(name, value.template to<float>().template to<bfloat16>());
  } else {
    Tensor<std::int8_t> q(value.shape());
    Tensor<float> scale(Shape{value.dim(0)});
    try {
      kernels::quantize_int8(value.template to<float>().data(), value.dim(0), value.dim(1), q.data(),
                             scale.data());
    } catch (const ValueError& error) {
      throw ValueError("save_model", "'" + name + "' cannot be int8: " + error.what());
    }
    writer.add(name, q).add(scale_name(name), scale);
  }
}

// What a row of int8 weights must be: see above.
inline bool is_quantized_row(const std::int8_t* q, index_t n, float scale) {
  std::int32_t largest = 0;
  for (index_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(static_cast<std::int32_t>(q[i])));
  return std::isfinite(127.0f * scale) && (largest == 127 ? scale > 0 : largest == 0 && scale == 0);
}

template <class T>
Tensor<T> dequantize(const SafetensorsFile& file, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    return IoError("load_model", "'" + file.path().string() + "': the int8 tensor '" + name + "' " + what);
  };
  const std::string scales = scale_name(name);
  const Shape& shape = file.info(name).shape;
  if (!file.contains(scales)) throw refuse("has no '" + scales + "' beside it");
  const TensorInfo& info = file.info(scales);
  if (info.dtype != Dtype::f32 || info.shape != Shape{shape[0]}) {
    throw refuse("of shape " + shape.str() + " must have an F32 '" + scales + "' of shape " +
                 Shape{shape[0]}.str() + ", which is " + dtype_name(info.dtype) + " of shape " +
                 info.shape.str());
  }
  const auto q = file.tensor<std::int8_t>(name);
  const auto scale = file.tensor<float>(scales);
  Tensor<T> out(shape);
  for (index_t row = 0; row < shape[0]; ++row) {
    const std::int8_t* from = q.data() + row * shape[1];
    const float s = scale.data()[row];
    if (!is_quantized_row(from, shape[1], s)) {
      throw refuse(
          "is damaged or foreign: row " + std::to_string(row) +
          " must have 127 or -127 as its largest entry and a positive scale, or be all zero; its scale is " +
          std::to_string(s));
    }
    for (index_t i = 0; i < shape[1]; ++i) {
      out.data()[row * shape[1] + i] = static_cast<T>(static_cast<float>(from[i]) * s);
    }
  }
  return out;
}

}  // namespace detail

/// The name of a weight format: float32, bf16 or int8.
inline const char* weight_format_name(WeightFormat format) {
  return EnumNames<WeightFormat>::names[static_cast<std::size_t>(format)];
}

/// Writes a module's state dict as save_model does, its matrices in `format`. Throws ValueError for int8
/// weights that are not finite and for weights that were released, IoError; an existing file is then
/// unchanged.
template <class M>
void save_quantized_model(const std::filesystem::path& path, const M& model, WeightFormat format) {
  if (format == WeightFormat::float32) return save_model(path, model);
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  for (const auto& entry : state_dict(model)) {
    if (entry.alias_of.empty()) detail::add_quantized(writer, entry.name, entry.value, format);
  }
  writer.save(path);
}

/// Reads what save_quantized_model wrote into a module of the same structure: its parameters become what the
/// file's weights stand for, and packing them in the same format gives the file's bits back. Throws IoError
/// that names the file and what is wrong with it: also when a matrix is not in `format`; the module is then
/// unchanged.
template <class M>
void load_quantized_model(const std::filesystem::path& path, M& model, WeightFormat format) {
  using T = typename M::value_type;
  if (format == WeightFormat::float32) {
    load_model(path, model);
    return;
  }
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<StateEntry<T>> entries;
  const Dtype expected = detail::matrix_dtype(format);
  for (const std::string& name : file.names()) {
    const TensorInfo& info = file.info(name);
    const std::string suffix = detail::scale_name("");
    const bool scale = format == WeightFormat::int8 && name.ends_with(suffix) &&
                       file.contains(name.substr(0, name.size() - suffix.size())) &&
                       file.info(name.substr(0, name.size() - suffix.size())).dtype == Dtype::i8;
    if (scale) continue;
    const Dtype wanted = info.shape.rank() == 2 ? expected : Dtype::f32;
    if (info.dtype != wanted) {
      throw IoError("load_model", "'" + path.string() + "': tensor '" + name + "' is " +
                                      dtype_name(info.dtype) + ", expected " + dtype_name(wanted) +
                                      " in a model of " + weight_format_name(format) + " weights");
    }
    if (format == WeightFormat::bf16) continue;
    entries.push_back(
        {name, wanted == Dtype::i8 ? detail::dequantize<T>(file, name) : file.tensor<T>(name), {}});
  }
  if (format == WeightFormat::bf16) {
    load_state_dict(model, file);
    return;
  }
  try {
    load_state_dict(model, entries);
  } catch (const ValueError& error) {
    throw IoError("load_model", "'" + path.string() + "' does not fit the model: " + error.what());
  }
}

}  // namespace eigenformer
