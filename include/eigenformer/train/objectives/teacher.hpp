#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/normalization/token_objective.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"

namespace eigenformer {

/// A model that can be a teacher: Seq2SeqTransformer, types derived from it, and types with these functions.
template <class M>
concept TeacherModel = requires(const M& model, const Context<typename M::value_type>& ctx,
                                const Tensor<std::int32_t>& ids, const SequenceLayout& layout,
                                const Memory<typename M::value_type>& memory,
                                const Var<typename M::value_type>& rows) {
  { model.encode(ctx, ids, layout) } -> std::convertible_to<Var<typename M::value_type>>;
  { model.decode(ctx, ids, layout, memory) } -> std::convertible_to<Var<typename M::value_type>>;
  { model.logits(ctx, rows) } -> std::convertible_to<Var<typename M::value_type>>;
  { model.vocabulary_size() } -> std::convertible_to<index_t>;
};

/// One or more models that a student is distilled from: the mean of their probabilities of each target token.
/// They read the student's batches, so their vocabularies and text conventions must be the student's.
/// Concurrent calls of read() are safe.
///
///     auto teacher = std::make_shared<ef::Teacher<float>>();
///     teacher->add(large_model);  // or with a context that holds packed weights
///     ef::Trainer trainer(model, corpus, &validation, options, sink, teacher);
template <class T = float>
class Teacher {
 public:
  /// Adds a model by reference; it must outlive the teacher. ctx: an inference context, for example with
  /// packed weights. Throws ValueError for a context that records, and when the model's target vocabulary
  /// differs in size from the first model's.
  template <TeacherModel M>
  void add(const M& model, const Context<T>& ctx = Context<T>::inference()) {
    if (ctx.records())
      throw ValueError("teacher", "the context records a tape, must be an inference context");
    const auto size = static_cast<index_t>(model.vocabulary_size());
    if (!members_.empty() && size != vocabulary_size_) {
      throw ValueError("teacher", "the model has a vocabulary of " + std::to_string(size) +
                                      " ids, must have " + std::to_string(vocabulary_size_) +
                                      ", the size of the first teacher's vocabulary");
    }
    vocabulary_size_ = size;
    members_.push_back([&model, ctx](const Batch& batch) -> Logits {
      const auto tokens = [](const std::vector<std::int32_t>& ids) {
        return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
      };
      const Memory<T> memory(model.encode(ctx, tokens(batch.source), batch.source_layout),
                             batch.source_layout);
      const Var<T> decoded = model.decode(ctx, tokens(batch.target_input), batch.target_layout, memory);
      return [&model, ctx, rows = decoded.value()](index_t first, index_t count) {
        return model.logits(ctx, rows.rows(first, count)).value();
      };
    });
  }

  /// The number of models.
  index_t size() const noexcept { return static_cast<index_t>(members_.size()); }
  /// The size of the target vocabulary in ids; 0 without a model.
  index_t vocabulary_size() const noexcept { return vocabulary_size_; }

  /// Runs the models on a batch and returns a function that computes rows of their mean probabilities,
  /// softmax(logits / temperature): (first row, count, output (count, vocabulary_size())). Throws ValueError
  /// without a model.
  TeacherRows<T> read(const Batch& batch, double temperature) const {
    if (members_.empty()) throw ValueError("teacher", "there is no model, expected at least one");
    std::vector<Logits> all;
    for (const auto& member : members_) all.push_back(member(batch));
    return [all = std::move(all), temperature](index_t first, index_t count, T* probabilities) {
      const T share = T(1) / static_cast<T>(all.size());
      for (std::size_t k = 0; k < all.size(); ++k) {
        Tensor<T> logits = all[k](first, count);
        if (temperature != 1)
          kernels::axpby<T>(static_cast<T>(1 / temperature), logits.data(), T(0), logits.data(),
                            logits.numel());
        kernels::softmax<T>(logits.data(), logits.data(), count, logits.dim(-1));
        kernels::axpby<T>(share, logits.data(), k == 0 ? T(0) : T(1), probabilities, logits.numel());
      }
    };
  }

 private:
  using Logits = std::function<Tensor<T>(index_t first, index_t count)>;

  std::vector<std::function<Logits(const Batch&)>> members_;
  index_t vocabulary_size_ = 0;
};

}  // namespace eigenformer
