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

/// Rotary positions: turns the heads of queries and keys before scores are made of them (Su et al. 2021).
template <class T>
struct Rotary {
  kernels::RotaryTable<T> table;
  RotaryPairing pairing;
  index_t head_dim;

  Rotary(const RotaryPositions& options, index_t features)
      : table(options.dim != 0 ? options.dim : features, options.base),
        pairing(options.pairing),
        head_dim(features) {}

  /// x: (..., heads * head_dim or more), its first `heads` heads turned by the positions of the layout.
  [[nodiscard]] Var<T> operator()(const Var<T>& x, const SequenceLayout& layout, index_t heads) const {
    return rotary(x, layout, heads, head_dim, table, pairing);
  }
};

/// The slopes of ALiBi: 2^(-8 i / n) for heads i = 1 .. n, where n is a power of two; otherwise those of the
/// power below, then every other one of the power above (Press et al. 2022, and its published code).
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

/// Shaw's positions: keys and values by distance, learned in each layer (Shaw et al. 2018).
template <class T>
struct Shaw {
  using value_type = T;  ///< element type, float or double

  Parameter<T> keys;    ///< (2 max_distance + 1, head_dim)
  Parameter<T> values;  ///< the same

  /// Both start Xavier uniform.
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
