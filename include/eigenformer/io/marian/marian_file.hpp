#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/marian/marian_parser.hpp"

namespace eigenformer {

/// A Marian model in .bin format (of browsermt's marian-dev, as browsers ship it), mapped into memory and
/// validated: every item is inside the file and has at least the bytes of its shape.
///
/// Weights of linear layers, whose names end in `_W` and at most one more character, have the shape
/// (outputs, inputs) here, as in PyTorch; in Marian it is (inputs, outputs).
///
///     const auto file = ef::MarianFile::open("model.intgemm.alphas.bin");
///     auto weight = file.tensor<float>("encoder_l1_ffn_W1");  // dequantised
class MarianFile {
 public:
  /// Opens and validates a file. Throws IoError that names the file, the item and what was expected.
  static MarianFile open(const std::filesystem::path& path) {
    MarianFile file;
    file.path_ = path;
    file.map_ = MappedFile::open(path);
    file.items_ = detail::MarianParser(path, file.map_->bytes()).parse();
    for (const auto& [name, item] : file.items_)
      file.shapes_.emplace(name, is_product(name, item) ? transposed(item.shape) : item.shape);
    return file;
  }

  /// The path that was opened.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// The names of all items, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : items_) found.push_back(entry.first);
    return found;
  }
  /// Whether there is an item of this name.
  bool contains(const std::string& name) const { return items_.count(name) > 0; }

  /// An item with its shape in the file. Throws IoError when there is none of this name.
  const MarianItem& item(const std::string& name) const {
    const auto found = items_.find(name);
    if (found == items_.end()) throw refuse("has no item '" + name + "'");
    return found->second;
  }

  /// The shape of an item, transposed for the weights of linear layers. Throws IoError when there is none of
  /// this name.
  const Shape& shape(const std::string& name) const {
    (void)item(name);
    return shapes_.at(name);
  }

  /// Whether an item is int8 with a scale. Throws IoError when there is none of this name.
  bool is_int8(const std::string& name) const { return item(name).type == MarianType::intgemm8; }

  /// Whether any item is int8 with a scale.
  bool has_int8() const {
    return std::any_of(items_.begin(), items_.end(),
                       [](const auto& entry) { return entry.second.type == MarianType::intgemm8; });
  }

  /// The elements of an int8 item in the order of shape(), without a copy, and the scale by which they are
  /// multiplied, stored to *scale. Throws IoError for an item of another type, a scale that is not a positive
  /// finite number, and an element -128.
  const std::int8_t* int8_values(const std::string& name, float* scale) const {
    const MarianItem& i = item(name);
    if (i.type != MarianType::intgemm8) throw refuse("has '" + name + "' of another type, expected int8");
    const auto n = static_cast<std::size_t>(i.shape.numel());
    float multiplier = 0;
    std::memcpy(&multiplier, i.bytes.data() + n, sizeof multiplier);
    *scale = 1.0f / multiplier;
    if (!(multiplier > 0) || !std::isfinite(multiplier) || !std::isfinite(*scale * 128.0f)) {
      throw refuse("has the scale " + std::to_string(multiplier) + " in '" + name +
                   "', expected a positive finite number");
    }
    const auto* values = reinterpret_cast<const std::int8_t*>(i.bytes.data());
    if (const auto* bad = std::find(values, values + n, std::int8_t{-128}); bad != values + n) {
      throw refuse("has -128 in '" + name + "' at " + std::to_string(bad - values) +
                   ", expected int8 values from -127 to 127");
    }
    return values;
  }

  /// Copies an item, dequantised, to a tensor of shape(). Throws IoError for a missing item, as int8_values()
  /// does, and for one of bytes without a scale.
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    const MarianItem& i = item(name);
    Tensor<T> out(shape(name));
    const index_t n = out.numel();
    if (i.type == MarianType::intgemm8) {
      float scale = 0;
      const std::int8_t* values = int8_values(name, &scale);
      for (index_t k = 0; k < n; ++k) out.data()[k] = static_cast<T>(static_cast<float>(values[k]) * scale);
      return out;
    }
    if (i.type != MarianType::float32) throw refuse("has bytes in '" + name + "', expected weights");
    const bool product = is_product(name, i);
    const index_t rows = product ? i.shape[0] : 1, columns = product ? i.shape[1] : n;
    for (index_t r = 0; r < rows; ++r) {
      for (index_t c = 0; c < columns; ++c) {
        float value = 0;
        std::memcpy(&value, i.bytes.data() + (r * columns + c) * 4, sizeof value);
        out.data()[c * rows + r] = static_cast<T>(value);
      }
    }
    return out;
  }

  /// The number by which the inputs of a product with `weight` are multiplied before they are rounded to
  /// int8, the item `WEIGHT_QuantMultA`; nothing when there is none. Throws IoError unless it is from 1e-20
  /// to 1e20.
  std::optional<float> input_multiplier(const std::string& weight) const {
    const std::string name = weight + "_QuantMultA";
    if (!contains(name)) return std::nullopt;
    if (item(name).shape.numel() != 1)
      throw refuse("has '" + name + "' of shape " + item(name).shape.str() + ", expected one number");
    const auto value = tensor<float>(name).data()[0];
    if (!(value >= 1e-20f && value <= 1e20f)) {
      throw refuse("has the number " + std::to_string(value) + " in '" + name +
                   "', expected a positive finite one");
    }
    return value;
  }

  /// The text of an int8 item without a scale, such as "special:model.yml", up to the first NUL. Throws
  /// IoError for a missing item and for one of another type.
  std::string text(const std::string& name) const {
    const MarianItem& i = item(name);
    if (i.type != MarianType::int8) throw refuse("has numbers in '" + name + "', expected text");
    const std::string all(reinterpret_cast<const char*>(i.bytes.data()),
                          static_cast<std::size_t>(i.shape.numel()));
    return all.substr(0, all.find('\0'));
  }

  /// Makes an error about this file; `what` continues a sentence that begins with its name.
  IoError refuse(const std::string& what) const { return detail::marian_refusal(path_, what); }

 private:
  static bool is_product(const std::string& name, const MarianItem& item) {
    const std::size_t at = name.rfind("_W");
    return item.shape.rank() == 2 && at != std::string::npos && name.size() - at <= 3 &&
           !name.ends_with("_Wt");
  }
  static Shape transposed(const Shape& shape) { return {shape[1], shape[0]}; }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> map_;
  std::map<std::string, MarianItem> items_;
  std::map<std::string, Shape> shapes_;
};

}  // namespace eigenformer
