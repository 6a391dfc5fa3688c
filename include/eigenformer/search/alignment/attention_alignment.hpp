#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/nn/stacks/cross_attention_pass.hpp"
#include "eigenformer/search/alignment/text_alignment.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"

namespace eigenformer {

/// Options for reading an alignment from a decoder's cross-attention.
struct AlignmentOptions {
  index_t layer = -1;  ///< decoder layer, from 0; negative values count from the end, -1 is the last
  index_t head = -1;   ///< head of that layer's cross-attention, from 0; -1: the mean of all heads
  /// Link all pairs of tokens whose weight is above it, in [0, 1); 0: link each target token to the source
  /// token of its largest weight.
  double threshold = 0;

  /// Compares all fields.
  friend bool operator==(const AlignmentOptions&, const AlignmentOptions&) = default;

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"alignment_layer", "decoder layer whose attention gives the alignment; -1: the last"},
          self.layer);
    visit(OptionField{"alignment_head", "attention head of that layer; -1: the mean of all heads"},
          self.head);
    visit(OptionField{"alignment_threshold",
                      "link tokens whose attention weight is above this; 0: link each target token by its "
                      "largest weight",
                      Allowed::rate},
          self.threshold);
  }

  /// Throws ValueError for an invalid field and names it.
  void validate() const {
    validate_fields("alignment", *this);
    if (head < -1) {
      throw ValueError("alignment",
                       "alignment_head is " + std::to_string(head) + ", must be at least 0, or -1 for all");
    }
  }
};

namespace detail {

/// Resolves a layer number that may be negative to one from 0. name: the field's, for messages. Throws
/// ValueError for a layer that the decoder lacks.
inline index_t alignment_layer(index_t layer, index_t layers, const char* name = "alignment_layer") {
  if (layer < layers && layer >= -layers) return layer < 0 ? layer + layers : layer;
  throw ValueError("alignment", std::string(name) + " is " + std::to_string(layer) + ", must be in [-" +
                                    std::to_string(layers) + ", " + std::to_string(layers) +
                                    "): the decoder has " + std::to_string(layers) +
                                    (layers == 1 ? " layer" : " layers"));
}

/// Throws ValueError unless a head is -1 or one of `heads`.
inline void require_alignment_head(index_t head, index_t heads, const char* name = "alignment_head") {
  if (head >= -1 && head < heads) return;
  throw ValueError("alignment", std::string(name) + " is " + std::to_string(head) + ", must be below " +
                                    std::to_string(heads) +
                                    ", the number of heads of the layer, or -1 for their mean");
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
    throw ValueError("alignment", std::to_string(sources.size()) + " sources and " +
                                      std::to_string(targets.size()) + " targets, expected equal numbers");
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
  CrossAttentionPass<T> pass(SequenceLayout::packed(lengths),
                             model.options.causal ? mask.within_causal() : mask,
                             model.encode_sentences(ctx, sources), detail::alignment_layer(layer, layers));
  (void)model.run_decoder(ctx, Tensor<std::int32_t>::from(Shape{static_cast<index_t>(input.size())}, input),
                          pass);
  if (!pass.weights().defined()) {
    throw ValueError("alignment", "the decoder computed no attention to the source in layer " +
                                      std::to_string(layer) + ", from which the alignment is read");
  }
  // (B, H, T, S), padded to the longest pair.
  const Tensor<T>& all = pass.weights().value();
  const index_t heads = all.dim(1), rows = all.dim(2), columns = all.dim(3);
  std::vector<Tensor<float>> weights;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto own = static_cast<index_t>(sources[i].size());
    Tensor<float>& part = weights.emplace_back(Shape{heads, lengths[i], own});
    for (index_t h = 0; h < heads; ++h) {
      for (index_t t = 0; t < lengths[i]; ++t) {
        const T* from = all.data() + ((static_cast<index_t>(i) * heads + h) * rows + t) * columns;
        std::transform(from, from + own, part.data() + (h * lengths[i] + t) * own,
                       [](T w) { return static_cast<float>(w); });
      }
    }
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

}  // namespace detail

/// Copies one head out of attention weights (H, rows, S), or averages all heads for -1. Returns (rows, S).
/// Throws ValueError for a head out of range.
[[nodiscard]] inline Tensor<float> attention_of_head(const Tensor<float>& weights, index_t head) {
  const index_t heads = weights.dim(0), rows = weights.dim(1), sources = weights.dim(2);
  detail::require_alignment_head(head, heads);
  if (heads == 0) throw ShapeError("alignment", "the weights have no heads", {weights.shape()});
  if (head >= 0) return weights.reshape(Shape{heads * rows, sources}).rows(head * rows, rows).clone();
  Tensor<float> mean = Tensor<float>::zeros(Shape{rows, sources});
  for (index_t h = 0; h < heads; ++h) {
    for (index_t i = 0; i < rows * sources; ++i) mean.data()[i] += weights.data()[h * rows * sources + i];
  }
  for (float& w : mean.span()) w /= static_cast<float>(heads);
  return mean;
}

/// The (source, target) token pairs whose weight is above the threshold; for threshold 0 the largest weight
/// of each row, the first of equal ones. weights: (target tokens, source tokens). Sorted by target, then
/// source.
[[nodiscard]] inline std::vector<std::pair<std::uint32_t, std::uint32_t>> attention_links(
    const Tensor<float>& weights, double threshold) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> links;
  const index_t sources = weights.dim(1);
  for (index_t t = 0; t < weights.dim(0); ++t) {
    const float* row = weights.data() + t * sources;
    const auto add = [&](index_t s) {
      links.emplace_back(static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(t));
    };
    if (threshold == 0) {
      if (sources > 0) add(std::max_element(row, row + sources) - row);
      continue;
    }
    for (index_t s = 0; s < sources; ++s) {
      if (static_cast<double>(row[s]) > threshold) add(s);
    }
  }
  return links;
}

}  // namespace eigenformer
