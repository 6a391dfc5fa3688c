#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::testing::programs {

/// What a node of a program is. The first four are leaves.
enum class Op {
  variable,
  constant,
  parameter,
  frozen,
  add,
  subtract,
  multiply,
  divide,
  scalar,  // with a number: n = {which}, x = {c}
  negate,
  exp,
  log,
  sqrt,
  square,
  activate,     // n = {activation}
  where,        // flags, n = {shape of the mask}; second input absent: x = {c}
  where_above,  // where(greater(a, b), a, c): x = {c}
  dropout,      // x = {rate}; layouts: of the rows, or none
  add_dropout,
  stochastic_depth,
  sum,  // n = {keepdims, axes...}
  mean,
  max,
  reshape,
  permute,    // n = {order...}
  transpose,  // n = {a, b}
  slice,      // n = {axis, begin, end}
  concat,     // n = {axis}
  stack,
  detach,
  embedding,     // ids; n = {padding, shape of the ids...}, x = {scale}
  gather,        // ids; n = {axis, shape of the ids...}
  index_select,  // ids
  pool,          // n = {pooling}
  layer_norm,    // inputs x, gamma, beta; n = {teaching, scalar gain}, x = {eps}
  add_layer_norm,
  rms_norm,
  add_rms_norm,
  softmax,  // n = {axis}
  log_softmax,
  masked_softmax,      // flags of the last axis' elements
  masked_log_softmax,  // the same, and zeros where the mask is false
  cross_entropy,       // ids; n = {reduction}, x = {smoothing, divisor}
  linear_cross_entropy,
  matmul,        // n = {transpose_a, transpose_b}
  linear,        // inputs x, weight, bias; n = {activation}, x = {rate}
  linear_slice,  // n = {begin, count}
  feed_forward,  // inputs x, w1, b1, w2, b2
  gated_feed_forward,
  glu,
  attention,  // inputs q, k, v, bias, keys, values; see AttentionNumbers
  self_attention,
  cross_attention,
  attention_weights,
  plain_attention,
  linear_attention,  // n = {heads, causal, admitted, key_sequence...}
  rotary,            // n = {heads, head_dim, dim, pairing}, x = {base}
  recurrence,
  alignment_loss,  // n = {head, (sequence, query, key)...}, x = {divisor, shares...}
  count,
};

inline const char* name_of(Op op) {
  static constexpr const char* names[] = {"variable",
                                          "constant",
                                          "parameter",
                                          "frozen",
                                          "add",
                                          "subtract",
                                          "multiply",
                                          "divide",
                                          "scalar",
                                          "negate",
                                          "exp",
                                          "log",
                                          "sqrt",
                                          "square",
                                          "activate",
                                          "where",
                                          "where_above",
                                          "dropout",
                                          "add_dropout",
                                          "stochastic_depth",
                                          "sum",
                                          "mean",
                                          "max",
                                          "reshape",
                                          "permute",
                                          "transpose",
                                          "slice",
                                          "concat",
                                          "stack",
                                          "detach",
                                          "embedding",
                                          "gather",
                                          "index_select",
                                          "pool",
                                          "layer_norm",
                                          "add_layer_norm",
                                          "rms_norm",
                                          "add_rms_norm",
                                          "softmax",
                                          "log_softmax",
                                          "masked_softmax",
                                          "masked_log_softmax",
                                          "cross_entropy",
                                          "linear_cross_entropy",
                                          "matmul",
                                          "linear",
                                          "linear_slice",
                                          "feed_forward",
                                          "gated_feed_forward",
                                          "glu",
                                          "attention",
                                          "self_attention",
                                          "cross_attention",
                                          "attention_weights",
                                          "plain_attention",
                                          "linear_attention",
                                          "rotary",
                                          "recurrence",
                                          "alignment_loss"};
  static_assert(sizeof(names) / sizeof(names[0]) == static_cast<std::size_t>(Op::count));
  return names[static_cast<std::size_t>(op)];
}

/// A SequenceLayout in words: the reference computes rows and positions from these by itself.
struct Layout {
  enum Kind { padded, around, packed, cached } kind = padded;
  std::vector<index_t> lengths;
  index_t capacity = 0;  // rows of a sequence; unused in packed layouts
  std::vector<index_t> leading;
  std::vector<index_t> first;  // positions; empty: 0
  std::vector<std::uint32_t> numbers;

  index_t batch() const { return static_cast<index_t>(lengths.size()); }
  index_t length(index_t b) const { return lengths[static_cast<std::size_t>(b)]; }
  index_t lead(index_t b) const { return kind == around ? leading[static_cast<std::size_t>(b)] : 0; }
  index_t position(index_t b) const { return first.empty() ? 0 : first[static_cast<std::size_t>(b)]; }
  std::uint32_t number(index_t b) const {
    return numbers.empty() ? static_cast<std::uint32_t>(b) : numbers[static_cast<std::size_t>(b)];
  }
  /// Row of token i of sequence b.
  index_t row(index_t b, index_t i) const {
    index_t row = 0;
    for (index_t s = 0; s < b; ++s) row += kind == packed ? length(s) : capacity;
    return row + lead(b) + i;
  }
  index_t rows() const {
    index_t total = 0;
    for (const index_t n : lengths) total += kind == packed ? n : capacity;
    return total;
  }
  index_t max_length() const {
    if (kind == padded || kind == around) return capacity;
    index_t longest = 0;
    for (const index_t n : lengths) longest = std::max(longest, n);
    return longest;
  }
  /// The key of each row: that of tokens, and what SequenceLayout counts on with in padding.
  std::vector<eigenformer::detail::RowKey> keys() const {
    std::vector<eigenformer::detail::RowKey> keys(static_cast<std::size_t>(rows()));
    if (batch() == 0) return keys;
    for (index_t r = 0; r < row(0, 0); ++r) keys[static_cast<std::size_t>(r)] = {number(0), 0};
    for (index_t b = 0; b < batch(); ++b) {
      const index_t end = b + 1 < batch() ? row(b + 1, 0) : rows();
      for (index_t r = row(b, 0); r < end; ++r) {
        keys[static_cast<std::size_t>(r)] = {number(b),
                                             static_cast<std::uint32_t>(position(b) + r - row(b, 0))};
      }
    }
    return keys;
  }

