#pragma once

#include <algorithm>
#include <cstdint>

#include "eigenformer/core/runtime/scratch.hpp"
#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/attention/attention_product.hpp"
#include "eigenformer/kernels/attention/attention_rules.hpp"
#include "eigenformer/kernels/attention/attention_softmax.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"

namespace eigenformer::detail::kernels::detail {

/// Dropout's multipliers for a tile of attention weights (m, n) that begins at positions (query, key): 0 or 1
/// / (1 - rate).
///
/// The weight of a query at position i and a key at position j takes output word i % 4 of Philox4x32-10 with
/// counter (sequence number, head, i / 4, j): one batch of 16 counters is 4 rows of 16 keys, so short
/// sentences waste none.
template <class T>
struct AttentionDropout {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const DropoutPlan<T>* plan, std::uint32_t sequence,
                                            std::uint32_t head, index_t query, index_t m, index_t key,
                                            index_t n, T* out) {
    alignas(64) std::uint32_t words[64];
    for (index_t four = query / 4; four * 4 < query + m; ++four) {
      for (index_t j = 0; j < n; j += 16) {
        PhiloxBlock<Bytes>::run(plan->key0, plan->key1, sequence, head, static_cast<std::uint32_t>(four),
                                static_cast<std::uint32_t>(key + j), words);
        for (index_t w = 0; w < 4; ++w) {
          const index_t i = four * 4 + w - query;
          if (i < 0 || i >= m) continue;
          dropout_multipliers<Bytes>(*plan, words + 16 * w, 16, out + i * attention_width + j);
        }
      }
    }
  }
};

/// The index of the weight of a query and a key in (batch, heads, queries->max_length(), keys->max_length()).
template <class T>
index_t attention_weight_index(const AttentionProblem<T>& p, const AttentionPlace& at, index_t query,
                               index_t key) {
  const index_t row = p.queries->leading(at.b) + query, column = p.keys->leading(at.kb) + key;
  return ((at.b * p.heads + at.h) * p.queries->max_length() + row) * p.keys->max_length() + column;
}

/// The buffers of one thread, and the operations on tiles that all passes use. A block of up to 128 queries
/// and a tile of up to 64 keys are packed; score() then computes the scores of any 32 rows of that block and
/// that tile.
template <class T>
class AttentionTiles {
 public:
  static constexpr index_t width = attention_width;
  // Elements between panels of a matrix with a row for each query of a block, and for each key of a tile.
  static constexpr index_t query_panel = attention_block * width;
  static constexpr index_t key_panel = width * width;
  static constexpr index_t tile_size = attention_rows * width;
  // Between parts of the buffer: for short sentences and small heads only the first lines of each row are in
  // use, and without it those of all parts would compete for the same sets of the first-level cache.
  static constexpr index_t gap =
      64 / static_cast<index_t>(sizeof(T)) < 16 ? 16 : 64 / static_cast<index_t>(sizeof(T));

  /// `extra`: elements that the pass will take() for itself.
  EIGENFORMER_NOINLINE AttentionTiles(const AttentionProblem<T>& problem, index_t extra)
      : p(problem),
        head_panels(attention_panels(problem.head_dim)),
        value_panels(attention_panels(problem.value_dim)),
        shared_(problem.heads_per_key()),
        plan_(problem.dropout_key, problem.dropout_rate) {
    next_ = memory_->template reserve<T>(head_panels * (query_panel + key_panel) + key_panel + 2 * tile_size +
                                         extra + 16 * gap);
    queries = take(head_panels * query_panel);
    keys_transposed = take(head_panels * key_panel);
    scores = take(tile_size);
    multipliers_ = take(tile_size);
    spare_ = take(key_panel);
  }

  /// A part of the buffer (16 parts at most); n must be a multiple of 16, so that parts stay aligned.
  T* take(index_t n) {
    T* part = next_;
    next_ += n + gap;
    return part;
  }

  /// Packs queries [first, first + count), scaled, into `queries`.
  EIGENFORMER_NOINLINE void pack_queries(const AttentionPlace& at, index_t first, index_t count) {
    bool finite = true;
    const T* from = p.q + (p.queries->offsets()[at.b] + first) * p.q_stride + at.h * p.head_dim;
    dispatch<AttentionPack<T>>(from, p.q_stride, nullptr, count, p.head_dim,
                               p.scale, queries, query_panel, &finite);
  }

