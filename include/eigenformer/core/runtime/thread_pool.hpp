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
/// processes. A child has only the thread that forked, and mutexes keep their state.
inline void at_fork([[maybe_unused]] void (*before)(), [[maybe_unused]] void (*parent)(),
                    [[maybe_unused]] void (*child)()) {
#if defined(__unix__) || defined(__APPLE__)
  (void)pthread_atfork(before, parent, child);
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
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace eigenformer {

struct ThreadPool::Job {
  Job(index_t n, TaskRef t) : count(n), task(t) {}
  void help() {
    for (index_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      task(i);
      done.fetch_add(1, std::memory_order_release);
    }
  }
  index_t count;
  TaskRef task;
  std::atomic<index_t> next{0};
  std::atomic<index_t> done{0};
};

EIGENFORMER_FUNCTION void ThreadPool::pause(int spin) {
  if (spin < 4096) {
#if EIGENFORMER_X86
    __builtin_ia32_pause();
#endif
  } else {
    std::this_thread::yield();
  }
}

/// The threads of one process, and the jobs that they and their callers share.
struct ThreadPool::Workers {
  Workers(int threads, std::uint64_t process) : size(threads), forks(process) {
    try {
      while (static_cast<int>(started_.size()) < size - 1) started_.emplace_back([this] { work(); });
    } catch (const std::exception&) {  // std::system_error, or std::bad_alloc
      const std::size_t started = started_.size();
      stop();
      throw ValueError("runtime", {"cannot start ", size, " threads: the system allows only ", started + 1,
                                   "; use fewer, or raise the limits on memory and processes"});
    }
  }
  ~Workers() { stop(); }

  void run(index_t count, TaskRef task) {
    if (size == 1 || count == 1) {
      for (index_t i = 0; i < count; ++i) task(i);
      return;
    }
    const auto job = std::make_shared<Job>(count, task);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      jobs_.push_back(job);
      signal_.fetch_add(1, std::memory_order_release);
    }
    if (sleeping_.load(std::memory_order_seq_cst) > 0) wake_.notify_all();
    job->help();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto at = std::find(jobs_.begin(), jobs_.end(), job);
      if (at != jobs_.end()) jobs_.erase(at);
    }
    for (int spin = 0; job->done.load(std::memory_order_acquire) != count; ++spin) pause(spin);
  }

  const int size;             // with the caller
  const std::uint64_t forks;  // which process has these threads
  Workers* abandoned = nullptr;

 private:
  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (auto& thread : started_) thread.join();
    started_.clear();
  }

  std::shared_ptr<Job> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& job : jobs_) {
      if (job->next.load(std::memory_order_relaxed) < job->count) return job;
    }
    return nullptr;
  }

  void work() {
    std::uint64_t seen = 0;
    while (!stop_.load()) {
      // Between two products of a step there are microseconds: waking a sleeping thread would cost more
      // than that.
      for (int spin = 0; spin < 20000 && signal_.load(std::memory_order_acquire) == seen && !stop_.load();
           ++spin) {
        pause(0);
      }
      if (signal_.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleeping_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return stop_.load() || signal_.load() != seen; });
        sleeping_.fetch_sub(1);
      }
      seen = signal_.load(std::memory_order_acquire);
      while (const auto job = take()) job->help();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::atomic<std::uint64_t> signal_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> started_;
};

/// The threads of this process; the first call in a forked child starts them.
EIGENFORMER_FUNCTION ThreadPool::Workers& ThreadPool::workers() {
  Workers* workers = workers_.load(std::memory_order_acquire);
  if (workers->forks != counter_.forks()) {
    const std::lock_guard<std::mutex> lock(counter_.mutex());
    workers = workers_.load(std::memory_order_relaxed);
    if (workers->forks != counter_.forks()) {
      auto fresh = std::make_unique<Workers>(workers->size, counter_.forks());
      abandon(workers);
      workers = fresh.release();
      workers_.store(workers, std::memory_order_release);
    }
  }
  return *workers;
}

/// Keeps the state of threads that exist only in the parent process: their mutex may stay locked, and they
/// cannot be joined. The list keeps it reachable for leak checkers.
EIGENFORMER_FUNCTION void ThreadPool::abandon(Workers* workers) {
  static Workers* last = nullptr;
  workers->abandoned = std::exchange(last, workers);
}

EIGENFORMER_FUNCTION ThreadPool::ThreadPool(int threads)
    : workers_(new Workers(std::max(1, threads), counter_.forks())) {}

EIGENFORMER_FUNCTION ThreadPool::~ThreadPool() {
  Workers* const workers = workers_.load(std::memory_order_acquire);
  if (workers->forks == counter_.forks()) {
    delete workers;
  } else {
    const std::lock_guard<std::mutex> lock(counter_.mutex());
    abandon(workers);
  }
}

EIGENFORMER_FUNCTION int ThreadPool::threads() const {
  return workers_.load(std::memory_order_acquire)->size;
}

EIGENFORMER_FUNCTION void ThreadPool::run(index_t count, TaskRef task) {
  if (count > 0) workers().run(count, task);
}

}  // namespace eigenformer
#endif
