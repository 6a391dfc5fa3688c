#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/files/mapped_file.hpp"

namespace eigenformer {

namespace detail {

/// What a token file begins with.
struct TokenFileHead {
  static constexpr std::array<char, 8> right_magic = {'E', 'F', 'T', 'O', 'K', 'E', 'N', 'S'};
  static constexpr std::uint32_t right_version = 1;

  std::array<char, 8> magic = right_magic;
  std::uint32_t version = right_version;
  std::uint32_t id_bytes = 2;
};

/// What it ends with; `hash` is that of the head and of the fields before it.
struct TokenFileTail {
  std::uint64_t pairs = 0, source_tokens = 0, target_tokens = 0;
  std::uint32_t source_vocabulary = 0, target_vocabulary = 0;
  std::uint64_t tokenizers = 0;
  std::uint64_t ids_hash = 0, lengths_hash = 0;
  std::uint64_t hash = 0;
};

/// The lengths of one pair.
struct TokenFileLengths {
  std::uint16_t source = 0, target = 0;
};

}  // namespace detail

/// Sentence pairs in a memory-mapped file of token ids, written by TokenFileWriter. Only the lengths of the
/// pairs are held, 4 bytes per pair and 8 bytes for each 64 pairs; pages of the file that were read are
/// released from time to time, so memory does not grow with the tokens.
///
/// The file is little-endian: "EFTOKENS", version (4 bytes) and bytes of an id (4: 2 or 4); the ids of each
/// pair, source before target; for each pair the lengths of both (2 bytes each); then pairs, source tokens,
/// target tokens (8 each), entries of both vocabularies (4 each), a hash of the tokenizers, of the ids, of
/// the lengths, and of the head and this tail (8 each). The hash is Hash64.
class TokenFile final : public PairSource {
 public:
  /// Maps a file and verifies its checksums, which reads all of it. Throws IoError that names the file and
  /// what is wrong with it.
  explicit TokenFile(const std::filesystem::path& path);
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  index_t size() const noexcept override { return static_cast<index_t>(tail_.pairs); }
  PairLengths lengths(index_t, index_t i) const override {
    const detail::TokenFileLengths& pair = lengths_[at(i)];
    return {pair.source, pair.target};
  }

  /// Throws IndexError when there is no pair i, IoError for an id outside the vocabulary.
  void read(index_t, index_t i, EncodedPair& out) const override;

  /// The number of pairs and a hash of the file's contents, as text.
  std::string fingerprint() const override;
  SourceIdentity identity() const override;

  /// Number of source tokens of all pairs.
  index_t source_tokens() const noexcept { return static_cast<index_t>(tail_.source_tokens); }
  /// Number of target tokens of all pairs.
  index_t target_tokens() const noexcept { return static_cast<index_t>(tail_.target_tokens); }
  /// Size of the source vocabulary; all source ids are below it.
  index_t source_vocabulary_size() const noexcept { return tail_.source_vocabulary; }
  /// Size of the target vocabulary; all target ids are below it.
  index_t target_vocabulary_size() const noexcept { return tail_.target_vocabulary; }
  /// The hash of the tokenizers that was passed to TokenFileWriter.
  std::uint64_t tokenizers() const noexcept { return tail_.tokenizers; }

 private:
  IoError refuse(std::initializer_list<detail::MessagePart> what) const;
  // Before sizes are multiplied or memory is taken.
  void require_sizes(std::uint64_t body) const;
  void read_lengths(std::string_view stored);
  void require_ids(std::string_view stored) const;
  std::size_t at(index_t i) const;
  void copy(std::uint64_t from, std::size_t count, std::uint32_t vocabulary, std::size_t pair,
            std::vector<std::int32_t>& out) const;

  std::filesystem::path path_;
  std::shared_ptr<detail::MappedFile> file_;
  detail::TokenFileHead head_;
  detail::TokenFileTail tail_;
  const char* ids_ = nullptr;
  std::vector<detail::TokenFileLengths> lengths_;
  std::vector<std::uint64_t> starts_;  // the first id of each 64th pair
  mutable std::atomic<std::uint32_t> reads_{0};
};

/// Writes the file that TokenFile reads, pair by pair. Ids take 2 bytes when both vocabularies have at most
/// 65,536 entries, else 4. Holds 4 bytes per pair in memory. The file appears under its name with commit().
class TokenFileWriter {
 public:
  /// The most tokens that one side of a pair may have.
  static constexpr index_t longest = std::numeric_limits<std::uint16_t>::max();

  /// tokenizers: a hash of the tokenizers that made the ids, which is stored and not interpreted. Throws
  /// ValueError for a vocabulary size below 1 or from 2^31 on, IoError when the file cannot be written.
  TokenFileWriter(const std::filesystem::path& path, index_t source_vocabulary, index_t target_vocabulary,
                  std::uint64_t tokenizers = 0);

  /// Appends a pair. Throws ValueError for a side of more than `longest` tokens, IndexError for an id outside
  /// its vocabulary, IoError after commit() and when writing fails. A pair that is refused is not added,
  /// and more can be added after it; once writing has failed, commit() throws IoError.
  void add(std::span<const std::int32_t> source, std::span<const std::int32_t> target);

  /// Number of pairs added so far.
  index_t size() const noexcept { return static_cast<index_t>(tail_.pairs); }
  /// Number of source tokens added so far.
  index_t source_tokens() const noexcept { return static_cast<index_t>(tail_.source_tokens); }
  /// Number of target tokens added so far.
  index_t target_tokens() const noexcept { return static_cast<index_t>(tail_.target_tokens); }

  /// Completes the file and renames it to its final name. Throws IoError, also when it is called
  /// again, whether or not it had succeeded.
  void commit();

 private:
  void require(std::span<const std::int32_t> ids, const char* side, std::uint32_t vocabulary) const;
  void append(std::span<const std::int32_t> ids);
  void require_unfinished() const;
  void flush();

  AtomicFile file_;
  detail::TokenFileHead head_;
  detail::TokenFileTail tail_;
  std::string ids_;
  detail::Hash64 hash_;
  std::deque<detail::TokenFileLengths> lengths_;
  bool finished_ = false;  // by commit(), also by one that threw
};

}  // namespace eigenformer
