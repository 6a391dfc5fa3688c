#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer {

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

namespace detail {

inline IoError marian_refusal(const std::filesystem::path& path, const std::string& what) {
  return IoError("marian", "'" + path.string() + "' " + what);
}

/// Parses and validates the bytes of a Marian .bin file: a version, a table of items, their names and shapes,
/// padding, and their data. Throws IoError that names the file, the byte offset and what was expected.
class MarianParser {
 public:
  MarianParser(std::filesystem::path path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::map<std::string, MarianItem> parse() {
    const auto version = number<std::uint64_t>("the version");
    if (version != 1) {
      throw refuse("has version " + std::to_string(version) +
                   " at byte 0, expected 1, that of a Marian model in .bin form");
    }
    const auto count = number<std::uint64_t>("the number of items");
    if (count > left() / sizeof(Header)) {
      throw refuse("is truncated or damaged: it has " + std::to_string(count) +
                   " items by the number at byte 8, whose table takes " + std::to_string(sizeof(Header)) +
                   " bytes each; " + std::to_string(left()) + " are left");
    }
    std::vector<Header> headers(static_cast<std::size_t>(count));
    for (Header& h : headers) h = number<Header>("the table of items");
    std::vector<std::string> names;
    for (std::size_t i = 0; i < headers.size(); ++i) names.push_back(name(headers[i], i));
    std::vector<MarianItem> items;
    for (std::size_t i = 0; i < headers.size(); ++i) items.push_back(item(headers[i], names[i]));
    const auto padding = number<std::uint64_t>("the length of the padding before the data");
    (void)take(padding, "the padding before the data");
    std::map<std::string, MarianItem> found;
    for (std::size_t i = 0; i < headers.size(); ++i) {
      items[i].bytes = take(headers[i].bytes, "item '" + names[i] + "'");
      if (!found.emplace(names[i], items[i]).second) throw refuse("has two items '" + names[i] + "'");
    }
    if (left() > 0) throw refuse("has " + std::to_string(left()) + " bytes after its last item");
    return found;
  }

 private:
  struct Header {
    std::uint64_t name_length, type, rank, bytes;
  };

  std::size_t left() const noexcept { return bytes_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t n, const std::string& what) {
    if (n > left()) {
      throw refuse("is truncated: " + what + " at byte " + std::to_string(at_) + " takes " +
                   std::to_string(n) + " bytes, the file has " + std::to_string(left()) + " left");
    }
    at_ += static_cast<std::size_t>(n);
    return bytes_.subspan(at_ - static_cast<std::size_t>(n), static_cast<std::size_t>(n));
  }
  template <class N>
  N number(const std::string& what) {
    N value;
    std::memcpy(&value, take(sizeof(N), what).data(), sizeof(N));
    return value;
  }

  std::string name(const Header& header, std::size_t i) {
    const std::string what = "the name of item " + std::to_string(i);
    const auto text = take(header.name_length, what);
    if (text.empty() || text.back() != std::byte{0}) {
      throw refuse("is damaged: " + what + " before byte " + std::to_string(at_) + " does not end in NUL");
    }
    return {reinterpret_cast<const char*>(text.data()), text.size() - 1};
  }

  MarianItem item(const Header& header, const std::string& name) {
    MarianItem item;
    item.type = type(header.type, name);
    if (header.rank > 4) {
      throw refuse("has item '" + name + "' of rank " + std::to_string(header.rank) + ", expected at most 4");
    }
    // Checked before multiplying, so that the number of elements cannot overflow.
    std::uint64_t elements = 1;
    for (int i = 0; i < static_cast<int>(header.rank); ++i) {
      const auto size = number<std::int32_t>("the shape of item '" + name + "'");
      if (size <= 0 || static_cast<std::uint64_t>(size) > bytes_.size() / elements) {
        throw refuse("is truncated or damaged: item '" + name + "' has a dimension " + std::to_string(size) +
                     ", which the file's " + std::to_string(bytes_.size()) + " bytes cannot hold");
      }
      elements *= static_cast<std::uint64_t>(size);
      item.shape = item.shape.inserted(i, size);
    }
    // An intgemm8 item ends with its scale.
    const std::uint64_t needed = item.type == MarianType::float32    ? 4 * elements
                                 : item.type == MarianType::intgemm8 ? elements + 4
                                                                     : elements;
    if (header.bytes < needed) {
      throw refuse("has item '" + name + "' of shape " + item.shape.str() + " in " +
                   std::to_string(header.bytes) + " bytes, expected at least " + std::to_string(needed));
    }
    return item;
  }

  MarianType type(std::uint64_t code, const std::string& name) const {
    switch (code) {
      case static_cast<std::uint64_t>(MarianType::int8):
      case static_cast<std::uint64_t>(MarianType::float32):
      case static_cast<std::uint64_t>(MarianType::intgemm8):
        return static_cast<MarianType>(code);
      default:
        break;
    }
    static constexpr std::pair<std::uint64_t, const char*> known[] = {
        {0x402, "float16"},
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
    throw refuse("has item '" + name + "' of " + what +
                 ", expected float32 or intgemm8 (browsermt's marian-conv --gemm-type intgemm8)");
  }

  IoError refuse(const std::string& what) const { return marian_refusal(path_, what); }

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace detail

}  // namespace eigenformer
