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
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/files/mapped_file.hpp"

namespace eigenformer::detail {

/// The supported element types of a Marian .bin file, with the numbers that the file has for them.
enum class MarianType : std::uint64_t {
  int8 = 0x101,      ///< bytes without a scale, such as text
  float32 = 0x404,   ///< IEEE 754 binary32
  intgemm8 = 0x4101  ///< int8, followed by a float32 scale
};

/// One item of a Marian .bin file.
struct MarianItem {
  Shape shape;                            ///< in the file: (inputs, outputs) for weights of linear layers
  MarianType type = MarianType::float32;  ///< element type
  std::span<const std::byte> bytes{};     ///< elements and padding in the mapped file, not aligned
};

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
  static MarianFile open(const std::filesystem::path& path) { return MarianFile(path); }

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
    if (found == items_.end()) throw refuse({"has no item '", name, "'"});
    return found->second;
  }

  /// The shape of an item, transposed for the weights of linear layers. Throws IoError when there is none of
  /// this name.
  Shape shape(const std::string& name) const {
    const Shape& stored = item(name).shape;
    return is_product(name, stored) ? Shape{stored[1], stored[0]} : stored;
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
  const std::int8_t* int8_values(const std::string& name, float* scale) const;

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
    if (i.type != MarianType::float32) throw refuse({"has bytes in '", name, "', expected weights"});
    const bool product = is_product(name, i.shape);
    const index_t rows = product ? i.shape[0] : 1, columns = product ? i.shape[1] : n;
    for (index_t r = 0; r < rows; ++r) {
      for (index_t c = 0; c < columns; ++c) {
        out.data()[c * rows + r] = static_cast<T>(load_as<float>(i.bytes.data() + (r * columns + c) * 4));
      }
    }
    return out;
  }

  /// The number by which the inputs of a product with `weight` are multiplied before they are rounded to
  /// int8, the item `WEIGHT_QuantMultA`; nothing when there is none. Throws IoError unless it is from 1e-20
  /// to 1e20.
  std::optional<float> input_multiplier(const std::string& weight) const;

  /// The text of an int8 item without a scale, such as "special:model.yml", up to the first NUL. Throws
  /// IoError for a missing item and for one of another type.
  std::string text(const std::string& name) const {
    const MarianItem& i = item(name);
    if (i.type != MarianType::int8) throw refuse({"has numbers in '", name, "', expected text"});
    const std::string all(reinterpret_cast<const char*>(i.bytes.data()),
                          static_cast<std::size_t>(i.shape.numel()));
    return all.substr(0, all.find('\0'));
  }

  /// Makes an error about this file; `what` continues a sentence that begins with its name.
  IoError refuse(std::initializer_list<MessagePart> what) const {
    return IoError("marian", {"'", path_.string(), "' ", join(what)});
  }

 private:
  explicit MarianFile(const std::filesystem::path& path);

  static bool is_product(const std::string& name, const Shape& shape) {
    const std::size_t at = name.rfind("_W");
    return shape.rank() == 2 && at != std::string::npos && name.size() - at <= 3 && !name.ends_with("_Wt");
  }

  std::filesystem::path path_;
  std::shared_ptr<MappedFile> map_;
  std::map<std::string, MarianItem> items_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION MarianType marian_type(const MarianFile& file, std::uint64_t code,
                                               const std::string& name) {
  switch (code) {
    case static_cast<std::uint64_t>(MarianType::int8):
    case static_cast<std::uint64_t>(MarianType::float32):
    case static_cast<std::uint64_t>(MarianType::intgemm8):
      return static_cast<MarianType>(code);
    default:
      break;
  }
  static constexpr std::pair<std::uint64_t, const char*> known[] = {{0x402, "float16"},
                                                                    {0x408, "float64"},
                                                                    {0x802, "fbgemm packed16"},
                                                                    {0x1801, "fbgemm packed8"},
                                                                    {0x2801, "fbgemm packed8"},
                                                                    {0x4102, "intgemm16"},
                                                                    {0x10001, "intgemm8 of marian-nmt 1.10"},
                                                                    {0x18001, "intgemm8 for SSSE3"},
                                                                    {0x11001, "intgemm8 for AVX2"},
                                                                    {0x12001, "intgemm8 for AVX-512"},
                                                                    {0x13001, "intgemm8 for AVX-512 VNNI"}};
  std::string what = "unknown type " + std::to_string(code);
  for (const auto& [number, word] : known) {
    if (number == code) what = std::string("type ") + word;
  }
  throw file.refuse({"has item '", name, "' of ", what,
                     ", expected float32 or intgemm8 (browsermt's marian-conv --gemm-type intgemm8)"});
}

// What a Marian file has of an item before the names.
struct MarianHeader {
  std::uint64_t name_length, type, rank, bytes;
};

EIGENFORMER_IO_FUNCTION std::string read_marian_name(FileCursor<MarianFile>& in, const MarianHeader& header,
                                                     std::size_t i) {
  const std::string what = "the name of item " + std::to_string(i);
  const auto text = in.take(header.name_length, what);
  if (text.empty() || text.back() != std::byte{0})
    throw in.file.refuse({"is damaged: ", what, " before byte ", in.at, " does not end in NUL"});
  return {reinterpret_cast<const char*>(text.data()), text.size() - 1};
}