  /// Packs keys [first, first + count), transposed, into `keys_transposed`.
  void pack_keys_transposed(const AttentionPlace& at, index_t first, index_t count) {
    transpose(at, p.k, p.k_stride, p.head_dim, first, count, keys_transposed);
  }
  void pack_values_transposed(const AttentionPlace& at, index_t first, index_t count, T* to) {
    transpose(at, p.v, p.v_stride, p.value_dim, first, count, to);
  }

  /// Packs keys or values row by row; returns whether all of them are finite.
  bool pack_keys(const AttentionPlace& at, index_t first, index_t count, T* to) {
    return pack(at, p.k, p.k_stride, p.head_dim, first, count, to);
  }
  bool pack_values(const AttentionPlace& at, index_t first, index_t count, T* to) {
    return pack(at, p.v, p.v_stride, p.value_dim, first, count, to);
  }

  /// Whether the mask may admit any of queries [first, first + count) and keys [key, key + n); otherwise they
  /// need not be packed.
  EIGENFORMER_NOINLINE bool admits(const AttentionPlace& at, index_t first, index_t count, index_t key,
                                   index_t n) const {
    if (p.mask == nullptr) return true;
    for (const AttentionMask::Dense& mask : p.mask->dense_masks()) {
      const AttentionMask::Strides s = AttentionMask::strides(mask);
      if (!dense_admits(mask, dense_start(mask, s, at, first, key), s.i, count, n)) return false;
    }
    return rules_admit(p, {at.b, at.kb, first, count, key, n});
  }

  /// The distance from query `first` to key `key`.
  index_t distance(const AttentionPlace& at, index_t first, index_t key) const {
    return p.keys->positions()[at.kb] + key - p.queries->positions()[at.b] - first;
  }

  /// The bias by distance of query `first`'s row and those after it.
  index_t bias_row(const AttentionPlace& at, index_t first) const {
    return (p.queries->offsets()[at.b] + first) * p.distances.row_stride + at.h * p.distances.head_stride;
  }

  /// scores (m, n) = the masked scores of queries [first, first + m), which are rows `row` and on of the
  /// packed block, with the packed keys [key, key + n). Returns false, without computing, if the mask
  /// excludes them all.
  EIGENFORMER_NOINLINE bool score(const AttentionPlace& at, index_t row, index_t first, index_t m,
                                  index_t key, index_t n) {
    index_t low = -width, high = n;  // the columns that the first row reaches; each row reaches one further
    bool limited = false;
    if (p.mask != nullptr) {
      const index_t ahead = p.queries->positions()[at.b] + first - p.keys->positions()[at.kb] - key;
      if (p.mask->left() != AttentionMask::unlimited) low = ahead - p.mask->left();
      if (p.mask->right() < n + width - ahead) high = ahead + p.mask->right() + 1;
      if (low >= n || high + m - 1 <= 0) return false;
      limited = low + m - 1 > 0 || high < n;
      if (!admits(at, first, m, key, n)) return false;
    }
    if (keys_in_place) {
      score_once(at, key, n);
    } else {
      product<false>(queries + row * width, query_panel, keys_transposed, key_panel, p.head_dim, scores, m,
                     n);
    }
    if (p.distances.any()) add_distances(at, first, m, key, n);
    if (p.has_rule()) {
      p.rule->apply(score_tile(at, first, m, key, n, scores));
      if (ruled_ != nullptr) std::copy_n(scores, m * width, ruled_);
    }
    if (p.mask != nullptr) forbid(at, first, m, key, n, limited, low, high);
    // Scores that a mask excludes have no gradient.
    if (ruled_ != nullptr) dispatch<AttentionClearForbidden<T>>(ruled_, scores, m, n);
    return true;
  }

  /// For passes that call differentiate_rule(): score() then keeps the scores after the rule. Takes a tile.
  void keep_ruled_scores() {
    if (p.differentiates_rule()) ruled_ = take(tile_size);
  }
  bool keeps_ruled_scores() const noexcept { return ruled_ != nullptr; }

  /// Turns a gradient (m, n) of the scores that score() computed into that of the scores before the rule.
  void differentiate_rule(const AttentionPlace& at, index_t first, index_t m, index_t key, index_t n,
                          T* gradient) const {
    if (ruled_ != nullptr) p.rule->backward(score_tile(at, first, m, key, n, ruled_), gradient);
  }

  /// The multipliers (m, n) of dropout for the tile that score() takes; returns nullptr without dropout.
  EIGENFORMER_NOINLINE const T* drop(const AttentionPlace& at, index_t first, index_t m, index_t key,
                                     index_t n) {
    if (!plan_.active()) return nullptr;
    dispatch<AttentionDropout<T>>(&plan_, p.queries->sequence_numbers()[at.b],
                                  static_cast<std::uint32_t>(at.h), p.queries->positions()[at.b] + first, m,
                                  p.keys->positions()[at.kb] + key, n, multipliers_);
    return multipliers_;
  }

