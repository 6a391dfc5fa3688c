#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
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

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

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
  EIGENFORMER_ALWAYS_INLINE static void run(const Rule* rule, const ScoreTile<T>* given) {
    ScoreTile<T> tile = *given;
    (*rule)(tile);
  }
};

template <class Rule, class T>
struct RunRuleBackward {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(const Rule* rule, const ScoreTile<T>* given, T* gradient) {
    const ScoreTile<T> tile = *given;
    rule->backward(tile, gradient);
  }
};

/// A rule for scores of T, without its type.
template <class T>
struct RuleFunctions {
  void (*forward)(const void* rule, const ScoreTile<T>& tile) = nullptr;
  void (*backward)(const void* rule, const ScoreTile<T>& tile, T* gradient) = nullptr;

  template <class Rule>
  static constexpr RuleFunctions of() {
    static_assert(
        !RuleOfScores<Rule, T> || DifferentiatedRule<Rule, T> || AdditiveRule<Rule>,
        "a score rule needs `void backward(const ScoreTile<T>& tile, T* gradient) const` for each T "
        "that it takes, or `static constexpr bool additive = true` if it only adds to the scores");
    static_assert(!DifferentiatedRule<Rule, T> || !AdditiveRule<Rule>,
                  "a score rule has `backward` or `additive = true`, not both");
    RuleFunctions f;
    if constexpr (RuleOfScores<Rule, T>) {
      f.forward = [](const void* rule, const ScoreTile<T>& tile) {
        dispatch<RunRule<Rule, T>>(static_cast<const Rule*>(rule), &tile);
      };
    }
    if constexpr (DifferentiatedRule<Rule, T>) {
      f.backward = [](const void* rule, const ScoreTile<T>& tile, T* gradient) {
        dispatch<RunRuleBackward<Rule, T>>(static_cast<const Rule*>(rule), &tile, gradient);
      };
    }
    return f;
  }
};

}  // namespace eigenformer::detail::kernels

namespace eigenformer {

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
      ScoreRule(Rule rule)
      : rule_(std::make_shared<const Rule>(std::move(rule))),
        float_(detail::kernels::RuleFunctions<float>::of<Rule>()),
        double_(detail::kernels::RuleFunctions<double>::of<Rule>()) {}

  /// Whether there is a rule.
  explicit operator bool() const noexcept { return rule_ != nullptr; }

  /// Whether the rule accepts scores of T.
  template <class T>
  bool takes() const noexcept {
    return functions<T>().forward != nullptr;
  }
  /// Whether the rule has a backward for gradients of T.
  template <class T>
  bool differentiated() const noexcept {
    return functions<T>().backward != nullptr;
  }
  /// Changes a tile's scores; only if takes<T>().
  template <class T>
  void apply(const ScoreTile<T>& tile) const {
    functions<T>().forward(rule_.get(), tile);
  }
  /// Turns `gradient`, that of the scores after the rule, which `tile` holds, into that of the scores before
  /// it; only if differentiated<T>().
  template <class T>
  void backward(const ScoreTile<T>& tile, T* gradient) const {
    functions<T>().backward(rule_.get(), tile, gradient);
  }

 private:
  template <class T>
  const detail::kernels::RuleFunctions<T>& functions() const noexcept {
    if constexpr (std::is_same_v<T, float>) {
      return float_;
    } else {
      return double_;
    }
  }

  std::shared_ptr<const void> rule_;
  detail::kernels::RuleFunctions<float> float_;
  detail::kernels::RuleFunctions<double> double_;
};

}  // namespace eigenformer
