#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/stacks/pass.hpp"
#include "eigenformer/search/model.hpp"

namespace eigenformer {

/// The attention weights of a sentence and its translation, one tensor (heads, queries, keys) per layer. Row
/// t of target and memory is the attention when token t was chosen, the last row that of the end symbol.
struct AttentionMaps {
  std::vector<Tensor<float>> source;  ///< the encoder's self-attention, (H, S, S)
  /// The decoder's self-attention, (H, T + 1, T + 1); the first key is the begin symbol.
  std::vector<Tensor<float>> target;
  std::vector<Tensor<float>> memory;  ///< the decoder's cross-attention, (H, T + 1, S)
};

/// The attention weights of all layers for a source and a target sentence (forced decoding); decoding token
/// by token gives the same weights.
///
/// source, target: token ids, the target without begin and end symbol. prefix: the number of first target
/// tokens, begin included, with bidirectional attention. Throws IndexError for an id outside its vocabulary,
/// and ValueError for a recording context, a negative prefix, and linear attention, which has no weights.
template <class T, class E, class D>
[[nodiscard]] AttentionMaps attention_maps(const Seq2SeqTransformer<T, E, D>& model, const Context<T>& ctx,
                                           const std::vector<std::int32_t>& source,
                                           const std::vector<std::int32_t>& target, std::int32_t begin_id,
                                           index_t prefix = 0) {
  if (ctx.records())
    throw ValueError("attention_maps", "the context records a tape, must be an inference context");
  std::vector<std::int32_t> input{begin_id};
  input.insert(input.end(), target.begin(), target.end());
  const auto layout = [](const std::vector<std::int32_t>& ids) {
    return SequenceLayout::padded(1, static_cast<index_t>(ids.size()));
  };
  Seq2SeqMaps<T> maps;
  const Memory<T> memory(model.encode(ctx, detail::id_row(source), layout(source), {}, &maps.source),
                         layout(source));
  const AttentionMask mask = prefix == 0 ? AttentionMask::none() : AttentionMask::prefix({prefix});
  (void)model.decode(ctx, detail::id_row(input), layout(input), memory, {.target = mask}, &maps.decoder);
  const auto heads = [](const std::vector<Var<T>>& layers) {
    std::vector<Tensor<float>> all;
    for (const Var<T>& layer : layers) {
      const Tensor<T>& w = layer.value();
      all.push_back(w.reshape(Shape{w.dim(1), w.dim(2), w.dim(3)}).template to<float>());
    }
    return all;
  };
  return {heads(maps.source), heads(maps.decoder.target), heads(maps.decoder.memory)};
}

namespace detail {

template <class M>
concept HasAttentionMaps = requires(const M& model, const Context<typename M::value_type>& ctx,
                                    const typename M::Input& input, const std::vector<std::int32_t>& target) {
  {
    attention_maps(model, ctx, input, target, std::int32_t{}, index_t{})
    } -> std::convertible_to<AttentionMaps>;
};

/// Resolves a layer number that may be negative to one from 0. name: the field's, for messages. Throws
/// ValueError for a layer that the decoder lacks.
inline index_t alignment_layer(index_t layer, index_t layers, const char* name = "alignment_layer") {
  if (layer < layers && layer >= -layers) return layer < 0 ? layer + layers : layer;
  throw ValueError("alignment", {name, " is ", layer, ", must be in [-", layers, ", ", layers,
                                 "): the decoder has ", layers, (layers == 1 ? " layer" : " layers")});
}

}  // namespace detail

/// The cross-attention weights of one decoder layer for pairs of source and target sentences (forced
/// decoding).
///
/// sources, targets: token ids, the targets without begin and end symbol. prefix: as in attention_maps().
/// layer: as in AlignmentOptions. Returns a tensor (H, T + 1, S) for each pair; row t holds the attention
/// when target token t was chosen, the last row the attention for the end symbol. The pairs run as one batch
/// and do not affect one another.
///
/// Throws ValueError for a recording context, for unequal numbers of sources and targets, for a negative
/// prefix, for a layer that the decoder lacks, and for linear attention, which has no weights; IndexError for
/// an id outside its vocabulary.
template <class T, class E, class D>
[[nodiscard]] std::vector<Tensor<float>> cross_attention_weights(
    const Seq2SeqTransformer<T, E, D>& model, const Context<T>& ctx,
    std::span<const std::vector<std::int32_t>> sources, std::span<const std::vector<std::int32_t>> targets,
    std::int32_t begin_id, index_t prefix, index_t layer) {
  if (ctx.records())
    throw ValueError("alignment", "the context records a tape, must be an inference context");
  if (sources.size() != targets.size()) {
    throw ValueError("alignment",
                     {sources.size(), " sources and ", targets.size(), " targets, expected equal numbers"});
  }
  if (sources.empty()) return {};
  const auto layers = static_cast<index_t>(model.transformer.decoder.layers.size());
  std::vector<std::int32_t> input;
  std::vector<index_t> lengths;
  for (const std::vector<std::int32_t>& target : targets) {
    input.push_back(begin_id);
    input.insert(input.end(), target.begin(), target.end());
    lengths.push_back(static_cast<index_t>(target.size()) + 1);
  }
  const AttentionMask mask = prefix == 0
                                 ? AttentionMask::none()
                                 : AttentionMask::prefix(std::vector<index_t>(targets.size(), prefix));
  detail::CrossAttentionPass<T> pass(
      SequenceLayout::packed(lengths), model.options.causal ? mask.within_causal() : mask,
      model.encode_sentences(ctx, sources), detail::alignment_layer(layer, layers));
  (void)model.run_decoder(ctx, detail::id_row(input), pass);
  if (!pass.weights().defined()) {
    throw ValueError("alignment", {"the decoder computed no attention to the source in layer ", layer,
                                   ", from which the alignment is read"});
  }
  const Tensor<T>& padded = pass.weights().value();  // (B, H, T, S), to the longest pair
  std::vector<Tensor<float>> weights;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Tensor<T> own =
        padded(i, eigenformer::all, range(0, lengths[i]), range(0, static_cast<index_t>(sources[i].size())));
    weights.push_back(own.template to<float>());
  }
  return weights;
}

