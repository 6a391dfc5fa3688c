#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/corpus/conventions.hpp"

namespace eigenformer {

/// A sentence pair as token ids, without what stands around sentences.
struct EncodedPair {
  std::vector<std::int32_t> source, target;
  std::vector<AlignmentLink> links;       ///< between the tokens, where the source of pairs is aligned
  const TextConventions* text = nullptr;  ///< of this pair alone; null: those of the batches
};

/// Tokens of a pair.
struct PairLengths {
  index_t source = 0, target = 0;
};

/// Numbered sentence pairs that training reads: a corpus in memory (EncodedCorpus), a mapped one (TokenFile),
/// or what is made of others. Several threads may read at once.
class PairSource {
 public:
  virtual ~PairSource() = default;

  /// Pairs of an epoch.
  virtual index_t size() const noexcept = 0;
  /// Tokens of pair i, by which batches are planned: where reading draws at random, a typical number. Both
  /// throw IndexError where there is no pair i.
  virtual index_t source_length(index_t i) const = 0;
  virtual index_t target_length(index_t i) const = 0;
  /// Both of pair i in an epoch, where they depend on it (Mixture).
  virtual PairLengths lengths([[maybe_unused]] index_t epoch, index_t i) const {
    return {source_length(i), target_length(i)};
  }
  /// Replaces `out` by pair i as it is in an epoch: what it is follows from the two numbers alone. Throws
  /// IndexError where there is no pair i, IoError for a file that is damaged.
  virtual void read(index_t epoch, index_t i, EncodedPair& out) const = 0;
  /// Tells sources apart: equal ones give equal pairs.
  virtual std::string fingerprint() const = 0;
  /// Whether all pairs have links. Throws ValueError where only some have.
  virtual bool aligned() const { return false; }
  /// Whether the pairs are held in memory: Batcher then also holds the order of an epoch, whatever their
  /// number.
  virtual bool in_memory() const noexcept { return false; }

 protected:
  PairSource() = default;
  PairSource(const PairSource&) = default;
  PairSource(PairSource&&) = default;
  PairSource& operator=(const PairSource&) = default;
  PairSource& operator=(PairSource&&) = default;
};

}  // namespace eigenformer
