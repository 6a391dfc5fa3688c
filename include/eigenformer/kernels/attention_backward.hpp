#pragma once

#include <algorithm>
#include <limits>

#include "eigenformer/core/runtime.hpp"
#include "eigenformer/kernels/attention_tiles.hpp"

// The backward passes. With weights P = softmax(S), dropout's multipliers Z and output O = (P Z) V:
//   dV = (P Z)^T dO,   dS = P (Z (dO V^T) - <dO, O>),   dQ = scale dS K,   dK = scale dS^T Q,
// tile by tile, P being computed again from S and its log-sum-exp (Dao et al. 2022, algorithm 4).

namespace eigenformer::kernels::detail {

/// What attention_backward was called with.
template <class T>
struct AttentionBackwardCall {
  const T* out;
  index_t out_stride;
  const T* dout;
  index_t dout_stride;
  const T* log_sum_exp;
};

/// The gradient of a tile of scores, for a gradient of the output.
template <class T>
class OutputGradientTiles : public AttentionTiles<T> {
 public:
  using Tiles = AttentionTiles<T>;
  using Tiles::p;

  OutputGradientTiles(const AttentionProblem<T>& problem, const AttentionBackwardCall<T>& call, index_t extra)
      : Tiles(problem, size(problem) + extra), call_(call) {
    values_transposed_ = this->take(this->value_panels * Tiles::key_panel);
    dout_ = this->take(this->value_panels * Tiles::query_panel);
    gradient = this->take(Tiles::tile_size);
    log_sum_exp_ = this->take(attention_block);
    delta_ = this->take(attention_block);
  }

  void pack_block(const AttentionPlace& at, index_t first, index_t count) {
    this->pack_queries(at, first, count);
    const index_t row = p.queries->offsets()[at.b] + first;
    const T* dout = call_.dout + row * call_.dout_stride + at.h * p.value_dim;
    bool finite = true;
    dispatch_wide<AttentionPack<T>>(dout, call_.dout_stride, static_cast<const index_t*>(nullptr), count,
                                    p.value_dim, T(1), dout_, Tiles::query_panel, &finite);
    dispatch_wide<AttentionDots<T>>(dout, call_.dout_stride,
                                    call_.out + row * call_.out_stride + at.h * p.value_dim, call_.out_stride,
                                    count, p.value_dim, delta_);
    const T* given = call_.log_sum_exp + at.h * p.queries->rows() + row;
    constexpr T infinity = std::numeric_limits<T>::infinity();
    for (index_t i = 0; i < count; ++i) {
      log_sum_exp_[i] = given[i];
      if (given[i] != -infinity) continue;
      // A query that attended to nothing: exp(s - inf) is zero, and what it holds must not matter.
      log_sum_exp_[i] = infinity;
      delta_[i] = T(0);
      clear_row(this->queries + i * Tiles::width, this->head_panels);
      clear_row(dout_ + i * Tiles::width, this->value_panels);
    }
  }

  void pack_tile(const AttentionPlace& at, index_t first, index_t count) {
    this->pack_keys_transposed(at, first, count);
    this->pack_values_transposed(at, first, count, values_transposed_);
  }

  /// Makes scores the weights after dropout and `gradient` the scores' gradient; false where a rule forbids
  /// the tile.
  bool differentiate(const AttentionPlace& at, index_t row, index_t first, index_t m, index_t key,
                     index_t n) {
    if (!this->score(at, row, first, m, key, n)) return false;
    Tiles::template product<false>(dout_ + row * Tiles::width, Tiles::query_panel, values_transposed_,
                                   Tiles::key_panel, p.value_dim, gradient, m, n);
    dispatch_wide<AttentionScoreGradient<T>>(this->scores, gradient, this->drop(at, first, m, key, n), m, n,
                                             static_cast<const T*>(log_sum_exp_ + row),
                                             static_cast<const T*>(delta_ + row));
    return true;
  }

  /// dv (n, value_dim) += weights^T dout for rows `row` and on of the block.
  void spread_values(index_t row, index_t m, index_t n, T* dv) {
    Tiles::spread(this->scores, m, n, dout_ + row * Tiles::width, p.value_dim, dv);
  }

  T* gradient;  // (32, 64)

 private:
  static index_t size(const AttentionProblem<T>& problem) {
    return attention_panels(problem.value_dim) * (Tiles::key_panel + Tiles::query_panel) + Tiles::tile_size +
           2 * attention_block;
  }

  static void clear_row(T* row, index_t panels) {
    for (index_t c = 0; c < panels; ++c) std::fill_n(row + c * Tiles::query_panel, Tiles::width, T(0));
  }

  const AttentionBackwardCall<T>& call_;
  T* values_transposed_;  // (value_dim, 64)
  T* dout_;               // (value_panels, 128, 64)
  T* log_sum_exp_;
  T* delta_;  // <dO, O>
};

/// The gradient of a tile of scores, for a gradient of the weights themselves: dS = P (dP - <P, dP>).
template <class T>
class WeightGradientTiles : public AttentionTiles<T> {
 public:
  using Tiles = AttentionTiles<T>;
  using Tiles::p;
  struct Call {
    const T* weights;
    const T* dweights;
  };

