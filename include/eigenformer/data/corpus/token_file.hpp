#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/files/mapped_file.hpp"

namespace eigenformer {

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian; big-endian machines are not supported");

/// What a token file begins with.
struct TokenFileHead {
  static constexpr std::array<char, 8> right_magic = {'E', 'F', 'T', 'O', 'K', 'E', 'N', 'S'};
  static constexpr std::uint32_t right_version = 1;

  std::array<char, 8> magic = right_magic;
  std::uint32_t version = right_version;
  std::uint32_t id_bytes = 2;
};
static_assert(sizeof(TokenFileHead) == 16);

/// What it ends with; `hash` is that of the head and of the fields before it.
struct TokenFileTail {
  std::uint64_t pairs = 0, source_tokens = 0, target_tokens = 0;
  std::uint32_t source_vocabulary = 0, target_vocabulary = 0;
  std::uint64_t tokenizers = 0;
  std::uint64_t ids_hash = 0, lengths_hash = 0;
  std::uint64_t hash = 0;

  std::uint64_t right_hash(const TokenFileHead& head) const {
    Hash64 all;
    all.add(std::string_view(reinterpret_cast<const char*>(&head), sizeof head));
    all.add(std::string_view(reinterpret_cast<const char*>(this), offsetof(TokenFileTail, hash)));
    return all.value();
  }
};
static_assert(sizeof(TokenFileTail) == 64);

/// The lengths of one pair.
struct TokenFileLengths {
  std::uint16_t source = 0, target = 0;
};
static_assert(sizeof(TokenFileLengths) == 4);

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
  index_t source_length(index_t i) const override { return lengths_[at(i)].source; }
  index_t target_length(index_t i) const override { return lengths_[at(i)].target; }

  /// Throws IndexError when there is no pair i, IoError for an id outside the vocabulary.
  EIGENFORMER_IO_FUNCTION void read(index_t, index_t i, EncodedPair& out) const override;

  /// The number of pairs and a hash of the file's contents, as text.
  std::string fingerprint() const override {
    return std::to_string(tail_.pairs) + " pairs, " + std::to_string(tail_.hash);
  }

  SourceIdentity identity() const override {
    return {.pairs = size(),
            .content = std::to_string(tail_.ids_hash) + " " + std::to_string(tail_.lengths_hash),
            .tokenizers = tail_.tokenizers == 0 ? "" : std::to_string(tail_.tokenizers),
            .options = {}};
  }

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
  static constexpr std::size_t pairs_a_start = 64;
  static constexpr std::uint32_t reads_a_release = 512;

  IoError refuse(std::initializer_list<detail::MessagePart> what) const {
    return IoError("token_file", {"'", path_.string(), "' ", detail::join(what)});
  }

  // Before sizes are multiplied or memory is taken.
  void require_sizes(std::uint64_t body) const;

  void read_lengths(std::string_view stored);

  void require_ids(std::string_view stored) const;

  std::size_t at(index_t i) const {
    if (i >= 0 && i < size()) return static_cast<std::size_t>(i);
    throw IndexError("token_file", {"pair ", i, " does not exist, '", path_.string(), "' has ", size()});
  }

  void copy(std::uint64_t from, std::size_t count, std::uint32_t vocabulary, std::size_t pair,
            std::vector<std::int32_t>& out) const;

  static constexpr std::size_t block = std::size_t{1} << 24;

