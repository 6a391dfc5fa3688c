#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// The total cost of one op, forward or backward.
struct OpProfile {
  std::string op;          ///< the name of the op, such as "linear"
  bool backward = false;   ///< whether this is its backward
  std::int64_t calls = 0;  ///< how often it ran
  double seconds = 0;      ///< wall-clock time of all calls
  double flops = 0;        ///< floating-point operations of its matrix products: 2 m n k each
  /// Bytes of the tensors that it reads and writes: inputs and output; in backward the gradient of the
  /// output, the inputs again and their gradients.
  double bytes = 0;
};

/// Measures every op, forward and backward separately, between start() and stop(); otherwise it costs one
/// relaxed load per op. Work that a work-stealing executor runs while an op waits counts for that op.
class Profiler {
 public:
  /// Stopped and without results.
  Profiler();
  ~Profiler();
  /// Measures the ops that begin from now on, in all threads; earlier results are kept.
  void start() { enabled_.store(true, std::memory_order_relaxed); }
  /// Ops that begin from now on are not measured; results are kept.
  void stop() { enabled_.store(false, std::memory_order_relaxed); }
  /// Whether ops are measured.
  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// Discards all results.
  void clear();

  /// Adds one call to the totals of `op`; OpScope does so at its end.
  void add(const char* op, bool backward, double seconds, double flops, double bytes);

  /// The ops measured since clear(), those with the most time first.
  std::vector<OpProfile> report() const;

 private:
  friend class Runtime;

  std::atomic<bool> enabled_{false};
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, bool>, OpProfile> profiles_;
};

namespace detail {

/// Work that kernels counted on this thread.
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
  /// Starts the clock unless the profiler is off or another scope is open on this thread; `op` must outlive
  /// the scope.
  OpScope(Profiler& profiler, const char* op, bool backward = false);
  /// Adds the time and the counted work to the profiler.
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  static bool& active();

  Profiler* profiler_ = nullptr;
  const char* op_ = nullptr;
  bool backward_ = false;
  detail::WorkCounter work_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

#include <algorithm>

namespace eigenformer {

EIGENFORMER_FUNCTION bool& OpScope::active() {
  thread_local bool value = false;
  return value;
}

EIGENFORMER_FUNCTION Profiler::Profiler() {}
EIGENFORMER_FUNCTION Profiler::~Profiler() {}

EIGENFORMER_FUNCTION void Profiler::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  profiles_.clear();
}

EIGENFORMER_FUNCTION void Profiler::add(const char* op, bool backward, double seconds, double flops,
                                        double bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OpProfile& p = profiles_[{op, backward}];
  ++p.calls;
  p.seconds += seconds;
  p.flops += flops;
  p.bytes += bytes;
}

EIGENFORMER_FUNCTION std::vector<OpProfile> Profiler::report() const {
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

EIGENFORMER_FUNCTION EIGENFORMER_NOINLINE OpScope::OpScope(Profiler& profiler, const char* op,
                                                           bool backward) {
  if (!profiler.enabled() || active()) return;
  profiler_ = &profiler;
  op_ = op;
  backward_ = backward;
  active() = true;
  work_ = detail::work_counter();
  start_ = std::chrono::steady_clock::now();
}

EIGENFORMER_FUNCTION EIGENFORMER_NOINLINE OpScope::~OpScope() {
  if (profiler_ == nullptr) return;
  active() = false;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const detail::WorkCounter& now = detail::work_counter();
  profiler_->add(op_, backward_, elapsed.count(), now.flops - work_.flops, now.bytes - work_.bytes);
}

}  // namespace eigenformer

#endif
