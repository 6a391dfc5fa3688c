#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace eigenformer::detail {

/// A set of 64-bit hashes that takes 10 to 13 bytes per hash: 256 tables with open addressing, chosen by the
/// upper bits, that grow by a quarter at a load of 0.8. Two different texts have the same hash with
/// probability 2^-64, so about n^2 / 2^65 of n texts are mistaken for others: 0.0003 of 100 million.
class HashSet {
 public:
  /// Adds a hash and returns whether it is new. 0 and 1 count as the same hash.
  bool insert(std::uint64_t hash);

  /// Number of different hashes.
  std::size_t size() const noexcept;

  /// Memory of the tables, in bytes.
  std::size_t bytes() const noexcept;

 private:
  struct Table {
    std::vector<std::uint64_t> places;
    std::size_t used = 0;

    bool insert(std::uint64_t hash);
  };

  static void grow(Table& table);

  std::array<Table, 256> tables_;
};

}  // namespace eigenformer::detail
