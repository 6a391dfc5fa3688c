#pragma once

#include <algorithm>
#include <limits>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/attention/attention_tiles.hpp"

// The backward passes. With weights P = softmax(S), dropout's multipliers Z and output O = (P Z) V:
//   dV = (P Z)^T dO,   dS = P (Z (dO V^T) - <dO, O>),   dQ = scale dS K,   dK = scale dS^T Q,
// dS is multiplied by the derivative of a score rule, if there is one, before the products with Q and K;
// and the gradient of a bias by distance is the sum of dS at that distance, tile by tile, P being computed
// again from S and its log-sum-exp (Dao et al. 2022, algorithm 4).

namespace eigenformer::detail::kernels::detail {

/// The arguments of a backward pass: a gradient of the output, or of the weights.
template <class T>
struct AttentionBackwardCall {
  const T* out = nullptr;
  index_t out_stride = 0;
  const T* dout = nullptr;
  index_t dout_stride = 0;
  const T* log_sum_exp = nullptr;
  AttentionDistanceWeights<T> by_distance{};
  const T* weights = nullptr;  ///< nullptr: the gradient is of the output
  const T* dweights = nullptr;
};

/// The gradient of a tile of scores: dS = P (Z (dO V^T) - <dO, O>), or P (dP - <P, dP>) where dP is given.
template <class T>
class GradientTiles : public AttentionTiles<T> {
 public:
  using Tiles = AttentionTiles<T>;
  using Tiles::p;

  GradientTiles(const AttentionProblem<T>& problem, const AttentionBackwardCall<T>& call, index_t extra)
      : Tiles(problem, size(problem) + extra), call_(call) {
    values_transposed_ = this->take(this->value_panels * Tiles::key_panel);
    dout_ = this->take(this->value_panels * Tiles::query_panel);
    gradient = this->take(Tiles::tile_size);
    log_sum_exp_ = this->take(attention_block);
    delta_ = this->take(attention_block);
    this->keep_ruled_scores();
  }

  EIGENFORMER_NOINLINE void pack_block(const AttentionPlace& at, index_t first, index_t count) {
    this->pack_queries(at, first, count);
    if (call_.weights != nullptr) {
      const index_t start = attention_weight_index(p, at, first, 0), ld = p.keys->max_length();
      dispatch<AttentionDots<T>>(call_.weights + start, ld, call_.dweights + start, ld, count,
                                 p.keys->lengths()[at.kb], delta_);
      return;
    }
    const index_t row = p.queries->offsets()[at.b] + first;
    const T* dout = call_.dout + row * call_.dout_stride + at.h * p.value_dim;
    bool finite = true;
    dispatch<AttentionPack<T>>({dout, call_.dout_stride, nullptr}, count, p.value_dim, T(1), dout_,
                               Tiles::query_panel, &finite);
    dispatch<AttentionDots<T>>(dout, call_.dout_stride,
                               call_.out + row * call_.out_stride + at.h * p.value_dim, call_.out_stride,
                               count, p.value_dim, delta_);
    const T* given = call_.log_sum_exp + at.h * p.queries->rows() + row;
    constexpr T infinity = std::numeric_limits<T>::infinity();
    for (index_t i = 0; i < count; ++i) {
      log_sum_exp_[i] = given[i];
      if (given[i] != -infinity) continue;
      // A query that attended to nothing: exp(s - inf) is zero, and its values have no effect.
      log_sum_exp_[i] = infinity;
      delta_[i] = T(0);
      clear_row(this->queries + i * Tiles::width, this->head_panels);
      clear_row(dout_ + i * Tiles::width, this->value_panels);
    }
  }

  void pack_tile(const AttentionPlace& at, index_t first, index_t count) {
    // If the weights are given, scores are needed only for the derivative of a rule.
    if (call_.weights != nullptr && !this->keeps_ruled_scores()) return;
    this->pack_keys_transposed(at, first, count);
    if (call_.weights == nullptr) this->pack_values_transposed(at, first, count, values_transposed_);
  }

