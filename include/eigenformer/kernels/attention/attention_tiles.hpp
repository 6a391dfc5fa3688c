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
    dispatch<AttentionPack<T>>({from, p.q_stride, nullptr}, count, p.head_dim, p.scale, queries, query_panel,
                               &finite);
  }

  /// Packs keys [first, first + count), transposed, into `keys_transposed`.
  void pack_keys_transposed(const AttentionPlace& at, index_t first, index_t count) {
    dispatch<AttentionPackTransposed<T>>(keys_from(at, first), count, p.head_dim, keys_transposed);
  }
  void pack_values_transposed(const AttentionPlace& at, index_t first, index_t count, T* to) {
    dispatch<AttentionPackTransposed<T>>(values_from(at, first), count, p.value_dim, to);
  }

  /// Packs keys or values row by row; returns whether all of them are finite.
  bool pack_keys(const AttentionPlace& at, index_t first, index_t count, T* to) {
    return pack(keys_from(at, first), count, p.head_dim, to);
  }
  bool pack_values(const AttentionPlace& at, index_t first, index_t count, T* to) {
    return pack(values_from(at, first), count, p.value_dim, to);
  }

  /// Whether the mask may admit any score of a rectangle; otherwise its queries and keys need not be packed.
  EIGENFORMER_NOINLINE bool admits(const AttentionRectangle& r) const {
    if (p.mask == nullptr) return true;
    for (const AttentionMask::Dense& mask : p.mask->dense_masks()) {
      const AttentionMask::Strides s = AttentionMask::strides(mask);
      if (!dense_admits(mask, dense_start(mask, s, r), s.i, r.m, r.n)) return false;
    }
    return rules_admit(p, r);
  }

  /// The distance from the first query to the first key.
  index_t distance(const AttentionRectangle& r) const {
    return p.keys->positions()[r.kb] + r.key - p.queries->positions()[r.b] - r.first;
  }

  /// The bias by distance of query `first`'s row and those after it.
  index_t bias_row(const AttentionPlace& at, index_t first) const {
    return (p.queries->offsets()[at.b] + first) * p.distances.row_stride + at.h * p.distances.head_stride;
  }

  /// scores (m, n) = the masked scores of a rectangle, whose queries are rows `row` and on of the packed
  /// block and whose keys are the packed ones. Returns false, without computing, if the mask excludes them
  /// all.
  EIGENFORMER_NOINLINE bool score(const AttentionRectangle& r, index_t row) {
    index_t low = -width, high = r.n;  // the columns that the first row reaches; each row reaches one further
    bool limited = false;
    if (p.mask != nullptr) {
      const index_t ahead = -distance(r);
      if (p.mask->left() != AttentionMask::unlimited) low = ahead - p.mask->left();
      if (p.mask->right() < r.n + width - ahead) high = ahead + p.mask->right() + 1;
      if (low >= r.n || high + r.m - 1 <= 0) return false;
      limited = low + r.m - 1 > 0 || high < r.n;
      if (!admits(r)) return false;
    }
    if (keys_in_place) {
      score_once(r);
    } else {
      product<false>(queries + row * width, query_panel, keys_transposed, key_panel, p.head_dim, scores, r.m,
                     r.n);
    }
    if (p.distances.any()) add_distances(r);
    if (p.has_rule()) {
      p.rule->template functions<T>().apply(score_tile(r, scores));
      if (ruled_ != nullptr) std::copy_n(scores, r.m * width, ruled_);
    }
    if (p.mask != nullptr) forbid(r, limited, low, high);
    // Scores that a mask excludes have no gradient.
    if (ruled_ != nullptr) dispatch<AttentionClearForbidden<T>>(ruled_, scores, r.m, r.n);
    return true;
  }

  /// For passes that call differentiate_rule(): score() then keeps the scores after the rule. Takes a tile.
  void keep_ruled_scores() {
    if (p.differentiates_rule()) ruled_ = take(tile_size);
  }
  bool keeps_ruled_scores() const noexcept { return ruled_ != nullptr; }

  /// Turns a gradient (m, n) of the scores that score() computed into that of the scores before the rule.
  void differentiate_rule(const AttentionRectangle& r, T* gradient) const {
    if (ruled_ != nullptr) p.rule->template functions<T>().differentiate(score_tile(r, ruled_), gradient);
  }

  /// The multipliers (m, n) of dropout for the rectangle that score() takes; returns nullptr without dropout.
  EIGENFORMER_NOINLINE const T* drop(const AttentionRectangle& r) {
    if (!plan_.active()) return nullptr;
    dispatch<AttentionDropout<T>>(&plan_, p.queries->sequence_numbers()[r.b], static_cast<std::uint32_t>(r.h),
                                  p.queries->positions()[r.b] + r.first, r.m,
                                  p.keys->positions()[r.kb] + r.key, r.n, multipliers_);
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
          multiply<false>(w, spare_, c + i * width, 1, part, n, shifted(row_scale, i), mode);
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
    for (index_t done = 0; done < p.value_dim; done += width) {
      const AttentionRows<T> values = values_from(at, first).from(0, done);
      const index_t columns = std::min(width, p.value_dim - done);
      if (multiplies_by_eigen()) {
        row_product_by_eigen<T>(scores, n, values, columns, c, scale, mode);
      } else {
        dispatch<AttentionRowProduct<T>>(scores, n, values, columns, c, scale, mode);
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
  EIGENFORMER_NOINLINE void forbid(const AttentionRectangle& r, bool limited, index_t low, index_t high) {
    if (limited) dispatch<AttentionLimit<T>>(scores, r.m, r.n, low, high);
    for (const AttentionMask::Dense& mask : p.mask->dense_masks()) {
      const AttentionMask::Strides s = AttentionMask::strides(mask);
      const index_t start = dense_start(mask, s, r);
      if (mask.kind == AttentionMask::Kind::additive) {
        dispatch<AttentionBias<T>>(scores, r.m, r.n, mask.bias.data() + start, s.i);
      } else {
        dispatch<AttentionFlags<T>>(scores, r.m, r.n, mask.flags.data() + start, s.i,
                                    mask.kind == AttentionMask::Kind::allow);
      }
    }
    if (p.mask->has_rules()) apply_rules(p, r, scores);
  }

  ScoreTile<T> score_tile(const AttentionRectangle& r, T* tile) const {
    const index_t query = p.queries->positions()[r.b] + r.first, key = p.keys->positions()[r.kb] + r.key;
    return {tile, r.m, r.n, width, r.h, r.b, r.kb, query, key};
  }

  /// The index of a dense mask's element for the first query and key.
  index_t dense_start(const AttentionMask::Dense& mask, const AttentionMask::Strides& s,
                      const AttentionRectangle& r) const {
    return (mask.keyed ? r.kb : r.b) * s.b + r.h * s.h + (p.queries->leading(r.b) + r.first) * s.i +
           p.keys->leading(r.kb) + r.key;
  }

  AttentionRows<T> keys_from(const AttentionPlace& at, index_t first) const {
    return AttentionRows<T>{p.k, p.k_stride, p.key_rows}.from(p.keys->offsets()[at.kb] + first,
                                                              at.h / shared_ * p.head_dim);
  }
  AttentionRows<T> values_from(const AttentionPlace& at, index_t first) const {
    return AttentionRows<T>{p.v, p.v_stride, p.key_rows}.from(p.keys->offsets()[at.kb] + first,
                                                              at.h / shared_ * p.value_dim);
  }

  EIGENFORMER_NOINLINE void add_distances(const AttentionRectangle& r) {
    const AttentionDistances<T>& d = p.distances;
    if (d.slopes != nullptr) dispatch<AttentionSlope<T>>(scores, r.m, r.n, d.slopes[r.h], distance(r));
    if (d.bias != nullptr) {
      dispatch<AttentionDistanceBias<T>>(scores, r.m, r.n, d.bias + bias_row(r, r.first), d.row_stride,
                                         d.reach, distance(r));
    }
  }

  EIGENFORMER_NOINLINE static bool pack(const AttentionRows<T>& rows, index_t count, index_t columns, T* to) {
    bool finite = true;
    dispatch<AttentionPack<T>>(rows, count, columns, T(1), to, key_panel, &finite);
    return finite;
  }

  /// scores (1, n) of the first packed query.
  EIGENFORMER_NOINLINE void score_once(const AttentionRectangle& r) {
    for (index_t done = 0; done < p.head_dim; done += width) {
      const T* query = queries + done / width * query_panel;
      const AttentionRows<T> keys = keys_from(r, r.key).from(0, done);
      const index_t columns = std::min(width, p.head_dim - done);
      if (multiplies_by_eigen()) {
        row_scores_by_eigen<T>(query, r.n, keys, columns, scores, done > 0);
      } else {
        dispatch<AttentionRowScores<T>>(query, r.n, keys, columns, scores, done > 0);
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
