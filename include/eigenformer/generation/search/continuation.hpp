#pragma once

#include <cstddef>
#include <cstdint>

namespace eigenformer::detail {

/// One way to go on: hypothesis `parent` of a sentence with the token that is its rank-th best.
struct Continuation {
  double log_probability;
  std::size_t parent, rank;
  std::int32_t id;
  double diversity = 0;  ///< what its tokens cost because earlier groups chose them

  double value() const noexcept { return log_probability - diversity; }
};

/// Whether a is looked at before b.
inline bool comes_before(const Continuation& a, const Continuation& b) noexcept {
  if (a.value() != b.value()) return a.value() > b.value();
  return a.parent != b.parent ? a.parent < b.parent : a.rank < b.rank;
}

}  // namespace eigenformer::detail
