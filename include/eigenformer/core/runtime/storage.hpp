#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/segments.hpp"

namespace eigenformer {

/// Counters of a MemoryPool.
struct PoolStatistics {
  std::size_t system_allocations = 0;  ///< blocks allocated from the operating system so far
  std::size_t reuses = 0;              ///< requests served from freed blocks so far
  std::size_t bytes_in_use = 0;        ///< bytes of blocks in use
  std::size_t bytes_cached = 0;        ///< bytes of freed blocks that are kept for reuse
  std::size_t peak_bytes = 0;  ///< highest bytes_in_use + bytes_cached since the start or reset_peak()
};

namespace detail {

/// State that all tensors of one storage share.
struct StorageState {
  std::atomic<std::uint32_t> version{0};  ///< how often the values were changed in place
  bool borrowed = false;                  ///< the memory is borrowed
};

/// Detects that the values of a storage were changed after the watch was created. It does not keep the memory
/// alive. A default-constructed watch never reports a change.
class StorageWatch {
 public:
  StorageWatch() = default;
  /// Watches `storage` through its `state`, which lives as long as it does; Tensor::watch() makes one.
  StorageWatch(std::weak_ptr<const void> storage, const StorageState* state) noexcept
      : storage_(std::move(storage)),
        state_(state),
        seen_(state == nullptr ? 0 : state->version.load(relaxed)) {}

  /// Whether Tensor::mark_changed() was called since then; false when the memory has been freed.
  bool changed() const noexcept {
    return state_ != nullptr && !storage_.expired() && state_->version.load(relaxed) != seen_;
  }
  /// The memory, kept alive by the result; null when it has been freed.
  std::shared_ptr<const void> storage() const noexcept { return storage_.lock(); }
  /// Whether both watch the same memory, and it has not been freed.
  bool same_storage(const StorageWatch& other) const noexcept {
    return state_ != nullptr && state_ == other.state_ && !storage_.expired();
  }

 private:
  static constexpr std::memory_order relaxed = std::memory_order_relaxed;

  std::weak_ptr<const void> storage_;
  const StorageState* state_ = nullptr;
  std::uint32_t seen_ = 0;
};

}  // namespace detail

/// Recycles tensor storage: 64-byte aligned blocks, thread-safe, with a limit on what is kept.
///
/// Sizes below `large` are rounded up to one of eight classes per power of two, and a request may reuse a
/// block of up to 1.5 times its size. Larger blocks are cut from segments, where adjacent free blocks are
/// merged. So batches of varying length reuse each other's memory, and the process does not grow.
class MemoryPool {
 public:
  static constexpr std::size_t alignment = 64;  ///< bytes; of every block
  static constexpr std::size_t large = std::size_t{1}
                                       << 17;  ///< bytes from which on a block is cut from a segment

  /// An empty pool without a byte limit.
  MemoryPool() = default;
  /// Frees the blocks kept for reuse. Blocks in use must not outlive the pool.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// A block of at least `bytes` bytes, uninitialised, which returns to the pool with its last owner.
  /// `*state` is set to the address of the block's state, which lives as long as the block. Throws Error when
  /// memory runs out.
  std::shared_ptr<void> allocate(std::uint64_t bytes, detail::StorageState** state = nullptr);

  /// Sets the most bytes that are kept for reuse; the rest is returned to the operating system. No limit by
  /// default.
  void set_byte_limit(std::size_t bytes);

  /// Returns cached blocks to the operating system until at most `keep_bytes` are kept. On systems other than
  /// Linux a segment can be returned only when no block of it is in use.
  void trim(std::size_t keep_bytes = 0);

  /// The counters of this moment.
  PoolStatistics statistics() const;

  /// Sets peak_bytes to the bytes held now.
  void reset_peak();

 private:
  friend class Runtime;