EIGENFORMER_IO_FUNCTION MarianItem read_marian_item(FileCursor<MarianFile>& in, const MarianHeader& header,
                                                    const std::string& name) {
  MarianItem item;
  item.type = marian_type(in.file, header.type, name);
  if (header.rank > 4)
    throw in.file.refuse({"has item '", name, "' of rank ", header.rank, ", expected at most 4"});
  // Checked before multiplying, so that the number of elements cannot overflow.
  std::uint64_t elements = 1;
  for (int i = 0; i < static_cast<int>(header.rank); ++i) {
    const auto size = in.number<std::int32_t>("the shape of item '" + name + "'");
    if (size <= 0 || static_cast<std::uint64_t>(size) > in.bytes.size() / elements) {
      throw in.file.refuse({"is truncated or damaged: item '", name, "' has a dimension ", size,
                            ", which the file's ", in.bytes.size(), " bytes cannot hold"});
    }
    elements *= static_cast<std::uint64_t>(size);
    item.shape = item.shape.inserted(i, size);
  }
  // An intgemm8 item ends with its scale.
  const std::uint64_t needed = item.type == MarianType::float32    ? 4 * elements
                               : item.type == MarianType::intgemm8 ? elements + 4
                                                                   : elements;
  if (header.bytes < needed) {
    throw in.file.refuse({"has item '", name, "' of shape ", item.shape.str(), " in ", header.bytes,
                          " bytes, expected at least ", needed});
  }
  return item;
}

// A version, a table of items, their names and shapes, padding, and their data.
EIGENFORMER_IO_FUNCTION MarianFile::MarianFile(const std::filesystem::path& path)
    : path_(path), map_(MappedFile::open(path)) {
  FileCursor<MarianFile> in{*this, std::as_const(*map_).bytes()};
  const auto version = in.number<std::uint64_t>("the version");
  if (version != 1)
    throw refuse({"has version ", version, " at byte 0, expected 1, that of a Marian model in .bin form"});
  const auto count = in.number<std::uint64_t>("the number of items");
  if (count > in.left() / sizeof(MarianHeader)) {
    throw refuse({"is truncated or damaged: it has ", count,
                  " items by the number at byte 8, whose table takes ", sizeof(MarianHeader), " bytes each; ",
                  in.left(), " are left"});
  }
  std::vector<MarianHeader> headers(static_cast<std::size_t>(count));
  for (MarianHeader& h : headers) h = in.number<MarianHeader>("the table of items");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < headers.size(); ++i) names.push_back(read_marian_name(in, headers[i], i));
  std::vector<MarianItem> items;
  for (std::size_t i = 0; i < headers.size(); ++i)
    items.push_back(read_marian_item(in, headers[i], names[i]));
  const auto padding = in.number<std::uint64_t>("the length of the padding before the data");
  (void)in.take(padding, "the padding before the data");
  for (std::size_t i = 0; i < headers.size(); ++i) {
    items[i].bytes = in.take(headers[i].bytes, "item '" + names[i] + "'");
    if (!items_.emplace(names[i], items[i]).second) throw refuse({"has two items '", names[i], "'"});
  }
  if (in.left() > 0) throw refuse({"has ", in.left(), " bytes after its last item"});
}

EIGENFORMER_IO_FUNCTION const std::int8_t* MarianFile::int8_values(const std::string& name,
                                                                   float* scale) const {
  const MarianItem& i = item(name);
  if (i.type != MarianType::intgemm8) throw refuse({"has '", name, "' of another type, expected int8"});
  const auto n = static_cast<std::size_t>(i.shape.numel());
  const auto multiplier = load_as<float>(i.bytes.data() + n);
  *scale = 1.0f / multiplier;
  if (!(multiplier > 0) || !std::isfinite(multiplier) || !std::isfinite(*scale * 128.0f))
    throw refuse({"has the scale ", multiplier, " in '", name, "', expected a positive finite number"});
  const auto* values = reinterpret_cast<const std::int8_t*>(i.bytes.data());
  if (const auto* bad = std::find(values, values + n, std::int8_t{-128}); bad != values + n)
    throw refuse({"has -128 in '", name, "' at ", bad - values, ", expected int8 values from -127 to 127"});
  return values;
}

EIGENFORMER_IO_FUNCTION std::optional<float> MarianFile::input_multiplier(const std::string& weight) const {
  const std::string name = weight + "_QuantMultA";
  if (!contains(name)) return std::nullopt;
  if (item(name).shape.numel() != 1)
    throw refuse({"has '", name, "' of shape ", item(name).shape.str(), ", expected one number"});
  const auto value = tensor<float>(name).data()[0];
  if (!(value >= 1e-20f && value <= 1e20f)) {
    throw refuse(
        {"has the number ", std::to_string(value), " in '", name, "', expected a positive finite one"});
  }
  return value;
}

}  // namespace eigenformer::detail

#endif
