#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace eigenformer::detail {

/// Has `before` called in a process that forks, `parent` and `child` after it in these two: a child has no
/// thread but the one that forked, and mutexes as they were.
inline bool at_fork([[maybe_unused]] void (*before)(), [[maybe_unused]] void (*parent)(),
                    [[maybe_unused]] void (*child)()) {
#if defined(__unix__) || defined(__APPLE__)
  return pthread_atfork(before, parent, child) == 0;
#else
  return true;
#endif
}

/// Counts the forks between this process and the one that began, and holds what a child may need to wait for.
class ForkCounter {
 public:
  static ForkCounter& instance() {
    static ForkCounter* counter = new ForkCounter;
    return *counter;
  }

  std::uint64_t forks() const noexcept { return forks_.load(std::memory_order_acquire); }

  /// Free in a child at its start, whoever held it in the parent.
  std::mutex& mutex() noexcept { return mutex_; }

 private:
  ForkCounter() {
    at_fork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
            [] {
              instance().forks_.fetch_add(1, std::memory_order_release);
              instance().mutex_.unlock();
            });
  }

  std::atomic<std::uint64_t> forks_{0};
  std::mutex mutex_;
};

}  // namespace eigenformer::detail
