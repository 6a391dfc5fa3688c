#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/runtime/scratch.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/kernels/attention/attention_problem.hpp"

// The work of a pass of attention: checks, the ranges of keys and queries that masks admit, and the division
// into blocks.

namespace eigenformer::detail::kernels::detail {

/// Keys of a tile of scores, and the row stride of a tile's buffers: a wider matrix is stored as panels of 64
/// columns.
inline constexpr index_t attention_width = 64;
/// Queries of a tile of scores.
inline constexpr index_t attention_rows = 32;
/// Queries that share one packing of the keys.
inline constexpr index_t attention_block = 128;
/// The least number of multiply-adds that is worth a task.
inline constexpr index_t attention_grain = index_t{1} << 17;

/// Rows that n queries take in a buffer: products write whole groups of four.
inline index_t attention_padded(index_t n) { return (n + 3) / 4 * 4; }

/// A half-open range of rows of one sequence.
struct AttentionRange {
  index_t begin = 0;
  index_t end = 0;
};

/// The sequences and the head of a tile.
struct AttentionPlace {
  index_t b = 0;   // sequence of queries
  index_t kb = 0;  // sequence of keys
  index_t h = 0;   // head of queries
};

/// The sequence of keys of a sequence of queries.
template <class T>
index_t attention_keys_of(const AttentionProblem<T>& p, index_t b) {
  return p.key_sequence != nullptr ? p.key_sequence[b] : b;
}

/// Throws ValueError where a size is less than 1.
EIGENFORMER_NOINLINE inline void check_attention_size(const char* what, index_t value) {
  if (value >= 1) return;
  throw ValueError("attention", {what, " is ", value, ", must be at least 1"});
}

template <class T>
EIGENFORMER_NOINLINE void check_attention(const AttentionProblem<T>& p) {
  if (p.queries == nullptr || p.keys == nullptr)
    throw ValueError("attention", "the layouts of queries and keys must be given");
  check_attention_size("heads", p.heads);
  check_attention_size("head_dim", p.head_dim);
  check_attention_size("value_dim", p.value_dim);
  if (!(p.dropout_rate >= 0 && p.dropout_rate < 1)) {
    throw ValueError("attention", {"dropout rate is ", p.dropout_rate, ", must be in [0, 1)"});
  }
  if (p.key_value_heads < 0 || p.heads % p.kv_heads() != 0) {
    throw ValueError("attention", {"heads is ", p.heads, ", must be divisible by key_value_heads, which is ",
                                   p.key_value_heads});
  }
  if (p.distances.bias != nullptr) check_attention_size("reach of the bias", p.distances.reach);
  if (p.has_rule() && p.rule->template functions<T>().forward == nullptr) {
    throw ValueError("attention",
                     {"the score rule has no operator()(ScoreTile<", sizeof(T) == 4 ? "float" : "double",
                      ">&) const, which attention in this precision calls"});
  }
  const index_t batch = p.queries->batch(), key_batch = p.keys->batch();
  if (p.key_sequence == nullptr) {
    if (batch != key_batch) {
      throw ValueError("attention", {"there are ", batch, " sequences of queries and ", key_batch,
                                     " of keys, must be equal numbers unless key_sequence is given"});
    }
  } else {
    for (index_t b = 0; b < batch; ++b) {
      if (p.key_sequence[b] < 0 || p.key_sequence[b] >= key_batch) {
        throw ValueError("attention", {"key_sequence[", b, "] is ", p.key_sequence[b], ", there are ",
                                       key_batch, " sequences of keys"});
      }
    }
  }
  if (p.mask != nullptr) {
    p.mask->check(batch, p.heads, p.queries->max_length(), key_batch, p.keys->max_length());
  }
}

/// The keys of sequence kb that at least one of the queries [first, first + count) of sequence b reaches, by
/// causal and window masks.
template <class T>
AttentionRange attention_key_range(const AttentionProblem<T>& p, index_t b, index_t kb, index_t first,
                                   index_t count) {
  AttentionRange range{0, p.keys->lengths()[kb]};
  if (p.mask == nullptr) return range;
  const index_t query = p.queries->positions()[b] + first, key = p.keys->positions()[kb];
  if (p.mask->left() != AttentionMask::unlimited)
    range.begin = std::max<index_t>(0, query - p.mask->left() - key);
  if (p.mask->right() < key + range.end)
    range.end = std::min(range.end, query + count + p.mask->right() - key);
  return range;
}

/// Counts `products` multiply-adds for each pair of query and key of each head that causal and window masks
/// admit, whether or not other masks exclude it.
template <class T>
void count_attention(const AttentionProblem<T>& p, index_t products) {
  index_t pairs = 0;
  for (index_t b = 0; b < p.queries->batch(); ++b) {
    for (index_t i = 0; i < p.queries->lengths()[b]; ++i) {
      const AttentionRange keys = attention_key_range(p, b, attention_keys_of(p, b), i, 1);
      pairs += std::max<index_t>(0, keys.end - keys.begin);
    }
  }
  eigenformer::detail::count_product(pairs, p.heads, products);
}

/// The queries of sequence b that reach at least one of the keys [first, first + count) of sequence kb,
/// widened to whole tiles (products write up to 3 rows beyond a tile that is not full, which must not be rows
/// of another).
template <class T>
AttentionRange attention_query_range(const AttentionProblem<T>& p, index_t b, index_t kb, index_t first,
                                     index_t count) {
  AttentionRange range{0, p.queries->lengths()[b]};
  if (p.mask == nullptr) return range;
  const index_t query = p.queries->positions()[b], key = p.keys->positions()[kb] + first;
  if (p.mask->right() != AttentionMask::unlimited)
    range.begin = std::max<index_t>(0, key - p.mask->right() - query);
  range.begin = range.begin / attention_rows * attention_rows;
  if (p.mask->left() < query + range.end) {
    const index_t end = std::max<index_t>(0, key + count + p.mask->left() - query);
    range.end = std::min(range.end, (end + attention_rows - 1) / attention_rows * attention_rows);
  }
  return range;
}

/// Blocks of up to 128 rows of one head, numbered through all sequences and heads: the units of work of a
/// pass.
class AttentionBlocks {
 public:
  struct Block {
    index_t sequence = 0;
    index_t head = 0;
    index_t first = 0;
    index_t count = 0;
  };