  /// Turns scores into the weights after dropout and writes the scores' gradient to `gradient`; returns false
  /// if a rule excludes the tile.
  EIGENFORMER_NOINLINE bool differentiate(const AttentionRectangle& r, index_t row) {
    const bool weights_given = call_.weights != nullptr;
    if ((!weights_given || this->keeps_ruled_scores()) && !this->score(r, row)) return false;
    if (weights_given) {
      const index_t start = attention_weight_index(p, r, r.first, r.key);
      dispatch<AttentionWeightGradient<T>>(call_.weights + start, call_.dweights + start,
                                           p.keys->max_length(), r.m, r.n, delta_ + row, gradient);
      this->differentiate_rule(r, gradient);
      return true;
    }
    Tiles::template product<false>(dout_ + row * Tiles::width, Tiles::query_panel, values_transposed_,
                                   Tiles::key_panel, p.value_dim, gradient, r.m, r.n);
    if (const AttentionDistanceWeights<T>& sums = call_.by_distance; sums.gradient != nullptr) {
      const index_t stride = sums.row(p.heads);
      const T* from =
          sums.gradient + (p.queries->offsets()[r.b] + r.first) * stride + r.h * (2 * sums.reach + 1);
      dispatch<AttentionDistanceBias<T>>(gradient, r.m, r.n, from, stride, sums.reach, this->distance(r));
    }
    dispatch<AttentionScoreGradient<T>>(this->scores, gradient, this->drop(r), r.m, r.n, log_sum_exp_ + row,
                                        delta_ + row);
    this->differentiate_rule(r, gradient);
    return true;
  }

  /// dv (n, value_dim) += weights^T dout for rows `row` and on of the block.
  void spread_values(index_t row, index_t m, index_t n, T* dv) {
    Tiles::spread(this->scores, m, n, dout_ + row * Tiles::width, p.value_dim, dv);
  }

  T* gradient;  // (32, 64)

 private:
  static index_t size(const AttentionProblem<T>& problem) {
    return attention_panels(problem.value_dim) * (Tiles::key_panel + Tiles::query_panel) +
           2 * Tiles::tile_size + 2 * attention_block;
  }

  static void clear_row(T* row, index_t panels) {
    for (index_t c = 0; c < panels; ++c) std::fill_n(row + c * Tiles::query_panel, Tiles::width, T(0));
  }

  const AttentionBackwardCall<T>& call_;
  T* values_transposed_;  // (value_dim, 64)
  T* dout_;               // (value_panels, 128, 64)
  T* log_sum_exp_;
  T* delta_;  // <dO, O>, or <P, dP>
};

/// The sums of a bias's gradient that all rows share: one for each sequence of keys, head and block of 128
/// keys, so that tasks share none and their order is fixed.
template <class T>
class SharedBiasGradient {
 public:
  SharedBiasGradient(const AttentionProblem<T>& p, const AttentionGradients<T>& g)
      : heads_(p.heads), entries_(2 * p.distances.reach + 1) {
    if (g.dbias == nullptr || p.distances.row_stride != 0) return;
    blocks_ = std::max<index_t>(1, (p.keys->max_length() + attention_block - 1) / attention_block);
    sums_ = Tensor<T>::zeros(Shape{p.keys->batch(), p.heads, blocks_, entries_});
    data_ = sums_.data();
  }

  bool wanted() const noexcept { return blocks_ > 0; }

  /// The sums for a tile that begins with this key; nullptr without such a gradient.
  T* at(const AttentionPlace& place, index_t key) const {
    if (!wanted()) return nullptr;
    const index_t block = (place.kb * heads_ + place.h) * blocks_ + key / attention_block;
    return data_ + block * entries_;
  }

  void store(const AttentionProblem<T>& p, const AttentionGradients<T>& g) const {
    if (!wanted()) return;
    for (index_t h = 0; h < heads_; ++h) {
      T* to = g.dbias + h * p.distances.head_stride;
      for (index_t c = 0; c < entries_; ++c) to[c] = g.dbias_beta == T(0) ? T(0) : g.dbias_beta * to[c];
      for (index_t kb = 0; kb < sums_.dim(0); ++kb) {
        for (index_t block = 0; block < blocks_; ++block) {
          const T* from = data_ + ((kb * heads_ + h) * blocks_ + block) * entries_;
          for (index_t c = 0; c < entries_; ++c) to[c] += from[c];
        }
      }
    }
  }

