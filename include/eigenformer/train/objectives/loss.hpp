#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/train/loop/updates.hpp"
#include "eigenformer/train/objectives/guided_alignment.hpp"
#include "eigenformer/train/objectives/token_loss.hpp"

namespace eigenformer {

/// A model with a loss of a source and a target: Seq2SeqTransformer, a type derived from it, or one of the
/// caller's own.
template <class M>
concept SourceTargetModel = requires(const M& model, const Context<typename M::value_type>& ctx,
                                     const Tensor<std::int32_t>& ids, const SequenceLayout& layout,
                                     const CrossEntropyOptions& options) {
  {
    model.loss(ctx, ids, layout, ids, layout, ids, options)
    } -> std::convertible_to<Var<typename M::value_type>>;
};

/// The loss of a packed batch, as `options` reduce it.
template <SourceTargetModel M>
[[nodiscard]] Var<typename M::value_type> batch_loss(const M& model,
                                                     const Context<typename M::value_type>& ctx,
                                                     const Batch& batch,
                                                     const CrossEntropyOptions& options = {}) {
  const auto tokens = [](const std::vector<std::int32_t>& ids) {
    return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
  };
  return model.loss(ctx, tokens(batch.source), batch.source_layout, tokens(batch.target_input),
                    batch.target_layout, tokens(batch.target_output), options);
}

/// The loss function of a training on sentence pairs: each batch counts its target tokens. The model must
/// outlive it.
template <SourceTargetModel M>
struct SourceTargetLoss {
  using T = typename M::value_type;

  const M& model;
  ObjectiveOptions options{};
  std::shared_ptr<const Teacher<T>> teacher = nullptr;

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
        if (!batch.alignment.empty() && options.guided.weight > 0) {
          const auto both = guided_alignment_loss(model, ctx, batch, words, options.guided);
          if (update.parts != nullptr) update.parts->add("alignment", both.alignment * update.total);
          return both.loss;
        }
      }
      return batch_loss(model, ctx, batch, words);
    }();
    // A model of the caller's own may leave it as it was.
    if (update.parts != nullptr && !std::isnan(unsmoothed))
      update.parts->add(LossParts::shown_loss, unsmoothed);
    return loss;
  }
  double weight(const Batch& batch) const { return static_cast<double>(batch.target_tokens()); }
};

/// Mean loss of a corpus, without dropout and smoothing, in nats a target token; in an inference context,
/// such as one with packed weights. Throws ValueError for no pair.
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
