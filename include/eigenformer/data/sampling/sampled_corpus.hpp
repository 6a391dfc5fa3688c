#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

namespace eigenformer {

/// Sentence pairs that are segmented into subwords at random in each epoch (BPE-dropout, subword
/// regularisation). The ids of pair i in an epoch depend only on the seed, the epoch and i, so a resumed
/// training reads the same ids. Batches are planned by the lengths of the plain segmentation, which also
/// replaces a sampled one of more than max_length tokens. Holds the text of the sampled sides, and the plain
/// ids of both sides.
class SampledCorpus final : public PairSource {
 public:
  /// Encodes every pair as encode_corpus() does, and throws as it does; throws ValueError for invalid
  /// sampling options and for a tokenizer of a sampled side that cannot sample with them.
  SampledCorpus(ParallelCorpus text, TokenizerPair tokenizers, const SubwordSampling& sampling,
                std::uint64_t seed, index_t max_length = 0, const TextConventions& conventions = {});

  /// The pairs with their plain segmentation.
  const EncodedCorpus& plain() const noexcept { return plain_; }

  index_t size() const noexcept override { return plain_.size(); }
  PairLengths lengths(index_t epoch, index_t i) const override { return plain_.lengths(epoch, i); }
  void read(index_t epoch, index_t i, EncodedPair& out) const override {
    plain_.read(epoch, i, out);
    if (draws_source()) draw(*tokenizers_.source, source_, epoch, i, 0, out.source);
    if (draws_target()) draw(*tokenizers_.target, target_, epoch, i, 1, out.target);
  }
  std::string fingerprint() const override {
    return plain_.fingerprint() + ", " + drawn() + detail::fingerprint_bar + "max_length " +
           std::to_string(max_length_) + ", text " + std::to_string(text_hash()) + ", tokenizers " +
           std::to_string(detail::tokenizer_fingerprint(tokenizers_));
  }
  SourceIdentity identity() const override {
    return {.pairs = size(),
            .content = plain_.identity().content + " " + std::to_string(text_hash()),
            .tokenizers = std::to_string(detail::tokenizer_fingerprint(tokenizers_)),
            .options = drawn() + ", max_length " + std::to_string(max_length_)};
  }
  bool in_memory() const noexcept override { return true; }

 private:
  bool draws_source() const noexcept { return sampling_.on() && sampling_.sides != SampledSides::target; }
  bool draws_target() const noexcept { return sampling_.on() && sampling_.sides != SampledSides::source; }

  std::string drawn() const {
    return "drawn (bpe_dropout " + detail::number_text(sampling_.bpe_dropout) + ", unigram_alpha " +
           detail::number_text(sampling_.unigram_alpha) + ", " + word_of(sampling_.sides) + ", seed " +
           std::to_string(seed_) + ")";
  }
  std::uint64_t text_hash() const {
    detail::Hash64 hash;
    for (const auto* side : {&source_, &target_}) {
      for (const std::string& line : *side) hash.add(line + '\n');
    }
    return hash.value();
  }

  void draw(const Tokenizer& tokenizer, const std::vector<std::string>& text, index_t epoch, index_t i,
            std::uint32_t side, std::vector<std::int32_t>& ids) const;

  EncodedCorpus plain_;
  TokenizerPair tokenizers_;
  SubwordSampling sampling_;
  std::uint64_t seed_;
  index_t max_length_;
  std::vector<std::string> source_, target_;  // of the sides that are drawn, in the order of plain_
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION SampledCorpus::SampledCorpus(ParallelCorpus text, TokenizerPair tokenizers,
                                                     const SubwordSampling& sampling, std::uint64_t seed,
                                                     index_t max_length, const TextConventions& conventions)
    : plain_(encode_corpus(text, tokenizers, conventions, max_length)),
      tokenizers_(std::move(tokenizers)),
      sampling_(sampling),
      seed_(seed),
      max_length_(max_length) {
  sampling.validate();
  RandomGenerator rng(seed);
  for (const auto& [drawn, tokenizer] :
       {std::pair(draws_source(), tokenizers_.source), std::pair(draws_target(), tokenizers_.target)}) {
    if (drawn) (void)tokenizer->encode_sampled("a", sampling_, rng);
  }
  source_.reserve(static_cast<std::size_t>(plain_.size()));
  target_.reserve(static_cast<std::size_t>(plain_.size()));
  for (const index_t i : plain_.pairs) {
    const auto at = static_cast<std::size_t>(i);
    if (draws_source()) source_.push_back(conventions.source_text + text.source[at]);
    if (draws_target()) target_.push_back(std::move(text.target[at]));
  }
}

EIGENFORMER_IO_FUNCTION void SampledCorpus::draw(const Tokenizer& tokenizer,
                                                 const std::vector<std::string>& text, index_t epoch,
                                                 index_t i, std::uint32_t side,
                                                 std::vector<std::int32_t>& ids) const {
  // Each (seed, epoch, pair, side) has its own generator.
  const auto pair = static_cast<std::uint64_t>(i);
  const auto words = detail::Philox4x32::generate(
      {static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(pair),
       static_cast<std::uint32_t>(pair >> 32), side},
      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  RandomGenerator rng(std::uint64_t{words[0]} << 32 | words[1]);
  std::vector<std::int32_t> drawn =
      tokenizer.encode_sampled(text[static_cast<std::size_t>(i)], sampling_, rng);
  if (drawn.empty() || (max_length_ > 0 && static_cast<index_t>(drawn.size()) > max_length_)) return;
  ids = std::move(drawn);
}

}  // namespace eigenformer

#endif
