#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer {

/// A tile of scores of consecutive queries and keys of one head, after the scale and the terms by distance,
/// before masks.
template <class T>
struct ScoreTile {
  T* scores = nullptr;       ///< (rows, columns): row i is query i, column j is key j of the tile
  index_t rows = 0;          ///< queries, up to 32
  index_t columns = 0;       ///< keys, up to 64
  index_t stride = 0;        ///< elements between rows
  index_t head = 0;          ///< head of queries
  index_t sequence = 0;      ///< number of the sequence in the queries' layout
  index_t key_sequence = 0;  ///< number of the sequence in the keys' layout
  index_t query = 0;         ///< position of the first query; that of row i is query + i
  index_t key = 0;           ///< position of the first key; that of column j is key + j

  /// The scores of row i.
  T* row(index_t i) const noexcept { return scores + i * stride; }
};

namespace detail::kernels {

/// A type that changes the scores of a tile in place.
template <class Rule, class T>
concept RuleOfScores = requires(const Rule& rule, ScoreTile<T>& tile) {
  rule(tile);
};

/// A rule with a derivative by the score: backward(tile, gradient) multiplies the gradient, with the tile's
/// rows, columns and stride, by it. The tile holds the scores after the rule.
template <class Rule, class T>
concept DifferentiatedRule = requires(const Rule& rule, const ScoreTile<T>& tile, T* gradient) {
  rule.backward(tile, gradient);
};

/// A rule that declares, by `static constexpr bool additive = true`, that it adds to the score a number that
/// does not depend on it: its derivative by the score is 1, so it needs no backward.
template <class Rule>
concept AdditiveRule = requires {
  requires static_cast<bool>(Rule::additive);
};

template <class Rule, class T>
struct RunRule {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(const void* rule, const ScoreTile<T>* given) {
    ScoreTile<T> tile = *given;
    (*static_cast<const Rule*>(rule))(tile);
  }
};

template <class Rule, class T>
struct RunRuleBackward {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(const void* rule, const ScoreTile<T>* given, T* gradient) {
    const ScoreTile<T> tile = *given;
    static_cast<const Rule*>(rule)->backward(tile, gradient);
  }
};

/// A rule for scores of T, without its type. forward is null where the rule does not take them, backward
/// where it has none.
template <class T>
struct RuleFunctions {
  const void* rule = nullptr;
  void (*forward)(const void* rule, const ScoreTile<T>* tile) = nullptr;
  void (*backward)(const void* rule, const ScoreTile<T>* tile, T* gradient) = nullptr;

  void apply(const ScoreTile<T>& tile) const { forward(rule, &tile); }
  void differentiate(const ScoreTile<T>& tile, T* gradient) const { backward(rule, &tile, gradient); }

  template <class Rule>
  static RuleFunctions of(const Rule* rule) {
    static_assert(
        !RuleOfScores<Rule, T> || DifferentiatedRule<Rule, T> || AdditiveRule<Rule>,
        "a score rule needs `void backward(const ScoreTile<T>& tile, T* gradient) const` for each T "
        "that it takes, or `static constexpr bool additive = true` if it only adds to the scores");
    static_assert(!DifferentiatedRule<Rule, T> || !AdditiveRule<Rule>,
                  "a score rule has `backward` or `additive = true`, not both");
    RuleFunctions f;
    f.rule = rule;
    if constexpr (RuleOfScores<Rule, T>) f.forward = dispatch<RunRule<Rule, T>>;
    if constexpr (DifferentiatedRule<Rule, T>) f.backward = dispatch<RunRuleBackward<Rule, T>>;
    return f;
  }
};

}  // namespace detail::kernels

/// A rule for attention's scores: any struct with `void operator()(ScoreTile<T>& tile) const`, a template or
/// for one T, which changes the scores in place; several threads call it at once. The struct also has
/// `void backward(const ScoreTile<T>& tile, T* gradient) const` (DifferentiatedRule) or, where it only adds
/// to the scores, `static constexpr bool additive = true` (AdditiveRule); without either it does not compile.
/// Copies share the struct.
///
/// It is called once for each tile and compiled for each instruction set, so that its loops are vectorised.
/// Tiles that masks exclude entirely are skipped. A score of -infinity excludes the key, as a mask does.
class ScoreRule {
 public:
  /// No rule.
  ScoreRule() = default;

  /// Stores a copy of `rule`. It accepts structs that take scores of float, double or both.
  template <class Rule>
  requires(!std::is_same_v<Rule, ScoreRule> &&
           (detail::kernels::RuleOfScores<Rule, float> || detail::kernels::RuleOfScores<Rule, double>))
      ScoreRule(Rule rule) {
    const auto copy = std::make_shared<const Rule>(std::move(rule));
    functions_ = {Functions<float>::of(copy.get()), Functions<double>::of(copy.get())};
    rule_ = copy;
  }

  /// Whether there is a rule.
  explicit operator bool() const noexcept { return rule_ != nullptr; }

  /// What attention calls for scores of T.
  template <class T>
  const detail::kernels::RuleFunctions<T>& functions() const noexcept {
    return std::get<Functions<T>>(functions_);
  }

 private:
  template <class T>
  using Functions = detail::kernels::RuleFunctions<T>;

  std::shared_ptr<const void> rule_;
  std::tuple<Functions<float>, Functions<double>> functions_;
};