namespace detail {

template <class M>
concept HasCrossAttention = requires(const M& model, const Context<typename M::value_type>& ctx,
                                     std::span<const typename M::Input> inputs,
                                     std::span<const std::vector<std::int32_t>> targets) {
  {
    cross_attention_weights(model, ctx, inputs, targets, std::int32_t{}, index_t{}, index_t{})
    } -> std::convertible_to<std::vector<Tensor<float>>>;
};

/// The coverage of a source sentence by its translation (Wu et al. 2016, section 7, without beta): the sum
/// over source tokens of log(min(a, 1)), where a is the attention that the token receives from all target
/// tokens, averaged over the heads of the decoder's last layer. 0 when every token receives at least 1, else
/// negative and finite: a is taken as at least the smallest normal float. ended: whether the row of the end
/// symbol counts. Throws ValueError for maps without a layer in `memory`.
EIGENFORMER_FUNCTION double coverage_log(const AttentionMaps& maps, bool ended);

/// The decoder's output (rows, D) for the target tokens of a packed batch.
template <class M, class T>
Var<T> decoded_rows(const M& model, const Context<T>& ctx, const Batch& batch) {
  const Memory<T> memory(model.encode(ctx, id_row(batch.source), batch.source_layout), batch.source_layout);
  return model.decode(ctx, id_row(batch.target_input), batch.target_layout, memory);
}

/// Forced decoding: for every target token of a batch, the id with the highest logit, given the source and
/// the batch's own tokens before it. Comparing the choices of two models shows, for example, what
/// quantization changes.
///
/// forbidden: ids that are never chosen. Of equal logits the lower id wins. Returns one id per element of
/// batch.target_output, -1 where every id is forbidden. Logits are not checked for NaN. Throws IndexError for
/// an id outside the vocabulary.
template <class T, class E, class D>
std::vector<std::int32_t> forced_choices(const Seq2SeqTransformer<T, E, D>& model, const Context<T>& ctx,
                                         const Batch& batch, std::span<const std::int32_t> forbidden = {}) {
  const Tensor<T> decoded = decoded_rows(model, ctx, batch).value();
  std::vector<std::int32_t> choices;
  // Blocks of rows, so that memory does not grow with rows x vocabulary.
  constexpr index_t block = 256;
  for (index_t row = 0; row < decoded.dim(0); row += block) {
    const index_t rows = std::min(block, decoded.dim(0) - row);
    const Tensor<T> logits = model.logits(ctx, decoded.rows(row, rows)).value();
    const index_t vocabulary = logits.dim(1);
    for (index_t i = 0; i < rows; ++i) {
      const T* x = logits.data() + i * vocabulary;
      std::int32_t best = -1;
      for (index_t id = 0; id < vocabulary; ++id) {
        const auto candidate = static_cast<std::int32_t>(id);
        if (best >= 0 && !(x[id] > x[best])) continue;
        if (std::find(forbidden.begin(), forbidden.end(), candidate) == forbidden.end()) best = candidate;
      }
      choices.push_back(best);
    }
  }
  return choices;
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_FUNCTION double coverage_log(const AttentionMaps& maps, bool ended) {
  if (maps.memory.empty())
    throw ValueError("coverage", "the maps have no attention to the source, expected at least one layer");
  const Tensor<float>& memory = maps.memory.back();
  const index_t heads = memory.dim(0), rows = memory.dim(1) - (ended ? 0 : 1), sources = memory.dim(2);
  std::vector<double> attention(static_cast<std::size_t>(sources));
  for (index_t h = 0; h < heads; ++h) {
    for (index_t t = 0; t < rows; ++t) {
      const float* row = memory.data() + (h * memory.dim(1) + t) * sources;
      for (index_t s = 0; s < sources; ++s)
        attention[static_cast<std::size_t>(s)] += static_cast<double>(row[s]) / static_cast<double>(heads);
    }
  }
  double sum = 0;
  for (const double a : attention)
    sum += std::log(std::clamp<double>(a, std::numeric_limits<float>::min(), 1));
  return sum;
}

}  // namespace eigenformer::detail

#endif