  static constexpr std::size_t steps = 8;        // classes per power of two
  static constexpr std::size_t reuse_slack = 4;  // classes a reused block may be larger: 1.5 times
  static constexpr std::size_t most = std::size_t{1} << (sizeof(std::size_t) < 8 ? 30 : 47);

  // Stored at the beginning of a free block, so that freeing takes no memory and cannot fail.
  struct FreeBlock {
    FreeBlock* next;
  };

  struct Block;

  // Class c holds 64 * 2^(c / 8) * (1 + (c % 8) / 8) bytes, rounded to the alignment.
  static constexpr std::size_t class_bytes(std::size_t cls) {
    const std::size_t base = alignment << (cls / steps);
    const std::size_t bytes = base + base / steps * (cls % steps);
    return (bytes + alignment - 1) / alignment * alignment;
  }

  static std::size_t class_of(std::size_t bytes);

  void allocate_small(std::size_t bytes, Block& result);

  void allocate_large(std::size_t wanted, Block& result);

  [[noreturn]] void out_of_memory(std::size_t bytes) const;

  void give_back_small(void* block, std::size_t cls) noexcept;

  void* take_free(std::size_t cls) noexcept;

  void give_back_large(char* block, std::size_t bytes) noexcept;

  void trim_to(std::size_t keep) noexcept;

  std::size_t cached() const noexcept { return small_.bytes_cached + segments_.cached(); }
  std::size_t held() const noexcept { return small_.bytes_in_use + segments_.in_use() + cached(); }

  mutable std::mutex mutex_;
  // Lists for the classes up to the octave above `large`.
  std::array<FreeBlock*, std::bit_width(large / alignment) * steps> free_{};
  std::size_t limit_ = static_cast<std::size_t>(-1);
  detail::Segments segments_;
  PoolStatistics small_;  // bytes of the classes alone; calls and the peak of all
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS
#include <algorithm>
#include <cstdlib>
#include <new>

namespace eigenformer {

// The shared state of a block's owners; it returns the memory to the pool when the last of them is
// destroyed.
struct MemoryPool::Block {
  explicit Block(MemoryPool& from) noexcept : pool(from) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (memory == nullptr) return;
    if (is_large) {
      pool.give_back_large(static_cast<char*>(memory), size);
    } else {
      pool.give_back_small(memory, size);
    }
  }

  MemoryPool& pool;
  void* memory = nullptr;
  std::size_t size = 0;  // the class of a small block, the bytes of a large one
  bool is_large = false;
  detail::StorageState state;
};

EIGENFORMER_FUNCTION MemoryPool::~MemoryPool() { trim(); }

EIGENFORMER_FUNCTION std::shared_ptr<void> MemoryPool::allocate(std::uint64_t bytes,
                                                                detail::StorageState** state) {
  if (bytes > most) throw Error("storage", {"cannot allocate ", bytes, " bytes"});
  const auto wanted = static_cast<std::size_t>(bytes);
  auto block = std::make_shared<Block>(*this);  // first, so that a failure leaves nothing to give back
  if (wanted < large) {
    allocate_small(wanted, *block);
  } else {
    allocate_large(wanted, *block);
  }
  if (state != nullptr) *state = &block->state;
  void* const memory = block->memory;
  return std::shared_ptr<void>(std::move(block), memory);
}

EIGENFORMER_FUNCTION void MemoryPool::set_byte_limit(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  limit_ = bytes;
  trim_to(bytes);
}

EIGENFORMER_FUNCTION void MemoryPool::trim(std::size_t keep_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trim_to(keep_bytes);
}

EIGENFORMER_FUNCTION PoolStatistics MemoryPool::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  PoolStatistics all = small_;
  all.bytes_in_use += segments_.in_use();
  all.bytes_cached += segments_.cached();
  return all;
}

EIGENFORMER_FUNCTION void MemoryPool::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  small_.peak_bytes = held();
}

