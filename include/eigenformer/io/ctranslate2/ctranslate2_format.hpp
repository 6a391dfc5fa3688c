#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/safetensors/dtype.hpp"

namespace eigenformer::detail {

/// One variable of a model.bin.
struct Ct2Variable {
  Shape shape;                         ///< row-major; () for a scalar
  Dtype type = Dtype::f32;             ///< element type; i8 and i16 are quantised, with a scale
  std::span<const std::byte> bytes{};  ///< the elements in the mapped file, little-endian, not aligned
};

/// A CTranslate2 model.bin, mapped into memory and validated: every variable is inside the file and has as
/// many bytes as its shape needs. Versions 1 to 6 of the format; the names of version 1 are converted to
/// those of later versions.
///
///     const auto file = ef::Ct2File::open("opus-ct2/model.bin");
///     auto weight = file.tensor<float>("encoder/layer_0/ffn/linear_0/weight");  // dequantised
class Ct2File {
 public:
  /// Opens and validates a file. Throws IoError that names the file, the variable or the byte offset, and
  /// what was expected.
  static Ct2File open(const std::filesystem::path& path) { return Ct2File(path); }

  /// The version of the format, 1 to 6.
  std::uint32_t version() const noexcept { return version_; }
  /// The name of the model's specification, such as "TransformerSpec"; empty in version 1.
  const std::string& spec() const noexcept { return spec_; }

  /// The names of all variables and aliases, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : variables_) found.push_back(entry.first);
    return found;
  }

  /// Whether there is a variable or alias of this name.
  bool contains(const std::string& name) const { return variables_.count(name) > 0; }

  /// A variable by its name or alias. Throws IoError when there is none.
  const Ct2Variable& variable(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) throw refuse({"has no variable '", name, "'"});
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
    if (v.type == Dtype::i32) throw refuse({"has int32 numbers in '", name, "', expected weights"});
    if (is_floating_point(v.type)) {
      convert_elements(v.type, v.bytes, out.data(), "ctranslate2", name);
    } else {
      dequantize(name, v, out.data());
    }
    return out;
  }

  /// The value of a scalar variable of any type; `missing` when there is none. Throws IoError for a variable
  /// of more than one element.
  double scalar(const std::string& name, double missing) const;

  /// Makes an error about this file; `what` continues a sentence that begins with its name.
  IoError refuse(std::initializer_list<MessagePart> what) const {
    return IoError("ctranslate2", {"'", path_.string(), "' ", join(what)});
  }

 private:
  explicit Ct2File(const std::filesystem::path& path);

  // Calls f(i, value) for each element, 16-bit floats as floats; elements are not aligned in the file.
  template <class F>
  static void each(const Ct2Variable& v, F&& f) {
    visit_dtype(v.type, [&](auto example) {
      using Number = decltype(example);
      using Value = std::conditional_t<std::is_arithmetic_v<Number>, Number, float>;
      for (std::size_t i = 0; i < v.bytes.size() / sizeof(Number); ++i)
        f(i, static_cast<Value>(load_as<Number>(v.bytes.data() + i * sizeof(Number))));
    });
  }

  // real = q / scale[row], or q / scale.
  template <class T>
  void dequantize(const std::string& name, const Ct2Variable& v, T* out) const {
    const index_t rows = v.shape.rank() == 0 ? 1 : v.shape[0];
    std::vector<float> scale;
    if (v.type == Dtype::i16 && !contains(name + "_scale")) {
      scale = {1000};  // CTranslate2's before it stored the scale
    } else {
      const Ct2Variable& s = variable(name + "_scale");
      if (s.type != Dtype::f32 || (s.shape.numel() != 1 && s.shape != Shape{rows})) {
        throw refuse({"has a '", name, "_scale' of shape ", s.shape.str(),
                      ", expected a float32 for each of ", rows, " rows, or one for all"});
      }
      scale.resize(static_cast<std::size_t>(s.shape.numel()));
      convert_elements(s.type, s.bytes, scale.data(), "ctranslate2", name);
      for (std::size_t i = 0; i < scale.size(); ++i) {
        if (scale[i] > 0 && scale[i] <= std::numeric_limits<float>::max()) continue;
        throw refuse(
            {"has a scale ", scale[i], " in '", name, "_scale', row ", i, ", expected a positive number"});
      }
    }
    const std::size_t row = scale.size() == 1 || rows == 0
                                ? std::max<std::size_t>(1, static_cast<std::size_t>(v.shape.numel()))
                                : static_cast<std::size_t>(v.shape.numel() / rows);
    each(v, [&](std::size_t i, auto x) { out[i] = static_cast<T>(static_cast<float>(x) / scale[i / row]); });
  }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> map_;
  std::uint32_t version_ = 0;
  std::string spec_;
  std::map<std::string, Ct2Variable> variables_;  // by name, aliases too
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

// A text with its length before it and NUL at its end.
EIGENFORMER_IO_FUNCTION std::string read_ct2_string(FileCursor<Ct2File>& in, const std::string& what) {
  const std::size_t n = in.number<std::uint16_t>(what);
  const auto text = in.take(n, what);
  if (n == 0 || text[n - 1] != std::byte{0})
    throw in.file.refuse({"is not a model.bin: ", what, " at byte ", in.at - n, " does not end in NUL"});
  return {reinterpret_cast<const char*>(text.data()), n - 1};
}

