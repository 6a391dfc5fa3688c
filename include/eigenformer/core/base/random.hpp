#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

namespace detail {

/// The counter-based generator Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key.
/// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
struct Philox4x32 {
  using Counter = std::array<std::uint32_t, 4>;  ///< 128 bits, least significant word first
  using Key = std::array<std::uint32_t, 2>;      ///< 64 bits, least significant word first

  static constexpr std::uint32_t multiplier0 = 0xD2511F53u,  ///< multiplies word 0 in each round
      multiplier1 = 0xCD9E8D57u;                             ///< multiplies word 2 in each round
  static constexpr std::uint32_t weyl0 = 0x9E3779B9u,        ///< added to word 0 of the key after each round
      weyl1 = 0xBB67AE85u;                                   ///< added to word 1 of the key after each round

  /// The four random words of one counter: ten rounds.
  static constexpr Counter generate(Counter c, Key key) noexcept {
    // Plain variables: without optimisation each access to an array is a call.
    std::uint32_t c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3], key0 = key[0], key1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{multiplier0} * c0;
      const std::uint64_t p1 = std::uint64_t{multiplier1} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key0;
      c1 = static_cast<std::uint32_t>(p1);
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key1;
      c3 = static_cast<std::uint32_t>(p0);
      key0 += weyl0;
      key1 += weyl1;
    }
    return {c0, c1, c2, c3};
  }
};

}  // namespace detail

/// A stream of random numbers that is the same on every compiler and machine, and small enough to save.
class RandomGenerator {
 public:
  /// All that is needed to resume a generator.
  struct State {
    /// The key of Philox4x32-10.
    std::uint64_t seed = 0;
    std::uint64_t position = 0;  ///< 32-bit words drawn so far
    /// Whether seed and position agree.
    friend bool operator==(const State&, const State&) = default;
  };

  /// Starts at position 0 of the stream that `seed` selects.
  explicit RandomGenerator(std::uint64_t seed = 0) { state_.seed = seed; }

  /// A generator whose fill_uniform() and fill_normal() write nothing. A model constructed with it has
  /// uninitialised weights, which saves the time and memory of drawing them when they are loaded from a file
  /// next.
  static RandomGenerator idle() {
    RandomGenerator generator;
    generator.idle_ = true;
    return generator;
  }
  /// Whether it is idle().
  bool is_idle() const noexcept { return idle_; }

  /// Seed and position, which set_state() of another generator accepts.
  State state() const noexcept { return state_; }
  /// Resumes the stream of `state`; the next number is the one that its generator would have drawn.
  void set_state(const State& state) noexcept {
    state_ = state;
    block_index_ = none;
  }

  /// 32 uniform bits.
  std::uint32_t next_u32() noexcept {
    const std::uint64_t index = state_.position / 4;
    if (index != block_index_) {
      block_ = detail::Philox4x32::generate(
          {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
          {static_cast<std::uint32_t>(state_.seed), static_cast<std::uint32_t>(state_.seed >> 32)});
      block_index_ = index;
    }
    return block_[state_.position++ % 4];
  }
  /// 64 uniform bits: two calls of next_u32(), the high word first.
  std::uint64_t next_u64() noexcept {
    const std::uint64_t high = next_u32();
    return high << 32 | next_u32();
  }

  /// Uniform between `low` and `high`: low + (high - low) * u, where u in [0, 1) has 53 random bits.
  double uniform(double low = 0, double high = 1) noexcept {
    return low + (high - low) * (static_cast<double>(next_u64() >> 11) * 0x1.0p-53);
  }

  /// Standard normal, by Box-Muller; draws two uniform numbers and discards the second normal one, so that
  /// the state stays small.
  double normal() noexcept {
    const double u = 1.0 - uniform();
    const double v = uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

  /// Uniform in 0 .. n-1, without bias. Throws ValueError when n is not positive.
  index_t uniform_int(index_t n) {
    if (n <= 0) throw ValueError("random", {"uniform_int needs a positive bound, got ", n});
    const auto bound = static_cast<std::uint64_t>(n);
    const std::uint64_t threshold = (0 - bound) % bound;
    for (;;) {
      const std::uint64_t x = next_u64();
      if (x >= threshold) return static_cast<index_t>(x % bound);
    }
  }

  /// Shuffles `items` in place (Fisher-Yates).
  template <class U>
  void shuffle(std::span<U> items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<std::size_t>(uniform_int(static_cast<index_t>(i)))]);
    }
  }

  /// Writes n numbers uniform in [low, high) to `out`; writes nothing if the generator is idle().
  template <class T>
  void fill_uniform(T* out, index_t n, double low, double high) noexcept {
    for (index_t i = 0; i < n && !idle_; ++i) out[i] = rounded_below<T>(uniform(low, high), high);
  }
  /// x as a T; the next number below it where rounding takes an x below `high` to `high` or beyond.
  template <class T>
  static T rounded_below(double x, double high) noexcept {
    const T y = static_cast<T>(x);
    if constexpr (std::is_floating_point_v<T>) {
      if (x < high && !(static_cast<double>(y) < high)) {
        return std::nextafter(y, -std::numeric_limits<T>::infinity());
      }
    }
    return y;
  }
  /// Writes n normal numbers to `out`; writes nothing if the generator is idle().
  template <class T>
  void fill_normal(T* out, index_t n, double mean, double standard_deviation) noexcept {
    for (index_t i = 0; i < n && !idle_; ++i) out[i] = static_cast<T>(mean + standard_deviation * normal());
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  State state_;
  std::uint64_t block_index_ = none;
  detail::Philox4x32::Counter block_{};
  bool idle_ = false;
};

namespace detail {

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

/// Which row a dropout mask belongs to: the sequence's number in the epoch and the position in that sequence.
/// So a mask does not depend on how rows are batched, padded, packed or spread over threads.
struct RowKey {
  std::uint32_t sequence = 0;  ///< the number of the sequence in the epoch
  std::uint32_t position = 0;  ///< the row's position in that sequence
  /// Whether both numbers agree.
  friend bool operator==(const RowKey&, const RowKey&) = default;
};

/// What a family of dropout masks is drawn from: the run's seed, the training step and the place in the
/// model.
struct DropoutKey {
  std::uint64_t seed = 0;  ///< the run's seed
  std::uint32_t step = 0;  ///< the number of the training step
  std::uint32_t site = 0;  ///< the number of the dropout site in the model
  /// Whether all three numbers agree.
  friend bool operator==(const DropoutKey&, const DropoutKey&) = default;

  /// The two key words of Philox4x32-10: the low and the high half of a 64-bit mix of seed, step and site.
  /// For one seed, different (step, site) give different keys (the finaliser of SplitMix64 is a bijection).
  constexpr std::array<std::uint32_t, 2> philox_key() const noexcept {
    const std::uint64_t where = static_cast<std::uint64_t>(step) << 32 | site;
    const std::uint64_t z = mix(mix(where + 0x9E3779B97F4A7C15u) ^ seed);
    return {static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(z >> 32)};
  }

 private:
  static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
};

}  // namespace detail

}  // namespace eigenformer
