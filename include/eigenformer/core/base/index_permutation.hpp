#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/random.hpp"

namespace eigenformer::detail {

/// A random permutation of 0 .. n-1 that is computed and not stored: a Feistel network over the smallest
/// power of two that is at least n, applied again until the result is below n (cycle walking; Black and
/// Rogaway, "Ciphers with arbitrary finite domains", 2002). The same on every machine.
class IndexPermutation {
 public:
  /// Draws the keys from `rng`. Throws ValueError when n is not positive.
  IndexPermutation(index_t n, RandomGenerator& rng) : size_(static_cast<std::uint64_t>(n)) {
    if (n < 1) throw ValueError("random", {"n is ", n, ", must be at least 1"});
    const int bits = static_cast<int>(std::bit_width(size_ - 1));
    low_bits_ = bits / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
    for (std::uint64_t& key : keys_) key = rng.next_u64();
  }

  /// The number at place i. Throws IndexError unless i is in [0, n).
  index_t operator()(index_t i) const {
    auto x = static_cast<std::uint64_t>(i);
    if (x >= size_) {
      throw IndexError("random", {"place ", i, " is outside a permutation of ", size_, " numbers"});
    }
    do {
      std::uint64_t low = x & low_mask_, high = x >> low_bits_;
      for (std::size_t round = 0; round < keys_.size(); round += 2) {
        high ^= mixed(low ^ keys_[round]) & high_mask_;
        low ^= mixed(high ^ keys_[round + 1]) & low_mask_;
      }
      x = high << low_bits_ | low;
    } while (x >= size_);
    return static_cast<index_t>(x);
  }

 private:
  // The upper half of MurmurHash3's 64-bit finaliser, whose bits depend on all of x.
  static constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return x >> 32;
  }

  std::uint64_t size_;
  int low_bits_ = 0;
  std::uint64_t low_mask_ = 0, high_mask_ = 0;
  std::array<std::uint64_t, 8> keys_{};
};

}  // namespace eigenformer::detail
