#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer::detail {

/// AttentionMask::prefix of these lengths, or no mask if there are none. Throws ValueError for a negative
/// length.
inline AttentionMask prefix_mask(const std::vector<index_t>& lengths) {
  return lengths.empty() ? AttentionMask::none() : AttentionMask::prefix(lengths);
}

/// The targets of a prefix language model: those of each prefix's last token and of the tokens after it. The
/// targets of other prefix tokens, which already see them, are replaced by options.ignore_index in a copy.
/// targets: (rows), packed as in `rows`; prefix: the prefix length of each sequence; empty: no prefixes,
/// returns targets itself. Returns (rows). Throws ShapeError unless there is one prefix for each sequence.
inline Tensor<std::int32_t> after_prefix(const Tensor<std::int32_t>& targets, const SequenceLayout& rows,
                                         const std::vector<index_t>& prefix,
                                         const CrossEntropyOptions& options) {
  if (prefix.empty()) return targets;
  if (static_cast<index_t>(prefix.size()) != rows.batch()) {
    throw ShapeError("prefix",
                     {prefix.size(), " prefix lengths must be ", rows.batch(), ", one for each sequence"});
  }
  Tensor<std::int32_t> asked = targets.clone();
  for (index_t b = 0; b < rows.batch(); ++b) {
    const index_t seen = std::clamp<index_t>(prefix[static_cast<std::size_t>(b)] - 1, 0, rows.length(b));
    std::fill_n(asked.data() + rows.offset(b), seen, static_cast<std::int32_t>(options.ignore_index));
  }
  return asked;
}

/// The options with ignore_index set to padding_index, unless the caller ignores another id or padding_index
/// is negative. For losses of unpacked ids: with targets one token later than inputs, padding is a target at
/// the end of a row.
inline CrossEntropyOptions ignoring_padding(CrossEntropyOptions options, index_t padding_index) {
  if (padding_index >= 0 && options.ignore_index == CrossEntropyOptions{}.ignore_index) {
    options.ignore_index = padding_index;
  }
  return options;
}

}  // namespace eigenformer::detail
