#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"
#include "eigenformer/train/objectives/guided_alignment.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/step/updates.hpp"

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
      throw ValueError("teacher", {"the model has a vocabulary of ", size, " ids, must have ",
                                   vocabulary_size_, ", the size of the first teacher's vocabulary"});
    }
    vocabulary_size_ = size;
    members_.push_back([&model, ctx](const Batch& batch) -> Logits {
      const Var<T> decoded = detail::decoded_rows(model, ctx, batch);
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
  detail::TeacherRows<T> read(const Batch& batch, double temperature) const {
    if (members_.empty()) throw ValueError("teacher", "there is no model, expected at least one");
    std::vector<Logits> all;
    for (const auto& member : members_) all.push_back(member(batch));
    return [all = std::move(all), temperature](index_t first, index_t count, T* probabilities) {
      const T share = T(1) / static_cast<T>(all.size());
      for (std::size_t k = 0; k < all.size(); ++k) {
        Tensor<T> logits = all[k](first, count);
        if (temperature != 1)
          detail::kernels::axpby<T>(static_cast<T>(1 / temperature), logits.data(), T(0), logits.data(),
                                    logits.numel());
        detail::kernels::softmax<T>(logits.data(), logits.data(), count, logits.dim(-1));
        detail::kernels::axpby<T>(share, logits.data(), k == 0 ? T(0) : T(1), probabilities, logits.numel());
      }
    };
  }

 private:
  using Logits = std::function<Tensor<T>(index_t first, index_t count)>;

  std::vector<std::function<Logits(const Batch&)>> members_;
  index_t vocabulary_size_ = 0;
};

/// A model whose token probabilities an objective can read: Seq2SeqTransformer and types derived from it.
/// Such an objective calls encode(), run_decoder() and readout(); it calls neither token_loss() nor loss().
/// So a derived type must say that it overrides neither: `static constexpr bool inherits_losses = true;`.
template <class M>
concept TokenObjectiveModel = GuidedModel<M> &&
    requires(const M& model, const Context<typename M::value_type>& ctx,
             const Var<typename M::value_type>& rows) {
  model.readout(ctx, rows);
  model.projection_weight();
  model.projection_bias;
};

namespace detail {

// A batch with all pairs repeated; the repeated ones have sequence numbers of their own, hence other dropout.
EIGENFORMER_IO_FUNCTION Batch twice(const Batch& batch);

// Whether token_objective_loss() computes what the model's own losses would: a type derived from
// Seq2SeqTransformer may override them.
template <class M>
inline constexpr bool has_token_losses = requires {
  requires M::inherits_losses;
};
template <class T, class E, class D>
inline constexpr bool has_token_losses<Seq2SeqTransformer<T, E, D>> = true;

// Throws ValueError for an objective that the model does not support.
template <class M>
void require_objective(const M& model, const RDropOptions& r_drop,
                       const Teacher<typename M::value_type>* teacher) {
  const bool wanted = r_drop.weight > 0 || teacher != nullptr;
  if constexpr (TokenObjectiveModel<M>) {
    if (wanted && !has_token_losses<M>) {
      throw ValueError(r_drop.weight > 0 ? "r_drop" : "teacher",
                       "the model's type is derived from Seq2SeqTransformer and may override token_loss() or "
                       "loss(), which this objective does not call; a type that overrides neither says so by "
                       "`static constexpr bool inherits_losses = true;`");
    }
    if constexpr (requires { r_drop.require_dropout(model.options); }) r_drop.require_dropout(model.options);
    if (teacher == nullptr) return;
    if (teacher->size() == 0) throw ValueError("teacher", "there is no model, expected at least one");
    if (teacher->vocabulary_size() == static_cast<index_t>(model.vocabulary_size())) return;
    throw ValueError("teacher", {"the teacher has a vocabulary of ", teacher->vocabulary_size(),
                                 " ids, must have ", model.vocabulary_size(), ", as the model has"});
  } else if (wanted) {
    throw ValueError(r_drop.weight > 0 ? "r_drop" : "teacher",
                     "the model is not a Seq2SeqTransformer, whose token probabilities are needed");
  }
}

/// The loss of a packed batch with R-Drop, a teacher, or both, and with guided alignment when the batch has
/// alignments; a recorded scalar:
///
///     (1 - w) CE + w T^2 KL(teacher || model) + alpha / 2 D + guided.weight alignment_loss()
///
/// divided by `divisor`. D = (KL(p1 || p2) + KL(p2 || p1)) / 2 compares the two passes of R-Drop; the other
/// terms are means over both passes, so the loss is that of Liang et al. (2021), eq. 4, divided by 2. Both
/// passes are one packed batch of twice the size. The teacher reads the batch once.
///
/// `parts` receives the sums "r-drop" (D), "distillation" (KL) and "alignment" without their weights, and the
/// unsmoothed cross entropy; may be null. Throws as guided_alignment_loss().
template <TokenObjectiveModel M>
[[nodiscard]] Var<typename M::value_type> token_objective_loss(const M& model,
                                                               const Context<typename M::value_type>& ctx,
                                                               const Batch& batch,
                                                               const TrainingOptions& options,
                                                               const Teacher<typename M::value_type>* teacher,
                                                               double divisor, LossParts* parts = nullptr) {
  using T = typename M::value_type;
  const bool doubled = options.r_drop.weight > 0;
  const bool aligned = !batch.alignment.empty() && options.guided_alignment.weight > 0;
  TeacherRows<T> taught;
  if (teacher != nullptr) taught = teacher->read(batch, options.distillation.temperature);
  const Batch both = doubled ? detail::twice(batch) : Batch{};
  const Batch& read = doubled ? both : batch;
  const auto decoded = detail::decode_batch(model, ctx, read, aligned ? &options.guided_alignment : nullptr);
  TokenLosses sums;
  Var<T> loss = linear_token_objective(ctx, model.readout(ctx, decoded.rows), model.projection_weight(),
                                       model.projection_bias, id_row(batch.target_output),
                                       {.label_smoothing = options.label_smoothing,
                                        .divergence = options.r_drop.weight,
                                        .distillation = taught ? options.distillation.weight : 0,
                                        .temperature = options.distillation.temperature},
                                       divisor, taught, sums);
  const auto tell = [&](const char* name, double sum) {
    if (parts != nullptr) parts->add(name, sum);
  };
  tell(LossParts::shown_loss, sums.unsmoothed);
  if (doubled) tell("r-drop", sums.divergence);
  if (taught) tell("distillation", sums.distillation);
  if (!aligned) return loss;
  return add_alignment_loss(loss, decoded.attention, read, options.guided_alignment, divisor, parts,
                            doubled ? 2 : 1);
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION Batch twice(const Batch& batch) {
  Batch both = batch;
  const auto repeat = [](auto& items) {
    const std::size_t n = items.size();
    items.reserve(2 * n);
    for (std::size_t i = 0; i < n; ++i) items.push_back(items[i]);
  };
  repeat(both.source);
  repeat(both.target_input);
  repeat(both.target_output);
  repeat(both.alignment);
  const auto repeat_layout = [&](SequenceLayout& layout) {
    std::vector<index_t> lengths;
    std::vector<std::uint32_t> numbers;
    for (const std::uint32_t second : {0u, 0x80000000u}) {
      for (index_t b = 0; b < batch.size(); ++b) {
        lengths.push_back(layout.length(b));
        numbers.push_back(layout.sequence_number(b) ^ second);
      }
    }
    layout = SequenceLayout::packed(lengths).with_sequence_numbers(std::move(numbers));
  };
  repeat_layout(both.source_layout);
  repeat_layout(both.target_layout);
  return both;
}

}  // namespace eigenformer::detail

#endif
