#pragma once

#include <cstddef>
#include <map>

#include "eigenformer/core/base/config.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EIGENFORMER_ADDRESS_SANITIZER 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define EIGENFORMER_ADDRESS_SANITIZER 1
#endif
#ifdef EIGENFORMER_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace eigenformer::detail {

// Marks memory that belongs to no tensor; the address sanitizer reports accesses to it.
inline void forbid([[maybe_unused]] const void* begin, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef EIGENFORMER_ADDRESS_SANITIZER
  __asan_poison_memory_region(begin, bytes);
#endif
}
inline void permit([[maybe_unused]] const void* begin, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef EIGENFORMER_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(begin, bytes);
#endif
}

/// Blocks cut from a few large segments of memory. Adjacent free blocks are merged into one hole, so that
/// memory freed by one batch fits blocks of other sizes. Not thread-safe: MemoryPool locks.
///
/// The system provides a segment's memory at first use, so segments are much larger than blocks.
class Segments {
 public:
  static constexpr std::size_t page =
      4096;  // blocks are whole pages, so that holes can be given to the system

  Segments();
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  static std::size_t rounded(std::size_t bytes) { return (bytes + page - 1) / page * page; }

  /// A block of `bytes`, a multiple of the page, from the hole that needs the least memory not used before,
  /// and of such holes from the smallest; nullptr when none has room.
  char* allocate(std::size_t bytes);

  /// Allocates one more segment from the system, for a block of `bytes` and later ones. Returns false when
  /// memory runs out.
  bool grow(std::size_t bytes);

  void give_back(char* block, std::size_t bytes) noexcept;

  /// Returns holes to the system, from the highest address down, until at most `keep` bytes of them hold
  /// memory: whole segments on all systems, parts of segments on Linux.
  void trim(std::size_t keep) noexcept;

  std::size_t in_use() const noexcept { return in_use_; }
  /// Bytes in holes that were used before.
  std::size_t cached() const noexcept { return cached_; }

 private:
  struct Hole {
    std::size_t bytes = 0;
    std::size_t used = 0;  // of them, the part that holds memory; allocate() takes that part first
  };

  static void release(char* segment, std::size_t bytes) noexcept;

  bool take(std::size_t bytes);

  std::map<char*, Hole> holes_;  // by address
  // Blocks in use: each keeps the node that it needs as a hole, so that giving it back takes no memory and
  // cannot fail.
  std::map<char*, Hole> blocks_;
  std::map<char*, std::size_t> segments_;  // bytes of each, by address
  std::size_t in_use_ = 0, cached_ = 0;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace eigenformer::detail {

EIGENFORMER_FUNCTION Segments::Segments() {}

EIGENFORMER_FUNCTION Segments::~Segments() {
  for (const auto& [begin, bytes] : segments_) release(begin, bytes);
}

EIGENFORMER_FUNCTION char* Segments::allocate(std::size_t bytes) {
  auto best = holes_.end();
  std::size_t least = 0;
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second.bytes < bytes) continue;
    const std::size_t fresh = bytes - std::min(bytes, hole->second.used);
    if (best == holes_.end() || fresh < least ||
        (fresh == least && hole->second.bytes < best->second.bytes)) {
      best = hole;
      least = fresh;
      if (least == 0 && hole->second.bytes == bytes) break;
    }
  }
  if (best == holes_.end()) return nullptr;
  char* const block = best->first;
  blocks_.emplace(block, Hole{});  // may throw, so before anything changes
  auto hole = holes_.extract(best);
  const std::size_t reused = std::min(bytes, hole.mapped().used);
  if (hole.mapped().bytes > bytes) {
    hole.mapped() = {hole.mapped().bytes - bytes, hole.mapped().used - reused};
    hole.key() = block + bytes;
    holes_.insert(std::move(hole));
  }
  cached_ -= reused;
  in_use_ += bytes;
  permit(block, bytes);
  return block;
}

EIGENFORMER_FUNCTION bool Segments::grow(std::size_t bytes) {
  constexpr std::size_t least = std::size_t{16} << 20, most = std::size_t{256} << 20;
  const std::size_t wanted = std::max(bytes, rounded(std::clamp((in_use_ + cached_) / 2, least, most)));
  return take(wanted) || (wanted > bytes && take(bytes));
}

EIGENFORMER_FUNCTION void Segments::give_back(char* block, std::size_t bytes) noexcept {
  forbid(block, bytes);
  in_use_ -= bytes;
  cached_ += bytes;
  auto node = blocks_.extract(block);
  Hole hole{bytes, bytes};
  auto next = holes_.lower_bound(block);
  if (next != holes_.end() && next->first == block + bytes && segments_.count(next->first) == 0) {
    hole = {hole.bytes + next->second.bytes, hole.used + next->second.used};
    next = holes_.erase(next);
  }
  if (next != holes_.begin() && segments_.count(block) == 0) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second.bytes == block) {
      previous->second = {previous->second.bytes + hole.bytes, previous->second.used + hole.used};
      return;
    }
  }
  node.mapped() = hole;
  holes_.insert(next, std::move(node));
}

EIGENFORMER_FUNCTION void Segments::trim(std::size_t keep) noexcept {
  for (auto hole = holes_.end(); hole != holes_.begin() && cached_ > keep;) {
    --hole;
    if (hole->second.used == 0) continue;
    const auto segment = segments_.find(hole->first);
    if (segment != segments_.end() && segment->second == hole->second.bytes) {
      cached_ -= hole->second.used;
      release(segment->first, segment->second);
      segments_.erase(segment);
      hole = holes_.erase(hole);
      continue;
    }
#if defined(__linux__)
    if (madvise(hole->first, hole->second.bytes, MADV_DONTNEED) != 0) continue;
    cached_ -= hole->second.used;
    hole->second.used = 0;
#endif
  }
}

EIGENFORMER_FUNCTION void Segments::release(char* segment, std::size_t bytes) noexcept {
  permit(segment, bytes);
  std::free(segment);
}

EIGENFORMER_FUNCTION bool Segments::take(std::size_t bytes) {
  auto* begin = static_cast<char*>(std::aligned_alloc(page, bytes));
  if (begin == nullptr) return false;
  try {
    segments_.emplace(begin, bytes);
    holes_.emplace(begin, Hole{bytes, 0});
  } catch (...) {
    segments_.erase(begin);
    std::free(begin);
    throw;
  }
  forbid(begin, bytes);
  return true;
}

}  // namespace eigenformer::detail
#endif
