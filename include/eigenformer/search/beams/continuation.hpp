#pragma once

#include <cstddef>
#include <cstdint>

namespace eigenformer::detail {

/// A candidate: hypothesis `parent` of a sentence followed by its rank-th best token.
struct Continuation {
  double log_probability;
  std::size_t parent, rank;
  std::int32_t id;
  double diversity = 0;  ///< the diversity penalty of its tokens

  double value() const noexcept { return log_probability - diversity; }
};

/// Whether a ranks before b.
inline bool comes_before(const Continuation& a, const Continuation& b) noexcept {
  if (a.value() != b.value()) return a.value() > b.value();
  return a.parent != b.parent ? a.parent < b.parent : a.rank < b.rank;
}

}  // namespace eigenformer::detail
