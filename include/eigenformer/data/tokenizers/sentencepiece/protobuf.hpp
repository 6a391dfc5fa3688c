#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer::detail {

/// The fields of a message in the wire format of Protocol Buffers (protobuf.dev, "Encoding"), read in place.
/// All members throw ValueError for other bytes; its message completes a sentence that ends with "is".
class ProtobufMessage {
 public:
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  explicit ProtobufMessage(std::string_view bytes) : bytes_(bytes) {}

  /// Reads the next field, whatever its number; false at the end. Groups are refused: proto3 removed them,
  /// and no version of sentencepiece_model.proto has them.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    if (key < 8 || key > 0xFFFFFFFFu) throw damaged("a field has the number " + std::to_string(key >> 3));
    field_ = static_cast<std::uint32_t>(key >> 3);
    wire_ = static_cast<Wire>(key & 7);
    switch (wire_) {
      case Wire::varint:
        number_ = varint();
        return true;
      case Wire::fixed64:
        value_ = take(8);
        return true;
      case Wire::bytes:
        value_ = take(varint());
        return true;
      case Wire::fixed32:
        value_ = take(4);
        return true;
    }
    throw damaged(of_field() + " has the wire type " + std::to_string(key & 7));
  }

  /// The number of the field that next() has read.
  std::uint32_t field() const noexcept { return field_; }

  /// The value of that field, which must have the wire type in the function's name.
  std::uint64_t number() const {
    require(Wire::varint);
    return number_;
  }
  std::string_view bytes() const {
    require(Wire::bytes);
    return value_;
  }
  float real() const {
    require(Wire::fixed32);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i)
      bits |= std::uint32_t{static_cast<std::uint8_t>(value_[i])} << (8 * i);
    return std::bit_cast<float>(bits);
  }

 private:
  static ValueError damaged(const std::string& what) { return ValueError("protobuf", what); }
  std::string of_field() const { return "field " + std::to_string(field_); }
  // SentencePiece skips a known field of another wire type, as if it were unknown.
  void require(Wire wire) const {
    if (wire_ != wire) {
      throw damaged(of_field() + " has the wire type " + std::to_string(static_cast<int>(wire_)) +
                    ", expected " + std::to_string(static_cast<int>(wire)));
    }
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      throw damaged(of_field() + " has " + std::to_string(size) + " bytes, " +
                    std::to_string(bytes_.size() - at_) + " are left");
    }
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += taken.size();
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80u) == 0) return value;
    }
    throw damaged("a number at byte " + std::to_string(at_) + " does not end");
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::uint32_t field_ = 0;
  Wire wire_ = Wire::varint;
  std::uint64_t number_ = 0;
  std::string_view value_;
};

}  // namespace eigenformer::detail