  WeightGradientTiles(const AttentionProblem<T>& problem, const Call& call, index_t extra)
      : Tiles(problem, Tiles::tile_size + attention_block + extra), call_(call) {
    gradient = this->take(Tiles::tile_size);
    delta_ = this->take(attention_block);
  }

  void pack_block(const AttentionPlace& at, index_t first, index_t count) {
    this->pack_queries(at, first, count);
    const index_t start = element(at, first, 0), ld = p.keys->max_length();
    dispatch_wide<AttentionDots<T>>(call_.weights + start, ld, call_.dweights + start, ld, count,
                                    p.keys->lengths()[at.kb], delta_);
  }

  void pack_tile(const AttentionPlace&, index_t, index_t) {}

  bool differentiate(const AttentionPlace& at, index_t row, index_t first, index_t m, index_t key,
                     index_t n) {
    const index_t start = element(at, first, key);
    dispatch_wide<AttentionWeightGradient<T>>(call_.weights + start, call_.dweights + start,
                                              p.keys->max_length(), m, n, static_cast<const T*>(delta_ + row),
                                              gradient);
    return true;
  }

  void spread_values(index_t, index_t, index_t, T*) {}

  T* gradient;  // (32, 64)

 private:
  index_t element(const AttentionPlace& at, index_t query, index_t key) const {
    return ((at.b * p.heads + at.h) * p.queries->max_length() + query) * p.keys->max_length() + key;
  }

