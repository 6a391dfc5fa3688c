#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// One corpus of a Mixture.
struct MixturePart {
  const PairSource* source = nullptr;  ///< the corpus, which must outlive the mixture
  double weight = 0;  ///< its share of an epoch, relative to the other weights; 0 in all parts: by size
  std::optional<TextConventions> text{};  ///< conventions of its sentences, such as a language token; none:
                                          ///< those of BatchingOptions
};

/// Options of a Mixture.
struct MixtureOptions {
  /// Parts without weights have shares in proportion to their numbers of pairs to the power 1 / temperature
  /// (Arivazhagan et al. 2019, section 4.2): with 1 every pair occurs once in an epoch, the paper uses 5, and
  /// larger values approach equal shares.
  double temperature = 1;
  bool shuffle = true;     ///< false: the pairs of each corpus in their order
  std::uint64_t seed = 1;  ///< seed of the order
};

/// A weighted mixture of several corpora. An epoch has as many pairs as all corpora together, and of each
/// corpus as many as its share, rounded so that they add up. Each corpus is read in random order, without
/// repetition until all of it was read, then in a new order; an epoch continues where the last one stopped.
/// The order is computed from the parts, the options and the epoch, so a mixture takes no memory. Holds the
/// sources by reference.
class Mixture final : public PairSource {
 public:
  /// Throws ValueError for no parts, a part that is null or has no pairs, weights that are set for only some
  /// parts or are not positive numbers, a temperature that is not positive, weights together with a
  /// temperature other than 1, and a part whose share is less than one pair.
  explicit Mixture(std::vector<MixturePart> parts, const MixtureOptions& options = {});

  /// Number of pairs of corpus k in every epoch. Throws IndexError when there is no corpus k.
  index_t pairs_of(std::size_t k) const {
    if (k >= ends_.size()) {
      throw IndexError("mixture", {"corpus ", k, " does not exist, there are ", ends_.size()});
    }
    return k == 0 ? ends_[0] : ends_[k] - ends_[k - 1];
  }

  index_t size() const noexcept override { return ends_.back(); }
  PairLengths lengths(index_t epoch, index_t i) const override {
    const Place at = place(epoch, i);
    return parts_[at.part].source->lengths(at.pass, at.pair);
  }
  void read(index_t epoch, index_t i, EncodedPair& out) const override {
    const Place at = place(epoch, i);
    const MixturePart& part = parts_[at.part];
    part.source->read(at.pass, at.pair, out);
    if (out.text == nullptr && part.text) out.text = &*part.text;
  }
  EIGENFORMER_IO_FUNCTION std::string fingerprint() const override;
  EIGENFORMER_IO_FUNCTION SourceIdentity identity() const override;
  bool aligned() const override {
    const auto is_aligned = [](const MixturePart& part) { return part.source->aligned(); };
    const auto count = std::count_if(parts_.begin(), parts_.end(), is_aligned);
    if (count == 0 || count == static_cast<std::ptrdiff_t>(parts_.size())) return count > 0;
    throw ValueError("mixture", "some corpora have alignments, and some have none: expected all or none");
  }
  bool in_memory() const noexcept override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const MixturePart& part) { return part.source->in_memory(); });
  }

 private:
  // A pair of a part, and the number of complete passes over the part before it.
  struct Place {
    std::size_t part;
    index_t pass, pair;
  };

  std::string order() const {
    return options_.shuffle ? "order of seed " + std::to_string(options_.seed) : "order of the corpora";
  }

  Place place(index_t epoch, index_t i) const;

  std::vector<double> weights() const;

  // Divides `total` in proportion to the weights by the largest remainder method, the first part on ties.
  static std::vector<index_t> rounded_shares(const std::vector<double>& weights, index_t total);

  std::vector<MixturePart> parts_;
  MixtureOptions options_;
  std::vector<index_t> ends_;  // of each part's places in an epoch
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION Mixture::Mixture(std::vector<MixturePart> parts, const MixtureOptions& options)
    : parts_(std::move(parts)), options_(options) {
  if (parts_.empty()) throw ValueError("mixture", "number of corpora is 0, must be positive");
  index_t total = 0;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    if (parts_[k].source == nullptr || parts_[k].source->size() == 0)
      throw ValueError("mixture", {"corpus ", k + 1, " has no pair, expected at least one"});
    total += parts_[k].source->size();
  }
  const std::vector<double> shares = weights();
  ends_ = rounded_shares(shares, total);
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    if (ends_[k] > 0) continue;
    throw ValueError(
        "mixture", {"corpus ", k + 1, " has the weight ", detail::number_text(shares[k]),
                    ", which gives it none of the ", total, " pairs of an epoch; expected a larger weight"});
  }
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