  /// c (m, n) = A B for A (m, k) in panels and B (k, n) transposed into rows of 64.
  template <bool Transposed>
  static void product(const T* a, index_t a_panel, const T* b, index_t b_panel, index_t k, T* c, index_t m,
                      index_t n) {
    for (index_t done = 0; done < k; done += width) {
      multiply<Transposed>(a, b, c, m, n, std::min(width, k - done), nullptr,
                           done == 0 ? ProductMode::overwrite : ProductMode::accumulate);
      a += a_panel;
      b += b_panel;
    }
  }

  /// C (m, columns) = [row_scale *] C + weights B, for a tile of weights (m, n) and B (n, columns) in panels.
  /// If B is not all finite, its rows count as zero where a weight is zero, because 0 * NaN of masked keys
  /// must not reach C.
  EIGENFORMER_NOINLINE void weigh(const T* weights, index_t m, index_t n, const T* b, bool finite,
                                  index_t columns, T* c, index_t c_panel, const T* row_scale,
                                  ProductMode mode) {
    for (index_t done = 0; done < columns; done += width) {
      const index_t part = std::min(width, columns - done);
      if (finite) {
        multiply<false>(weights, b, c, m, part, n, row_scale, mode);
      } else {
        for (index_t i = 0; i < m; ++i) {
          const T* w = weights + i * width;
          for (index_t j = 0; j < n; ++j) {
            if (w[j] == T(0)) {
              std::fill_n(spare_ + j * width, width, T(0));
            } else {
              std::copy_n(b + j * width, width, spare_ + j * width);
            }
          }
          multiply<false>(w, spare_, c + i * width, 1, part, n, row_scale + (row_scale != nullptr ? i : 0),
                          mode);
        }
      }
      b += key_panel;
      c += c_panel;
    }
  }

  /// weigh() for one row of weights, in `scores`, and the values of keys [first, first + n), which need not
  /// be packed.
  EIGENFORMER_NOINLINE void weigh_values_once(const AttentionPlace& at, index_t first, index_t n, T* c,
                                              T scale, ProductMode mode) {
    const index_t* rows;
    const T* from = source(at, p.v, p.v_stride, p.value_dim, first, rows);
    for (index_t done = 0; done < p.value_dim; done += width) {
      const index_t columns = std::min(width, p.value_dim - done);
      if (multiplies_by_eigen()) {
        row_product_by_eigen<T>(scores, n, from + done, p.v_stride, rows, columns, c, scale, mode);
      } else {
        dispatch<AttentionRowProduct<T>>(scores, n, from + done, p.v_stride, rows,
                                         columns, c, scale, mode);
      }
      c += query_panel;
    }
  }

  /// C (n, columns) += weights^T B, for a tile of weights (m, n) and B (m, columns) in panels.
  EIGENFORMER_NOINLINE static void spread(const T* weights, index_t m, index_t n, const T* b, index_t columns,
                                          T* c) {
    for (index_t done = 0; done < columns; done += width) {
      multiply<true>(weights, b, c, n, std::min(width, columns - done), m, nullptr, ProductMode::accumulate);
      b += query_panel;
      c += key_panel;
    }
  }

  const AttentionProblem<T>& p;
  const index_t head_panels;
  const index_t value_panels;
  T* queries;          // (head_panels, 128, 64)
  T* keys_transposed;  // (head_dim, 64)
  T* scores;           // (32, 64)
  /// Set for a block of one query, as in decoding: score() reads the keys without packing.
  bool keys_in_place = false;

 private:
  /// AttentionProduct, or Eigen's.
  template <bool Transposed>
  EIGENFORMER_NOINLINE static void multiply(const T* a, const T* b, T* c, index_t m, index_t n, index_t k,
                                            const T* row_scale, ProductMode mode) {
    if (multiplies_by_eigen()) {
      attention_product_by_eigen<T, Transposed>(a, b, c, m, n, k, row_scale, mode);
    } else {
      dispatch<AttentionProduct<T, Transposed>>(a, b, c, m, n, k, row_scale, mode);
    }
  }

