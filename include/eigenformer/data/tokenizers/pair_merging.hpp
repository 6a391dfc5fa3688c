#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
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

/// Byte pair encoding (Sennrich et al. 2016): of all pairs of adjacent symbols, the one with the smallest
/// rank, leftmost, is merged, until no pair can be. n symbols take O(n log n) time.
///
/// symbols: those of one word, replaced by the result. find(left, right): an optional PossibleMerge of two
/// adjacent symbols.
template <class Symbol, class Find>
void merge_pairs(std::vector<Symbol>& symbols, Find&& find) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  struct Link {
    std::size_t previous, next;
    std::size_t merges = 0;  // that the symbol is made of: tells whether a candidate is out of date
    bool alive = true;
  };
  struct Candidate {
    double rank;
    std::size_t left, left_merges, right, right_merges;
    bool operator<(const Candidate& other) const {  // the top of the queue is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Link> links;
  links.reserve(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i)
    links.push_back({i == 0 ? none : i - 1, i + 1 == symbols.size() ? none : i + 1});
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::size_t left) {
    if (left == none || links[left].next == none) return;
    const std::size_t right = links[left].next;
    if (const auto merge = find(symbols[left], symbols[right]))
      queue.push({merge->rank, left, links[left].merges, right, links[right].merges});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Link &left = links[best.left], &right = links[best.right];
    if (!left.alive || !right.alive || left.merges != best.left_merges || right.merges != best.right_merges)
      continue;
    symbols[best.left] = std::move(find(symbols[best.left], symbols[best.right])->merged);
    left.merges += right.merges + 1;
    left.next = right.next;
    right.alive = false;
    if (right.next != none) links[right.next].previous = best.left;
    offer(left.previous);
    offer(best.left);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (!links[i].alive) continue;
    if (kept != i) symbols[kept] = std::move(symbols[i]);
    ++kept;
  }
  symbols.resize(kept);
}

/// Byte pair encoding with dropout (Provilkov et al. 2020, algorithm 1): in each step every possible merge is
/// left out with probability `rate`, and of the others the one with the smallest rank, leftmost, is done; a
/// step without a merge is the last. Rate 0 is merge_pairs(), and takes no random numbers.
///
/// symbols: those of one word, replaced by the result. find(left, right): an optional PossibleMerge of two
/// adjacent symbols.
template <class Symbol, class Find>
void merge_with_dropout(std::vector<Symbol>& symbols, double rate, RandomGenerator& rng, Find&& find) {
  if (rate == 0) return merge_pairs(symbols, find);
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
