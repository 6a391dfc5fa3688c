#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/attention/alignment_loss.hpp"
#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/stacks/pass.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "eigenformer/train/options/objectives.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer {

/// A model whose cross-attention can be trained on alignments: Seq2SeqTransformer and types derived from it.
template <class M>
concept GuidedModel = requires(const M& model, const Context<typename M::value_type>& ctx,
                               const Tensor<std::int32_t>& ids, const SequenceLayout& layout,
                               LayerPass<typename M::value_type>& pass,
                               const Memory<typename M::value_type>& memory,
                               const CrossEntropyOptions& options, const Var<typename M::value_type>& rows) {
  model.encode(ctx, ids, layout);
  model.decode(ctx, ids, layout, memory);
  model.run_decoder(ctx, ids, pass);
  model.token_loss(ctx, rows, ids, options);
  { model.options.causal } -> std::convertible_to<bool>;
  model.transformer.decoder.layers.size();
};

namespace detail {

// The expected rows of attention: uniform over the source tokens that a target token is linked with.
EIGENFORMER_IO_FUNCTION std::vector<ExpectedAttention> expected_attention(const Batch& batch);

/// Throws ValueError unless the model has the layer and head to train, with softmax attention.
template <GuidedModel M>
void require_guided(const M& model, const GuidedAlignmentOptions& guided) {
  const auto& layers = model.transformer.decoder.layers;
  const index_t layer =
      alignment_layer(guided.layer, static_cast<index_t>(layers.size()), "guided_alignment_layer");
  if constexpr (requires { layers.front().multihead_attn.options.num_heads; }) {
    const auto& attention = layers[static_cast<std::size_t>(layer)].multihead_attn;
    require_alignment_head(guided.head, attention.options.num_heads, "guided_alignment_head");
    if (attention.linear_kind()) {
      throw ValueError("guided_alignment",
                       "the decoder's attention to the source is linear and has no weights; guided alignment "
                       "needs softmax attention");
    }
  }
}

/// The decoder's output (rows, D) for a packed batch, and the weights of one layer's cross-attention.
template <class T>
struct DecodedBatch {
  Var<T> rows;
  Var<T> attention;  // undefined unless requested
};

// guided: names the layer whose attention is returned; nullptr: none.
template <GuidedModel M>
DecodedBatch<typename M::value_type> decode_batch(const M& model, const Context<typename M::value_type>& ctx,
                                                  const Batch& batch, const GuidedAlignmentOptions* guided) {
  using T = typename M::value_type;
  if (guided == nullptr) return {decoded_rows(model, ctx, batch), {}};
  const Memory<T> memory(model.encode(ctx, id_row(batch.source), batch.source_layout), batch.source_layout);
  CrossAttentionPass<T> pass(
      batch.target_layout, model.options.causal ? AttentionMask::causal() : AttentionMask::none(), memory,
      alignment_layer(guided->layer, static_cast<index_t>(model.transformer.decoder.layers.size())));
  const Var<T> rows = model.run_decoder(ctx, id_row(batch.target_input), pass);
  return {rows, pass.weights()};
}

// Adds guided.weight times alignment_loss() of the attention of some passes over a batch, which `batch`
// repeats, to the loss of the words; both are divided by `divisor`. Without its weight its sum, the mean over
// passes, is added to `parts`, which may be null.
template <class T>
Var<T> add_alignment_loss(const Var<T>& words, const Var<T>& attention, const Batch& batch,
                          const GuidedAlignmentOptions& guided, double divisor, LossParts* parts,
                          int passes = 1) {
  const Var<T> alignment =
      alignment_loss(attention, expected_attention(batch), guided.head, passes * divisor);
  if (parts != nullptr) parts->add("alignment", static_cast<double>(alignment.value().item()) * divisor);
  return add(words, multiply(alignment, static_cast<T>(guided.weight)));
}

/// The loss of a packed batch with guided alignment (Chen et al. 2016; Garg et al. 2019): the cross entropy
/// of the target tokens plus guided.weight times alignment_loss(). Both are divided by options.divisor, or by
/// the batch's target tokens when it is 0. `parts`, which may be null, receives the sum "alignment" without
/// its weight. Throws ValueError when the model lacks the layer or head, and IndexError for a link outside
/// its sentence pair.
template <GuidedModel M>
[[nodiscard]] Var<typename M::value_type> guided_alignment_loss(
    const M& model, const Context<typename M::value_type>& ctx, const Batch& batch,
    const CrossEntropyOptions& options, const GuidedAlignmentOptions& guided, LossParts* parts = nullptr) {
  const auto decoded = decode_batch(model, ctx, batch, &guided);
  const Var<typename M::value_type> words =
      model.token_loss(ctx, decoded.rows, id_row(batch.target_output), options);
  const double divisor = options.divisor > 0 ? options.divisor : static_cast<double>(batch.target_tokens());
  return add_alignment_loss(words, decoded.attention, batch, guided, divisor, parts);
}

}  // namespace detail

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

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::vector<ExpectedAttention> expected_attention(const Batch& batch) {
  std::vector<ExpectedAttention> expected;
  std::vector<index_t> links_of_row;
  for (std::size_t b = 0; b < batch.alignment.size(); ++b) {
    const auto sequence = static_cast<index_t>(b);
    links_of_row.assign(static_cast<std::size_t>(batch.target_layout.length(sequence)), 0);
    for (const AlignmentLink& link : batch.alignment[b]) {
      if (link.source < 0 || link.source >= batch.source_layout.length(sequence) || link.target < 0 ||
          link.target >= batch.target_layout.length(sequence)) {
        throw IndexError("guided_alignment",
                         {"link ", link.source, "-", link.target, " is outside a pair of ",
                          batch.source_layout.length(sequence), " source and ",
                          batch.target_layout.length(sequence), " target tokens"});
      }
      ++links_of_row[static_cast<std::size_t>(link.target)];
    }
    for (const AlignmentLink& link : batch.alignment[b]) {
      const auto n = static_cast<double>(links_of_row[static_cast<std::size_t>(link.target)]);
      expected.push_back({sequence, link.target, link.source, 1 / n});
    }
  }
  return expected;
}

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