  SequenceLayout library() const {
    SequenceLayout l;
    switch (kind) {
      case padded:
        l = SequenceLayout::padded(lengths, capacity);
        break;
      case around:
        l = SequenceLayout::padded_around(leading, lengths, capacity);
        break;
      case packed:
        l = SequenceLayout::packed(lengths);
        break;
      case cached:
        l = SequenceLayout::cached(lengths, capacity);
        break;
    }
    if (!first.empty()) l = l.with_first_position(first);
    if (!numbers.empty()) l = l.with_sequence_numbers(numbers);
    return l;
  }
};

/// The numbers of an attention, in the order in which Node::n has them.
struct AttentionNumbers {
  index_t heads = 1, key_heads = 1;
  index_t left = -1, right = -1;  // of a window; -1: none
  index_t prefix = 0;             // whether there are prefix lengths: Node::prefix
  index_t documents = 0;          // whether Node::ids are numbers of documents, queries first
  index_t dense = 0;              // 0 none, 1 allow, 2 block, 3 additive (flags are -infinity), 4 key padding
  index_t dense_rank = 0;         // and the shape is mask_shape
  index_t slopes = 0;             // whether there are slopes: Node::slopes
};

/// One op, or a leaf with its values in x.
struct Node {
  Op op{};
  std::vector<int> in;  // -1: an input that is absent
  Shape shape;
  std::vector<index_t> n;
  std::vector<double> x;
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> flags;
  std::vector<Layout> layouts;
  AttentionNumbers attention;
  std::vector<index_t> prefix;
  std::vector<double> slopes;
  std::vector<double> bias;  // of a dense mask that is added
  std::vector<index_t> mask_shape;
  std::vector<std::int32_t> key_sequence;
  index_t offset = 0;  // of a leaf: its first element in a larger block of memory

  bool leaf() const { return op <= Op::frozen; }
  bool is_parameter() const { return op == Op::parameter || op == Op::frozen; }
};

struct Program {
  std::uint64_t seed = 0;
  bool drops = false;  // a training context, with the key below
  eigenformer::detail::DropoutKey key{};
  std::vector<Node> nodes;
  std::vector<int> outputs;

  bool used(int i) const {
    for (const int o : outputs)
      if (o == i) return true;
    for (const Node& node : nodes)
      for (const int k : node.in)
        if (k == i) return true;
    return false;
  }
};

namespace detail {

template <class V>
void list(std::ostream& out, const char* name, const std::vector<V>& values, std::size_t most = 24) {
  if (values.empty()) return;
  out << " " << name << "={";
  for (std::size_t i = 0; i < values.size() && i < most; ++i) out << (i ? "," : "") << +values[i];
  out << (values.size() > most ? ",..." : "") << "}";
}

}  // namespace detail

/// The program, a line for each node.
inline std::string text(const Program& program) {
  std::ostringstream out;
  out << "seed " << program.seed << (program.drops ? ", with dropout" : "") << "\n";
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (!program.used(static_cast<int>(i))) continue;
    out << "  %" << i << " " << node.shape.str() << " = " << name_of(node.op) << "(";
    for (std::size_t k = 0; k < node.in.size(); ++k)
      out << (k ? ", " : "") << (node.in[k] < 0 ? "-" : "%" + std::to_string(node.in[k]));
    out << ")";
    if (node.leaf() && node.offset > 0) out << " at offset " << node.offset;
    detail::list(out, "n", node.n);
    detail::list(out, node.leaf() ? "values" : "x", node.x, 8);
    detail::list(out, "ids", node.ids);
    detail::list(out, "flags", node.flags);
    for (const Layout& l : node.layouts) {
      static constexpr const char* kinds[] = {"padded", "around", "packed", "cached"};
      out << " " << kinds[l.kind] << "(capacity " << l.capacity << ")";
      detail::list(out, "lengths", l.lengths);
      detail::list(out, "leading", l.leading);
      detail::list(out, "first", l.first);
      detail::list(out, "numbers", l.numbers);
    }
    if (!node.layouts.empty() && node.op >= Op::attention && node.op <= Op::attention_weights) {
      const AttentionNumbers& a = node.attention;
      out << " heads=" << a.heads << "/" << a.key_heads << " window=" << a.left << "," << a.right
          << " documents=" << a.documents << " dense=" << a.dense;
    }
    detail::list(out, "prefix", node.prefix);
    detail::list(out, "slopes", node.slopes);
    detail::list(out, "bias", node.bias);
    detail::list(out, "mask", node.mask_shape);
    detail::list(out, "key_sequence", node.key_sequence);
    out << "\n";
  }
  out << "  returns";
  for (const int o : program.outputs) out << " %" << o;
  return out.str();
}

}  // namespace eigenformer::testing::programs
