#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "eigenformer/autograd/ops/attention/alignment_loss.hpp"
#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/nn/stacks/pass.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "eigenformer/train/options/objectives.hpp"
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

}  // namespace eigenformer::detail

#endif
