#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace eigenformer::detail {

/// Registers functions for fork(): `before` runs before it, `parent` and `child` after it in the two
/// processes. A child has only the thread that forked, and mutexes keep their state. Returns false if that
/// fails.
inline bool at_fork([[maybe_unused]] void (*before)(), [[maybe_unused]] void (*parent)(),
                    [[maybe_unused]] void (*child)()) {
#if defined(__unix__) || defined(__APPLE__)
  return pthread_atfork(before, parent, child) == 0;
#else
  return true;
#endif
}

/// Counts the forks between the first process and this one.
class ForkCounter {
 public:
  static ForkCounter& instance() {
    static ForkCounter* counter = new ForkCounter;
    return *counter;
  }

  std::uint64_t forks() const noexcept { return forks_.load(std::memory_order_acquire); }

  /// Unlocked when a child starts, whichever thread held it in the parent.
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
