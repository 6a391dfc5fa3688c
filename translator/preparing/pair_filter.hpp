#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "translator/preparing/prepare_options.hpp"
#include "translator/preparing/unicode_text.hpp"

namespace eigenformer::detail {

// Whether a text is UTF-8 without NUL bytes.
inline bool is_plain_text(std::string_view text) {
  return !find_invalid_utf8(text) && text.find('\0') == std::string_view::npos;
}

// The number of code points of a UTF-8 text.
inline index_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

/// Pairs as read, not normalised. A line of a TSV file without a tab has a source and no target.
struct StoredPairs {
  std::vector<std::string> source;
  std::vector<std::optional<std::string>> target;
};

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
  explicit PairFilter(const PrepareOptions& options)
      : options_(options), source_(options.source_script), target_(options.target_script) {
    options.validate();
  }

  /// Returns the normalised pairs that pass the filters, in their order, with a hash of each.
  CleanPairs operator()(const StoredPairs& pairs) const {
    CleanPairs clean;
    for (std::size_t i = 0; i < pairs.source.size(); ++i) {
      ++clean.report.read;
      if (!pairs.target[i] || !is_plain_text(pairs.source[i]) || !is_plain_text(*pairs.target[i])) {
        ++clean.report.invalid;
        continue;
      }
      std::string source = normalised(pairs.source[i]), target = normalised(*pairs.target[i]);
      if (index_t PrepareReport::*const reason = refusal(source, target); reason != nullptr) {
        ++(clean.report.*reason);
        continue;
      }
      Hash64 hash;
      hash.add(source);
      hash.add("\n");
      hash.add(target);
      clean.hashes.push_back(hash.value());
      clean.source.push_back(std::move(source));
      clean.target.push_back(std::move(target));
    }
    return clean;
  }

 private:
  std::string normalised(std::string_view text) const {
    std::string out = normalize_text(text);
    return options_.nfc ? to_nfc(out) : out;
  }

  // The counter of the report for the reason to drop the pair; null for a pair that is kept.
  index_t PrepareReport::*refusal(const std::string& source, const std::string& target) const {
    if (source.empty() || target.empty()) return &PrepareReport::empty;
    if (options_.drop_identical && source == target) return &PrepareReport::identical;
    const index_t s = num_characters(source), t = num_characters(target);
    if (options_.max_characters > 0 && std::max(s, t) > options_.max_characters)
      return &PrepareReport::characters;
    if (options_.max_ratio > 0 &&
        static_cast<double>(std::max(s, t)) > options_.max_ratio * static_cast<double>(std::min(s, t)))
      return &PrepareReport::ratio;
    if (source_.share(source) < options_.script_share || target_.share(target) < options_.script_share)
      return &PrepareReport::script;
    return nullptr;
  }

  PrepareOptions options_;
  Scripts source_, target_;
};

}  // namespace eigenformer::detail
