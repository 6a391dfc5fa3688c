#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

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

namespace eigenformer::detail {

/// A reference to a function f(numbers...), which must outlive it.
template <class... Numbers>
class FunctionRef {
 public:
  /// Refers to `f`.
  template <class F>
  requires(!std::same_as<F, FunctionRef>) explicit FunctionRef(F& f)
      : object_(&f), call_([](void* o, Numbers... numbers) { (*static_cast<F*>(o))(numbers...); }) {}
  /// Calls it.
  void operator()(Numbers... numbers) const { call_(object_, numbers...); }

 private:
  void* object_;
  void (*call_)(void*, Numbers...);
};

}  // namespace eigenformer::detail

namespace eigenformer {

/// A reference to a function of a task number, which an Executor runs: TaskRef(f) refers to f, which is
/// called as f(i), must not throw and must outlive it.
using TaskRef = detail::FunctionRef<index_t>;

/// The interface of thread pools: an implementation may be a loop of OpenMP or TBB. Runtime::set_executor()
/// and ThreadScope select one.
class Executor {
 public:
  virtual ~Executor() = default;
  /// The greatest number of tasks that run at the same time.
  virtual int threads() const = 0;
  /// Runs tasks 0 .. count-1, in any order and concurrently, and returns when all have ended. Tasks do not
  /// throw. While it waits it may run other work on the calling thread, but it must return on the thread that
  /// called it. Several threads may call it at the same time.
  virtual void run(index_t count, TaskRef task) = 0;
};

/// The default executor: standard threads that spin briefly before they sleep. Concurrent callers share the
/// workers; each caller also runs its own tasks, so every call makes progress.
///
/// In a forked child a pool starts new threads at its first use. A child forked by a task must not return
/// from that task.
class ThreadPool final : public Executor {
 public:
  /// A pool of `threads` threads, the caller's included: it starts threads - 1, and none for less than 2.
  /// Throws ValueError when the system cannot start them.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The number given to the constructor, at least 1.
  int threads() const override;

  /// As Executor::run(). Throws ValueError when a forked child cannot start its threads.
  void run(index_t count, TaskRef task) override;

 private:
  struct Job;
  struct Workers;

  static void pause(int spin);
  Workers& workers();
  static void abandon(Workers* workers);

  detail::ForkCounter& counter_ = detail::ForkCounter::instance();
  std::atomic<Workers*> workers_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS
#include "eigenformer/core/runtime/thread_pool-inl.hpp"
#endif
