#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// AttentionMask::prefix of these lengths, or no mask where there are none. Throws ValueError for a negative
/// one.
inline AttentionMask prefix_mask(const std::vector<index_t>& lengths) {
  return lengths.empty() ? AttentionMask::none() : AttentionMask::prefix(lengths);
}

/// What a prefix language model learns to predict: the targets of the tokens that do not see them, namely of
/// the last token of each prefix and of those after it; the others become the ignored id. targets: (rows),
/// packed as `rows` says; prefix: the length of each sequence's prefix, or empty. Returns (rows). Throws
/// ShapeError for another number of prefixes than sequences.
inline Tensor<std::int32_t> after_prefix(const Tensor<std::int32_t>& targets, const SequenceLayout& rows,
                                         const std::vector<index_t>& prefix,
                                         const CrossEntropyOptions& options) {
  if (prefix.empty()) return targets;
  if (static_cast<index_t>(prefix.size()) != rows.batch()) {
    throw ShapeError("prefix", std::to_string(prefix.size()) + " prefix lengths must be " +
                                   std::to_string(rows.batch()) + ", one for each sequence");
  }
  Tensor<std::int32_t> asked = targets.clone();
  for (index_t b = 0; b < rows.batch(); ++b) {
    const index_t seen = std::clamp<index_t>(prefix[static_cast<std::size_t>(b)] - 1, 0, rows.length(b));
    std::fill_n(asked.data() + rows.offset(b), seen, static_cast<std::int32_t>(options.ignore_index));
  }
  return asked;
}

/// Loss options under which targets equal to padding_index do not count, unless the caller ignores another
/// id. What the models' losses of unpacked ids use: with targets one token later than inputs, padding is a
/// target where a row ends.
inline CrossEntropyOptions ignoring_padding(CrossEntropyOptions options, index_t padding_index) {
  if (padding_index >= 0 && options.ignore_index == CrossEntropyOptions{}.ignore_index) {
    options.ignore_index = padding_index;
  }
  return options;
}

}  // namespace eigenformer
