#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "autograd/programs/reference.hpp"

namespace eigenformer::testing::programs::reference {

/// Columns of a (rows, width) tensor: q, k or v, alone or in a fused projection.
struct Columns {
  const Numbers* from = nullptr;
  index_t first = 0, width = 0;
  Scalar at(index_t row, index_t column) const { return (*from)[row * from->cols() + first + column]; }
};

/// Whether query i (token) of sequence b may attend to key j of sequence kb; `bias` receives what is added.
inline bool allowed(const Node& node, index_t b, index_t kb, index_t h, index_t i, index_t j, double& bias) {
  const AttentionNumbers& a = node.attention;
  const Layout &queries = node.layouts[0], &keys = node.layouts.back();
  const index_t at_q = queries.position(b) + i, at_k = keys.position(kb) + j;
  bias = 0;
  if (a.left >= 0 && at_k < at_q - a.left) return false;
  if (a.right >= 0 && at_k > at_q + a.right) return false;
  if (a.prefix != 0 && at_k > at_q && at_k >= node.prefix[static_cast<std::size_t>(b)]) return false;
  const index_t row = queries.lead(b) + i, column = keys.lead(kb) + j;
  if (a.documents != 0) {
    const index_t q = b * queries.max_length() + row;
    const index_t k = queries.batch() * queries.max_length() + kb * keys.max_length() + column;
    if (node.ids[static_cast<std::size_t>(q)] != node.ids[static_cast<std::size_t>(k)]) return false;
  }
  if (a.dense == 0) return true;
  // (Lq, Lk), (B, Lq, Lk), (B or 1, H or 1, Lq or 1, Lk), or of key padding (key B, Lk).
  const auto& s = node.mask_shape;
  index_t index = column;
  if (a.dense == 4) {
    index = kb * s[1] + column;
  } else if (s.size() == 2) {
    index = row * s[1] + column;
  } else if (s.size() == 3) {
    index = (b * s[1] + row) * s[2] + column;
  } else {
    index =
        (((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + (s[2] == 1 ? 0 : row)) * s[3] + column;
  }
  const bool flag = node.flags[static_cast<std::size_t>(index)] != 0;
  if (a.dense == 3) bias = node.bias[static_cast<std::size_t>(index)];
  return a.dense == 1 ? flag : !flag;
}

/// softmax(scale Q K^T + terms by distance + mask) and, with values, the sums of these by the weights.
inline Numbers attention(Evaluation& e, const Node& node, const Columns& q, const Columns& k,
                         const Columns& v, const Numbers* bias, const Numbers* relative_keys,
                         const Numbers* relative_values) {
  const AttentionNumbers& a = node.attention;
  const Layout &queries = node.layouts[0], &keys = node.layouts.back();
  const bool weights = node.op == Op::attention_weights;
  const index_t dk = q.width / a.heads, dv = weights ? 0 : v.width / a.key_heads;
  const double scale = node.x[0] != 0 ? node.x[0] : 1 / std::sqrt(static_cast<double>(dk));
  const double rate = weights || !e.drops ? 0 : node.x[1];
  const eigenformer::detail::DropoutKey key = rate > 0 ? e.next() : eigenformer::detail::DropoutKey{};
  const Scalar zero = constant(0);
  Numbers y{node.shape, Scalars(static_cast<std::size_t>(node.shape.numel()), zero)};
  const Numbers* table = bias != nullptr ? bias : relative_keys != nullptr ? relative_keys : relative_values;
  const index_t reach = table == nullptr ? 0 : (bias != nullptr ? table->shape[1] : table->shape[0]) / 2;
  for (index_t b = 0; b < queries.batch(); ++b) {
    const index_t kb = node.key_sequence.empty() ? b : node.key_sequence[static_cast<std::size_t>(b)];
    for (index_t h = 0; h < a.heads; ++h) {
      const index_t g = h / (a.heads / a.key_heads);
      for (index_t i = 0; i < queries.length(b); ++i) {
        const index_t row = queries.row(b, i);
        Scalars scores;
        std::vector<index_t> at, entry;
        for (index_t j = 0; j < keys.length(kb); ++j) {
          double added = 0;
          if (!allowed(node, b, kb, h, i, j, added)) continue;
          const index_t distance = keys.position(kb) + j - queries.position(b) - i;
          const index_t clamped = std::clamp(distance, -reach, reach) + reach;
          Sum score;
          for (index_t c = 0; c < dk; ++c) {
            const Scalar query = q.at(row, h * dk + c);
            score.add(query, k.at(keys.row(kb, j), g * dk + c), scale);
            if (relative_keys != nullptr) score.add(query, (*relative_keys)[clamped * dk + c], scale);
          }
          if (bias != nullptr) score.add((*bias)[h * (2 * reach + 1) + clamped]);
          if (a.slopes != 0) {
            added -= node.slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(distance));
          }
          scores.push_back(score.done() + added);
          at.push_back(j);
          entry.push_back(clamped);
        }
        // The weights are divided by their sum last, as in the library: rounding errors of gradients that
        // cancel each other out grow in the same way.
        const Scalars p = weights ? softmax(scores) : exponentials(scores);
        if (weights) {
          const index_t lk = node.shape[3];
          const index_t to = ((b * a.heads + h) * node.shape[2] + queries.lead(b) + i) * lk + keys.lead(kb);
          for (std::size_t j = 0; j < p.size(); ++j) y[to + at[j]] = p[j];
          continue;
        }
        std::vector<Sum> sums(static_cast<std::size_t>(dv));
        for (std::size_t j = 0; j < p.size(); ++j) {
          double multiplier = 1;
          if (rate > 0) {
            const auto at_q = static_cast<std::uint32_t>(queries.position(b) + i);
            multiplier = kept(key, rate, queries.number(b), static_cast<std::uint32_t>(h), at_q / 4,
                              static_cast<std::uint32_t>(keys.position(kb) + at[j]), at_q % 4);
          }
          if (multiplier == 0) continue;
          for (index_t c = 0; c < dv; ++c) {
            Sum& sum = sums[static_cast<std::size_t>(c)];
            sum.add(p[j], v.at(keys.row(kb, at[j]), g * dv + c), multiplier);
            if (relative_values != nullptr) sum.add(p[j], (*relative_values)[entry[j] * dv + c], multiplier);
          }
        }
        if (p.empty()) continue;
        const Scalar divisor = total(p);
        for (index_t c = 0; c < dv; ++c)
          y[(row * a.heads + h) * dv + c] = sums[static_cast<std::size_t>(c)].done() / divisor;
      }
    }
  }
  return y;
}

inline Numbers plain_attention(const Node& node, const Numbers& q, const Numbers& k, const Numbers& v) {
  const index_t lq = q.shape[-2], lk = k.shape[-2], d = q.cols(), dv = v.cols();
  const index_t matrices = q.shape.numel() == 0 ? 0 : q.shape.numel() / (lq * d);
  Numbers y{node.shape, {}};
  for (index_t m = 0; m < matrices; ++m) {
    for (index_t i = 0; i < lq; ++i) {
      Scalars scores;
      for (index_t j = 0; j < lk && (node.n[0] == 0 || j <= i); ++j) {
        Sum score;
        for (index_t c = 0; c < d; ++c)
          score.add(q[(m * lq + i) * d + c], k[(m * lk + j) * d + c], 1 / std::sqrt(static_cast<double>(d)));
        scores.push_back(score.done());
      }
      const Scalars p = exponentials(scores);
      const Scalar divisor = p.empty() ? constant(1) : total(p);
      for (index_t c = 0; c < dv; ++c) {
        Sum sum;
        for (std::size_t j = 0; j < p.size(); ++j)
          sum.add(p[j], v[(m * lk + static_cast<index_t>(j)) * dv + c]);
        y.at.push_back(sum.done() / divisor);
      }
    }
  }
  return y;
}

inline Numbers linear_attention(const Node& node, const Numbers& q, const Numbers& k, const Numbers& v) {
  const Layout &queries = node.layouts[0], &keys = node.layouts.back();
  const index_t heads = node.n[0], d = q.cols() / heads, dv = v.cols() / heads;
  const Scalar zero = constant(0);
  Numbers y{node.shape, Scalars(static_cast<std::size_t>(node.shape.numel()), zero)};
  const Numbers fq = activate(Activation::elu_plus_one, q), fk = activate(Activation::elu_plus_one, k);
  for (index_t b = 0; b < queries.batch(); ++b) {
    const index_t kb = node.key_sequence.empty() ? b : node.key_sequence[static_cast<std::size_t>(b)];
    for (index_t i = 0; i < queries.length(b); ++i) {
      for (index_t h = 0; h < heads; ++h) {
        std::vector<Sum> sums(static_cast<std::size_t>(dv));
        Sum divisor;
        for (index_t j = 0; j < keys.length(kb); ++j) {
          const index_t key = keys.row(kb, j);
          if (node.n[1] != 0 && j > i) continue;
          if (node.n[2] != 0 && node.flags[static_cast<std::size_t>(key)] == 0) continue;
          Sum product;
          for (index_t c = 0; c < d; ++c)
            product.add(fq[queries.row(b, i) * q.cols() + h * d + c], fk[key * k.cols() + h * d + c]);
          const Scalar weight = product.done();
          divisor.add(weight);
          for (index_t c = 0; c < dv; ++c)
            sums[static_cast<std::size_t>(c)].add(weight, v[key * v.cols() + h * dv + c]);
        }
        const Scalar total = divisor.done() + 1e-6;
        for (index_t c = 0; c < dv; ++c)
          y[(queries.row(b, i) * heads + h) * dv + c] = sums[static_cast<std::size_t>(c)].done() / total;
      }
    }
  }
  return y;
}

inline Numbers recurrence(const Node& node, const Numbers& forget, const Numbers& input) {
  const Layout& layout = node.layouts[0];
  const index_t d = input.cols();
  const Scalar zero = constant(0);
  Numbers y{node.shape, Scalars(static_cast<std::size_t>(node.shape.numel()), zero)};
  for (index_t b = 0; b < layout.batch(); ++b) {
    for (index_t c = 0; c < d; ++c) {
      Scalar state = zero;
      for (index_t i = 0; i < layout.length(b); ++i) {
        const index_t at = layout.row(b, i) * d + c;
        state = forget[at] * state + (forget[at] * -1 + 1) * input[at];
        y[at] = state;
      }
    }
  }
  return y;
}

}  // namespace eigenformer::testing::programs::reference
