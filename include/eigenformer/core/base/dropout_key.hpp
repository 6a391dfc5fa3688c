#pragma once

#include <array>
#include <cstdint>

namespace eigenformer::detail {

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

}  // namespace eigenformer::detail
