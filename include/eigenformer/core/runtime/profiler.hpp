#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// What one op cost in total: calls, seconds, floating-point operations of its products, and bytes of the
/// tensors it reads and writes: inputs and output; in backward the output's gradient, the inputs once more
/// and their gradients.
struct OpProfile {
  std::string op;
  bool backward = false;
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

/// Times every op, forward and backward apart, while it is on; costs one relaxed load per op when it is off.
/// What an executor that steals work runs while an op waits counts as that op's.
class Profiler {
 public:
  void start() { enabled_.store(true, std::memory_order_relaxed); }
  void stop() { enabled_.store(false, std::memory_order_relaxed); }
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    profiles_.clear();
  }

  void add(const char* op, bool backward, double seconds, double flops, double bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    OpProfile& p = profiles_[{op, backward}];
    ++p.calls;
    p.seconds += seconds;
    p.flops += flops;
    p.bytes += bytes;
  }

  /// The ops seen since clear(), the most expensive first.
  std::vector<OpProfile> report() const {
    std::vector<OpProfile> rows;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& [key, profile] : profiles_) {
        rows.push_back(profile);
        rows.back().op = key.first;
        rows.back().backward = key.second;
      }
    }
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return rows;
  }

 private:
  friend class Runtime;

  std::atomic<bool> enabled_{false};
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, bool>, OpProfile> profiles_;
};

namespace detail {

/// Work counted by the kernels on this thread while a profile is taken.
struct WorkCounter {
  double flops = 0;
  double bytes = 0;
};

inline WorkCounter& work_counter() {
  thread_local WorkCounter counter;
  return counter;
}

/// Adds a product's operations to this thread's work.
inline void count_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  work_counter().flops += 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
                          static_cast<double>(batch);
}

/// Adds `elements` of T, read or written, to this thread's work.
template <class T>
void count_bytes(std::int64_t elements) {
  work_counter().bytes += static_cast<double>(elements) * static_cast<double>(sizeof(T));
}

}  // namespace detail

/// Times a scope as one op; nested scopes count into the outer one only.
class OpScope {
 public:
  EIGENFORMER_NOINLINE OpScope(Profiler& profiler, const char* op, bool backward = false) {
    if (!profiler.enabled() || active()) return;
    profiler_ = &profiler;
    op_ = op;
    backward_ = backward;
    active() = true;
    work_ = detail::work_counter();
    start_ = std::chrono::steady_clock::now();
  }
  EIGENFORMER_NOINLINE ~OpScope() {
    if (profiler_ == nullptr) return;
    active() = false;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const detail::WorkCounter& now = detail::work_counter();
    profiler_->add(op_, backward_, elapsed.count(), now.flops - work_.flops, now.bytes - work_.bytes);
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  static bool& active() {
    thread_local bool value = false;
    return value;
  }

  Profiler* profiler_ = nullptr;
  const char* op_ = nullptr;
  bool backward_ = false;
  detail::WorkCounter work_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace eigenformer
