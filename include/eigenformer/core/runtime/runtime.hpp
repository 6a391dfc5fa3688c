#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/runtime/storage.hpp"
#include "eigenformer/core/runtime/thread_pool.hpp"

namespace eigenformer {

/// The process-wide state: threads (or the caller's executor), the memory pool and the profiler. A forked
/// child can use it, whatever other threads of its parent did at the time of the fork.
class Runtime {
 public:
  /// The only instance. It is never destroyed, so that tensors of static duration can release their storage
  /// at any time.
  static Runtime& instance();

  /// Replaces the executor by a pool of `threads` threads, the caller's included. Throws ValueError for less
  /// than 1 and when the system cannot start that many; the executor is unchanged then. Running loops finish
  /// on the executor they started on.
  void set_threads(int threads);

  /// Runs parallel loops on `executor` from now on; nullptr restores a pool of default_threads() threads.
  void set_executor(std::shared_ptr<Executor> executor);

  /// The number of threads of executor(); default_threads() unless it was set.
  int threads();

  /// The executor of loops that this thread starts: its innermost ThreadScope's, else the process-wide one.
  std::shared_ptr<Executor> executor();

  /// The pool that owns the storage of tensors.
  MemoryPool& pool() noexcept { return pool_; }
  /// The profiler that all ops report to.
  Profiler& profiler() noexcept { return profiler_; }

  /// The number of cores this process may use (on Linux its CPU affinity), at least 1.
  static int default_threads();

 private:
  friend class ThreadScope;
  Runtime();

  // Held around a fork, so that no thread is in the middle of a change that the child would never see
  // completed.
  void lock();
  void unlock();

  /// A pool of default_threads() threads; the number is halved until the system can start them.
  static std::shared_ptr<Executor> default_executor();

  static const std::shared_ptr<Executor>*& thread_executor();

  std::mutex mutex_;
  std::shared_ptr<Executor> executor_;
  MemoryPool pool_;
  Profiler profiler_;
};

/// Sets the executor of the loops that the calling thread starts, for the lifetime of the scope. Scopes nest.
class ThreadScope {
 public:
  /// A new pool of `threads` threads; with 1 all work runs on the calling thread. Throws ValueError when the
  /// system cannot start them.
  explicit ThreadScope(int threads);
  /// The given executor. Throws ValueError when it is null.
  explicit ThreadScope(std::shared_ptr<Executor> executor);
  /// Restores the executor that was set before.
  ~ThreadScope();
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

/// A call f(begin, end).
using RangeRef = FunctionRef<index_t, index_t>;

EIGENFORMER_FUNCTION void parallel_ranges(index_t n, index_t grain, RangeRef f);

}  // namespace detail

/// Calls f(begin, end) for disjoint ranges that cover 0 .. n-1, in any order, on the threads of
/// Runtime::executor() when n exceeds `grain` (the least number of items that is worth a task). Nested loops
/// run serially. After an exception ranges that have not begun are skipped, and the first exception is
/// rethrown when all others have ended.
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

namespace detail {

/// n elements from the Runtime's pool, uninitialised.
template <class T>
std::shared_ptr<T[]> pool_array(index_t n) {
  auto memory = Runtime::instance().pool().allocate(static_cast<std::uint64_t>(n) * sizeof(T));
  return std::static_pointer_cast<T[]>(std::move(memory));
}

/// Calls f(i) for i in 0 .. n-1 by parallel_for().
template <class F>
void parallel_each(index_t n, index_t grain, const F& f) {
  parallel_for(n, grain, [&f](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS
#include <algorithm>
#include <exception>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace eigenformer {

EIGENFORMER_FUNCTION const std::shared_ptr<Executor>*& Runtime::thread_executor() {
  thread_local const std::shared_ptr<Executor>* executor = nullptr;
  return executor;
}

EIGENFORMER_FUNCTION std::shared_ptr<Executor> Runtime::default_executor() {
  for (int threads = default_threads();; threads /= 2) {
    try {
      return std::make_shared<ThreadPool>(threads);
    } catch (const ValueError&) {  // never with one thread, the caller's
    }
  }
}

EIGENFORMER_FUNCTION void Runtime::lock() {
  mutex_.lock();
  pool_.mutex_.lock();
  profiler_.mutex_.lock();
}

EIGENFORMER_FUNCTION void Runtime::unlock() {
  profiler_.mutex_.unlock();
  pool_.mutex_.unlock();
  mutex_.unlock();
}

EIGENFORMER_FUNCTION Runtime& Runtime::instance() {
  static Runtime* runtime = new Runtime;
  return *runtime;
}

EIGENFORMER_FUNCTION void Runtime::set_threads(int threads) {
  if (threads < 1) throw ValueError("runtime", {"threads is ", threads, ", must be at least 1"});
  set_executor(std::make_shared<ThreadPool>(threads));
}

EIGENFORMER_FUNCTION void Runtime::set_executor(std::shared_ptr<Executor> executor) {
  if (executor == nullptr) executor = default_executor();
  const std::lock_guard<std::mutex> lock(mutex_);
  executor_.swap(executor);
}

EIGENFORMER_FUNCTION int Runtime::threads() { return executor()->threads(); }

EIGENFORMER_FUNCTION std::shared_ptr<Executor> Runtime::executor() {
  if (thread_executor() != nullptr) return *thread_executor();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (executor_ == nullptr) executor_ = default_executor();
  return executor_;
}

EIGENFORMER_FUNCTION int Runtime::default_threads() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

EIGENFORMER_FUNCTION Runtime::Runtime() {
  (void)detail::ForkCounter::instance();  // its handlers are registered before a mutex of ours is held
  detail::at_fork([] { instance().lock(); }, [] { instance().unlock(); }, [] { instance().unlock(); });
}

EIGENFORMER_FUNCTION ThreadScope::ThreadScope(int threads)
    : ThreadScope(std::make_shared<ThreadPool>(threads)) {}

EIGENFORMER_FUNCTION ThreadScope::ThreadScope(std::shared_ptr<Executor> executor)
    : executor_(std::move(executor)), previous_(Runtime::thread_executor()) {
  if (executor_ == nullptr)
    throw ValueError("runtime", "the executor of a thread scope is null, must be an executor");
  Runtime::thread_executor() = &executor_;
}

EIGENFORMER_FUNCTION ThreadScope::~ThreadScope() { Runtime::thread_executor() = previous_; }

namespace detail {

EIGENFORMER_FUNCTION void parallel_ranges(index_t n, index_t grain, RangeRef f) {
  const std::shared_ptr<Executor> executor = Runtime::instance().executor();
  const index_t threads = executor->threads();
  if (threads == 1) {
    f(index_t{0}, n);
    return;
  }
  // A few ranges for each thread balance the load when other processes use a core.
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

}  // namespace eigenformer
#endif
