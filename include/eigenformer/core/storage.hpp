#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "eigenformer/core/error.hpp"

namespace eigenformer {

/// What a MemoryPool has done and holds, in bytes and calls.
struct PoolStatistics {
  std::size_t system_allocations = 0;  ///< blocks taken from the operating system so far
  std::size_t reuses = 0;              ///< requests served from blocks that were given back
  std::size_t bytes_in_use = 0;        ///< in live tensors
  std::size_t bytes_cached = 0;        ///< given back and kept for reuse
  std::size_t peak_bytes = 0;          ///< highest bytes_in_use + bytes_cached
};

/// Recycles tensor storage: 64-byte aligned blocks in size classes, thread-safe, with a limit on what is kept.
///
/// Sizes are rounded up to eight classes per power of two, and a request may take a block of up to 1.5 times its
/// size, so that batches of varying length reuse each other's memory instead of growing the process.
class MemoryPool {
 public:
  static constexpr std::size_t alignment = 64;

  MemoryPool() = default;
  /// Frees what is kept for reuse. Blocks still in use must not outlive the pool.
  ~MemoryPool() { trim(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// A block of at least `bytes` bytes, returned to the pool with its last owner. Throws Error when memory runs out.
  std::shared_ptr<void> allocate(std::size_t bytes) {
    const std::size_t wanted = class_of(bytes);
    std::size_t cls = wanted;
    void* block = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const std::size_t last = std::min(wanted + reuse_slack, free_.size() - 1);
      for (; cls <= last && free_[cls].empty(); ++cls) {
      }
      if (cls <= last) {
        block = free_[cls].back();
        free_[cls].pop_back();
        statistics_.bytes_cached -= class_bytes(cls);
        ++statistics_.reuses;
        statistics_.bytes_in_use += class_bytes(cls);
      } else {
        cls = wanted;
      }
    }
    if (block == nullptr) block = system_allocate(cls);
    return std::shared_ptr<void>(block, [this, cls](void* p) { give_back(p, cls); });
  }

  /// Most bytes kept for reuse; more is returned to the operating system. Default: no limit.
  void set_byte_limit(std::size_t bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      limit_ = bytes;
    }
    trim(bytes);
  }

  /// Returns cached blocks to the operating system until at most `keep_bytes` are kept.
  void trim(std::size_t keep_bytes = 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t cls = free_.size(); cls-- > 0 && statistics_.bytes_cached > keep_bytes;) {
      while (!free_[cls].empty() && statistics_.bytes_cached > keep_bytes) {
        std::free(free_[cls].back());
        free_[cls].pop_back();
        statistics_.bytes_cached -= class_bytes(cls);
      }
    }
  }

  PoolStatistics statistics() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return statistics_;
  }

  /// Forgets the peak: it starts again from what is held now.
  void reset_peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    statistics_.peak_bytes = statistics_.bytes_in_use + statistics_.bytes_cached;
  }

 private:
  static constexpr std::size_t steps = 8;        // classes per power of two
  static constexpr std::size_t reuse_slack = 4;  // classes a reused block may be larger: 1.5 times

  // Class c holds 64 * 2^(c / 8) * (1 + (c % 8) / 8) bytes, rounded to the alignment.
  static std::size_t class_bytes(std::size_t cls) {
    const std::size_t base = alignment << (cls / steps);
    const std::size_t bytes = base + base / steps * (cls % steps);
    return (bytes + alignment - 1) / alignment * alignment;
  }

  static std::size_t class_of(std::size_t bytes) {
    if (bytes <= alignment) return 0;
    const std::size_t units = (bytes + alignment - 1) / alignment;
    const auto power = static_cast<std::size_t>(std::bit_width(units) - 1);
    if (power > 40) throw Error("storage", "cannot allocate " + std::to_string(bytes) + " bytes");
    std::size_t cls = power * steps;
    while (class_bytes(cls) < bytes) ++cls;
    return cls;
  }

  void* system_allocate(std::size_t cls) {
    const std::size_t bytes = class_bytes(cls);
    void* block = std::aligned_alloc(alignment, bytes);
    if (block == nullptr) {
      trim();
      block = std::aligned_alloc(alignment, bytes);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block == nullptr) {
      throw Error("storage", "out of memory: a tensor of " + std::to_string(bytes) + " bytes beside " +
                                 std::to_string(statistics_.bytes_in_use) + " bytes in use");
    }
    ++statistics_.system_allocations;
    statistics_.bytes_in_use += bytes;
    statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.bytes_in_use + statistics_.bytes_cached);
    return block;
  }

  void give_back(void* block, std::size_t cls) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t bytes = class_bytes(cls);
    statistics_.bytes_in_use -= bytes;
    if (statistics_.bytes_cached + bytes > limit_) {
      std::free(block);
      return;
    }
    free_[cls].push_back(block);
    statistics_.bytes_cached += bytes;
  }

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, 48 * steps> free_;
  std::size_t limit_ = static_cast<std::size_t>(-1);
  PoolStatistics statistics_;
};

}  // namespace eigenformer
