#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/tokenizers/conventions.hpp"

namespace eigenformer {

/// A sentence pair as token ids, without begin, end and other ids that TextConventions add.
struct EncodedPair {
  std::vector<std::int32_t> source,       ///< ids of the source sentence
      target;                             ///< ids of the target sentence
  std::vector<AlignmentLink> links;       ///< links between the tokens; empty when the source is not aligned
  const TextConventions* text = nullptr;  ///< conventions of this pair; null: those of BatchingOptions
};

/// Numbers of tokens of a pair, without begin and end.
struct PairLengths {
  index_t source = 0,  ///< source tokens
      target = 0;      ///< target tokens
};

/// What the pairs of a PairSource depend on, in parts, so that a message can say which of them differs.
struct SourceIdentity {
  index_t pairs = 0;         ///< number of pairs in an epoch
  std::string content{};     ///< a hash of ids and links, or of what they are computed from
  std::string tokenizers{};  ///< a hash of the tokenizers; empty: not known
  std::string options{};     ///< readable: sampling, shares, order, ids around sentences; may be empty
};

/// Indexed sentence pairs that training reads: a corpus in memory (EncodedCorpus), a mapped file (TokenFile),
/// or a view of other sources (Mixture, SampledCorpus). Several threads may read at once.
class PairSource {
 public:
  virtual ~PairSource() = default;

  /// Number of pairs in an epoch.
  virtual index_t size() const noexcept = 0;
  /// The lengths of pair i in an epoch, by which batches are planned; typical numbers when read() samples at
  /// random. Throws IndexError when there is no pair i.
  virtual PairLengths lengths(index_t epoch, index_t i) const = 0;
  /// Replaces `out` with pair i of an epoch; the result depends on these two numbers alone. Throws IndexError
  /// when there is no pair i, IoError for a damaged file.
  virtual void read(index_t epoch, index_t i, EncodedPair& out) const = 0;
  /// A text that identifies the pairs: sources with equal fingerprints are taken to have equal pairs in every
  /// epoch, with equal conventions. A training state stores it, to refuse to resume on other data.
  virtual std::string fingerprint() const = 0;
  /// The parts of what fingerprint() covers, for messages. Default: the fingerprint as the content.
  virtual SourceIdentity identity() const {
    return {.pairs = size(), .content = fingerprint(), .tokenizers = {}, .options = {}};
  }
  /// Whether all pairs have alignment links. Throws ValueError when only some have.
  virtual bool aligned() const { return false; }
  /// Whether the pairs are held in memory; Batcher then also holds the order of a whole epoch, whatever its
  /// size.
  virtual bool in_memory() const noexcept { return false; }

 protected:
  PairSource() = default;
  /// Copying is for derived classes, so that a source is not sliced.
  PairSource(const PairSource&) = default;
  /// See the copy constructor.
  PairSource& operator=(const PairSource&) = default;
};

namespace detail {

// Separates the parts of a fingerprint that were added later, which older training states lack.
inline constexpr const char* fingerprint_bar = " | ";

// The parts of a fingerprint before and after the bar.
inline std::pair<std::string, std::string> fingerprint_parts(const std::string& fingerprint) {
  const std::size_t bar = fingerprint.find(fingerprint_bar);
  if (bar == std::string::npos) return {fingerprint, ""};
  return {fingerprint.substr(0, bar), fingerprint.substr(bar + std::strlen(fingerprint_bar))};
}

// Whether a stored fingerprint is `now`, or what an older state has for it.
inline bool same_fingerprint(const std::string& stored, const std::string& now) {
  return stored == now || stored == fingerprint_parts(now).first;
}

}  // namespace detail

}  // namespace eigenformer
