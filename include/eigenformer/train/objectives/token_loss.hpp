#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/normalization/token_objective.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/train/loop/updates.hpp"
#include "eigenformer/train/objectives/distillation_options.hpp"
#include "eigenformer/train/objectives/guided_alignment.hpp"
#include "eigenformer/train/objectives/r_drop_options.hpp"
#include "eigenformer/train/objectives/teacher.hpp"

namespace eigenformer {

/// A model whose token probabilities an objective can read: Seq2SeqTransformer and types derived from it.
/// Such an objective calls encode(), run_decoder() and readout(); it calls neither token_loss() nor loss().
template <class M>
concept TokenObjectiveModel = GuidedModel<M> &&
    requires(const M& model, const Context<typename M::value_type>& ctx,
             const Var<typename M::value_type>& rows) {
  model.readout(ctx, rows);
  model.projection_weight();
  model.projection_bias;
};

/// The objective of a training on sentence pairs.
struct ObjectiveOptions {
  double label_smoothing = 0;          ///< in [0, 1)
  GuidedAlignmentOptions guided{};     ///< for batches with alignments
  RDropOptions r_drop{};               ///< off by default
  DistillationOptions distillation{};  ///< used with a teacher only
};

namespace detail {

// A batch with all pairs repeated; the repeated ones have sequence numbers of their own, hence other dropout.
inline Batch twice(const Batch& batch) {
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

template <class T, class E, class D>
std::true_type derives_from_seq2seq(const Seq2SeqTransformer<T, E, D>*);
std::false_type derives_from_seq2seq(const void*);

template <class C>
inline constexpr bool is_seq2seq = false;
template <class T, class E, class D>
inline constexpr bool is_seq2seq<Seq2SeqTransformer<T, E, D>> = true;

// The class whose loss a pointer to a member function points to.
template <class T, class C>
C* class_of_token_loss(Var<T> (C::*)(const Context<T>&, const Var<T>&, const Tensor<std::int32_t>&,
                                     const CrossEntropyOptions&) const);
template <class T, class C>
C* class_of_loss(Var<T> (C::*)(const Context<T>&, const Tensor<std::int32_t>&, const SequenceLayout&,
                               const Tensor<std::int32_t>&, const SequenceLayout&,
                               const Tensor<std::int32_t>&, const CrossEntropyOptions&,
                               const std::vector<index_t>&) const);

// Whether a type derived from Seq2SeqTransformer has losses of its own, which token_objective_loss() would
// bypass.
template <class M>
consteval bool overrides_losses() {
  if constexpr (!decltype(derives_from_seq2seq(std::declval<const M*>()))::value) {
    return false;
  } else if constexpr (requires {
                         class_of_token_loss<typename M::value_type>(&M::token_loss);
                         class_of_loss<typename M::value_type>(&M::loss);
                       }) {
    using TokenLoss =
        std::remove_pointer_t<decltype(class_of_token_loss<typename M::value_type>(&M::token_loss))>;
    using Loss = std::remove_pointer_t<decltype(class_of_loss<typename M::value_type>(&M::loss))>;
    return !is_seq2seq<TokenLoss> || !is_seq2seq<Loss>;
  }
  return true;
}

// Throws ValueError for an objective that the model does not support.
template <class M>
void require_objective(const M& model, const RDropOptions& r_drop,
                       const Teacher<typename M::value_type>* teacher) {
  const bool wanted = r_drop.weight > 0 || teacher != nullptr;
  if constexpr (TokenObjectiveModel<M>) {
    if (wanted && overrides_losses<M>()) {
      throw ValueError(r_drop.weight > 0 ? "r_drop" : "teacher",
                       "the model overrides token_loss() or loss(), which this objective does not call; "
                       "expected a model with the losses of Seq2SeqTransformer");
    }
    if constexpr (requires { r_drop.require_dropout(model.options); }) r_drop.require_dropout(model.options);
    if (teacher == nullptr) return;
    if (teacher->size() == 0) throw ValueError("teacher", "there is no model, expected at least one");
    if (teacher->vocabulary_size() == static_cast<index_t>(model.vocabulary_size())) return;
    throw ValueError("teacher", "the teacher has a vocabulary of " +
                                    std::to_string(teacher->vocabulary_size()) + " ids, must have " +
                                    std::to_string(model.vocabulary_size()) + ", as the model has");
  } else if (wanted) {
    throw ValueError(r_drop.weight > 0 ? "r_drop" : "teacher",
                     "the model is not a Seq2SeqTransformer, whose token probabilities are needed");
  }
}

}  // namespace detail

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
                                                               const ObjectiveOptions& options,
                                                               const Teacher<typename M::value_type>* teacher,
                                                               double divisor, LossParts* parts = nullptr) {
  using T = typename M::value_type;
  const bool doubled = options.r_drop.weight > 0;
  const bool aligned = !batch.alignment.empty() && options.guided.weight > 0;
  TeacherRows<T> taught;
  if (teacher != nullptr) taught = teacher->read(batch, options.distillation.temperature);
  const Batch both = doubled ? detail::twice(batch) : Batch{};
  const Batch& read = doubled ? both : batch;
  const auto decoded = detail::decode_batch(model, ctx, read, aligned ? &options.guided : nullptr);
  TokenLosses sums;
  Var<T> loss = linear_token_objective(ctx, model.readout(ctx, decoded.rows), model.projection_weight(),
                                       model.projection_bias, detail::token_tensor(batch.target_output),
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
  const Var<T> alignment = alignment_loss(decoded.attention, detail::expected_attention(read),
                                          options.guided.head, doubled ? 2 * divisor : divisor);
  tell("alignment", static_cast<double>(alignment.value().item()) * divisor);
  return add(loss, multiply(alignment, static_cast<T>(options.guided.weight)));
}

}  // namespace eigenformer
