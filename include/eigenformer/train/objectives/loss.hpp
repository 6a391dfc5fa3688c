#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/train/objectives/guided_alignment.hpp"
#include "eigenformer/train/objectives/token_loss.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer {

/// A model with loss(ctx, source, source_layout, target_input, target_layout, target_output, options):
/// Seq2SeqTransformer, a type derived from it, or a type of the caller's own.
template <class M>
concept SourceTargetModel = requires(const M& model, const Context<typename M::value_type>& ctx,
                                     const Tensor<std::int32_t>& ids, const SequenceLayout& layout,
                                     const CrossEntropyOptions& options) {
  {
    model.loss(ctx, ids, layout, ids, layout, ids, options)
    } -> std::convertible_to<Var<typename M::value_type>>;
};

/// The loss of a packed batch, a recorded scalar in nats, reduced as `options` say. Throws what the model
/// throws.
template <SourceTargetModel M>
[[nodiscard]] Var<typename M::value_type> batch_loss(const M& model,
                                                     const Context<typename M::value_type>& ctx,
                                                     const Batch& batch,
                                                     const CrossEntropyOptions& options = {}) {
  return model.loss(ctx, detail::id_row(batch.source), batch.source_layout,
                    detail::id_row(batch.target_input), batch.target_layout,
                    detail::id_row(batch.target_output), options);
}

namespace detail {

/// The loss function of a training on sentence pairs; the weight of a batch is its number of target tokens.
/// Thread-safe if the model is. The model must outlive it.
template <SourceTargetModel M>
struct SourceTargetLoss {
  using T = typename M::value_type;  ///< the model's scalar type

  const M& model;                                       ///< the model to train
  TrainingOptions options{};                            ///< have the terms of the objective
  std::shared_ptr<const Teacher<T>> teacher = nullptr;  ///< of a distillation; null: none

  /// The batch's share of the update's objective (divided by update.total), a recorded scalar. Adds the
  /// unsmoothed cross entropy and the other terms to update.parts.
  Var<T> operator()(const Context<T>& ctx, const Batch& batch, UpdateWeight update) const {
    if constexpr (TokenObjectiveModel<M>) {
      if (options.r_drop.weight > 0 || teacher != nullptr)
        return token_objective_loss(model, ctx, batch, options, teacher.get(), update.total, update.parts);
    }
    double unsmoothed = std::numeric_limits<double>::quiet_NaN();
    const CrossEntropyOptions words{
        .label_smoothing = options.label_smoothing, .divisor = update.total, .unsmoothed = &unsmoothed};
    const auto loss = [&]() -> Var<T> {
      if constexpr (GuidedModel<M>) {
        if (!batch.alignment.empty() && options.guided_alignment.weight > 0)
          return guided_alignment_loss(model, ctx, batch, words, options.guided_alignment, update.parts);
      }
      return batch_loss(model, ctx, batch, words);
    }();
    // A model of the caller's own may not set it.
    if (update.parts != nullptr && !std::isnan(unsmoothed))
      update.parts->add(LossParts::shown_loss, unsmoothed);
    return loss;
  }
  /// The number of target tokens.
  double weight(const Batch& batch) const { return static_cast<double>(batch.target_tokens()); }
};

}  // namespace detail

/// The mean loss of a corpus in nats per target token, without dropout and label smoothing. batch_tokens:
/// target tokens per batch, which affects speed, memory and rounding. ctx: an inference context, for example
/// with packed weights. Throws ValueError when the corpus is empty.
template <SourceTargetModel M>
double corpus_loss(const M& model, const PairSource& corpus, index_t batch_tokens = 2048,
                   const Context<typename M::value_type>& ctx = Context<typename M::value_type>::inference(),
                   const TextConventions& text = {}) {
  Batcher batcher(corpus, {.max_target_tokens = batch_tokens, .shuffle = false, .text = text});
  double sum = 0;
  index_t tokens = 0;
  for (index_t k = 0; k < batcher.num_batches(0); ++k) {
    const Batch batch = batcher.batch(0, k);
    const auto loss = batch_loss(model, ctx, batch, {.reduction = CrossEntropyOptions::Reduction::sum});
    sum += static_cast<double>(loss.value().item());
    tokens += batch.target_tokens();
  }
  return sum / static_cast<double>(tokens);
}

}  // namespace eigenformer
