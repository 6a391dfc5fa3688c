#include "translator/preparing/token_file.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace eigenformer {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian; big-endian machines are not supported");

namespace {

using Lengths = detail::TokenFileLengths;
static_assert(sizeof(detail::TokenFileHead) == 16 && sizeof(detail::TokenFileTail) == 64 &&
              sizeof(Lengths) == 4);

constexpr std::size_t pairs_a_start = 64;
constexpr std::uint32_t reads_a_release = 512;
constexpr std::size_t read_block = std::size_t{1} << 24, written_block = std::size_t{1} << 20;

std::uint64_t right_hash(const detail::TokenFileHead& head, const detail::TokenFileTail& tail) {
  detail::Hash64 all;
  all.add(std::string_view(reinterpret_cast<const char*>(&head), sizeof head));
  all.add(std::string_view(reinterpret_cast<const char*>(&tail), offsetof(detail::TokenFileTail, hash)));
  return all.value();
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : path_(path), file_(detail::MappedFile::open(path)) {
  const std::string_view bytes = std::as_const(*file_).text();
  if (bytes.size() < sizeof head_ + sizeof tail_) throw refuse({"is too short to be a token file"});
  std::memcpy(&head_, bytes.data(), sizeof head_);
  if (head_.magic != head_.right_magic)
    throw refuse({"is not a token file: its first eight bytes are not those of the format"});
  if (head_.version != head_.right_version)
    throw refuse({"has version ", head_.version, ", expected ", head_.right_version});
  std::memcpy(&tail_, bytes.data() + (bytes.size() - sizeof tail_), sizeof tail_);
  if (tail_.hash != right_hash(head_, tail_))
    throw refuse({"is truncated or damaged: the checksum of its last bytes does not match"});
  require_sizes(bytes.size() - sizeof head_ - sizeof tail_);
  ids_ = bytes.data() + sizeof head_;
  const std::uint64_t id_bytes = (tail_.source_tokens + tail_.target_tokens) * head_.id_bytes;
  read_lengths(bytes.substr(sizeof head_ + id_bytes, sizeof(Lengths) * tail_.pairs));
  require_ids(bytes.substr(sizeof head_, id_bytes));
  ::madvise(file_->bytes().data(), file_->bytes().size(), MADV_RANDOM);
}

void TokenFile::read(index_t, index_t i, EncodedPair& out) const {
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

void TokenFile::require_sizes(std::uint64_t body) const {
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

void TokenFile::read_lengths(std::string_view stored) {
  lengths_.resize(static_cast<std::size_t>(tail_.pairs));
  std::uint64_t source = 0, target = 0;
  detail::Hash64 hash;
  for (std::size_t first = 0; first < lengths_.size(); first += read_block / 4) {
    const std::string_view part = stored.substr(4 * first, read_block);
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

void TokenFile::require_ids(std::string_view stored) const {
  detail::Hash64 hash;
  for (; !stored.empty(); stored.remove_prefix(std::min(read_block, stored.size()))) {
    const std::string_view part = stored.substr(0, read_block);
    hash.add(part);
    detail::MappedFile::release(std::as_bytes(std::span(part)));
  }
  if (hash.value() != tail_.ids_hash) throw refuse({"is damaged: the checksum of its ids does not match"});
}

void TokenFile::copy(std::uint64_t from, std::size_t count, std::uint32_t vocabulary, std::size_t pair,
                     std::vector<std::int32_t>& out) const {
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

IoError TokenFile::refuse(std::initializer_list<detail::MessagePart> what) const {
  return IoError("token_file", {"'", path_.string(), "' ", detail::join(what)});
}

std::string TokenFile::fingerprint() const {
  return std::to_string(tail_.pairs) + " pairs, " + std::to_string(tail_.hash);
}

SourceIdentity TokenFile::identity() const {
  return {.pairs = size(),
          .content = std::to_string(tail_.ids_hash) + " " + std::to_string(tail_.lengths_hash),
          .tokenizers = tail_.tokenizers == 0 ? "" : std::to_string(tail_.tokenizers),
          .options = {}};
}

std::size_t TokenFile::at(index_t i) const {
  if (i >= 0 && i < size()) return static_cast<std::size_t>(i);
  throw IndexError("token_file", {"pair ", i, " does not exist, '", path_.string(), "' has ", size()});
}

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, index_t source_vocabulary,
                                 index_t target_vocabulary, std::uint64_t tokenizers)
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

void TokenFileWriter::add(std::span<const std::int32_t> source, std::span<const std::int32_t> target) {
  require_unfinished();
  require(source, "source", tail_.source_vocabulary);
  require(target, "target", tail_.target_vocabulary);
  ids_.reserve(written_block + (source.size() + target.size()) * head_.id_bytes);  // what follows cannot fail
  lengths_.push_back({static_cast<std::uint16_t>(source.size()), static_cast<std::uint16_t>(target.size())});
  append(source);
  append(target);
  ++tail_.pairs;
  tail_.source_tokens += source.size();
  tail_.target_tokens += target.size();
  if (ids_.size() >= written_block) flush();
}

void TokenFileWriter::commit() {
  require_unfinished();
  finished_ = true;
  flush();
  tail_.ids_hash = hash_.value();
  detail::Hash64 hash;
  std::vector<Lengths> part;
  for (std::size_t first = 0; first < lengths_.size(); first += part.size()) {
    const auto begin = lengths_.begin() + static_cast<std::ptrdiff_t>(first);
    part.assign(begin, begin + static_cast<std::ptrdiff_t>(std::min(written_block, lengths_.size() - first)));
    const std::string_view bytes(reinterpret_cast<const char*>(part.data()), 4 * part.size());
    hash.add(bytes);
    file_.write(bytes);
  }
  tail_.lengths_hash = hash.value();
  tail_.hash = right_hash(head_, tail_);
  file_.write(std::string_view(reinterpret_cast<const char*>(&tail_), sizeof tail_));
  file_.commit();
}

void TokenFileWriter::require(std::span<const std::int32_t> ids, const char* side,
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

void TokenFileWriter::append(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) ids_.append(reinterpret_cast<const char*>(&id), head_.id_bytes);
}

void TokenFileWriter::require_unfinished() const {
  if (finished_)
    throw IoError("token_file", "commit() was called before, expected one call after the last add()");
}

void TokenFileWriter::flush() {
  hash_.add(ids_);
  file_.write(ids_);
  ids_.clear();
}

}  // namespace eigenformer
