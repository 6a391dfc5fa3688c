#pragma once

#include <cstddef>
#include <span>

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

/// Counts the hypotheses that equal their references, byte by byte (or element by element). Throws ValueError
/// for unequal numbers.
template <class T>
Accuracy exact_match(std::span<const T> hypotheses, std::span<const T> references) {
  if (hypotheses.size() != references.size()) {
    throw ValueError("exact_match", {hypotheses.size(), " hypotheses and ", references.size(),
                                     " references, expected equal numbers"});
  }
  Accuracy accuracy{0, static_cast<index_t>(hypotheses.size())};
  for (std::size_t i = 0; i < hypotheses.size(); ++i)
    accuracy.correct += hypotheses[i] == references[i] ? 1 : 0;
  return accuracy;
}

/// The same for contiguous containers: vectors of strings, of ids or of id sequences.
template <class Container>
Accuracy exact_match(const Container& hypotheses, const Container& references) {
  using T = typename Container::value_type;
  return exact_match(std::span<const T>(hypotheses), std::span<const T>(references));
}

}  // namespace eigenformer
