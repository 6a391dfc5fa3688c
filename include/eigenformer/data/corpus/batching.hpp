#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Sentence pairs packed for training with teacher forcing: the decoder reads begin and the target, and
/// predicts the target and end.
struct Batch {
  std::vector<std::int32_t> source;         ///< (Ns): ids of each source, with its prefix and suffix (end)
  std::vector<std::int32_t> target_input;   ///< (Nt): begin, then the target; decoder input
  std::vector<std::int32_t> target_output;  ///< (Nt): the target, then end; what the loss expects
  SequenceLayout source_layout;             ///< packed, with the sentences' numbers in the epoch
  SequenceLayout target_layout;             ///< packed, with the same numbers
  /// Links of each pair between its source rows and its rows of target_output, both counted within the pair;
  /// empty when the corpus has no alignments.
  std::vector<std::vector<AlignmentLink>> alignment{};

  /// Number of sentence pairs.
  index_t size() const noexcept { return source_layout.batch(); }
  /// Number of target tokens that the loss counts, end symbols included.
  index_t target_tokens() const noexcept { return static_cast<index_t>(target_output.size()); }
};

/// How an epoch is cut into batches.
struct BatchingOptions {
  index_t max_target_tokens = 2048;  ///< target tokens of a batch, end symbols included; there is no padding
  index_t max_source_tokens = 0;     ///< the same for the source; 0: twice max_target_tokens
  index_t max_sentences = 0;         ///< sentence pairs of a batch; 0: no limit
  index_t bucket_sentences =
      4096;  ///< number of consecutive pairs of the shuffled epoch that are sorted by length; 1: no sorting
  /// A source that is not in memory and has more pairs than this is planned in segments; see Batcher.
  index_t whole_pairs = index_t{1} << 22;
  bool shuffle = true;     ///< false: the order of the corpus, only sorted in buckets (validation)
  std::uint64_t seed = 1;  ///< seed of the order of the pairs and batches
  /// Prefixes, suffixes, begin and end that are added to each sentence; the limits count one token for them.
  TextConventions text{};

  /// Visits all fields but text, which model folders store separately.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"max_target_tokens", "maximum target tokens per batch, end symbols included",
                      Allowed::positive},
          self.max_target_tokens);
    visit(OptionField{"max_source_tokens", "maximum source tokens per batch; 0: twice max_target_tokens",
                      Allowed::not_negative},
          self.max_source_tokens);
    visit(
        OptionField{"max_sentences", "maximum sentence pairs per batch; 0: no limit", Allowed::not_negative},
        self.max_sentences);
    visit(
        OptionField{
            "bucket_sentences",
            "number of consecutive pairs of the shuffled epoch that are sorted by length; 1: no sorting",
            Allowed::positive},
        self.bucket_sentences);
    visit(OptionField{"whole_pairs",
                      "batches of a corpus on disk with more pairs than this are planned in segments",
                      Allowed::not_negative},
          self.whole_pairs);
    visit(OptionField{"shuffle", "shuffle the pairs anew in each epoch; false: order of the corpus"},
          self.shuffle);
    visit(OptionField{"seed", "seed of the shuffling"}, self.seed);
  }

  /// Throws ValueError that names an impossible field.
  void validate() const;
};

/// Cuts sentence pairs into batches, epoch by epoch. The contents of batch k of epoch e depend only on the
/// source, the options, e and k, so training can resume in the middle of an epoch. Every pair occurs exactly
/// once in an epoch. Holds the source by reference. Not thread-safe.
///
/// An epoch is shuffled, sorted by length in buckets (ascending and descending in turn, so that lengths stay
/// similar where two buckets meet) and cut where the next pair would exceed a limit; then its batches are
/// shuffled. A pair that exceeds a limit by itself is a batch of its own.
///
/// The order of an epoch takes 8 bytes per pair. A source that is not in memory and has more than
/// options.whole_pairs pairs is planned in segments of 16 buckets instead: its order is a permutation that is
/// computed and not stored, each segment is cut into batches that are shuffled like a small epoch, and only
/// the number of batches of each segment is stored. An epoch then begins with a pass over all lengths, on all
/// threads.
class Batcher {
 public:
  /// Throws ValueError for an empty source, for one with alignments of only some pairs, and for options that
  /// validate() refuses.
  explicit Batcher(const PairSource& source, const BatchingOptions& options = {});
  /// Deleted: a Batcher holds its source by reference, which must outlive it.
  explicit Batcher(PairSource&& source, const BatchingOptions& options = {}) = delete;

  /// Number of batches of an epoch, counted from 0; plans the epoch on the first call. Throws ValueError for
  /// a negative epoch.
  index_t num_batches(index_t epoch) { return counts(epoch).back(); }

