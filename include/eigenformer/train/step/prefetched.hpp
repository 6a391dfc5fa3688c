#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer {

/// Makes batches ahead on its own thread while the training works on earlier ones: an EpochBatches adaptor
/// that returns the same batches. An exception from making a batch is rethrown when that batch is requested.
/// Holds the batches by reference; nobody else may use them meanwhile. One thread at a time may call it.
///
///     ef::Batcher batcher(corpus);
///     ef::PrefetchedBatches batches(batcher);
template <EpochBatches Batches>
class PrefetchedBatches {
 public:
  /// The type of the adapted batches.
  using Batch = std::remove_cvref_t<decltype(std::declval<Batches&>().batch(index_t{}, index_t{}))>;

  /// Starts the thread. depth: batches made ahead; requesting another than the next one discards them. 0: no
  /// thread, batches are made on request. Throws ValueError when depth is negative.
  explicit PrefetchedBatches(Batches& batches, index_t depth = 4) : batches_(batches), depth_(depth) {
    if (depth < 0) throw ValueError("prefetch", {"depth is ", depth, ", must not be negative"});
    if (depth > 0) thread_ = std::thread([this] { work(); });
  }
  ~PrefetchedBatches() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  PrefetchedBatches(const PrefetchedBatches&) = delete;
  PrefetchedBatches& operator=(const PrefetchedBatches&) = delete;

  /// The number of batches of an epoch. Throws what the batches throw.
  index_t num_batches(index_t epoch) {
    if (depth_ == 0) return batches_.num_batches(epoch);
    std::unique_lock<std::mutex> lock(mutex_);
    // Counting another epoch makes the batches lose their work on this one, so counts are kept.
    if (const auto known = counts_.find(epoch); known != counts_.end()) return known->second;
    wait_until_idle(lock);
    const index_t count = batches_.num_batches(epoch);
    counts_.emplace(epoch, count);
    return count;
  }

  /// Returns batch k of an epoch, waiting until it is made. Throws what the batches throw.
  Batch batch(index_t epoch, index_t k) {
    if (depth_ == 0) return batches_.batch(epoch, k);
    std::unique_lock<std::mutex> lock(mutex_);
    const bool ended = made_.empty() && !upcoming_;
    if (ended || epoch != epoch_ || expected_ != k) restart(lock, epoch, k);
    expected_ = k + 1;
    changed_.wait(lock, [&] { return !made_.empty(); });
    Made made = std::move(made_.front());
    made_.pop_front();
    if (made.error) expected_.reset();  // a repeated request makes it again
    changed_.notify_all();
    lock.unlock();
    if (made.error) std::rethrow_exception(made.error);
    return std::move(*made.batch);
  }

 private:
  struct Made {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  // Waits until the thread is not inside `batches_`; while the lock is held it stays out.
  void wait_until_idle(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return !busy_; });
  }

  void restart(std::unique_lock<std::mutex>& lock, index_t epoch, index_t k) {
    wait_until_idle(lock);
    made_.clear();
    epoch_ = epoch;
    upcoming_ = k;
    changed_.notify_all();
  }

  void work() {
    const ThreadScope alone(1);  // the other threads are the training's
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock,
                    [&] { return stop_ || (upcoming_ && static_cast<index_t>(made_.size()) < depth_); });
      if (stop_) return;
      const index_t epoch = epoch_, k = *upcoming_;
      busy_ = true;
      lock.unlock();
      Made made;
      index_t count = 0;
      try {
        made.batch.emplace(batches_.batch(epoch, k));
        count = batches_.num_batches(epoch);
      } catch (...) {
        made = {std::nullopt, std::current_exception()};
      }
      lock.lock();
      busy_ = false;
      made_.push_back(std::move(made));
      upcoming_ = k + 1 < count ? std::optional(k + 1) : std::nullopt;
      changed_.notify_all();
    }
  }

  Batches& batches_;
  const index_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Made> made_;
  index_t epoch_ = -1;
  std::optional<index_t> expected_;  // the expected next request
  std::optional<index_t> upcoming_;  // the batch made next
  std::map<index_t, index_t> counts_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace eigenformer
