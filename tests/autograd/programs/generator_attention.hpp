#pragma once

#include "autograd/programs/generator.hpp"

namespace eigenformer::testing::programs {

/// Sets masks and terms by distance of an attention.
inline void Generator::terms(Node& node, const Layout& queries, const Layout& keys, index_t heads,
                             index_t groups) {
  AttentionNumbers& a = node.attention;
  a.heads = heads;
  a.key_heads = groups;
  const index_t lq = queries.max_length(), lk = keys.max_length();
  if (chance(0.3)) a.right = 0;
  if (chance(0.15)) a.left = below(6);
  if (chance(0.1)) a.right = below(4);
  if (chance(0.1)) {
    a.prefix = 1;
    for (index_t b = 0; b < queries.batch(); ++b) node.prefix.push_back(below(lk + 2));
  }
  if (chance(0.12)) {
    a.documents = 1;
    for (index_t i = 0; i < queries.batch() * lq + keys.batch() * lk; ++i)
      node.ids.push_back(static_cast<std::int32_t>(below(3)) - 1);
  }
  if (chance(0.4)) {
    a.dense = 1 + below(4);
    const auto one = [&](index_t n) { return chance(0.4) ? index_t{1} : n; };
    if (a.dense == 4) {
      node.mask_shape = {keys.batch(), lk};
    } else {
      switch (below(3)) {
        case 0:
          node.mask_shape = {lq, lk};
          break;
        case 1:
          node.mask_shape = {queries.batch(), lq, lk};
          break;
        default:
          node.mask_shape = {one(queries.batch()), one(heads), one(lq), lk};
      }
    }
    index_t n = 1;
    for (const index_t d : node.mask_shape) n *= d;
    flags(node, n, a.dense == 1 ? 0.7 : 0.3);
    for (index_t i = 0; i < n && a.dense == 3; ++i)
      node.bias.push_back(static_cast<double>(static_cast<float>(random_.normal())));
  }
  if (chance(0.15)) {
    a.slopes = 1;
    for (index_t h = 0; h < heads; ++h) node.slopes.push_back(std::pow(2.0, -static_cast<double>(h + 1)));
  }
  node.x = {chance(0.3) ? 0.5 : 0.0, chance(0.4) ? rate() : 0.0};
}
/// Appends the Vars of RelativePositions.
inline void Generator::relative(Node& node, index_t heads, index_t dk, index_t dv, bool values) {
  const index_t entries = 2 * (1 + below(4)) + 1;
  const bool bias = chance(0.2);
  node.in.push_back(bias ? of_shape({heads, entries}) : -1);
  node.in.push_back(!bias && chance(0.2) ? of_shape({entries, dk}) : -1);
  if (values) node.in.push_back(chance(0.15) ? of_shape({entries, dv}) : -1);
}
inline void Generator::attention(Node& node) {
  const bool self = node.op == Op::self_attention;
  const index_t groups = 1 + below(3), heads = groups * (1 + below(3)), dk = 1 + below(large_ ? 40 : 9);
  const index_t dv = node.op == Op::attention ? 1 + below(large_ ? 40 : 9) : dk;
  const index_t batch = below(4);
  const Layout queries = layout(batch);
  Layout keys = self || chance(0.3) ? queries : layout(batch);
  if (!self && batch > 0 && chance(0.2)) {
    keys = layout(1 + below(3));
    for (index_t b = 0; b < batch; ++b)
      node.key_sequence.push_back(static_cast<std::int32_t>(below(keys.batch())));
  }
  node.layouts = self ? std::vector<Layout>{queries} : std::vector<Layout>{queries, keys};
  const index_t kv = node.op == Op::cross_attention ? heads : groups;
  terms(node, queries, keys, heads, kv);
  const Shape q = rows_of(queries, heads * dk);
  switch (node.op) {
    case Op::attention: {
      node.in = {of_shape(q), of_shape(rows_of(keys, kv * dk)), of_shape(rows_of(keys, kv * dv))};
      relative(node, heads, dk, dv, true);
      node.shape = q.with(-1, heads * dv);
      break;
    }
    case Op::self_attention: {
      node.in = {of_shape(q.with(-1, (heads + 2 * kv) * dk))};
      relative(node, heads, dk, dk, true);
      node.shape = q;
      break;
    }
    case Op::cross_attention:
      node.in = {of_shape(q), of_shape(rows_of(keys, 2 * kv * dk))};
      relative(node, heads, dk, dk, true);
      node.shape = q;
      break;
    default:
      node.in = {of_shape(q), of_shape(rows_of(keys, kv * dk))};
      relative(node, heads, dk, dk, false);
      node.shape = Shape{queries.batch(), heads, queries.max_length(), keys.max_length()};
  }
}
}  // namespace eigenformer::testing::programs
