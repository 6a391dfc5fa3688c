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
#include "eigenformer/core/runtime/segments-inl.hpp"
#endif
