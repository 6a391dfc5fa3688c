#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// A token alignment between a source text and its translation.
struct TextAlignment {
  /// The bytes of each source token in the source text, in order. A token without text of its own, such as
  /// the end symbol, has an empty span. Spans do not overlap; white space may be in none.
  std::vector<ByteSpan> source,
      target;  ///< the same for the tokens of the translation
  /// (source token, target token) pairs, sorted by target, then source.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> links;
  /// The attention that the links were read from, (target tokens, source tokens): row t is the attention when
  /// target token t was chosen.
  Tensor<float> attention{};
};

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
  void validate(const char* op = "alignment") const {
    validate_fields(op, *this);
    if (head < -1) {
      throw ValueError(op, {"alignment_head is ", head, ", must be at least 0, or -1 for all"});
    }
  }
};

namespace detail {

/// Throws ValueError unless a head is -1 or one of `heads`.
inline void require_alignment_head(index_t head, index_t heads, const char* name = "alignment_head") {
  if (head >= -1 && head < heads) return;
  throw ValueError("alignment", {name, " is ", head, ", must be below ", heads,
                                 ", the number of heads of the layer, or -1 for their mean"});
}

}  // namespace detail

/// Copies one head out of attention weights (H, rows, S), or averages all heads for -1. Returns (rows, S).
/// Throws ValueError for a head out of range.
[[nodiscard]] EIGENFORMER_IO_FUNCTION Tensor<float> attention_of_head(const Tensor<float>& weights,
                                                                      index_t head);

/// The (source, target) token pairs whose weight is above the threshold; for threshold 0 the largest weight
/// of each row, the first of equal ones. weights: (target tokens, source tokens). Sorted by target, then
/// source.
[[nodiscard]] EIGENFORMER_IO_FUNCTION std::vector<std::pair<std::uint32_t, std::uint32_t>> attention_links(
    const Tensor<float>& weights, double threshold);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION Tensor<float> attention_of_head(const Tensor<float>& weights, index_t head) {
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

EIGENFORMER_IO_FUNCTION std::vector<std::pair<std::uint32_t, std::uint32_t>> attention_links(
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

#endif
