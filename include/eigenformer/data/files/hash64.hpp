#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail {

/// A 64-bit hash of a stream of bytes, independent of how it is split into parts. It is meant to detect
/// damage and duplicates; it is not cryptographic. Every step is a bijection of the state and of the 8-byte
/// word that is mixed in, so inputs of equal length that differ in a single word never have the same hash.
class Hash64 {
 public:
  /// Appends bytes to the stream.
  void add(std::string_view bytes) noexcept;

  /// The hash of all bytes added so far; more may be added after it.
  std::uint64_t value() const noexcept;

  /// The hash of these bytes alone.
  static std::uint64_t of(std::string_view bytes) noexcept {
    Hash64 hash;
    hash.add(bytes);
    return hash.value();
  }

 private:
  void mix(const char* word) noexcept {
    const std::uint64_t x = (state_ ^ load_as<std::uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    state_ = x ^ (x >> 32);
  }

  std::uint64_t state_ = 0x243F6A8885A308D3u;  // pi's first digits
  std::uint64_t size_ = 0;
  char word_[8] = {};
  std::size_t waiting_ = 0;  // bytes in word_
};

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_FUNCTION void Hash64::add(std::string_view bytes) noexcept {
  size_ += bytes.size();
  if (waiting_ > 0) {
    const std::size_t more = std::min(sizeof word_ - waiting_, bytes.size());
    std::memcpy(word_ + waiting_, bytes.data(), more);
    waiting_ += more;
    bytes.remove_prefix(more);
    if (waiting_ < sizeof word_) return;
    mix(word_);
    waiting_ = 0;
  }
  for (; bytes.size() >= sizeof word_; bytes.remove_prefix(sizeof word_)) mix(bytes.data());
  if (!bytes.empty()) std::memcpy(word_, bytes.data(), bytes.size());
  waiting_ = bytes.size();
}

EIGENFORMER_FUNCTION std::uint64_t Hash64::value() const noexcept {
  Hash64 end = *this;
  if (end.waiting_ > 0) {
    std::memset(end.word_ + end.waiting_, 0, sizeof word_ - end.waiting_);
    end.mix(end.word_);
  }
  std::uint64_t x = end.state_ ^ size_;
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

}  // namespace eigenformer::detail

#endif
