#pragma once

#include <cstddef>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// A count of correct items out of a total, as exact_match() returns it.
struct Accuracy {
  index_t correct = 0;  ///< items that are right
  index_t total = 0;    ///< items compared, the right ones included

  /// correct / total, in [0, 1]; 0 when total is 0.
  double rate() const noexcept {
    return total == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(total);
  }
};

/// Counts the hypotheses that equal their references, byte by byte (or element by element). Container: a
/// vector or span of strings, of ids or of id sequences. Throws ValueError for unequal numbers.
template <class Container>
Accuracy exact_match(const Container& hypotheses, const Container& references) {
  if (hypotheses.size() != references.size()) {
    throw ValueError("exact_match", {hypotheses.size(), " hypotheses and ", references.size(),
                                     " references, expected equal numbers"});
  }
  Accuracy accuracy{0, static_cast<index_t>(hypotheses.size())};
  for (std::size_t i = 0; i < hypotheses.size(); ++i)
    accuracy.correct += hypotheses[i] == references[i] ? 1 : 0;
  return accuracy;
}

}  // namespace eigenformer