  AttentionBlocks(const SequenceLayout& layout, index_t heads)
      : layout_(layout), memory_(), begins_(*memory_) {
    begins_.clear();
    index_t blocks = 0;
    for (const index_t length : layout.lengths()) {
      begins_.push_back(blocks);
      blocks += of(length) * heads;
    }
    begins_.push_back(blocks);
  }

  index_t count() const { return begins_.back(); }

  Block operator[](index_t number) const {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), number);
    const index_t sequence = static_cast<index_t>(after - begins_.begin()) - 1;
    const index_t length = layout_.lengths()[sequence];
    const index_t at = number - begins_[sequence];
    const index_t first = at % of(length) * attention_block;
    return {sequence, at / of(length), first, std::min(attention_block, length - first)};
  }

 private:
  static index_t of(index_t length) { return (length + attention_block - 1) / attention_block; }

  const SequenceLayout& layout_;
  // Kept by the calling thread, so that a call allocates nothing.
  const eigenformer::detail::ThreadLease<std::vector<index_t>, AttentionBlocks> memory_;
  std::vector<index_t>& begins_;
};

/// For each sequence of keys, the sequences of queries that attend to it, in rising order.
class AttentionGroups {
 public:
  template <class T>
  explicit AttentionGroups(const AttentionProblem<T>& p)
      : memory_(), begins_(memory_->begins), members_(memory_->members) {
    const index_t batch = p.queries->batch();
    begins_.assign(static_cast<std::size_t>(p.keys->batch()) + 1, 0);
    members_.resize(static_cast<std::size_t>(batch));
    for (index_t b = 0; b < batch; ++b) ++begins_[attention_keys_of(p, b)];
    index_t end = 0;
    for (index_t& begin : begins_) begin = end += begin;
    for (index_t b = batch - 1; b >= 0; --b) members_[--begins_[attention_keys_of(p, b)]] = b;
  }

  std::span<const index_t> operator[](index_t kb) const {
    return {members_.data() + begins_[kb], static_cast<std::size_t>(begins_[kb + 1] - begins_[kb])};
  }

 private:
  struct Lists {
    std::vector<index_t> begins, members;
  };

  const eigenformer::detail::ThreadLease<Lists> memory_;
  std::vector<index_t>& begins_;
  std::vector<index_t>& members_;
};

/// Calls f(i) for each of an attention's units of work, in parallel where they are large enough.
template <class T, class F>
void each_attention_unit(const AttentionProblem<T>& p, index_t units, const F& f) {
  const index_t pairs = p.queries->tokens() * (p.keys->tokens() / std::max<index_t>(1, p.keys->batch()) + 1);
  const index_t work = pairs * p.heads * (p.head_dim + p.value_dim);
  parallel_each(units, attention_grain / std::max<index_t>(1, work / std::max<index_t>(1, units)), f);
}

/// Calls f(place, first, count) for the blocks of queries [first, first + count) of all heads, in parallel.
template <class T, class F>
void each_query_block(const AttentionProblem<T>& p, const F& f) {
  const AttentionBlocks blocks(*p.queries, p.heads);
  each_attention_unit(p, blocks.count(), [&](index_t i) {
    const AttentionBlocks::Block block = blocks[i];
    f(AttentionPlace{block.sequence, attention_keys_of(p, block.sequence), block.head}, block.first,
      block.count);
  });
}

/// Sets the rows of padding in a matrix of a layout's rows to zero, in its first `columns` columns; nothing
/// for nullptr.
template <class T>
void zero_padding(const SequenceLayout& layout, T* matrix, index_t stride, index_t columns) {
  if (matrix == nullptr || layout.tokens() == layout.rows()) return;
  for (index_t row = 0; row < layout.offsets()[0]; ++row) std::fill_n(matrix + row * stride, columns, T(0));
  for (index_t b = 0; b < layout.batch(); ++b) {
    for (index_t row = layout.offsets()[b] + layout.lengths()[b]; row < layout.offsets()[b + 1]; ++row) {
      std::fill_n(matrix + row * stride, columns, T(0));
    }
  }
}

/// zero_padding() of the gradients of queries, keys and values that are overwritten.
template <class T>
void zero_padding(const AttentionProblem<T>& p, const AttentionGradients<T>& g) {
  if (g.dq_beta == T(0)) zero_padding(*p.queries, g.dq, g.dq_stride, p.heads * p.head_dim);
  if (g.dk_beta == T(0)) zero_padding(*p.keys, g.dk, g.dk_stride, p.kv_heads() * p.head_dim);
  if (g.dv_beta == T(0)) zero_padding(*p.keys, g.dv, g.dv_stride, p.kv_heads() * p.value_dim);
}

}  // namespace eigenformer::detail::kernels::detail
