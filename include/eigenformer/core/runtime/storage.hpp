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

  void give_back(const Block& block) noexcept;

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
#include "eigenformer/core/runtime/storage-inl.hpp"
#endif