  /// Indices in the source of the pairs in batch k of an epoch, in the batch's order; valid until the next
  /// call. Throws ValueError for a negative epoch, IndexError when there is no batch k.
  std::span<const index_t> sentences(index_t epoch, index_t k) {
    const Range range = batch_range(epoch, k);
    return std::span<const index_t>(plan_.order).subspan(range.begin, range.end - range.begin);
  }

  /// Reads batch k of an epoch from the source. Throws ValueError for a negative epoch, IndexError when there
  /// is no batch k, and what PairSource::read() throws.
  Batch batch(index_t epoch, index_t k);

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  // A segment of an epoch's order: all of it, or 16 buckets.
  struct Plan {
    index_t epoch = -1, segment = -1;
    std::size_t begin = 0;       // its place in the epoch
    std::vector<index_t> order;  // the source's numbers, sorted into buckets
    std::vector<Range> batches;  // ranges of `order`, in the order of training
  };

  Range batch_range(index_t epoch, index_t k);

  // The batches of an epoch up to the end of each segment.
  const std::vector<index_t>& counts(index_t epoch);

  // Epochs draw from distant parts of one random stream; the first numbers of each are the keys of a
  // permutation, or shuffle the whole epoch.
  RandomGenerator stream(index_t epoch, std::uint64_t from = 0) const {
    RandomGenerator rng(options_.seed);
    rng.set_state({options_.seed, (static_cast<std::uint64_t>(epoch) << 36) + from});
    return rng;
  }

  void make_plan(index_t epoch, index_t segment, Plan& plan) const;

  void sort_in_buckets(index_t epoch, std::vector<index_t>& order) const;

  void cut(index_t epoch, Plan& plan) const;

