#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "eigenformer/io/models/int8_panels.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"

/// @file
/// Weights in smaller formats than float32. In a safetensors file, every matrix (weights of linear layers and
/// embeddings) is stored as follows; vectors (norms, biases) stay F32. A tied matrix is stored once.
///
/// | format | tensors of a matrix |
/// |---|---|
/// | bf16 | `NAME`, BF16 |
/// | int8 | `NAME`, I8, -127 to 127, and `NAME_scale`, F32, one per row: the weight is int8 * scale |
///
/// The largest absolute entry of a row of int8 is 127, so quantising loaded weights again gives the same
/// bytes and scales.
///
/// Int8 matrices of products and lookups are stored in the layout of the kernels, and the metadata have
/// "int8_layout": "panels_32x4". `NAME`, or `NAME[first:last]` for rows that form a product of their own,
/// then has the shape (rows / 32, columns / 4, 32, 4), both rounded up and padded with zeros; `NAME_scale`
/// and `NAME_sum`, I32, 128 times the sum of each row, are padded to whole panels, too. Files without these
/// metadata, written by versions up to 0.1, have all matrices as (rows, columns).
///
/// With the metadata "int8_scales": "given", weights were quantised by another library, and the largest
/// absolute entry of a row may be less than 127. `NAME_input_step`, a single F32, is then the step to which
/// the inputs of the product are rounded, if it is the same for all rows (PackedMatrix::with_input_step).
namespace eigenformer {

EIGENFORMER_ENUM_NAMES(WeightFormat, "float32", "bf16", "int8")

namespace detail {

inline std::string scale_name(const std::string& name) { return name + "_scale"; }

template <class T>
void add_quantized(SafetensorsWriter& writer, const std::string& name, const Tensor<T>& value,
                   WeightFormat format) {
  require_memory_to_save("save_model", name, value);
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
      throw ValueError("save_model", {"'", name, "' cannot be int8: ", error.what()});
    }
    writer.add(name, q).add(scale_name(name), scale);
  }
}

// Whether the metadata have this value; throws IoError for another one.
EIGENFORMER_IO_FUNCTION bool has_metadata(const SafetensorsFile& file, const char* key, const char* value);

// Throws IoError unless a row of int8 weights is valid, as described above.
EIGENFORMER_IO_FUNCTION void require_quantized_row(const SafetensorsFile& file, const std::string& name,
                                                   index_t row, const std::int8_t* q, index_t n, float scale);

template <class T>
Tensor<T> dequantize(const SafetensorsFile& file, const std::string& name) {
  const auto refuse = [&](std::initializer_list<MessagePart> what) {
    return IoError("load_model", {"'", file.path().string(), "': the int8 tensor '", name, "' ", join(what)});
  };
  const std::string scales = scale_name(name);
  const Shape& shape = file.info(name).shape;
  if (!file.contains(scales)) throw refuse({"has no '", scales, "' beside it"});
  const TensorInfo& info = file.info(scales);
  if (info.dtype != Dtype::f32 || info.shape != Shape{shape[0]}) {
    throw refuse({"of shape ", shape.str(), " must have an F32 '", scales, "' of shape ",
                  Shape{shape[0]}.str(), ", which is ", dtype_name(info.dtype), " of shape ",
                  info.shape.str()});
  }
  const auto q = file.tensor<std::int8_t>(name);
  const auto scale = file.tensor<float>(scales);
  Tensor<T> out(shape);
  for (index_t row = 0; row < shape[0]; ++row) {
    const std::int8_t* from = q.data() + row * shape[1];
    const float s = scale.data()[row];
    require_quantized_row(file, name, row, from, shape[1], s);
    for (index_t i = 0; i < shape[1]; ++i) {
      out.data()[row * shape[1] + i] = static_cast<T>(static_cast<float>(from[i]) * s);
    }
  }
  return out;
}

