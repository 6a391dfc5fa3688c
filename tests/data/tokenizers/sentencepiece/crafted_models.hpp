#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// SentencePiece models written field by field, as no trainer writes them.
namespace eigenformer::testing {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
inline std::string number_field(std::uint64_t field, std::uint64_t value) {
  return varint(field << 3) + varint(value);
}
inline std::string bytes_field(std::uint64_t field, std::string_view value) {
  return varint(field << 3 | 2) + varint(value.size()) + std::string(value);
}
inline std::string little_endian(std::uint32_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

/// type: of sentencepiece_model.proto, as 1 for normal, 2 unknown, 3 control, 4 user-defined, 6 byte.
inline std::string piece(std::string_view text, std::uint64_t type = 1, float score = -1) {
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) +
                            little_endian(std::bit_cast<std::uint32_t>(score)) + number_field(3, type));
}
inline std::string training(std::string_view fields) { return bytes_field(2, fields); }
inline std::string normalizer(std::string_view fields) { return bytes_field(3, fields); }

/// A model of these pieces, of byte pair encoding.
inline std::string model_of(std::string_view more = {}) {
  return piece("<unk>", 2, 0) + piece("<s>", 3, 0) + piece("</s>", 3, 0) + piece("\xE2\x96\x81") +
         piece("a") + piece("b") + piece("ab") + training(number_field(3, 2)) + std::string(more);
}

/// A table of characters whose trie is made edge by edge.
class CharsmapWriter {
 public:
  explicit CharsmapWriter(std::size_t units = 256) : units_(units, 0x80000000u) {}

  void root(std::uint32_t base) { units_[0] = base << 10; }
  /// From the place of one unit by a byte to that of another; match: a string that is replaced ends there.
  void edge(std::uint32_t from, std::uint8_t byte, std::uint32_t to, bool match = false) {
    const std::uint32_t at = from ^ byte;
    units_.at(at) = (at ^ to) << 10 | (match ? 0x100u : 0u) | byte;
  }
  void value(std::uint32_t at, std::uint32_t offset) { units_.at(at) = 0x80000000u | offset; }

  std::string bytes(std::string_view strings) const {
    std::string out = little_endian(static_cast<std::uint32_t>(units_.size() * 4));
    for (const std::uint32_t unit : units_) out += little_endian(unit);
    return out + std::string(strings);
  }

 private:
  std::vector<std::uint32_t> units_;
};

/// 'a' becomes the string at `offset`.
inline CharsmapWriter one_rule(std::uint32_t offset = 0) {
  CharsmapWriter map;
  map.root(1);
  map.edge(1, 'a', 2, true);
  map.value(2, offset);
  return map;
}

}  // namespace eigenformer::testing
