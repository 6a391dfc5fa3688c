#pragma once

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "eigenformer/core/runtime/storage.hpp"

namespace eigenformer {

// The shared state of a block's owners; it returns the memory to the pool when the last of them is
// destroyed.
struct MemoryPool::Block {
  explicit Block(MemoryPool& from) noexcept : pool(from) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (memory != nullptr) pool.give_back(*this);
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

EIGENFORMER_FUNCTION void MemoryPool::give_back(const Block& block) noexcept {
  if (block.is_large) {
    give_back_large(static_cast<char*>(block.memory), block.size);
  } else {
    give_back_small(block.memory, block.size);
  }
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