// Dequantises the rows of panels to out (count, k); every byte and sum is verified.
template <class T>
void dequantize_panels(const SafetensorsFile& file, const Int8Rows& rows, index_t k, T* out) {
  const kernels::PackedMatrix packed = view_int8_panels(file, rows, k);
  constexpr index_t columns = kernels::PackedMatrix::int8_columns;
  const index_t steps = (k + 3) / 4;
  std::vector<std::int8_t> q(static_cast<std::size_t>(4 * steps));
  for (index_t row = 0; row < rows.count; ++row) {
    const std::int8_t* from = packed.int8_panels() + row / columns * columns * steps * 4 + row % columns * 4;
    std::int32_t sum = 0;
    for (index_t p = 0; p < 4 * steps; ++p) {
      const std::int8_t x = from[p / 4 * (4 * columns) + p % 4];
      q[static_cast<std::size_t>(p)] = x;
      sum += x;
    }
    const float scale = packed.int8_scale()[row];
    require_quantized_row(file, rows.name, row, q.data(), 4 * steps, scale);
    if (packed.int8_sum()[row] != 128 * sum) {
      throw IoError("load_model", {"'", file.path().string(), "': the int8 panels '", rows.name,
                                   "' are damaged: the sum of row ", row, " is ", packed.int8_sum()[row],
                                   ", expected ", 128 * sum});
    }
    for (index_t p = 0; p < k; ++p)
      out[row * k + p] = static_cast<T>(static_cast<float>(q[static_cast<std::size_t>(p)]) * scale);
  }
}

EIGENFORMER_IO_FUNCTION void require_weight_dtype(const SafetensorsFile& file, const std::string& name,
                                                  Dtype wanted, WeightFormat format);

inline bool has_int8_panels(const SafetensorsFile& file) {
  return has_metadata(file, "int8_layout", int8_panels_layout);
}

// Reads the tensors of a file of int8 weights. Panels are passed to take_panels(products of a matrix,
// its shape), which returns the value of the entry, of that shape; all others are converted.
template <class M, class F>
std::vector<StateEntry<typename M::value_type>> read_int8_entries(const SafetensorsFile& file, const M& model,
                                                                  F&& take_panels) {
  using T = typename M::value_type;
  std::vector<StateEntry<T>> entries;
  std::set<std::string> taken;
  if (has_int8_panels(file)) {
    std::map<std::string, Shape> shapes;
    for_each_parameter(model,
                       [&](const std::string& name, const auto& p) { shapes.emplace(name, p.shape()); });
    for (const auto& [name, products] : int8_products(model)) {
      // For a matrix that is partly present, its missing parts are an error; an absent one is reported with
      // other missing tensors.
      bool there = false;
      for (const Int8Rows& rows : products)
        for (const char* suffix : int8_parts) there = there || file.contains(rows.name + suffix);
      if (!there) continue;
      entries.push_back({name, take_panels(products, shapes.at(name)), {}});
      for (const Int8Rows& rows : products)
        for (const char* suffix : int8_parts) taken.insert(rows.name + suffix);
    }
  }
  for (const std::string& name : file.names()) {
    if (taken.count(name) > 0) continue;
    const TensorInfo& info = file.info(name);
    const std::string suffix = scale_name("");
    const std::string matrix =
        name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
    if (!matrix.empty() && file.contains(matrix) && file.info(matrix).dtype == Dtype::i8) continue;
    const Dtype wanted = info.shape.rank() == 2 ? Dtype::i8 : Dtype::f32;
    require_weight_dtype(file, name, wanted, WeightFormat::int8);
    entries.push_back({name, wanted == Dtype::i8 ? dequantize<T>(file, name) : file.tensor<T>(name), {}});
  }
  return entries;
}

// save_quantized_model(). packed: if not null, the int8 matrices of a model that has released its own; throws
// ValueError for one that is not among them.
template <class M>
void write_quantized(const std::filesystem::path& path, const M& model, WeightFormat format,
                     const kernels::PackedWeights* packed) {
  if (format == WeightFormat::float32) return save_model(path, model);
  const auto entries = state_dict(model);
  require_entries(entries.size());
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  std::map<std::string, std::vector<Int8Rows>> products;
  if (format == WeightFormat::int8) {
    products = int8_products(model);
    writer.set_metadata("int8_layout", int8_panels_layout);
  }
  if (packed != nullptr) writer.set_metadata("int8_scales", int8_given_scales);
  for (const auto& entry : entries) {
    if (!entry.alias_of.empty()) continue;
    const auto found = products.find(entry.name);
    if (found == products.end()) {
      add_quantized(writer, entry.name, entry.value, format);
    } else if (packed == nullptr) {
      require_memory_to_save("save_model", entry.name, entry.value);
      const Tensor<float> value = entry.value.template to<float>();
      for (const Int8Rows& rows : found->second) add_panels(writer, rows.name, pack_int8_rows(value, rows));
    } else {
      for (const Int8Rows& rows : found->second) {
        const kernels::PackedMatrix* matrix = packed->find(rows.parameter, rows.first, rows.count);
        if (matrix == nullptr || matrix->format() != WeightFormat::int8)
          throw ValueError(
              "save_model",
              {"'", rows.name, "' is not packed in int8, must be for a model saved with int8 panels"});
        add_panels(writer, rows.name, *matrix);
      }
    }
  }
  writer.save(path);
}

}  // namespace detail

