#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/data/corpus/conventions.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/corpus/vocabulary.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Source sentences as the encoder sees them: packed ids, each sentence with the end symbol.
struct SourceBatch {
  std::vector<std::int32_t> ids;  // (N)
  SequenceLayout layout;          // packed
};

/// Sentence pairs as training sees them, packed. The decoder reads begin and the target, and is to say the
/// target and end.
struct Batch {
  std::vector<std::int32_t> source;         // (Ns): each sentence with the end symbol
  std::vector<std::int32_t> target_input;   // (Nt): begin, then the sentence
  std::vector<std::int32_t> target_output;  // (Nt): the sentence, then end
  SequenceLayout source_layout;             // packed, with the sentences' numbers in the epoch
  SequenceLayout target_layout;             // packed, with the same numbers
  /// Of each pair, where the corpus has them: the source row and the row that says the target token, both
  /// counted within the pair.
  std::vector<std::vector<AlignmentLink>> alignment{};

  /// Number of sentence pairs.
  index_t size() const noexcept { return source_layout.batch(); }
  /// Target tokens that the loss counts, end symbols included.
  index_t target_tokens() const noexcept { return static_cast<index_t>(target_output.size()); }
};

/// Puts sentences together for the encoder; an empty sentence is its end symbol alone.
inline SourceBatch make_source_batch(std::span<const std::vector<std::int32_t>> sentences) {
  SourceBatch batch;
  std::vector<index_t> lengths;
  for (const std::vector<std::int32_t>& sentence : sentences) {
    batch.ids.insert(batch.ids.end(), sentence.begin(), sentence.end());
    batch.ids.push_back(Vocabulary::end_id);
    lengths.push_back(static_cast<index_t>(sentence.size()) + 1);
  }
  batch.layout = SequenceLayout::packed(lengths);
  return batch;
}

/// How an epoch is cut into batches.
struct BatchingOptions {
  index_t max_target_tokens = 2048;  ///< target tokens of a batch, end symbols included and without padding
  index_t max_source_tokens = 0;     ///< the same for the source; 0: twice max_target_tokens
  index_t max_sentences = 0;         ///< sentence pairs of a batch; 0: no limit
  index_t bucket_sentences =
      4096;             ///< so many consecutive sentences of the shuffled epoch are sorted by length; 1: none
  bool shuffle = true;  ///< false: the order of the corpus, only sorted in buckets (validation)
  std::uint64_t seed = 1;
  TextConventions text{};  ///< what stands around sentences; the limits count one token for it

  /// All but text, which has a place of its own in files.
  static void fields(auto& self, auto&& visit) {
    visit(
        OptionField{"max_target_tokens", "target tokens of a batch, end symbols included", Allowed::positive},
        self.max_target_tokens);
    visit(OptionField{"max_source_tokens", "source tokens of a batch; 0: twice max_target_tokens",
                      Allowed::not_negative},
          self.max_source_tokens);
    visit(OptionField{"max_sentences", "sentence pairs of a batch; 0: no limit", Allowed::not_negative},
          self.max_sentences);
    visit(OptionField{"bucket_sentences",
                      "so many consecutive sentences of the shuffled epoch are sorted by length; 1: none",
                      Allowed::positive},
          self.bucket_sentences);
    visit(OptionField{"shuffle", "a new order in each epoch, and not that of the corpus"}, self.shuffle);
    visit(OptionField{"seed", "seed of the order"}, self.seed);
  }

  /// Throws ValueError that names an impossible field.
  void validate() const { validate_fields("batching", *this); }
};

/// Cuts a corpus into batches, epoch by epoch. What batch k of epoch e holds depends on the corpus, the
/// options, e and k alone, so training can go on in the middle of an epoch. Every pair comes exactly once in
/// an epoch. Holds the corpus by reference.
///
/// An epoch is shuffled, sorted by length in buckets (rising and falling in turn, so that neighbours stay
/// alike where two buckets meet), cut where the next pair would exceed a limit, and its batches are shuffled.
/// A pair that exceeds a limit by itself is a batch alone.
class Batcher {
 public:
  /// Throws ValueError for a corpus of no pair or with alignments of some pairs, a negative limit and a token
  /// budget of 0.
  explicit Batcher(const EncodedCorpus& corpus, const BatchingOptions& options = {})
      : corpus_(&corpus), options_(options) {
    if (corpus.size() == 0) throw ValueError("batching", "number of sentence pairs is 0, must be positive");
    options.validate();
    if (!corpus.alignment.empty() && static_cast<index_t>(corpus.alignment.size()) != corpus.size()) {
      throw ValueError("batching", "the corpus has alignments of " + std::to_string(corpus.alignment.size()) +
                                       " pairs and " + std::to_string(corpus.size()) +
                                       " pairs, expected one for each or none");
    }
    if (options_.max_source_tokens == 0) options_.max_source_tokens = 2 * options_.max_target_tokens;
  }
  /// A corpus that goes out of scope at once cannot be held.
  explicit Batcher(EncodedCorpus&& corpus, const BatchingOptions& options = {}) = delete;

  /// Number of batches of an epoch. Throws ValueError for a negative epoch.
  index_t num_batches(index_t epoch) { return static_cast<index_t>(plan(epoch).batches.size()); }