namespace detail::kernels {

/// Terms added to the scores that depend on the distance from query to key: the key's position minus the
/// query's.
template <class T>
struct AttentionDistances {
  /// (heads): score -= slope * |distance| (ALiBi, Press et al. 2022); nullptr: none.
  const T* slopes = nullptr;
  /// score += bias[clamp(distance, -reach, reach) + reach] (Raffel et al. 2020; Shaw et al. 2018); nullptr:
  /// none. The 2 reach + 1 numbers of head h and row r of queries begin at bias + r * row_stride + h *
  /// head_stride; row_stride 0: the same for all rows.
  const T* bias = nullptr;
  index_t reach = 0;        ///< at least 1 if there is a bias
  index_t head_stride = 0;  ///< elements between heads
  index_t row_stride = 0;   ///< elements between rows of queries

  /// Whether there are slopes or a bias.
  bool any() const noexcept { return slopes != nullptr || bias != nullptr; }
};

/// One multi-head attention, softmax(rule(scale * Q K^T + distances) + mask) V for each sequence and head
/// (Vaswani et al. 2017, eq. 1).
///
/// Head h of a row of q is q[row * q_stride + h * head_dim + 0 .. head_dim), and likewise for k and v
/// (value_dim elements), so that the three may be slices of one fused projection. Pointers and layouts must
/// outlive the call.
template <class T>
struct AttentionProblem {
  const T* q = nullptr;  ///< (queries->rows(), heads * head_dim), rows q_stride elements apart
  index_t q_stride = 0;  ///< elements between rows of q
  const T* k = nullptr;  ///< (keys->rows(), key_value_heads * head_dim)
  index_t k_stride = 0;  ///< elements between rows of k
  const T* v = nullptr;  ///< (keys->rows(), key_value_heads * value_dim)
  index_t v_stride = 0;  ///< elements between rows of v
  index_t heads = 1;     ///< heads of queries, at least 1
  /// Heads of keys and values; heads / key_value_heads consecutive heads of queries share one of them
  /// (Ainslie et al. 2023; with 1: Shazeer 2019). 0: as many as heads.
  index_t key_value_heads = 0;
  index_t head_dim = 0;                     ///< features of a head of queries and keys
  index_t value_dim = 0;                    ///< features of a head of values
  const SequenceLayout* queries = nullptr;  ///< the layout of the rows of q; required
  const SequenceLayout* keys = nullptr;     ///< the layout of the rows of k and v; required
  /// (queries->batch()): the sequence of keys to which each sequence of queries attends; nullptr: the one of
  /// the same number.
  const std::int32_t* key_sequence = nullptr;
  /// (keys->rows()): the row of k and v that holds each row of the keys' layout (for beams that are
  /// re-ordered without copying); nullptr: the row of the same number. For the forward pass only.
  const index_t* key_rows = nullptr;
  const AttentionMask* mask = nullptr;  ///< nullptr: none
  AttentionDistances<T> distances{};    ///< terms by distance
  const ScoreRule* rule = nullptr;      ///< nullptr or empty: none
  T scale = T(1);                       ///< factor of Q K^T, usually 1 / sqrt(head_dim)
  /// Dropout of the weights, rate in [0, 1). The weight of a query at position i and a key at position j
  /// takes output word i % 4 of Philox4x32-10 with counter (sequence number of the queries, head, i / 4, j).
  double dropout_rate = 0;
  DropoutKey dropout_key;  ///< selects the masks; unused with a rate of 0

  /// Whether there is a rule, and it is not empty.
  bool has_rule() const noexcept { return rule != nullptr && *rule; }
  /// Whether the gradients of the scores pass through the backward of a rule.
  bool differentiates_rule() const noexcept {
    return has_rule() && rule->template functions<T>().backward != nullptr;
  }
  /// Heads of keys and values: key_value_heads, or heads if that is 0.
  index_t kv_heads() const noexcept { return key_value_heads == 0 ? heads : key_value_heads; }
  /// Heads of queries that share one of keys and values.
  index_t heads_per_key() const noexcept { return key_value_heads == 0 ? 1 : heads / key_value_heads; }
};

/// Where attention_backward writes: each gradient becomes beta * its old value + the gradient. Null: not
/// needed.
template <class T>
struct AttentionGradients {
  T* dq = nullptr;        ///< of q, with q's shape
  index_t dq_stride = 0;  ///< elements between rows of dq
  T dq_beta = T(0);       ///< 0 (dq is not read) or 1
  T* dk = nullptr;        ///< of k, with k's shape
  index_t dk_stride = 0;  ///< elements between rows of dk
  T dk_beta = T(0);       ///< 0 (dk is not read) or 1
  T* dv = nullptr;        ///< of v, with v's shape
  index_t dv_stride = 0;  ///< elements between rows of dv
  T dv_beta = T(0);       ///< 0 (dv is not read) or 1
  T* dbias = nullptr;     ///< of distances.bias, with the same strides
  T dbias_beta = T(0);    ///< 0 (dbias is not read) or 1
};

/// The sums of each query's attention weights after dropout over keys of equal clamped distance:
/// (queries->rows(), heads, 2 reach + 1), with the reach of the problem's distances or, if these have no
/// bias, the one given here.
template <class T>
struct AttentionDistanceWeights {
  T* sums = nullptr;            ///< written by attention_forward; nullptr: not needed
  const T* gradient = nullptr;  ///< the gradient of the sums, for attention_backward; nullptr: none
  index_t reach = 0;            ///< at least 1 where it is used

  /// Elements of one row of queries: heads * (2 reach + 1).
  index_t row(index_t heads) const noexcept { return heads * (2 * reach + 1); }
};

}  // namespace detail::kernels

}  // namespace eigenformer
