#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"

namespace eigenformer::detail {

/// A possible merge of two adjacent symbols and its rank; the smallest rank is merged first.
template <class Symbol>
struct PossibleMerge {
  double rank = 0;
  Symbol merged{};
};

/// Byte pair encoding with dropout (Provilkov et al. 2020, algorithm 1): in each step every possible merge is
/// left out with probability `rate`, and of the others the one with the smallest rank, leftmost, is done; a
/// step without a merge is the last. Rate 0 is the plain encoding, and takes no random numbers.
///
/// symbols: those of one word, replaced by the result. find(left, right): an optional PossibleMerge of two
/// adjacent symbols.
template <class Symbol, class Find>
void merge_with_dropout(std::vector<Symbol>& symbols, double rate, RandomGenerator& rng, Find&& find) {
  if (symbols.size() < 2) return;
  const auto limit = static_cast<std::uint64_t>(rate * 0x1.0p32);
  std::vector<std::optional<PossibleMerge<Symbol>>> merges(symbols.size() - 1);  // of i and i + 1
  for (std::size_t i = 0; i < merges.size(); ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  for (;;) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      if (!merges[i] || (limit > 0 && rng.next_u32() < limit)) continue;
      if (!best || merges[i]->rank < merges[*best]->rank) best = i;
    }
    if (!best) return;
    const std::size_t i = *best;
    symbols[i] = std::move(merges[i]->merged);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(i));
    if (i > 0) merges[i - 1] = find(symbols[i - 1], symbols[i]);
    if (i < merges.size()) merges[i] = find(symbols[i], symbols[i + 1]);
  }
}

}  // namespace eigenformer::detail
