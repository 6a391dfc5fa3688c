#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "translator/preparing/pair_reader.hpp"
#include "translator/preparing/prepare_options.hpp"
#include "translator/preparing/unicode_text.hpp"

namespace eigenformer::detail {

/// Pairs that passed the filters of text, normalised, and a hash of each.
struct CleanPairs {
  std::vector<std::string> source, target;
  std::vector<std::uint64_t> hashes;
  PrepareReport report{};  // how many of these pairs were dropped, by reason
};

/// Normalises sentence pairs and drops those that PrepareOptions exclude, except duplicates. Thread-safe.
class PairFilter {
 public:
  /// Throws ValueError that names an invalid field.
  explicit PairFilter(const PrepareOptions& options);

  /// Returns the normalised pairs that pass the filters, in their order, with a hash of each.
  CleanPairs operator()(const StoredPairs& pairs) const;

 private:
  std::string normalised(std::string_view text) const;

  // The counter of the report for the reason to drop the pair; null for a pair that is kept.
  index_t PrepareReport::*refusal(const std::string& source, const std::string& target) const;

  PrepareOptions options_;
  Scripts source_, target_;
};

}  // namespace eigenformer::detail
