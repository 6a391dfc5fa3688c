#pragma once

#include <functional>
#include <memory>

#include "eigenformer/train/distributed/communicator.hpp"

namespace eigenformer {

/// Runs a function once for each of `size` ranks that are threads of this process, and returns when all have
/// ended. Each rank has its own model, optimizer and loop, as an MPI process has: for trying out and testing
/// distributed training on one machine. The kernels of a rank use no further threads. When a rank throws, the
/// collective calls of the others throw too; the exception of the rank that failed first is rethrown here.
/// Throws ValueError when size is below 1; Communicator::exchange() does when two ranks disagree on a size.
///
///     ef::run_ranks(4, [](const std::shared_ptr<ef::Communicator>& communicator) {
///       Model model = ...;
///       ef::Trainer trainer(model, corpus, nullptr,
///                           {.loop = {.max_steps = 100, .accumulate = 4, .communicator = communicator}});
///       trainer.run();
///     });
EIGENFORMER_IO_FUNCTION void run_ranks(int size,
                                       const std::function<void(const std::shared_ptr<Communicator>&)>& rank);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"

namespace eigenformer {
namespace detail {

// What the ranks of one process share.
struct ThreadGroup {
  explicit ThreadGroup(int size) : sent(static_cast<std::size_t>(size)) {}

  // Waits until all ranks have called it.
  void meet() {
    std::unique_lock lock(mutex);
    throw_if_failed(lock);
    const std::size_t round = rounds;
    if (++here == sent.size()) {
      here = 0;
      ++rounds;
      changed.notify_all();
      return;
    }
    changed.wait(lock, [&] { return rounds != round || (failure && copying == 0); });
    if (rounds == round) throw_if_failed(lock);
  }
  void begin_copy() {
    std::unique_lock lock(mutex);
    throw_if_failed(lock);
    ++copying;
  }
  void end_copy() {
    const std::lock_guard lock(mutex);
    if (--copying == 0) changed.notify_all();
  }
  // Not before the other ranks have read what they copy: the rank that throws is about to free its memory.
  void throw_if_failed(std::unique_lock<std::mutex>& lock) {
    if (!failure) return;
    changed.wait(lock, [&] { return copying == 0; });
    throw IoError("distributed", *failure);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::span<const std::span<const std::byte>>> sent;
  std::size_t here = 0, rounds = 0, copying = 0;
  std::optional<std::string> failure;
  int failed_rank = -1;  // the one that failed first
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(group_->sent.size()); }

  void exchange(std::span<const std::span<const std::byte>> send,
                std::span<const std::span<std::byte>> receive) override {
    const auto me = static_cast<std::size_t>(rank_);
    group_->sent[me] = send;
    group_->meet();
    group_->begin_copy();
    std::string problem;
    for (std::size_t r = 0; r < receive.size(); ++r) {
      const std::span<const std::byte> from = group_->sent[r][me];
      if (from.size() != receive[r].size()) {
        problem = join({"rank ", r, " sends ", from.size(), " bytes to rank ", rank_, ", which expects ",
                        receive[r].size()});
      } else if (!from.empty()) {
        std::memcpy(receive[r].data(), from.data(), from.size());
      }
    }
    group_->end_copy();
    group_->meet();
    if (!problem.empty()) throw ValueError("exchange", problem);
  }

  void fail(const std::string& message) noexcept override {
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

 private:
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

}  // namespace detail

EIGENFORMER_IO_FUNCTION void run_ranks(
    int size, const std::function<void(const std::shared_ptr<Communicator>&)>& rank) {
  if (size < 1) throw ValueError("distributed", {"the number of ranks is ", size, ", must be at least 1"});
  const auto group = std::make_shared<detail::ThreadGroup>(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r, communicator = std::make_shared<detail::ThreadCommunicator>(group, r)] {
      std::exception_ptr& error = errors[static_cast<std::size_t>(r)];
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
  if (group->failed_rank >= 0) std::rethrow_exception(errors[static_cast<std::size_t>(group->failed_rank)]);
}

}  // namespace eigenformer

#endif