/// Writes a module's state dict as save_model() does, with matrices in `format`. Throws ValueError for int8
/// weights that are not finite and for weights whose memory was released, IoError when writing fails; an
/// existing file is then unchanged.
template <class M>
void save_quantized_model(const std::filesystem::path& path, const M& model, WeightFormat format) {
  detail::write_quantized(path, model, format, nullptr);
}

/// Loads a file of save_quantized_model() into a module of the same structure. Weights are dequantised;
/// packing them in the same format restores the bits of the file. Throws IoError that names the file and what
/// is wrong, also when a matrix is not in `format`; the module is then unchanged.
template <class M>
void load_quantized_model(const std::filesystem::path& path, M& model, WeightFormat format) {
  using T = typename M::value_type;
  if (format == WeightFormat::float32) {
    load_model(path, model);
    return;
  }
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (format == WeightFormat::bf16) {
    for (const std::string& name : file.names()) {
      const bool matrix = file.info(name).shape.rank() > 1;
      detail::require_weight_dtype(file, name, matrix ? Dtype::bf16 : Dtype::f32, format);
    }
    load_state_dict(model, file);
    return;
  }
  const auto entries = detail::read_int8_entries(
      file, model, [&](const std::vector<detail::Int8Rows>& products, const Shape& shape) {
        Tensor<T> value(shape);
        for (const detail::Int8Rows& rows : products)
          detail::dequantize_panels(file, rows, shape[1], value.data() + rows.first * shape[1]);
        return value;
      });
  try {
    load_state_dict(model, entries);
  } catch (const ValueError& error) {
    throw IoError("load_model", {"'", path.string(), "' does not fit the model: ", error.what()});
  }
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION bool has_metadata(const SafetensorsFile& file, const char* key, const char* value) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end() || found->second == value) return found != file.metadata().end();
  throw IoError("load_model", {"'", file.path().string(), "' has ", key, " '", found->second,
                               "', this version of the library reads '", value, "'"});
}

EIGENFORMER_IO_FUNCTION void require_quantized_row(const SafetensorsFile& file, const std::string& name,
                                                   index_t row, const std::int8_t* q, index_t n,
                                                   float scale) {
  const bool given = has_metadata(file, "int8_scales", int8_given_scales);  // by another library
  std::int32_t largest = 0;
  for (index_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(static_cast<std::int32_t>(q[i])));
  const bool fits = given            ? largest <= 127 && scale >= 0
                    : largest == 127 ? scale > 0
                                     : largest == 0 && scale == 0;
  if (fits && std::isfinite(127.0f * scale)) return;
  throw IoError(
      "load_model",
      {"'", file.path().string(), "': the int8 tensor '", name,
       "' is damaged or not written by this library: row ", row,
       (given ? " must have entries from -127 to 127 and a scale that is not negative; its "
                "scale is "
              : " must have 127 or -127 as its largest entry and a positive scale, or be all zero; its "
                "scale is "),
       scale});
}

EIGENFORMER_IO_FUNCTION void require_weight_dtype(const SafetensorsFile& file, const std::string& name,
                                                  Dtype wanted, WeightFormat format) {
  const Dtype dtype = file.info(name).dtype;
  if (dtype == wanted) return;
  throw IoError("load_model",
                {"'", file.path().string(), "': tensor '", name, "' is ", dtype_name(dtype), ", expected ",
                 dtype_name(wanted), " in a model of ", word_of(format), " weights"});
}

}  // namespace eigenformer::detail

#endif
