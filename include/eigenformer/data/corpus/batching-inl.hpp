#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/index_permutation.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/data/corpus/batching.hpp"

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
        arrange(epoch, s, plan);
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
  RandomGenerator rng = arrange(epoch, segment, plan);
  if (options_.shuffle) rng.shuffle(std::span<Range>(plan.batches));
  plan.epoch = epoch;
  plan.segment = segment;
}

EIGENFORMER_FUNCTION RandomGenerator Batcher::arrange(index_t epoch, index_t segment, Plan& plan) const {
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
  return rng;
}

EIGENFORMER_FUNCTION void Batcher::sort_in_buckets(index_t epoch, std::vector<index_t>& order) const {
  struct Item {
    index_t target, source, pair;
  };
  std::vector<Item> items;
  const auto bucket = static_cast<std::size_t>(options_.bucket_sentences);
  bool rising = true;
  for (std::size_t begin = 0; begin < order.size(); begin += bucket, rising = !rising) {
    const auto part = std::span(order).subspan(begin, std::min(bucket, order.size() - begin));
    items.clear();
    for (const index_t i : part) {
      const PairLengths lengths = source_->lengths(epoch, i);
      items.push_back({lengths.target, lengths.source, i});
    }
    std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
      const Item &low = rising ? a : b, &high = rising ? b : a;
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
