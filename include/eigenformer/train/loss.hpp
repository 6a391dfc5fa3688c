#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"

namespace eigenformer {

/// The loss of a packed batch, as `options` reduce it.
template <class T>
[[nodiscard]] Var<T> batch_loss(const Seq2SeqTransformer<T>& model, const Context<T>& ctx, const Batch& batch,
                                const CrossEntropyOptions& options = {}) {
  const auto tokens = [](const std::vector<std::int32_t>& ids) {
    return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
  };
  return model.loss(ctx, tokens(batch.source), batch.source_layout, tokens(batch.target_input),
                    batch.target_layout, tokens(batch.target_output), options);
}

/// Adds the gradients of the mean loss a target token over several batches to `gradients`, and returns that
/// loss in nats.
///
/// The batches are one update: the sum of their losses is divided by the tokens of all, and all draw their
/// dropout masks from `key`, so that cutting one large batch into small ones changes nothing but the order of
/// sums.
template <class T>
double accumulate_gradients(const Seq2SeqTransformer<T>& model, Tape<T>& tape, std::span<const Batch> batches,
                            const DropoutKey& key, double label_smoothing, kernels::GemmPrecision precision,
                            Gradients<T>& gradients) {
  index_t tokens = 0;
  for (const Batch& batch : batches) tokens += batch.target_tokens();
  double loss = 0;
  for (const Batch& batch : batches) {
    tape.clear();
    const Context<T> ctx = Context<T>::training(tape, key).with_precision(precision);
    const Var<T> part = batch_loss(
        model, ctx, batch, {.label_smoothing = label_smoothing, .divisor = static_cast<double>(tokens)});
    loss += static_cast<double>(part.value().item());
    tape.backward(part, gradients);
  }
  return loss;
}

/// Mean loss of a corpus, without dropout and smoothing, in nats a target token; in an inference context,
/// such as one with packed weights. Throws ValueError for no pair.
template <class T>
double corpus_loss(const Seq2SeqTransformer<T>& model, const EncodedCorpus& corpus,
                   index_t batch_tokens = 2048, const Context<T>& ctx = Context<T>::inference(),
                   const TextConventions& text = {}) {
  Batcher batcher(corpus, {.max_target_tokens = batch_tokens, .shuffle = false, .text = text});
  double sum = 0;
  index_t tokens = 0;
  for (index_t k = 0; k < batcher.num_batches(0); ++k) {
    const Batch batch = batcher.batch(0, k);
    const Var<T> loss = batch_loss(model, ctx, batch, {.reduction = CrossEntropyOptions::Reduction::sum});
    sum += static_cast<double>(loss.value().item());
    tokens += batch.target_tokens();
  }
  return sum / static_cast<double>(tokens);
}

}  // namespace eigenformer