// Version 1 uses the names of OpenNMT-tf's checkpoints:
// "transformer/encoder/layer_0/multi_head/conv1d/kernel:0" is
// "encoder/layer_0/self_attention/linear_0/weight".
EIGENFORMER_IO_FUNCTION std::string ct2_name_since_version2(const std::string& name) {
  const bool encoder = name.find("encoder") != std::string::npos;
  std::string renamed;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    if (const std::size_t output = part.find(":0"); output != std::string::npos) part.erase(output, 2);
    if (part.starts_with("kernel")) part.replace(0, 6, "weight");
    if (part.starts_with("w_embs")) part.replace(0, 6, "embeddings/weight");
    if (part.starts_with("conv1d_")) part.replace(0, 7, "linear_");
    if (part == "conv1d") part = "linear_0";
    if (part == "dense") part = "projection";
    if (part == "LayerNorm") part = "layer_norm";
    if (part == "multi_head") part = encoder ? "self_attention" : "attention";
    if (part == "masked_multi_head") part = "self_attention";
    if (!(begin == 0 && part == "transformer")) renamed += (renamed.empty() ? "" : "/") + part;
    begin = end + 1;
  }
  return renamed;
}

EIGENFORMER_IO_FUNCTION Ct2Variable read_ct2_variable(FileCursor<Ct2File>& in, const std::string& what) {
  Ct2Variable v;
  const auto rank = in.number<std::uint8_t>(what);
  if (rank > 6) throw in.file.refuse({"has ", what, " of rank ", rank, ", expected at most 6"});
  std::uint64_t items = 1;
  for (int i = 0; i < rank; ++i) {
    const auto size = in.number<std::uint32_t>(what);
    // Checked before multiplying, so that the number of elements cannot overflow.
    if (size == 0 || size > in.bytes.size() / items) {
      throw in.file.refuse({"is truncated or damaged: ", what, " has a dimension ", size,
                            ", which the file's ", in.bytes.size(), " bytes cannot hold"});
    }
    items *= size;
    v.shape = v.shape.inserted(i, size);
  }
  std::uint64_t size = 0;
  if (in.file.version() >= 4) {
    const auto type = in.number<std::uint8_t>(what);
    if (type > 5) throw in.file.refuse({"has ", what, " of type ", type, ", expected 0 to 5"});
    static constexpr Dtype types[] = {Dtype::f32, Dtype::i8, Dtype::i16, Dtype::i32, Dtype::f16, Dtype::bf16};
    v.type = types[type];
    size = in.number<std::uint32_t>(what);
  } else {
    const auto item = in.number<std::uint8_t>(what);
    if (item != 1 && item != 2 && item != 4)
      throw in.file.refuse({"has ", what, " of ", item, " bytes an element, expected 1, 2 or 4"});
    v.type = item == 4 ? Dtype::f32 : item == 2 ? Dtype::i16 : Dtype::i8;
    size = std::uint64_t{item} * in.number<std::uint32_t>(what);
  }
  if (size != items * dtype_size(v.type)) {
    throw in.file.refuse({"has ", what, " of shape ", v.shape.str(), " in ", size, " bytes, expected ",
                          items * dtype_size(v.type)});
  }
  v.bytes = in.take(static_cast<std::size_t>(size), what);
  return v;
}

EIGENFORMER_IO_FUNCTION Ct2File::Ct2File(const std::filesystem::path& path)
    : path_(path), map_(MappedFile::open(path)) {
  FileCursor<Ct2File> in{*this, std::as_const(*map_).bytes()};
  version_ = in.number<std::uint32_t>("the version");
  if (version_ < 1 || version_ > 6) {
    throw refuse(
        {"has version ", version_, " at byte 0, expected a CTranslate2 model.bin of version 1 to 6"});
  }
  if (version_ >= 2) {
    spec_ = read_ct2_string(in, "the specification's name");
    (void)in.number<std::uint32_t>("the specification's revision");
  }
  const auto count = in.number<std::uint32_t>("the number of variables");
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string name = read_ct2_string(in, "the name of variable " + std::to_string(i));
    if (version_ == 1) name = ct2_name_since_version2(name);
    if (!variables_.emplace(name, read_ct2_variable(in, "variable '" + name + "'")).second)
      throw refuse({"has two variables '", name, "'"});
  }
  if (version_ >= 3) {
    const auto aliases = in.number<std::uint32_t>("the number of aliases");
    for (std::uint32_t i = 0; i < aliases; ++i) {
      const std::string what = "alias " + std::to_string(i);
      const std::string alias = read_ct2_string(in, what), name = read_ct2_string(in, what);
      const Ct2Variable& meant = variable(name);
      const auto [at, added] = variables_.emplace(alias, meant);
      // The scale of an alias may have been added with the alias.
      if (!added && at->second.bytes.data() != meant.bytes.data())
        throw refuse({"has two variables '", alias, "'"});
      if (variables_.count(name + "_scale") > 0)
        variables_.emplace(alias + "_scale", variable(name + "_scale"));
    }
  }
  if (in.left() > 0) throw refuse({"has ", in.left(), " bytes after its last entry"});
}

EIGENFORMER_IO_FUNCTION double Ct2File::scalar(const std::string& name, double missing) const {
  if (!contains(name)) return missing;
  const Ct2Variable& v = variable(name);
  if (v.shape.numel() != 1)
    throw refuse({"has a '", name, "' of shape ", v.shape.str(), ", expected a scalar"});
  double value = missing;
  each(v, [&](std::size_t, auto x) { value = static_cast<double>(x); });
  return value;
}

}  // namespace eigenformer::detail

#endif
