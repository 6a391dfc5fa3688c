#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/train/distributed/communicator.hpp"

namespace eigenformer {

/// Connects ranks that are threads of one process. Each rank has its own model, optimizer and loop, as an MPI
/// process has: for trying out and testing distributed training on one machine. run_ranks() starts the
/// threads.
///
///     ef::run_ranks(4, [](const std::shared_ptr<ef::Communicator>& communicator) {
///       Model model = ...;
///       ef::Trainer trainer(model, corpus, nullptr,
///                           {.loop = {.max_steps = 100, .accumulate = 4, .communicator = communicator}});
///       trainer.run();
///     });
class ThreadCommunicator final : public Communicator {
 public:
  /// Creates a group of connected communicators, one for each of `size` ranks. Throws ValueError when size is
  /// below 1.
  static std::vector<std::shared_ptr<Communicator>> make(int size);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(group_->sent.size()); }

  /// As Communicator::exchange; also throws ValueError when two ranks disagree on a size.
  EIGENFORMER_IO_FUNCTION void exchange(std::span<const std::span<const std::byte>> send,
                                        std::span<const std::span<std::byte>> receive) override;

  EIGENFORMER_IO_FUNCTION void fail(const std::string& message) noexcept override;

  /// The rank that failed first; -1: none.
  int failed_rank() const {
    const std::lock_guard lock(group_->mutex);
    return group_->failed_rank;
  }

 private:
  struct Group {
    explicit Group(int size) : sent(static_cast<std::size_t>(size)) {}

    // Waits until all ranks have called it.
    void meet();
    void begin_copy();
    void end_copy() {
      const std::lock_guard lock(mutex);
      if (--copying == 0) changed.notify_all();
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::span<const std::span<const std::byte>>> sent;
    std::size_t here = 0, rounds = 0, copying = 0;
    std::optional<std::string> failure;
    int failed_rank = -1;
  };

  ThreadCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  std::shared_ptr<Group> group_;
  int rank_;
};

/// Runs a function once per rank, each on its own thread, whose kernels use no further threads, and returns
/// when all have ended. When a rank throws, the collective calls of the others throw too; the exception of
/// the rank that failed first is rethrown here. Throws ValueError when size is below 1.
EIGENFORMER_IO_FUNCTION void run_ranks(int size,
                                       const std::function<void(const std::shared_ptr<Communicator>&)>& rank);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION std::vector<std::shared_ptr<Communicator>> ThreadCommunicator::make(int size) {
  if (size < 1) {
    throw ValueError("distributed", {"the number of ranks is ", size, ", must be at least 1"});
  }
  const auto group = std::make_shared<Group>(size);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r)
    ranks.push_back(std::shared_ptr<Communicator>(new ThreadCommunicator(group, r)));
  return ranks;
}

EIGENFORMER_IO_FUNCTION void ThreadCommunicator::exchange(std::span<const std::span<const std::byte>> send,
                                                          std::span<const std::span<std::byte>> receive) {
  const auto me = static_cast<std::size_t>(rank_);
  group_->sent[me] = send;
  group_->meet();
  group_->begin_copy();
  std::string problem;
  for (std::size_t r = 0; r < receive.size(); ++r) {
    const std::span<const std::byte> from = group_->sent[r][me];
    if (from.size() != receive[r].size()) {
      problem = "rank " + std::to_string(r) + " sends " + std::to_string(from.size()) + " bytes to rank " +
                std::to_string(rank_) + ", which expects " + std::to_string(receive[r].size());
    } else if (!from.empty()) {
      std::memcpy(receive[r].data(), from.data(), from.size());
    }
  }
  group_->end_copy();
  group_->meet();
  if (!problem.empty()) throw ValueError("exchange", problem);
}

EIGENFORMER_IO_FUNCTION void ThreadCommunicator::fail(const std::string& message) noexcept {
  const std::lock_guard lock(group_->mutex);
  if (group_->failure) return;
  group_->failed_rank = rank_;
  try {
    group_->failure = "rank " + std::to_string(rank_) + ": " + message;
  } catch (...) {
    group_->failure.emplace();
  }
  group_->changed.notify_all();
}

EIGENFORMER_IO_FUNCTION void ThreadCommunicator::Group::meet() {
  std::unique_lock lock(mutex);
  if (failure) {
    changed.wait(lock, [&] { return copying == 0; });
    throw IoError("distributed", *failure);
  }
  const std::size_t round = rounds;
  if (++here == sent.size()) {
    here = 0;
    ++rounds;
    changed.notify_all();
    return;
  }
  // Other ranks may still read memory that a throwing rank is about to free.
  changed.wait(lock, [&] { return rounds != round || (failure && copying == 0); });
  if (rounds == round) throw IoError("distributed", *failure);
}

EIGENFORMER_IO_FUNCTION void ThreadCommunicator::Group::begin_copy() {
  std::unique_lock lock(mutex);
  if (failure) {
    changed.wait(lock, [&] { return copying == 0; });  // as in meet()
    throw IoError("distributed", *failure);
  }
  ++copying;
}

EIGENFORMER_IO_FUNCTION void run_ranks(
    int size, const std::function<void(const std::shared_ptr<Communicator>&)>& rank) {
  const auto communicators = ThreadCommunicator::make(size);
  std::vector<std::exception_ptr> errors(communicators.size());
  std::vector<std::thread> threads;
  for (const auto& communicator : communicators) {
    threads.emplace_back([&, communicator] {
      std::exception_ptr& error = errors[static_cast<std::size_t>(communicator->rank())];
      try {
        const ThreadScope alone(1);
        rank(communicator);
      } catch (const std::exception& e) {
        error = std::current_exception();
        communicator->fail(e.what());
      } catch (...) {
        error = std::current_exception();
        communicator->fail("an exception of unknown type");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto& first = static_cast<const ThreadCommunicator&>(*communicators[0]);
  if (first.failed_rank() >= 0) std::rethrow_exception(errors[static_cast<std::size_t>(first.failed_rank())]);
}

}  // namespace eigenformer

#endif
