#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer::detail {

// Computes the micro-batches of an update on several threads of this process, which share the weights and
// have a tape and gradients each. Gradients are summed in the order of batches: the same bits as with one
// thread.
template <class T>
class WorkerAccumulator final : public Accumulator<T> {
 public:
  explicit WorkerAccumulator(index_t workers)
      : pool_(static_cast<int>(workers)),
        tapes_(static_cast<std::size_t>(workers)),
        parts_(static_cast<std::size_t>(workers)) {
    const int threads = std::max(1, Runtime::instance().threads() / static_cast<int>(workers));
    for (index_t w = 0; w < workers; ++w) executors_.push_back(std::make_shared<ThreadPool>(threads));
  }

  UpdateLoss add(Updates<T>& batches, const PassOptions& pass, Gradients<T>& gradients) override {
    UpdateLoss sum{.weight = total_weight(batches)};
    const auto workers = static_cast<index_t>(tapes_.size());
    for (index_t first = 0; first < batches.size(); first += workers) {
      const index_t count = std::min(workers, batches.size() - first);
      std::vector<UpdateLoss> losses(static_cast<std::size_t>(count));
      std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
      auto task = [&](index_t i) {
        const auto w = static_cast<std::size_t>(i);
        try {
          const ThreadScope scope(executors_[w]);
          if (parts_[w].entries().empty()) parts_[w] = zeros_like(gradients);
          parts_[w].zero();
          const Var<T> loss = micro_batch_loss(batches, first + i, sum.weight, pass, tapes_[w], losses[w]);
          tapes_[w].backward(loss, parts_[w]);
        } catch (...) {
          errors[w] = std::current_exception();
        }
      };
      pool_.run(count, TaskRef(task));
      for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
      }
      for (std::size_t w = 0; w < losses.size(); ++w) {
        sum.add(losses[w]);
        gradients.accumulate(parts_[w]);
        parts_[w].zero();
      }
    }
    return sum;
  }

 private:
  ThreadPool pool_;
  std::vector<std::shared_ptr<ThreadPool>> executors_;
  std::vector<Tape<T>> tapes_;
  std::vector<Gradients<T>> parts_;
};

}  // namespace eigenformer::detail
