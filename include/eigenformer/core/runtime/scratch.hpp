#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail {

/// A Buffer that belongs to the calling thread and is kept for its next lease. Two leases that exist at the
/// same time have different buffers: while a caller waits for its tasks, a work-stealing executor may run
/// another kernel on the same thread. `Use` distinguishes buffers of different sizes.
template <class Buffer, class Use = Buffer>
class ThreadLease {
 public:
  ThreadLease() : node_(std::move(free_nodes())) {
    if (node_ == nullptr) {
      node_ = std::make_unique<Node>();
    } else {
      free_nodes() = std::move(node_->next);
    }
  }
  ~ThreadLease() {
    node_->next = std::move(free_nodes());
    free_nodes() = std::move(node_);
  }
  ThreadLease(const ThreadLease&) = delete;
  ThreadLease& operator=(const ThreadLease&) = delete;

  Buffer& operator*() const noexcept { return node_->buffer; }
  Buffer* operator->() const noexcept { return &node_->buffer; }

 private:
  struct Node {
    Buffer buffer;
    std::unique_ptr<Node> next;
  };

  static std::unique_ptr<Node>& free_nodes() {
    thread_local std::unique_ptr<Node> first;
    return first;
  }

  std::unique_ptr<Node> node_;
};

/// Memory that grows and is not cleared.
class Scratch {
 public:
  /// Room for `count` elements, 64-byte aligned; when it grows, the contents are lost and all bytes are zero.
  /// Throws std::bad_alloc when there is not that much memory.
  template <class P>
  P* reserve(index_t count) {
    if (count > std::numeric_limits<std::ptrdiff_t>::max() / static_cast<index_t>(sizeof(P)) - 4096)
      throw std::bad_array_new_length();
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(P) + 4095) / 4096 * 4096;
    if (bytes > bytes_) {
      data_.reset();
      bytes_ = 0;
      data_.reset(::operator new (bytes, std::align_val_t{64}));
      std::memset(data_.get(), 0, bytes);
      bytes_ = bytes;
    }
    return static_cast<P*>(data_.get());
  }

 private:
  struct Free {
    void operator()(void* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace eigenformer::detail
