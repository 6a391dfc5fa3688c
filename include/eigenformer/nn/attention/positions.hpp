#pragma once

#include <cmath>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/autograd/ops/attention/attention.hpp"
#include "eigenformer/autograd/ops/attention/rotary.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/positions.hpp"

namespace eigenformer {

/// Rotary positions: rotates the heads of queries and keys before the scores are computed (Su et al. 2021).
/// Part of MultiHeadAttention with RotaryPositions.
template <class T>
struct Rotary {
  kernels::RotaryTable<T> table;  ///< cosines and sines by position
  RotaryPairing pairing;          ///< which features form a pair
  index_t head_dim;               ///< features of a head, including those that do not rotate

  /// features: of a head. The options must be valid: options.dim even and at most features.
  Rotary(const RotaryPositions& options, index_t features)
      : table(options.dim != 0 ? options.dim : features, options.base),
        pairing(options.pairing),
        head_dim(features) {}

  /// x: (..., heads * head_dim or more). Returns x with its first `heads` heads rotated by the positions of
  /// the layout.
  [[nodiscard]] Var<T> operator()(const Var<T>& x, const SequenceLayout& layout, index_t heads) const {
    return rotary(x, layout, heads, head_dim, table, pairing);
  }
};

/// ALiBi's slopes: 2^(-8 i / n) for heads i = 1 .. n if n is a power of two; otherwise those of the next
/// lower power of two, then every other slope of the next higher one (Press et al. 2022, and its published
/// code).
inline std::vector<double> alibi_slopes(index_t heads) {
  index_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (index_t i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-8 * static_cast<double>(i) / static_cast<double>(power)));
  for (index_t i = 1; static_cast<index_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(std::exp2(-4 * static_cast<double>(i) / static_cast<double>(power)));
  return slopes;
}

/// Vectors by distance that an attention adds to keys and values, of its own in each layer (Shaw et al.
/// 2018). Row c is distance c - max_distance; greater distances are clipped. Part of MultiHeadAttention with
/// ShawPositions.
template <class T>
struct Shaw {
  using value_type = T;  ///< element type, float or double

  Parameter<T> keys;    ///< (2 max_distance + 1, head_dim)
  Parameter<T> values;  ///< (2 max_distance + 1, head_dim)

  /// Both start Xavier uniform. max_distance must be positive.
  Shaw(const ShawPositions& options, index_t head_dim, RandomGenerator& rng) {
    const Shape shape{2 * options.max_distance + 1, head_dim};
    keys = Parameter<T>(init::xavier_uniform<T>(shape, rng));
    values = Parameter<T>(init::xavier_uniform<T>(shape, rng));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("relative_keys", self.keys);
    visit("relative_values", self.values);
  }
};

}  // namespace eigenformer