  /// The corpus's numbers of the pairs in batch k of an epoch, in the batch's order. Throws IndexError where
  /// there is no batch k.
  std::span<const index_t> sentences(index_t epoch, index_t k) {
    const Range range = batch_range(epoch, k);
    return std::span<const index_t>(plan_.order).subspan(range.begin, range.end - range.begin);
  }

  /// Batch k of an epoch. Throws IndexError where there is no batch k.
  Batch batch(index_t epoch, index_t k) {
    const Range range = batch_range(epoch, k);
    Batch batch;
    std::vector<index_t> source_lengths, target_lengths;
    std::vector<std::uint32_t> numbers;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const std::span<const std::int32_t> source = corpus_->source[plan_.order[i]];
      const std::span<const std::int32_t> target = corpus_->target[plan_.order[i]];
      const TextConventions& text = options_.text;
      const auto append = [](std::vector<std::int32_t>& ids, std::span<const std::int32_t> more) {
        ids.insert(ids.end(), more.begin(), more.end());
      };
      append(batch.source, text.source_prefix);
      append(batch.source, source);
      append(batch.source, text.source_suffix);
      batch.target_input.push_back(text.begin_id);
      for (std::vector<std::int32_t>* ids : {&batch.target_input, &batch.target_output}) {
        append(*ids, text.target_prefix);
        append(*ids, target);
      }
      batch.target_output.push_back(text.end_id);
      source_lengths.push_back(
          static_cast<index_t>(text.source_prefix.size() + source.size() + text.source_suffix.size()));
      target_lengths.push_back(static_cast<index_t>(text.target_prefix.size() + target.size()) + 1);
      numbers.push_back(static_cast<std::uint32_t>(i));
      if (corpus_->alignment.empty()) continue;
      auto& links = batch.alignment.emplace_back();
      for (const AlignmentLink& link : corpus_->alignment[static_cast<std::size_t>(plan_.order[i])]) {
        links.push_back({link.source + static_cast<index_t>(text.source_prefix.size()),
                         link.target + static_cast<index_t>(text.target_prefix.size())});
      }
    }
    batch.source_layout = SequenceLayout::packed(source_lengths).with_sequence_numbers(numbers);
    batch.target_layout = SequenceLayout::packed(target_lengths).with_sequence_numbers(std::move(numbers));
    return batch;
  }

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  struct Plan {
    index_t epoch = -1;
    std::vector<index_t> order;  // the corpus's numbers, sorted into buckets
    std::vector<Range> batches;  // ranges of `order`, in the order of training
  };

  Range batch_range(index_t epoch, index_t k) {
    const std::vector<Range>& batches = plan(epoch).batches;
    if (k < 0 || k >= static_cast<index_t>(batches.size())) {
      throw IndexError("batching", "batch " + std::to_string(k) + " does not exist, epoch " +
                                       std::to_string(epoch) + " has " + std::to_string(batches.size()));
    }
    return batches[static_cast<std::size_t>(k)];
  }

  const Plan& plan(index_t epoch) {
    if (epoch < 0)
      throw ValueError("batching", "epoch is " + std::to_string(epoch) + ", must not be negative");
    if (plan_.epoch == epoch) return plan_;
    plan_.epoch = -1;
    // Epochs draw from far apart stretches of one stream.
    RandomGenerator rng(options_.seed);
    rng.set_state({options_.seed, static_cast<std::uint64_t>(epoch) << 36});
    plan_.order.resize(static_cast<std::size_t>(corpus_->size()));
    std::iota(plan_.order.begin(), plan_.order.end(), index_t{0});
    if (options_.shuffle) rng.shuffle(std::span<index_t>(plan_.order));
    sort_in_buckets();
    cut();
    if (options_.shuffle) rng.shuffle(std::span<Range>(plan_.batches));
    plan_.epoch = epoch;
    return plan_;
  }

  void sort_in_buckets() {
    const auto shorter = [&](index_t a, index_t b) {
      const auto key = [&](index_t i) {
        return std::pair(corpus_->target.length(i), corpus_->source.length(i));
      };
      return key(a) < key(b);
    };
    const std::size_t bucket = static_cast<std::size_t>(options_.bucket_sentences);
    bool rising = true;
    for (std::size_t begin = 0; begin < plan_.order.size(); begin += bucket, rising = !rising) {
      const auto first = plan_.order.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(bucket, plan_.order.size() - begin));
      std::stable_sort(first, last,
                       [&](index_t a, index_t b) { return rising ? shorter(a, b) : shorter(b, a); });
    }
  }

  void cut() {
    plan_.batches.clear();
    Range range;
    index_t source_tokens = 0, target_tokens = 0;
    for (std::size_t i = 0; i < plan_.order.size(); ++i) {
      const index_t source = corpus_->source.length(plan_.order[i]) + 1;
      const index_t target = corpus_->target.length(plan_.order[i]) + 1;
      const bool full = target_tokens + target > options_.max_target_tokens ||
                        source_tokens + source > options_.max_source_tokens ||
                        (options_.max_sentences > 0 &&
                         static_cast<index_t>(range.end - range.begin) == options_.max_sentences);
      if (full && range.end > range.begin) {
        plan_.batches.push_back(range);
        range.begin = range.end;
        source_tokens = target_tokens = 0;
      }
      source_tokens += source;
      target_tokens += target;
      range.end = i + 1;
    }
    plan_.batches.push_back(range);
  }

  const EncodedCorpus* corpus_;
  BatchingOptions options_;
  Plan plan_;
};

}  // namespace eigenformer
