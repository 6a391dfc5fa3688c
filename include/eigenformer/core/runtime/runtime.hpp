#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/runtime/storage.hpp"
#include "eigenformer/core/runtime/thread_pool.hpp"

namespace eigenformer {

/// The one process-wide object: threads (or the caller's executor), the memory pool and the profiler. A
/// forked child can use it, whatever other threads of its parent did at that moment.
class Runtime {
 public:
  /// It is never destroyed, so that tensors of static duration can give their storage back at any time.
  static Runtime& instance() {
    static Runtime* runtime = new Runtime;
    return *runtime;
  }

  /// Sets the number of threads of the built-in pool. Throws ValueError below 1, and when the system does not
  /// start that many; the threads stay as they were then. Calls under way finish as they began.
  void set_threads(int threads) {
    if (threads < 1)
      throw ValueError("runtime", "threads is " + std::to_string(threads) + ", must be at least 1");
    set_executor(std::make_shared<ThreadPool>(threads));
  }

  /// Runs everything on the caller's executor from now on; nullptr returns to a pool of the default size.
  void set_executor(std::shared_ptr<Executor> executor) {
    if (executor == nullptr) executor = default_executor();
    const std::lock_guard<std::mutex> lock(mutex_);
    executor_.swap(executor);
  }

  /// Threads that a parallel loop started here would use: at first, the cores this process may run on.
  int threads() { return executor()->threads(); }

  /// The executor in use on this thread.
  std::shared_ptr<Executor> executor() {
    if (thread_executor() != nullptr) return *thread_executor();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (executor_ == nullptr) executor_ = default_executor();
    return executor_;
  }

  MemoryPool& pool() noexcept { return pool_; }
  Profiler& profiler() noexcept { return profiler_; }

  /// The number of cores this process may use.
  static int default_threads() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }

 private:
  friend class ThreadScope;
  Runtime() {
    (void)detail::ForkCounter::instance();  // registers before any mutex of ours is held
    detail::at_fork([] { instance().lock(); }, [] { instance().unlock(); }, [] { instance().unlock(); });
  }

  // Around a fork: nobody is in the middle of a change that the child would never see the end of.
  void lock() {
    mutex_.lock();
    pool_.mutex_.lock();
    profiler_.mutex_.lock();
  }
  void unlock() {
    profiler_.mutex_.unlock();
    pool_.mutex_.unlock();
    mutex_.unlock();
  }

  /// A pool of a thread for each core, or of as many as the system starts when halved again and again.
  static std::shared_ptr<Executor> default_executor() {
    for (int threads = default_threads();; threads /= 2) {
      try {
        return std::make_shared<ThreadPool>(threads);
      } catch (const ValueError&) {  // never with one thread, the caller's
      }
    }
  }

  static const std::shared_ptr<Executor>*& thread_executor() {
    thread_local const std::shared_ptr<Executor>* executor = nullptr;
    return executor;
  }

  std::mutex mutex_;
  std::shared_ptr<Executor> executor_;
  MemoryPool pool_;
  Profiler profiler_;
};

/// Overrides the threads of the calling thread's loops while it lives; a pool of one thread runs everything
/// here.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : ThreadScope(std::make_shared<ThreadPool>(threads)) {}
  explicit ThreadScope(std::shared_ptr<Executor> executor)
      : executor_(std::move(executor)), previous_(Runtime::thread_executor()) {
    if (executor_ == nullptr)
      throw ValueError("runtime", "the executor of a thread scope is null, must be an executor");
    Runtime::thread_executor() = &executor_;
  }
  ~ThreadScope() { Runtime::thread_executor() = previous_; }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  std::shared_ptr<Executor> executor_;
  const std::shared_ptr<Executor>* previous_;
};

namespace detail {

inline bool& inside_parallel() {
  thread_local bool inside = false;
  return inside;
}

}  // namespace detail

namespace detail {

/// A call f(begin, end) without ownership.
class RangeRef {
 public:
  template <class F>
  requires(!std::same_as<F, RangeRef>) explicit RangeRef(F& f)
      : object_(&f), call_([](void* o, index_t begin, index_t end) { (*static_cast<F*>(o))(begin, end); }) {}
  void operator()(index_t begin, index_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, index_t, index_t);
};

EIGENFORMER_NOINLINE inline void parallel_ranges(index_t n, index_t grain, RangeRef f) {
  const std::shared_ptr<Executor> executor = Runtime::instance().executor();
  const index_t threads = executor->threads();
  if (threads == 1) {
    f(index_t{0}, n);
    return;
  }
  // A few ranges a thread even out what other processes take from a core.
  const auto divide_up = [n](index_t by) { return n / by + (n % by == 0 ? 0 : 1); };
  const index_t chunk = std::max(grain, divide_up(threads * 4));
  const index_t tasks = divide_up(chunk);
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  auto task = [&](index_t i) {
    const bool outer = inside_parallel();
    inside_parallel() = true;
    try {
      if (!failed.load(std::memory_order_relaxed)) f(i * chunk, i * chunk + std::min(chunk, n - i * chunk));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
    inside_parallel() = outer;
  };
  executor->run(tasks, TaskRef(task));
  if (error) std::rethrow_exception(error);
}

}  // namespace detail

/// Calls f(begin, end) for ranges that cover 0 .. n, on several threads when n exceeds `grain` (items that
/// are worth a task of their own). Serial when nested. The first exception is rethrown here, after all ranges
/// have ended.
template <class F>
void parallel_for(index_t n, index_t grain, F&& f) {
  if (n <= 0) return;
  grain = std::max<index_t>(1, grain);
  const detail::RangeRef range(f);
  if (n <= grain || detail::inside_parallel()) {
    range(0, n);
  } else {
    detail::parallel_ranges(n, grain, range);
  }
}

}  // namespace eigenformer
