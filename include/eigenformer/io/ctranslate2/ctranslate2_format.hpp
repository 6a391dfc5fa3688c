#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/bfloat16.hpp"
#include "eigenformer/core/base/float16.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/ctranslate2/ctranslate2_parser.hpp"

namespace eigenformer {

/// A CTranslate2 model.bin, mapped into memory and validated: every variable is inside the file and has as
/// many bytes as its shape needs. Versions 1 to 6 of the format; the names of version 1 are converted to
/// those of later versions.
///
///     const auto file = ef::Ct2File::open("opus-ct2/model.bin");
///     auto weight = file.tensor<float>("encoder/layer_0/ffn/linear_0/weight");  // dequantised
class Ct2File {
 public:
  /// Opens and validates a file. Throws IoError that names the file, the variable and what was expected.
  static Ct2File open(const std::filesystem::path& path) {
    Ct2File file;
    file.path_ = path;
    file.map_ = MappedFile::open(path);
    file.contents_ = detail::Ct2Parser(path, file.map_->bytes()).parse();
    return file;
  }

  /// The path that was opened.
  const std::filesystem::path& path() const noexcept { return path_; }
  /// The version of the format, 1 to 6.
  std::uint32_t version() const noexcept { return contents_.version; }
  /// The name of the model's specification, such as "TransformerSpec"; empty in version 1.
  const std::string& spec() const noexcept { return contents_.spec; }
  /// The revision of the specification; 1 in version 1.
  std::uint32_t revision() const noexcept { return contents_.revision; }

  /// The names of all variables and aliases, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : contents_.variables) found.push_back(entry.first);
    return found;
  }

  /// Whether there is a variable or alias of this name.
  bool contains(const std::string& name) const { return contents_.variables.count(name) > 0; }

  /// A variable by its name or alias. Throws IoError when there is none.
  const Ct2Variable& variable(const std::string& name) const {
    const auto found = contents_.variables.find(name);
    if (found == contents_.variables.end()) throw refuse("has no variable '" + name + "'");
    return found->second;
  }

  /// The shape of a variable. Throws IoError when there is none of this name.
  const Shape& shape(const std::string& name) const { return variable(name).shape; }

  /// Whether both names exist and refer to the same bytes.
  bool same(const std::string& a, const std::string& b) const {
    return contains(a) && contains(b) && variable(a).bytes.data() == variable(b).bytes.data();
  }

  /// Copies a variable to a tensor of its shape: 16-bit floats are converted, int8 and int16 are divided by
  /// their scale, the variable `NAME_scale`, a scalar or (rows); int16 without one, as in old files, by 1000.
  /// Throws IoError for a missing variable, a missing or invalid scale, and int32.
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    const Ct2Variable& v = variable(name);
    Tensor<T> out(v.shape);
    switch (v.type) {
      case Ct2Type::float32:
        each<float>(v, [&](std::size_t i, float x) { out.data()[i] = static_cast<T>(x); });
        break;
      case Ct2Type::f16:
        each<std::uint16_t>(v, [&](std::size_t i, std::uint16_t x) {
          out.data()[i] = static_cast<T>(static_cast<float>(std::bit_cast<float16>(x)));
        });
        break;
      case Ct2Type::bf16:
        each<std::uint16_t>(v, [&](std::size_t i, std::uint16_t x) {
          out.data()[i] = static_cast<T>(static_cast<float>(std::bit_cast<bfloat16>(x)));
        });
        break;
      case Ct2Type::int8:
        dequantize<std::int8_t>(name, v, out.data());
        break;
      case Ct2Type::int16:
        dequantize<std::int16_t>(name, v, out.data());
        break;
      case Ct2Type::int32:
        throw refuse("has int32 numbers in '" + name + "', expected weights");
    }
    return out;
  }

  /// The value of a scalar variable of any type; `missing` when there is none. Throws IoError for a variable
  /// of more than one element.
  double scalar(const std::string& name, double missing) const {
    if (!contains(name)) return missing;
    const Ct2Variable& v = variable(name);
    if (v.shape.numel() != 1)
      throw refuse("has a '" + name + "' of shape " + v.shape.str() + ", expected a scalar");
    double value = missing;
    const auto take = [&](std::size_t, auto x) { value = static_cast<double>(x); };
    switch (v.type) {
      case Ct2Type::float32:
        each<float>(v, take);
        break;
      case Ct2Type::f16:
        each<std::uint16_t>(v, [&](std::size_t, std::uint16_t x) { value = std::bit_cast<float16>(x); });
        break;
      case Ct2Type::bf16:
        each<std::uint16_t>(v, [&](std::size_t, std::uint16_t x) { value = std::bit_cast<bfloat16>(x); });
        break;
      case Ct2Type::int8:
        each<std::int8_t>(v, take);
        break;
      case Ct2Type::int16:
        each<std::int16_t>(v, take);
        break;
      case Ct2Type::int32:
        each<std::int32_t>(v, take);
        break;
    }
    return value;
  }

  /// Makes an error about this file; `what` continues a sentence that begins with its name.
  IoError refuse(const std::string& what) const { return detail::ct2_refusal(path_, what); }

 private:
  // Calls f(i, value) for each element; elements are not aligned in the file.
  template <class N, class F>
  static void each(const Ct2Variable& v, F&& f) {
    const std::size_t n = v.bytes.size() / sizeof(N);
    for (std::size_t i = 0; i < n; ++i) {
      N value;
      std::memcpy(&value, v.bytes.data() + i * sizeof(N), sizeof(N));
      f(i, value);
    }
  }

  // real = q / scale[row], or q / scale.
  template <class N, class T>
  void dequantize(const std::string& name, const Ct2Variable& v, T* out) const {
    const index_t rows = v.shape.rank() == 0 ? 1 : v.shape[0];
    std::vector<float> scale;
    if (v.type == Ct2Type::int16 && !contains(name + "_scale")) {
      scale = {1000};  // CTranslate2's before it stored the scale
    } else {
      const Ct2Variable& s = variable(name + "_scale");
      if (s.type != Ct2Type::float32 || (s.shape.numel() != 1 && s.shape != Shape{rows})) {
        throw refuse("has a '" + name + "_scale' of shape " + s.shape.str() +
                     ", expected a float32 for each of " + std::to_string(rows) + " rows, or one for all");
      }
      each<float>(s, [&](std::size_t i, float x) {
        if (!(x > 0) || x > std::numeric_limits<float>::max()) {
          throw refuse("has a scale " + std::to_string(x) + " in '" + name + "_scale', row " +
                       std::to_string(i) + ", expected a positive number");
        }
        scale.push_back(x);
      });
    }
    const std::size_t row = scale.size() == 1 || rows == 0
                                ? std::max<std::size_t>(1, static_cast<std::size_t>(v.shape.numel()))
                                : static_cast<std::size_t>(v.shape.numel() / rows);
    each<N>(v, [&](std::size_t i, N x) { out[i] = static_cast<T>(static_cast<float>(x) / scale[i / row]); });
  }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> map_;
  detail::Ct2Contents contents_;
};

}  // namespace eigenformer