  const PairSource* source_;
  BatchingOptions options_;
  bool aligned_ = false, shuffle_whole_ = false;
  index_t segment_pairs_ = 0;
  index_t counted_epoch_ = -1;
  std::vector<index_t> ends_;
  Plan plan_;
  EncodedPair pair_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS
#include <algorithm>
#include <numeric>

#include "eigenformer/core/runtime/runtime.hpp"

namespace eigenformer {

EIGENFORMER_FUNCTION void BatchingOptions::validate() const { validate_fields("batching", *this); }

EIGENFORMER_FUNCTION Batcher::Batcher(const PairSource& source, const BatchingOptions& options)
    : source_(&source), options_(options) {
  if (source.size() == 0) throw ValueError("batching", "number of sentence pairs is 0, must be positive");
  options.validate();
  aligned_ = source.aligned();
  if (options_.max_source_tokens == 0) options_.max_source_tokens = 2 * options_.max_target_tokens;
  const bool whole = source.in_memory() || source.size() <= options_.whole_pairs;
  segment_pairs_ = whole ? source.size() : std::min(source.size(), 16 * options_.bucket_sentences);
  shuffle_whole_ = whole && options_.shuffle;
}

EIGENFORMER_FUNCTION Batch Batcher::batch(index_t epoch, index_t k) {
  const Range range = batch_range(epoch, k);
  Batch batch;
  std::vector<index_t> source_lengths, target_lengths;
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    source_->read(epoch, plan_.order[i], pair_);
    const TextConventions& text = pair_.text != nullptr ? *pair_.text : options_.text;
    const auto append = [](std::vector<std::int32_t>& ids, std::span<const std::int32_t> more) {
      ids.insert(ids.end(), more.begin(), more.end());
    };
    append(batch.source, text.source_prefix);
    append(batch.source, pair_.source);
    append(batch.source, text.source_suffix);
    batch.target_input.push_back(text.begin_id);
    for (std::vector<std::int32_t>* ids : {&batch.target_input, &batch.target_output}) {
      append(*ids, text.target_prefix);
      append(*ids, pair_.target);
    }
    batch.target_output.push_back(text.end_id);
    source_lengths.push_back(
        static_cast<index_t>(text.source_prefix.size() + pair_.source.size() + text.source_suffix.size()));
    target_lengths.push_back(static_cast<index_t>(text.target_prefix.size() + pair_.target.size()) + 1);
    numbers.push_back(static_cast<std::uint32_t>(plan_.begin + i));
    if (!aligned_) continue;
    auto& links = batch.alignment.emplace_back();
    for (const AlignmentLink& link : pair_.links) {
      links.push_back({link.source + static_cast<index_t>(text.source_prefix.size()),
                       link.target + static_cast<index_t>(text.target_prefix.size())});
    }
  }
  batch.source_layout = SequenceLayout::packed(source_lengths).with_sequence_numbers(numbers);
  batch.target_layout = SequenceLayout::packed(target_lengths).with_sequence_numbers(std::move(numbers));
  return batch;
}

EIGENFORMER_FUNCTION Batcher::Range Batcher::batch_range(index_t epoch, index_t k) {
  const std::vector<index_t>& ends = counts(epoch);
  if (k < 0 || k >= ends.back()) {
    throw IndexError("batching", {"batch ", k, " does not exist, epoch ", epoch, " has ", ends.back()});
  }
  const auto segment = static_cast<index_t>(std::upper_bound(ends.begin(), ends.end(), k) - ends.begin());
  if (plan_.epoch != epoch || plan_.segment != segment) make_plan(epoch, segment, plan_);
  return plan_.batches[static_cast<std::size_t>(segment == 0 ? k : k - ends[segment - 1])];
}

EIGENFORMER_FUNCTION const std::vector<index_t>& Batcher::counts(index_t epoch) {
  if (epoch < 0) throw ValueError("batching", {"epoch is ", epoch, ", must not be negative"});
  if (counted_epoch_ == epoch) return ends_;
  counted_epoch_ = -1;
  const index_t segments = (source_->size() + segment_pairs_ - 1) / segment_pairs_;
  ends_.assign(static_cast<std::size_t>(segments), 0);
  if (segments == 1) {
    make_plan(epoch, 0, plan_);
    ends_[0] = static_cast<index_t>(plan_.batches.size());
  } else {
    parallel_for(segments, 1, [&](index_t first, index_t last) {
      Plan plan;
      for (index_t s = first; s < last; ++s) {
        make_plan(epoch, s, plan);
        ends_[static_cast<std::size_t>(s)] = static_cast<index_t>(plan.batches.size());
      }
    });
    std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  }
  counted_epoch_ = epoch;
  return ends_;
}

EIGENFORMER_FUNCTION void Batcher::make_plan(index_t epoch, index_t segment, Plan& plan) const {
  plan.epoch = -1;
  const index_t begin = segment * segment_pairs_;
  plan.begin = static_cast<std::size_t>(begin);
  plan.order.resize(static_cast<std::size_t>(std::min(segment_pairs_, source_->size() - begin)));
  std::iota(plan.order.begin(), plan.order.end(), begin);
  RandomGenerator rng = stream(epoch);
  if (shuffle_whole_) {
    rng.shuffle(std::span<index_t>(plan.order));
  } else if (options_.shuffle) {
    const detail::IndexPermutation permutation(source_->size(), rng);
    for (index_t& i : plan.order) i = permutation(i);
    rng = stream(epoch, (static_cast<std::uint64_t>(segment) + 1) << 20);
  }
  sort_in_buckets(epoch, plan.order);
  cut(epoch, plan);
  if (options_.shuffle) rng.shuffle(std::span<Range>(plan.batches));
  plan.epoch = epoch;
  plan.segment = segment;
}

EIGENFORMER_FUNCTION void Batcher::sort_in_buckets(index_t epoch, std::vector<index_t>& order) const {
  struct Item {
    PairLengths lengths;
    index_t pair;
  };
  std::vector<Item> items;
  const auto bucket = static_cast<std::size_t>(options_.bucket_sentences);
  bool rising = true;
  for (std::size_t begin = 0; begin < order.size(); begin += bucket, rising = !rising) {
    const auto part = std::span(order).subspan(begin, std::min(bucket, order.size() - begin));
    items.clear();
    for (const index_t i : part) items.push_back({source_->lengths(epoch, i), i});
    std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
      const PairLengths &low = (rising ? a : b).lengths, &high = (rising ? b : a).lengths;
      return low.target != high.target ? low.target < high.target : low.source < high.source;
    });
    std::transform(items.begin(), items.end(), part.begin(), [](const Item& item) { return item.pair; });
  }
}

EIGENFORMER_FUNCTION void Batcher::cut(index_t epoch, Plan& plan) const {
  plan.batches.clear();
  Range range;
  index_t source_tokens = 0, target_tokens = 0;
  for (std::size_t i = 0; i < plan.order.size(); ++i) {
    const PairLengths lengths = source_->lengths(epoch, plan.order[i]);
    const index_t source = lengths.source + 1, target = lengths.target + 1;
    const bool full = target_tokens + target > options_.max_target_tokens ||
                      source_tokens + source > options_.max_source_tokens ||
                      (options_.max_sentences > 0 &&
                       static_cast<index_t>(range.end - range.begin) == options_.max_sentences);
    if (full && range.end > range.begin) {
      plan.batches.push_back(range);
      range.begin = range.end;
      source_tokens = target_tokens = 0;
    }
    source_tokens += source;
    target_tokens += target;
    range.end = i + 1;
  }
  plan.batches.push_back(range);
}

}  // namespace eigenformer

#endif