  const Call& call_;
  T* delta_;
};

/// dk and dv of keys [begin, end) of one sequence and head, over all queries in the group that looks at it;
/// and, when the range is the whole sequence, dq of that group (with_queries), which saves making the scores
/// a second time.
template <class GradientTiles, class T, class Call>
void attention_backward_keys(const AttentionProblem<T>& p, const Call& call, const AttentionGradients<T>& g,
                             std::span<const index_t> group, index_t kb, index_t h, AttentionRange range,
                             bool with_queries) {
  using Tiles = AttentionTiles<T>;
  const index_t head_panels = attention_panels(p.head_dim), value_panels = attention_panels(p.value_dim);
  index_t rows = 0;
  if (with_queries) {
    for (const index_t b : group) rows += attention_padded(p.queries->lengths()[b]);
  }
  const index_t dq_panel = rows * Tiles::width;
  GradientTiles t(p, call, (2 * head_panels + value_panels) * Tiles::key_panel + head_panels * dq_panel);
  T* const keys = t.take(head_panels * Tiles::key_panel);
  T* const dk = t.take(head_panels * Tiles::key_panel);
  T* const dv = t.take(value_panels * Tiles::key_panel);
  T* const dq = t.take(head_panels * dq_panel);
  std::fill_n(dq, head_panels * dq_panel, T(0));
  for (index_t key = range.begin; key < range.end; key += Tiles::width) {
    const index_t n = std::min(Tiles::width, range.end - key);
    AttentionPlace at{0, kb, h};
    t.pack_tile(at, key, n);
    const bool finite = with_queries ? t.pack_keys(at, key, n, keys) : true;
    for (index_t c = 0; c < head_panels; ++c) std::fill_n(dk + c * Tiles::key_panel, n * Tiles::width, T(0));
    for (index_t c = 0; c < value_panels; ++c) std::fill_n(dv + c * Tiles::key_panel, n * Tiles::width, T(0));
    index_t start = 0;  // of sequence b in dq
    for (const index_t b : group) {
      at.b = b;
      const AttentionRange queries = attention_query_range(p, b, kb, key, n);
      for (index_t first = queries.begin; first < queries.end; first += attention_block) {
        const index_t count = std::min(attention_block, queries.end - first);
        t.pack_block(at, first, count);
        for (index_t row = 0; row < count; row += attention_rows) {
          const index_t m = std::min(attention_rows, count - row);
          if (!t.differentiate(at, row, first + row, m, key, n)) continue;
          if (g.dv != nullptr) t.spread_values(row, m, n, dv);
          if (g.dk != nullptr)
            Tiles::spread(t.gradient, m, n, t.queries + row * Tiles::width, p.head_dim, dk);
          if (with_queries) {
            t.weigh(t.gradient, m, n, keys, finite, p.head_dim, dq + (start + first + row) * Tiles::width,
                    dq_panel, nullptr, ProductMode::accumulate);
          }
        }
      }
      start += attention_padded(p.queries->lengths()[b]);
    }
    const index_t out_row = p.keys->offsets()[kb] + key;
    if (g.dk != nullptr) {
      // The packed queries carry the scale.
      dispatch_wide<AttentionStore<T>>(static_cast<const T*>(dk), Tiles::key_panel, n, p.head_dim,
                                       static_cast<const T*>(nullptr), T(1),
                                       g.dk + out_row * g.dk_stride + h * p.head_dim, g.dk_stride, g.dk_beta);
    }
    if (g.dv != nullptr) {
      dispatch_wide<AttentionStore<T>>(
          static_cast<const T*>(dv), Tiles::key_panel, n, p.value_dim, static_cast<const T*>(nullptr), T(1),
          g.dv + out_row * g.dv_stride + h * p.value_dim, g.dv_stride, g.dv_beta);
    }
  }
  if (!with_queries) return;
  const T* from = dq;
  for (const index_t b : group) {
    const index_t length = p.queries->lengths()[b];
    dispatch_wide<AttentionStore<T>>(from, dq_panel, length, p.head_dim, static_cast<const T*>(nullptr),
                                     p.scale, g.dq + p.queries->offsets()[b] * g.dq_stride + h * p.head_dim,
                                     g.dq_stride, g.dq_beta);
    from += attention_padded(length) * Tiles::width;
  }
}

/// dq of a block of queries.
template <class GradientTiles, class T, class Call>
void attention_backward_queries(const AttentionProblem<T>& p, const Call& call,
                                const AttentionGradients<T>& g, const AttentionPlace& at, index_t first,
                                index_t count) {
  using Tiles = AttentionTiles<T>;
  const index_t head_panels = attention_panels(p.head_dim);
  GradientTiles t(p, call, head_panels * (Tiles::key_panel + Tiles::query_panel));
  T* const keys = t.take(head_panels * Tiles::key_panel);
  T* const dq = t.take(head_panels * Tiles::query_panel);
  std::fill_n(dq, head_panels * Tiles::query_panel, T(0));
  t.pack_block(at, first, count);
  const AttentionRange range = attention_key_range(p, at.b, at.kb, first, count);
  for (index_t key = range.begin / Tiles::width * Tiles::width; key < range.end; key += Tiles::width) {
    const index_t n = std::min(Tiles::width, range.end - key);
    t.pack_tile(at, key, n);
    const bool finite = t.pack_keys(at, key, n, keys);
    for (index_t row = 0; row < count; row += attention_rows) {
      const index_t m = std::min(attention_rows, count - row);
      if (!t.differentiate(at, row, first + row, m, key, n)) continue;
      t.weigh(t.gradient, m, n, keys, finite, p.head_dim, dq + row * Tiles::width, Tiles::query_panel,
              nullptr, ProductMode::accumulate);
    }
  }
  dispatch_wide<AttentionStore<T>>(
      static_cast<const T*>(dq), Tiles::query_panel, count, p.head_dim, static_cast<const T*>(nullptr),
      p.scale, g.dq + (p.queries->offsets()[at.b] + first) * g.dq_stride + at.h * p.head_dim, g.dq_stride,
      g.dq_beta);
}

/// All wanted gradients. One task for a head of a sequence of keys where there are enough of these for the
/// threads; otherwise one pass over blocks of keys and one over blocks of queries. The sums and their order
/// are the same.
template <class GradientTiles, class T, class Call>
void attention_backward_all(const AttentionProblem<T>& p, const Call& call, const AttentionGradients<T>& g) {
  if (g.dq != nullptr && g.dq_beta == T(0)) zero_padding(*p.queries, g.dq, g.dq_stride, p.heads * p.head_dim);
  if (g.dk != nullptr && g.dk_beta == T(0)) zero_padding(*p.keys, g.dk, g.dk_stride, p.heads * p.head_dim);
  if (g.dv != nullptr && g.dv_beta == T(0)) zero_padding(*p.keys, g.dv, g.dv_stride, p.heads * p.value_dim);
  const bool keys_wanted = g.dk != nullptr || g.dv != nullptr;
  const index_t tasks = p.keys->batch() * p.heads;
  const AttentionGroups groups(p);
  if (keys_wanted && g.dq != nullptr &&
      (p.keys->max_length() <= 2 * attention_block || tasks >= 2 * Runtime::instance().threads())) {
    parallel_for(tasks, attention_task_grain(p, tasks), [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        const index_t kb = i / p.heads;
        attention_backward_keys<GradientTiles>(p, call, g, groups[kb], kb, i % p.heads,
                                               AttentionRange{0, p.keys->lengths()[kb]}, true);
      }
    });
    return;
  }
  if (keys_wanted) {
    const AttentionBlocks blocks(*p.keys, p.heads);
    parallel_for(blocks.count(), attention_task_grain(p, blocks.count()), [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        const AttentionBlocks::Block block = blocks[i];
        attention_backward_keys<GradientTiles>(p, call, g, groups[block.sequence], block.sequence, block.head,
                                               AttentionRange{block.first, block.first + block.count}, false);
      }
    });
  }
  if (g.dq != nullptr) {
    const AttentionBlocks blocks(*p.queries, p.heads);
    parallel_for(blocks.count(), attention_task_grain(p, blocks.count()), [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        const AttentionBlocks::Block block = blocks[i];
        const AttentionPlace at{block.sequence, attention_keys_of(p, block.sequence), block.head};
        attention_backward_queries<GradientTiles>(p, call, g, at, block.first, block.count);
      }
    });
  }
}

}  // namespace eigenformer::kernels::detail
