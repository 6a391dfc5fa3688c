#pragma once

#include <limits>
#include <set>
#include <span>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"

namespace eigenformer {

/// Compares alignments with right ones, whose links are sure or merely possible, over many sentences (Och &
/// Ney 2003, section 5.1). With A the links found, S the sure ones and P the possible ones, the sure ones
/// among them: precision |A & P| / |A|, recall |A & S| / |S|, and the alignment error rate 1 - (|A & S| + |A
/// & P|) /
/// (|A| + |S|).
class AlignmentError {
 public:
  /// The links of one sentence pair; repeated ones count once. possible: those beside the sure ones.
  void add(std::span<const AlignmentLink> found, std::span<const AlignmentLink> sure,
           std::span<const AlignmentLink> possible = {}) {
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

  /// In [0, 1], 0 the best; NaN where there is no link at all.
  double rate() const { return 1 - share(found_sure_ + found_possible_, found_ + sure_); }
  /// NaN where nothing was found.
  double precision() const { return share(found_possible_, found_); }
  /// NaN where no link is sure.
  double recall() const { return share(found_sure_, sure_); }

  index_t found() const noexcept { return found_; }
  index_t sure() const noexcept { return sure_; }

 private:
  static double share(index_t part, index_t all) {
    return all == 0 ? std::numeric_limits<double>::quiet_NaN()
                    : static_cast<double>(part) / static_cast<double>(all);
  }

  index_t found_ = 0, sure_ = 0, found_sure_ = 0, found_possible_ = 0;
};

}  // namespace eigenformer