EIGENFORMER_FUNCTION std::size_t MemoryPool::class_of(std::size_t bytes) {
  if (bytes <= alignment) return 0;
  const std::size_t units = (bytes + alignment - 1) / alignment;
  std::size_t cls = static_cast<std::size_t>(std::bit_width(units) - 1) * steps;
  while (class_bytes(cls) < bytes) ++cls;
  return cls;
}

EIGENFORMER_FUNCTION void MemoryPool::allocate_small(std::size_t bytes, Block& result) {
  const std::size_t wanted = class_of(bytes);
  std::size_t cls = wanted;
  void* block = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t last = std::min(wanted + reuse_slack, free_.size() - 1);
    for (; cls <= last && free_[cls] == nullptr; ++cls) {
    }
    if (cls <= last) {
      block = take_free(cls);
      ++small_.reuses;
    } else {
      cls = wanted;
      block = std::aligned_alloc(alignment, class_bytes(cls));
      if (block == nullptr) {
        trim_to(0);
        block = std::aligned_alloc(alignment, class_bytes(cls));
      }
      if (block == nullptr) out_of_memory(class_bytes(cls));
      ++small_.system_allocations;
    }
    small_.bytes_in_use += class_bytes(cls);
    small_.peak_bytes = std::max(small_.peak_bytes, held());
  }
  detail::forbid(static_cast<char*>(block) + bytes, class_bytes(cls) - bytes);
  result.memory = block;
  result.size = cls;
}

EIGENFORMER_FUNCTION void MemoryPool::allocate_large(std::size_t wanted, Block& result) {
  const std::size_t bytes = detail::Segments::rounded(wanted);
  char* block = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    block = segments_.allocate(bytes);
    if (block != nullptr) {
      ++small_.reuses;
    } else {
      if (!segments_.grow(bytes)) {
        trim_to(0);
        if (!segments_.grow(bytes)) out_of_memory(bytes);
      }
      block = segments_.allocate(bytes);
      ++small_.system_allocations;
    }
    small_.peak_bytes = std::max(small_.peak_bytes, held());
  }
  detail::forbid(block + wanted, bytes - wanted);
  result.memory = block;
  result.size = bytes;
  result.is_large = true;
}

EIGENFORMER_FUNCTION void MemoryPool::out_of_memory(std::size_t bytes) const {
  throw Error("storage", {"out of memory: cannot allocate ", bytes, " bytes, with ",
                          small_.bytes_in_use + segments_.in_use(), " bytes in use"});
}

EIGENFORMER_FUNCTION void MemoryPool::give_back_small(void* block, std::size_t cls) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t bytes = class_bytes(cls);
  small_.bytes_in_use -= bytes;
  if (cached() + bytes > limit_) {
    std::free(block);
    return;
  }
  detail::permit(block, bytes);
  free_[cls] = ::new (block) FreeBlock{free_[cls]};
  detail::forbid(static_cast<char*>(block) + sizeof(FreeBlock), bytes - sizeof(FreeBlock));
  small_.bytes_cached += bytes;
}

EIGENFORMER_FUNCTION void* MemoryPool::take_free(std::size_t cls) noexcept {
  void* const block = std::exchange(free_[cls], free_[cls]->next);
  detail::permit(block, class_bytes(cls));
  small_.bytes_cached -= class_bytes(cls);
  return block;
}

EIGENFORMER_FUNCTION void MemoryPool::give_back_large(char* block, std::size_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  segments_.give_back(block, bytes);
  if (cached() > limit_) segments_.trim(limit_ > small_.bytes_cached ? limit_ - small_.bytes_cached : 0);
}

EIGENFORMER_FUNCTION void MemoryPool::trim_to(std::size_t keep) noexcept {
  segments_.trim(keep > small_.bytes_cached ? keep - small_.bytes_cached : 0);
  for (std::size_t cls = free_.size(); cls-- > 0;) {
    while (free_[cls] != nullptr && cached() > keep) std::free(take_free(cls));
  }
}

}  // namespace eigenformer
#endif
