#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "eigenformer/autograd/ops/normalization/loss.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

namespace detail {

/// The layout of inputs without one: (B, L, d) is B sequences of L tokens, (L, d) one sequence. Throws
/// ShapeError (`[op] ...`) for any other rank.
inline SequenceLayout full_layout(const char* op, const Shape& shape) {
  if (shape.rank() == 3) return SequenceLayout::padded(shape[0], shape[1]);
  if (shape.rank() == 2) return SequenceLayout::padded(1, shape[0]);
  throw ShapeError(op, {"input of shape ", shape, " must be (batch, length, features) or (rows, features)"},
                   {shape});
}

/// Throws ShapeError (`[op] ...`) unless a tensor of shape (rows, d) or (B, L, d) has the rows of the layout;
/// `what` is its name in the message.
inline void check_rows(const char* op, const char* what, const Shape& shape, const SequenceLayout& layout) {
  const bool flat = shape.rank() == 2,
             batched = shape.rank() == 3 && !layout.is_packed() && shape[0] == layout.batch();
  if ((flat || batched) && shape.rows() == layout.rows()) return;
  throw ShapeError(op,
                   {what, " of shape ", shape, " must fit its layout: ", layout.batch(),
                    (layout.is_packed() ? " packed" : " padded"), " sequences in ", layout.rows(), " rows"},
                   {shape});
}

/// Throws ValueError (`[op] ...`) for ids without memory, as those of a tensor that was moved from.
inline void require_ids(const char* op, const char* what, const Tensor<std::int32_t>& ids) {
  if (ids.defined() || ids.numel() == 0) return;
  throw ValueError(op, {what, " of shape ", ids.shape(),
                        " have no memory: the tensor was moved from, or its memory was never allocated"});
}

}  // namespace detail

/// The sides of a sequence where padding is looked for.
enum class PaddingSide {
  right,  ///< at the end
  left,   ///< at the beginning
  both    ///< at the end and at the beginning
};

/// The layout of token ids (B, L) or (L) in which ids equal to padding_index on the given side are padding
/// (-1: no padding). The first token that is not padding has position 0. A sequence of padding alone has
/// length 0. Throws ShapeError for another rank, ValueError for a padding id between other tokens and for a
/// tensor without memory.
inline SequenceLayout token_layout(const char* op, const Tensor<std::int32_t>& ids,
                                   index_t padding_index = -1, PaddingSide side = PaddingSide::right) {
  if (ids.rank() != 1 && ids.rank() != 2) {
    throw ShapeError(op, {"token ids of shape ", ids.shape(), " must be (batch, length) or (length)"},
                     {ids.shape()});
  }
  detail::require_ids(op, "token ids", ids);
  const index_t batch = ids.rank() == 2 ? ids.dim(0) : 1;
  const index_t length = ids.dim(-1);
  std::vector<index_t> lengths(static_cast<std::size_t>(batch), length), leading(lengths.size(), 0);
  for (index_t b = 0; b < batch && padding_index >= 0; ++b) {
    const std::int32_t* row = ids.data() + b * length;
    index_t first = 0, n = length;
    while (side != PaddingSide::left && n > 0 && row[n - 1] == padding_index) --n;
    while (side != PaddingSide::right && first < n && row[first] == padding_index) ++first;
    const std::int32_t* const inner =
        std::find(row + first, row + n, static_cast<std::int32_t>(padding_index));
    if (inner != row + n) {
      throw ValueError(
          op, {"token ", inner - row, " of sequence ", b, " is the padding id ", padding_index,
               ", but other tokens follow it; set padding_index to -1 if the id is an ordinary token, "
               "or give a layout"});
    }
    lengths[static_cast<std::size_t>(b)] = n - first;
    leading[static_cast<std::size_t>(b)] = first;
  }
  return SequenceLayout::padded_around(leading, lengths, length);
}

namespace detail {

/// Throws ShapeError (`[op] ...`) unless token ids (B, L) or (rows) have the rows of the layout, and
/// ValueError for ids without memory; `what` is their name in the message.
inline void check_tokens(const char* op, const char* what, const Tensor<std::int32_t>& ids,
                         const SequenceLayout& layout) {
  if (ids.rank() != 1 && ids.rank() != 2) {
    throw ShapeError(op, {what, " of shape ", ids.shape(), " must be (batch, length) or (rows)"},
                     {ids.shape()});
  }
  check_rows(op, what, ids.shape().inserted(ids.rank(), 1), layout);
  detail::require_ids(op, what, ids);
}

/// The packed form of a layout: the same sequences, sequence numbers and positions, without padding.
inline SequenceLayout packed_layout(const SequenceLayout& layout) {
  if (layout.is_packed()) return layout;
  const auto lengths = layout.lengths(), positions = layout.positions();
  const auto numbers = layout.sequence_numbers();
  return SequenceLayout::packed({lengths.begin(), lengths.end()})
      .with_sequence_numbers({numbers.begin(), numbers.end()})
      .with_first_position({positions.begin(), positions.end()});
}

/// Token ids (B, L) without padding, (tokens), in the order of packed_layout(). Without padding to drop, the
/// ids reshaped to (rows), which share storage.
inline Tensor<std::int32_t> pack_tokens(const Tensor<std::int32_t>& ids, const SequenceLayout& layout) {
  if (layout.tokens() == layout.rows()) return ids.reshape(Shape{layout.rows()});
  Tensor<std::int32_t> packed(Shape{layout.tokens()});
  std::int32_t* out = packed.data();
  for (index_t b = 0; b < layout.batch(); ++b)
    out = std::copy_n(ids.data() + layout.offset(b), layout.length(b), out);
  return packed;
}

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

}  // namespace detail

}  // namespace eigenformer
