#include "translator/preparing/hash_set.hpp"

#include <utility>

namespace eigenformer::detail {

bool HashSet::insert(std::uint64_t hash) {
  if (hash == 0) hash = 1;  // 0 marks a free place
  Table& table = tables_[hash >> 56];
  if ((table.used + 1) * 5 > table.places.size() * 4) grow(table);
  return table.insert(hash);
}

std::size_t HashSet::size() const noexcept {
  std::size_t sum = 0;
  for (const Table& table : tables_) sum += table.used;
  return sum;
}

std::size_t HashSet::bytes() const noexcept {
  std::size_t sum = 0;
  for (const Table& table : tables_) sum += table.places.capacity() * sizeof(std::uint64_t);
  return sum;
}

bool HashSet::Table::insert(std::uint64_t hash) {
  // The upper half of a product maps hashes evenly to any number of places.
  auto at = static_cast<std::size_t>(((hash >> 16) & 0xFFFFFFFFu) * std::uint64_t{places.size()} >> 32);
  for (; places[at] != 0; at = at + 1 == places.size() ? 0 : at + 1)
    if (places[at] == hash) return false;
  places[at] = hash;
  ++used;
  return true;
}

void HashSet::grow(Table& table) {
  Table larger;
  larger.places.resize(table.places.size() + table.places.size() / 4 + 64);
  for (const std::uint64_t hash : table.places)
    if (hash != 0) larger.insert(hash);
  table = std::move(larger);
}

}  // namespace eigenformer::detail
