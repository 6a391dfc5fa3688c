#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/token_file.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/hash64.hpp"

namespace eigenformer {

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
  static constexpr std::size_t block = std::size_t{1} << 20;

  void require(std::span<const std::int32_t> ids, const char* side, std::uint32_t vocabulary) const;
  void append(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) ids_.append(reinterpret_cast<const char*>(&id), head_.id_bytes);
  }

  void require_unfinished() const {
    if (finished_)
      throw IoError("token_file", "commit() was called before, expected one call after the last add()");
  }

  void flush() {
    hash_.add(ids_);
    file_.write(ids_);
    ids_.clear();
  }

  AtomicFile file_;
  detail::TokenFileHead head_;
  detail::TokenFileTail tail_;
  std::string ids_;
  Hash64 hash_;
  std::deque<detail::TokenFileLengths> lengths_;
  bool finished_ = false;  // by commit(), also by one that threw
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION TokenFileWriter::TokenFileWriter(const std::filesystem::path& path,
                                                         index_t source_vocabulary, index_t target_vocabulary,
                                                         std::uint64_t tokenizers)
    : file_(path) {
  for (const index_t size : {source_vocabulary, target_vocabulary}) {
    if (size >= 1 && size <= std::numeric_limits<std::int32_t>::max()) continue;
    throw ValueError("token_file",
                     {"a vocabulary has ", size, " entries, must have at least 1 and less than 2^31"});
  }
  if (std::max(source_vocabulary, target_vocabulary) > 65536) head_.id_bytes = 4;
  tail_.source_vocabulary = static_cast<std::uint32_t>(source_vocabulary);
  tail_.target_vocabulary = static_cast<std::uint32_t>(target_vocabulary);
  tail_.tokenizers = tokenizers;
  file_.write(std::string_view(reinterpret_cast<const char*>(&head_), sizeof head_));
}

EIGENFORMER_IO_FUNCTION void TokenFileWriter::add(std::span<const std::int32_t> source,
                                                  std::span<const std::int32_t> target) {
  require_unfinished();
  require(source, "source", tail_.source_vocabulary);
  require(target, "target", tail_.target_vocabulary);
  ids_.reserve(block + (source.size() + target.size()) * head_.id_bytes);  // what follows cannot fail
  lengths_.push_back({static_cast<std::uint16_t>(source.size()), static_cast<std::uint16_t>(target.size())});
  append(source);
  append(target);
  ++tail_.pairs;
  tail_.source_tokens += source.size();
  tail_.target_tokens += target.size();
  if (ids_.size() >= block) flush();
}

EIGENFORMER_IO_FUNCTION void TokenFileWriter::commit() {
  require_unfinished();
  finished_ = true;
  flush();
  tail_.ids_hash = hash_.value();
  Hash64 hash;
  std::vector<detail::TokenFileLengths> part;
  for (std::size_t first = 0; first < lengths_.size(); first += part.size()) {
    const auto begin = lengths_.begin() + static_cast<std::ptrdiff_t>(first);
    part.assign(begin, begin + static_cast<std::ptrdiff_t>(std::min(block, lengths_.size() - first)));
    const std::string_view bytes(reinterpret_cast<const char*>(part.data()), 4 * part.size());
    hash.add(bytes);
    file_.write(bytes);
  }
  tail_.lengths_hash = hash.value();
  tail_.hash = tail_.right_hash(head_);
  file_.write(std::string_view(reinterpret_cast<const char*>(&tail_), sizeof tail_));
  file_.commit();
}

EIGENFORMER_IO_FUNCTION void TokenFileWriter::require(std::span<const std::int32_t> ids, const char* side,
                                                      std::uint32_t vocabulary) const {
  if (static_cast<index_t>(ids.size()) > longest) {
    throw ValueError("token_file", {"the ", side, " of pair ", tail_.pairs, " has ", ids.size(),
                                    " tokens, must have at most ", longest});
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary) {
      throw IndexError("token_file", {"the ", side, " of pair ", tail_.pairs, " has the id ", id,
                                      ", must be in [0, ", vocabulary, ")"});
    }
  }
}

}  // namespace eigenformer

#endif