EIGENFORMER_IO_FUNCTION std::string Mixture::fingerprint() const {
  std::string text = "mixture with seed " + std::to_string(options_.seed), more = order();
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const auto [part, more_of_part] = detail::fingerprint_parts(parts_[k].source->fingerprint());
    text += "; " + std::to_string(pairs_of(k)) + " of " + part;
    more += "; " + more_of_part;
    if (!parts_[k].text) continue;
    more += ", " + detail::training_ids(*parts_[k].text);
    text += " after";
    for (const auto* ids : {&parts_[k].text->source_prefix, &parts_[k].text->target_prefix}) {
      for (const std::int32_t id : *ids) text += ' ' + std::to_string(id);
      text += ',';
    }
  }
  return text + detail::fingerprint_bar + more;
}

EIGENFORMER_IO_FUNCTION SourceIdentity Mixture::identity() const {
  SourceIdentity all{.pairs = size(), .content = {}, .tokenizers = {}, .options = order()};
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const SourceIdentity part = parts_[k].source->identity();
    all.content += (k == 0 ? "" : "; ") + std::to_string(part.pairs) + " " + part.content;
    all.tokenizers += (k == 0 ? "" : "; ") + part.tokenizers;
    all.options += "; " + std::to_string(pairs_of(k)) + " of corpus " + std::to_string(k + 1);
    if (!part.options.empty()) all.options += ", " + part.options;
    if (parts_[k].text) all.options += ", " + detail::training_ids(*parts_[k].text);
  }
  return all;
}

EIGENFORMER_IO_FUNCTION Mixture::Place Mixture::place(index_t epoch, index_t i) const {
  if (i < 0 || i >= size()) {
    throw IndexError("mixture", {"pair ", i, " does not exist, an epoch has ", size()});
  }
  const auto k = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  const index_t n = parts_[k].source->size(), begin = k == 0 ? 0 : ends_[k - 1];
  const index_t read = epoch * pairs_of(k) + (i - begin);  // of this part, in all epochs
  const index_t pass = read / n;
  if (!options_.shuffle) return {k, pass, read % n};
  const auto words = detail::Philox4x32::generate(
      {static_cast<std::uint32_t>(pass), static_cast<std::uint32_t>(k), 0, 0},
      {static_cast<std::uint32_t>(options_.seed), static_cast<std::uint32_t>(options_.seed >> 32)});
  RandomGenerator rng(std::uint64_t{words[0]} << 32 | words[1]);
  return {k, pass, detail::IndexPermutation(n, rng)(read % n)};
}

EIGENFORMER_IO_FUNCTION std::vector<double> Mixture::weights() const {
  if (!(options_.temperature > 0) || !std::isfinite(options_.temperature)) {
    throw ValueError("mixture", {"temperature is ", detail::number_text(options_.temperature),
                                 ", must be a positive number"});
  }
  std::vector<double> found;
  for (const MixturePart& part : parts_) found.push_back(part.weight);
  if (std::all_of(found.begin(), found.end(), [](double weight) { return weight == 0; })) {
    double largest = 0;
    for (std::size_t k = 0; k < found.size(); ++k) {
      found[k] = static_cast<double>(parts_[k].source->size());
      largest = std::max(largest, found[k]);
    }
    for (double& weight : found) weight = std::pow(weight / largest, 1 / options_.temperature);
    return found;
  }
  if (options_.temperature != 1)
    throw ValueError("mixture",
                     "the corpora have weights, and there is a temperature; expected only one of the two");
  for (std::size_t k = 0; k < found.size(); ++k) {
    if (found[k] > 0 && std::isfinite(found[k])) continue;
    throw ValueError("mixture", {"corpus ", k + 1, " has the weight ", detail::number_text(found[k]),
                                 ", must be a positive number"});
  }
  return found;
}

EIGENFORMER_IO_FUNCTION std::vector<index_t> Mixture::rounded_shares(const std::vector<double>& weights,
                                                                     index_t total) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<index_t> shares;
  std::vector<std::pair<double, std::size_t>> lost;
  index_t rest = total;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const double exact = weights[k] / sum * static_cast<double>(total);
    // A share that differs from a whole number by rounding errors alone is that number.
    const double whole = std::abs(exact - std::round(exact)) < 1e-9 * std::max(1.0, exact)
                             ? std::round(exact)
                             : std::floor(exact);
    shares.push_back(std::min(rest, static_cast<index_t>(whole)));
    rest -= shares.back();
    lost.emplace_back(whole - exact, k);
  }
  std::sort(lost.begin(), lost.end());
  for (std::size_t k = 0; rest > 0; k = (k + 1) % lost.size(), --rest) ++shares[lost[k].second];
  return shares;
}

}  // namespace eigenformer

#endif
