#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#if defined(__linux__)
#include <sched.h>
#endif

#include "eigenformer/core/runtime/runtime.hpp"

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