  /// Sets scores that the mask excludes to -inf; `limited` and the columns as in score().
  EIGENFORMER_NOINLINE void forbid(const AttentionPlace& at, index_t first, index_t m, index_t key, index_t n,
                                   bool limited, index_t low, index_t high) {
    if (limited) dispatch<AttentionLimit<T>>(scores, m, n, low, high);
    for (const AttentionMask::Dense& mask : p.mask->dense_masks()) {
      const AttentionMask::Strides s = AttentionMask::strides(mask);
      const index_t start = dense_start(mask, s, at, first, key);
      if (mask.kind == AttentionMask::Kind::additive) {
        dispatch<AttentionBias<T>>(scores, m, n, mask.bias.data() + start, s.i);
      } else {
        dispatch<AttentionFlags<T>>(scores, m, n, mask.flags.data() + start, s.i,
                                    mask.kind == AttentionMask::Kind::allow);
      }
    }
    if (p.mask->has_rules()) apply_rules(p, {at.b, at.kb, first, m, key, n}, scores);
  }

  ScoreTile<T> score_tile(const AttentionPlace& at, index_t first, index_t m, index_t key, index_t n,
                          T* tile) const {
    return {tile,
            m,
            n,
            width,
            at.h,
            at.b,
            at.kb,
            p.queries->positions()[at.b] + first,
            p.keys->positions()[at.kb] + key};
  }

  /// The index of a dense mask's element for query `first` and key `key`.
  index_t dense_start(const AttentionMask::Dense& mask, const AttentionMask::Strides& s,
                      const AttentionPlace& at, index_t first, index_t key) const {
    return (mask.keyed ? at.kb : at.b) * s.b + at.h * s.h + (p.queries->leading(at.b) + first) * s.i +
           p.keys->leading(at.kb) + key;
  }

  /// The first row of keys, and the list of row numbers if there is one.
  const T* source(const AttentionPlace& at, const T* matrix, index_t stride, index_t columns, index_t first,
                  const index_t*& rows) const {
    const index_t row = p.keys->offsets()[at.kb] + first;
    rows = p.key_rows != nullptr ? p.key_rows + row : nullptr;
    return matrix + (rows != nullptr ? 0 : row * stride) + at.h / shared_ * columns;
  }

  EIGENFORMER_NOINLINE void add_distances(const AttentionPlace& at, index_t first, index_t m, index_t key,
                                          index_t n) {
    const AttentionDistances<T>& d = p.distances;
    if (d.slopes != nullptr)
      dispatch<AttentionSlope<T>>(scores, m, n, d.slopes[at.h], distance(at, first, key));
    if (d.bias != nullptr) {
      dispatch<AttentionDistanceBias<T>>(scores, m, n, d.bias + bias_row(at, first), d.row_stride, d.reach,
                                         distance(at, first, key));
    }
  }

  EIGENFORMER_NOINLINE bool pack(const AttentionPlace& at, const T* matrix, index_t stride, index_t columns,
                                 index_t first, index_t count, T* to) {
    const index_t* rows;
    const T* from = source(at, matrix, stride, columns, first, rows);
    bool finite = true;
    dispatch<AttentionPack<T>>(from, stride, rows, count, columns, T(1), to, key_panel, &finite);
    return finite;
  }

  EIGENFORMER_NOINLINE void transpose(const AttentionPlace& at, const T* matrix, index_t stride,
                                      index_t columns, index_t first, index_t count, T* to) {
    const index_t* rows;
    const T* from = source(at, matrix, stride, columns, first, rows);
    dispatch<AttentionPackTransposed<T>>(from, stride, rows, count, columns, to);
  }

  /// scores (1, n) of the first packed query.
  EIGENFORMER_NOINLINE void score_once(const AttentionPlace& at, index_t first, index_t n) {
    const index_t* rows;
    const T* from = source(at, p.k, p.k_stride, p.head_dim, first, rows);
    for (index_t done = 0; done < p.head_dim; done += width) {
      const T* query = queries + done / width * query_panel;
      const index_t columns = std::min(width, p.head_dim - done);
      if (multiplies_by_eigen()) {
        row_scores_by_eigen(query, n, from + done, p.k_stride, rows, columns, scores, done > 0);
      } else {
        dispatch<AttentionRowScores<T>>(query, n, from + done, p.k_stride, rows, columns, scores, done > 0);
      }
    }
  }

  const index_t shared_;  // heads of queries for one of keys
  const DropoutPlan<T> plan_;
  // Zero at first, and one for T: rows after a tile's last enter the products and stay finite.
  const eigenformer::detail::ThreadLease<eigenformer::detail::Scratch, AttentionTiles> memory_;
  T* next_;
  T* multipliers_;      // (32, 64)
  T* spare_;            // (64, 64)
  T* ruled_ = nullptr;  // (32, 64): scores after the rule, for its derivative
};

}  // namespace eigenformer::detail::kernels::detail
