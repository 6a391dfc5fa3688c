#pragma once

#include <limits>
#include <set>
#include <span>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"

namespace eigenformer {

/// Compares word alignments with reference alignments, whose links are sure or possible, and sums over
/// sentences (Och & Ney 2003, section 5.1).
///
/// With A the links found, S the sure links and P the sure and possible links:
///
///     precision = |A & P| / |A|
///     recall    = |A & S| / |S|
///     AER       = 1 - (|A & S| + |A & P|) / (|A| + |S|)
class AlignmentError {
 public:
  /// Adds one sentence pair. Repeated links count once; `possible` need not repeat the sure links.
  void add(std::span<const AlignmentLink> found, std::span<const AlignmentLink> sure,
           std::span<const AlignmentLink> possible = {});

  /// The alignment error rate, in [0, 1], lower is better; NaN when no link was found and none is sure.
  double rate() const { return 1 - share(found_sure_ + found_possible_, found_ + sure_); }
  /// The share of the links found that are sure or possible, in [0, 1]; NaN when none was found.
  double precision() const { return share(found_possible_, found_); }
  /// The share of the sure links that were found, in [0, 1]; NaN when no link is sure.
  double recall() const { return share(found_sure_, sure_); }

  /// |A|, summed over the sentences.
  index_t found() const noexcept { return found_; }
  /// |S|, summed over the sentences.
  index_t sure() const noexcept { return sure_; }

 private:
  static double share(index_t part, index_t all) {
    return all == 0 ? std::numeric_limits<double>::quiet_NaN()
                    : static_cast<double>(part) / static_cast<double>(all);
  }

  index_t found_ = 0, sure_ = 0, found_sure_ = 0, found_possible_ = 0;
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION void AlignmentError::add(std::span<const AlignmentLink> found,
                                                 std::span<const AlignmentLink> sure,
                                                 std::span<const AlignmentLink> possible) {
  using Links = std::set<std::pair<index_t, index_t>>;
  const auto set_of = [](std::span<const AlignmentLink> links) {
    Links set;
    for (const AlignmentLink& link : links) set.emplace(link.source, link.target);
    return set;
  };
  const Links a = set_of(found), s = set_of(sure);
  Links p = set_of(possible);
  p.insert(s.begin(), s.end());
  found_ += static_cast<index_t>(a.size());
  sure_ += static_cast<index_t>(s.size());
  for (const auto& link : a) {
    found_sure_ += s.contains(link) ? 1 : 0;
    found_possible_ += p.contains(link) ? 1 : 0;
  }
}

}  // namespace eigenformer

#endif
