#include "eigenformer/data/tokenizers/subword_models.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"

using namespace eigenformer;

namespace {

using Symbols = std::vector<int>;
using Possible = std::optional<detail::PossibleMerge<int>>;

// The definition: looks through all pairs for each merge.
template <class Find>
Symbols merged_slowly(Symbols symbols, Find&& find) {
  for (;;) {
    std::size_t best = symbols.size();
    double rank = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Possible merge = find(symbols[i], symbols[i + 1]);
      if (!merge || merge->rank >= rank) continue;
      best = i;
      rank = merge->rank;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = find(symbols[best], symbols[best + 1])->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

TEST_CASE("merge_pairs gives what the definition gives, for random ranks") {
  RandomGenerator rng(11);
  const auto below = [&](std::uint32_t n) { return static_cast<int>(rng.next_u32() % n); };
  int merges = 0;
  for (int trial = 0; trial < 500; ++trial) {
    // Ranks occur several times, and a later symbol may have a smaller rank than its parts.
    constexpr int known = 12;
    std::vector<Possible> table(known * known);
    for (Possible& entry : table)
      if (below(3) == 0) entry = {static_cast<double>(below(9)), below(known)};
    const auto find = [&](int left, int right) -> Possible {
      return table[static_cast<std::size_t>(left * known + right)];
    };
    Symbols symbols(static_cast<std::size_t>(below(40)));
    for (int& symbol : symbols) symbol = below(known);
    const Symbols expected = merged_slowly(symbols, find);
    merges += static_cast<int>(symbols.size() - expected.size());
    Symbols got = symbols;
    detail::merge_pairs(got, find);
    CHECK(got == expected);
    detail::merge_with_dropout(symbols, 0, rng, find);
    CHECK(symbols == expected);
  }
  CHECK(merges > 1000);
}

TEST_CASE("merge_pairs of equal symbols goes from left to right, and a long word takes no quadratic time") {
  const auto twice = [](const std::string& left, const std::string& right) {
    return left == right ? std::optional(detail::PossibleMerge<std::string>{static_cast<double>(left.size()),
                                                                            left + right})
                         : std::nullopt;
  };
  std::vector<std::string> odd(7, "a");
  detail::merge_pairs(odd, twice);
  CHECK(odd == std::vector<std::string>{"aaaa", "aa", "a"});

  // 2^40 steps would take minutes.
  std::vector<std::uint64_t> numbers(std::size_t{1} << 20, 1);
  detail::merge_pairs(numbers, [](std::uint64_t left, std::uint64_t right) {
    return left == right
               ? std::optional(detail::PossibleMerge<std::uint64_t>{static_cast<double>(left), left + right})
               : std::nullopt;
  });
  CHECK(numbers == std::vector<std::uint64_t>{std::uint64_t{1} << 20});
}