  std::filesystem::path path_;
  std::shared_ptr<detail::MappedFile> file_;
  detail::TokenFileHead head_;
  detail::TokenFileTail tail_;
  const char* ids_ = nullptr;
  std::vector<detail::TokenFileLengths> lengths_;
  std::vector<std::uint64_t> starts_;  // the first id of each 64th pair
  mutable std::atomic<std::uint32_t> reads_{0};
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION TokenFile::TokenFile(const std::filesystem::path& path)
    : path_(path), file_(detail::MappedFile::open(path)) {
  const std::string_view bytes = std::as_const(*file_).text();
  if (bytes.size() < sizeof head_ + sizeof tail_) throw refuse({"is too short to be a token file"});
  std::memcpy(&head_, bytes.data(), sizeof head_);
  if (head_.magic != head_.right_magic)
    throw refuse({"is not a token file: its first eight bytes are not those of the format"});
  if (head_.version != head_.right_version)
    throw refuse({"has version ", head_.version, ", expected ", head_.right_version});
  std::memcpy(&tail_, bytes.data() + (bytes.size() - sizeof tail_), sizeof tail_);
  if (tail_.hash != tail_.right_hash(head_))
    throw refuse({"is truncated or damaged: the checksum of its last bytes does not match"});
  require_sizes(bytes.size() - sizeof head_ - sizeof tail_);
  ids_ = bytes.data() + sizeof head_;
  const std::uint64_t id_bytes = (tail_.source_tokens + tail_.target_tokens) * head_.id_bytes;
  read_lengths(bytes.substr(sizeof head_ + id_bytes, sizeof(detail::TokenFileLengths) * tail_.pairs));
  require_ids(bytes.substr(sizeof head_, id_bytes));
  ::madvise(file_->bytes().data(), file_->bytes().size(), MADV_RANDOM);
}

EIGENFORMER_IO_FUNCTION void TokenFile::read(index_t, index_t i, EncodedPair& out) const {
  const std::size_t pair = at(i);
  std::uint64_t from = starts_[pair / pairs_a_start];
  for (std::size_t k = pair / pairs_a_start * pairs_a_start; k < pair; ++k)
    from += std::uint64_t{lengths_[k].source} + lengths_[k].target;
  copy(from, lengths_[pair].source, tail_.source_vocabulary, pair, out.source);
  copy(from + lengths_[pair].source, lengths_[pair].target, tail_.target_vocabulary, pair, out.target);
  out.links.clear();
  out.text = nullptr;
  if (reads_.fetch_add(1, std::memory_order_relaxed) % reads_a_release == reads_a_release - 1)
    detail::MappedFile::release(std::as_const(*file_).bytes());
}

EIGENFORMER_IO_FUNCTION void TokenFile::require_sizes(std::uint64_t body) const {
  const auto& t = tail_;
  if (head_.id_bytes != 2 && head_.id_bytes != 4)
    throw refuse({"has ids of ", head_.id_bytes, " bytes, expected 2 or 4"});
  if (t.pairs > body / 4 || t.source_tokens > body || t.target_tokens > body ||
      (t.source_tokens + t.target_tokens) > body / head_.id_bytes ||
      (t.source_tokens + t.target_tokens) * head_.id_bytes + 4 * t.pairs != body) {
    throw refuse({"is truncated or damaged: ", t.pairs, " pairs and their tokens do not fill the ", body,
                  " bytes of its body"});
  }
  constexpr std::uint32_t most = std::numeric_limits<std::int32_t>::max();
  if (t.source_vocabulary > most || t.target_vocabulary > most)
    throw refuse({"has a vocabulary of more than 2^31 entries"});
}

EIGENFORMER_IO_FUNCTION void TokenFile::read_lengths(std::string_view stored) {
  lengths_.resize(static_cast<std::size_t>(tail_.pairs));
  std::uint64_t source = 0, target = 0;
  Hash64 hash;
  for (std::size_t first = 0; first < lengths_.size(); first += block / 4) {
    const std::string_view part = stored.substr(4 * first, block);
    std::memcpy(lengths_.data() + first, part.data(), part.size());
    hash.add(part);
    detail::MappedFile::release(std::as_bytes(std::span(part)));
  }
  if (hash.value() != tail_.lengths_hash)
    throw refuse({"is damaged: the checksum of its lengths does not match"});
  starts_.reserve(lengths_.size() / pairs_a_start + 1);
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (i % pairs_a_start == 0) starts_.push_back(source + target);
    source += lengths_[i].source;
    target += lengths_[i].target;
  }
  if (source != tail_.source_tokens || target != tail_.target_tokens)
    throw refuse({"is damaged: its lengths do not add up to its tokens"});
}

EIGENFORMER_IO_FUNCTION void TokenFile::require_ids(std::string_view stored) const {
  Hash64 hash;
  for (; !stored.empty(); stored.remove_prefix(std::min(block, stored.size()))) {
    const std::string_view part = stored.substr(0, block);
    hash.add(part);
    detail::MappedFile::release(std::as_bytes(std::span(part)));
  }
  if (hash.value() != tail_.ids_hash) throw refuse({"is damaged: the checksum of its ids does not match"});
}

EIGENFORMER_IO_FUNCTION void TokenFile::copy(std::uint64_t from, std::size_t count, std::uint32_t vocabulary,
                                             std::size_t pair, std::vector<std::int32_t>& out) const {
  out.resize(count);
  const char* const stored = ids_ + from * head_.id_bytes;
  for (std::size_t k = 0; k < count; ++k) {
    std::uint32_t id = 0;
    std::memcpy(&id, stored + k * head_.id_bytes, head_.id_bytes);
    if (id >= vocabulary)
      throw refuse({"has the id ", id, " in pair ", pair, ", must be below ", vocabulary});
    out[k] = static_cast<std::int32_t>(id);
  }
}

}  // namespace eigenformer

#endif