 private:
  index_t heads_;
  index_t entries_;
  index_t blocks_ = 0;
  Tensor<T> sums_;  // (sequences of keys, heads, blocks, entries)
  T* data_ = nullptr;
};

/// The gradient of a tile of scores, added up by distance: into `to`, rows as far apart as those of the bias.
template <class T>
void add_bias_gradient(const AttentionProblem<T>& p, const GradientTiles<T>& t, const AttentionRectangle& r,
                       T* to) {
  dispatch<AttentionDistanceSums<T>>(t.gradient, r.m, r.n, to, p.distances.row_stride, p.distances.reach,
                                     t.distance(r));
}

/// dk and dv of keys [begin, end) of one sequence and head of keys, over all queries of its group, with the
/// bias's gradient that rows share; and, when the range is the whole sequence, dq of that group and the
/// bias's gradient by rows (with_queries), which saves computing the scores a second time.
template <class T>
EIGENFORMER_NOINLINE void attention_backward_keys(const AttentionProblem<T>& p,
                                                  const AttentionBackwardCall<T>& call,
                                                  const AttentionGradients<T>& g,
                                                  const SharedBiasGradient<T>& shared_bias,
                                                  std::span<const index_t> group, index_t kb,
                                                  index_t key_head, AttentionRange range, bool with_queries) {
  using Tiles = AttentionTiles<T>;
  const index_t head_panels = attention_panels(p.head_dim), value_panels = attention_panels(p.value_dim);
  const index_t heads = p.heads_per_key(), first_head = key_head * heads;
  const bool bias_by_row = with_queries && g.dbias != nullptr && p.distances.row_stride != 0;
  index_t rows = 0;  // of dq, for one head
  if (with_queries && g.dq != nullptr) {
    for (const index_t b : group) rows += attention_padded(p.queries->lengths()[b]);
  }
  const index_t dq_panel = heads * rows * Tiles::width;
  GradientTiles<T> t(p, call, (2 * head_panels + value_panels) * Tiles::key_panel + head_panels * dq_panel);
  T* const keys = t.take(head_panels * Tiles::key_panel);
  T* const dk = t.take(head_panels * Tiles::key_panel);
  T* const dv = t.take(value_panels * Tiles::key_panel);
  T* const dq = t.take(head_panels * dq_panel);
  std::fill_n(dq, head_panels * dq_panel, T(0));
  for (index_t key = range.begin; key < range.end; key += Tiles::width) {
    const index_t n = std::min(Tiles::width, range.end - key);
    AttentionPlace at{0, kb, first_head};
    t.pack_tile(at, key, n);
    const bool finite = rows > 0 ? t.pack_keys(at, key, n, keys) : true;
    for (index_t c = 0; c < head_panels; ++c) std::fill_n(dk + c * Tiles::key_panel, n * Tiles::width, T(0));
    for (index_t c = 0; c < value_panels; ++c) std::fill_n(dv + c * Tiles::key_panel, n * Tiles::width, T(0));
    index_t start = 0;  // of head h and sequence b in dq
    for (at.h = first_head; at.h < first_head + heads; ++at.h) {
      T* const bias_sums = shared_bias.at(at, key);
      for (const index_t b : group) {
        at.b = b;
        const AttentionRange queries = attention_query_range(p, b, kb, key, n);
        for (index_t first = queries.begin; first < queries.end; first += attention_block) {
          const index_t count = std::min(attention_block, queries.end - first);
          if (!t.admits({at, first, count, key, n})) continue;
          t.pack_block(at, first, count);
          for (index_t row = 0; row < count; row += attention_rows) {
            const index_t m = std::min(attention_rows, count - row), query = first + row;
            const AttentionRectangle r{at, query, m, key, n};
            if (!t.differentiate(r, row)) continue;
            if (g.dv != nullptr) t.spread_values(row, m, n, dv);
            if (g.dk != nullptr)
              Tiles::spread(t.gradient, m, n, t.queries + row * Tiles::width, p.head_dim, dk);
            if (rows > 0) {
              t.weigh(t.gradient, m, n, keys, finite, p.head_dim, dq + (start + query) * Tiles::width,
                      dq_panel, nullptr, ProductMode::accumulate);
            }
            if (bias_sums != nullptr) add_bias_gradient(p, t, r, bias_sums);
            if (bias_by_row) add_bias_gradient(p, t, r, g.dbias + t.bias_row(at, query));
          }
        }
        if (rows > 0) start += attention_padded(p.queries->lengths()[b]);
      }
    }
    const index_t out_row = p.keys->offsets()[kb] + key;
    if (g.dk != nullptr) {
      // The packed queries carry the scale.
      dispatch<AttentionStore<T>>(dk, Tiles::key_panel, n, p.head_dim, nullptr, T(1),
                                  g.dk + out_row * g.dk_stride + key_head * p.head_dim, g.dk_stride,
                                  g.dk_beta);
    }
    if (g.dv != nullptr) {
      dispatch<AttentionStore<T>>(dv, Tiles::key_panel, n, p.value_dim, nullptr, T(1),
                                  g.dv + out_row * g.dv_stride + key_head * p.value_dim, g.dv_stride,
                                  g.dv_beta);
    }
  }
  if (rows == 0) return;
  const T* from = dq;
  for (index_t h = first_head; h < first_head + heads; ++h) {
    for (const index_t b : group) {
      const index_t length = p.queries->lengths()[b];
      dispatch<AttentionStore<T>>(from, dq_panel, length, p.head_dim, nullptr, p.scale,
                                  g.dq + p.queries->offsets()[b] * g.dq_stride + h * p.head_dim, g.dq_stride,
                                  g.dq_beta);
      from += attention_padded(length) * Tiles::width;
    }
  }
}

/// dq of a block of queries, and the bias's gradient by rows.
template <class T>
EIGENFORMER_NOINLINE void attention_backward_queries(const AttentionProblem<T>& p,
                                                     const AttentionBackwardCall<T>& call,
                                                     const AttentionGradients<T>& g, const AttentionPlace& at,
                                                     index_t first, index_t count) {
  using Tiles = AttentionTiles<T>;
  const index_t head_panels = attention_panels(p.head_dim);
  const bool bias_by_row = g.dbias != nullptr && p.distances.row_stride != 0;
  GradientTiles<T> t(p, call, head_panels * (Tiles::key_panel + Tiles::query_panel));
  T* const keys = t.take(head_panels * Tiles::key_panel);
  T* const dq = t.take(head_panels * Tiles::query_panel);
  std::fill_n(dq, head_panels * Tiles::query_panel, T(0));
  t.pack_block(at, first, count);
  const AttentionRange range = attention_key_range(p, at.b, at.kb, first, count);
  for (index_t key = range.begin / Tiles::width * Tiles::width; key < range.end; key += Tiles::width) {
    const index_t n = std::min(Tiles::width, range.end - key);
    if (!t.admits({at, first, count, key, n})) continue;
    t.pack_tile(at, key, n);
    const bool finite = t.pack_keys(at, key, n, keys);
    for (index_t row = 0; row < count; row += attention_rows) {
      const index_t m = std::min(attention_rows, count - row);
      const AttentionRectangle r{at, first + row, m, key, n};
      if (!t.differentiate(r, row)) continue;
      t.weigh(t.gradient, m, n, keys, finite, p.head_dim, dq + row * Tiles::width, Tiles::query_panel,
              nullptr, ProductMode::accumulate);
      if (bias_by_row) add_bias_gradient(p, t, r, g.dbias + t.bias_row(at, first + row));
    }
  }
  if (g.dq == nullptr) return;
  dispatch<AttentionStore<T>>(dq, Tiles::query_panel, count, p.head_dim, nullptr, p.scale,
                              g.dq + (p.queries->offsets()[at.b] + first) * g.dq_stride + at.h * p.head_dim,
                              g.dq_stride, g.dq_beta);
}

/// All requested gradients. One task for each head of a sequence of keys if these are enough for the threads;
/// otherwise one pass over blocks of keys and one over blocks of queries. The sums and their order are the
/// same.
template <class T>
void attention_backward_all(const AttentionProblem<T>& p, const AttentionBackwardCall<T>& call,
                            const AttentionGradients<T>& g) {
  const index_t key_heads = p.kv_heads();
  zero_padding(p, g);
  const bool bias_by_row = g.dbias != nullptr && p.distances.row_stride != 0;
  if (bias_by_row && g.dbias_beta == T(0))
    std::fill_n(g.dbias, p.queries->rows() * p.distances.row_stride, T(0));
  const SharedBiasGradient<T> shared_bias(p, g);
  const bool keys_wanted = g.dk != nullptr || g.dv != nullptr || shared_bias.wanted();
  const bool queries_wanted = g.dq != nullptr || bias_by_row;
  const index_t tasks = p.keys->batch() * key_heads;
  const AttentionGroups groups(p);
  if (keys_wanted && queries_wanted &&
      (p.keys->max_length() <= 2 * attention_block || tasks >= 2 * Runtime::instance().threads())) {
    each_attention_unit(p, tasks, [&](index_t i) {
      const index_t kb = i / key_heads;
      attention_backward_keys(p, call, g, shared_bias, groups[kb], kb, i % key_heads,
                              AttentionRange{0, p.keys->lengths()[kb]}, true);
    });
    shared_bias.store(p, g);
    return;
  }
  if (keys_wanted) {
    const AttentionBlocks blocks(*p.keys, key_heads);
    each_attention_unit(p, blocks.count(), [&](index_t i) {
      const AttentionBlocks::Block block = blocks[i];
      attention_backward_keys(p, call, g, shared_bias, groups[block.sequence], block.sequence, block.head,
                              AttentionRange{block.first, block.first + block.count}, false);
    });
    shared_bias.store(p, g);
  }
  if (queries_wanted) {
    each_query_block(p, [&](const AttentionPlace& at, index_t first, index_t count) {
      attention_backward_queries(p, call, g, at, first, count);
    });
  }
}

}  // namespace eigenformer::detail::kernels::detail
