#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer::detail {

/// T5's bucket of a distance, the key's position minus the query's. Half of a direction's buckets hold one
/// distance each, the others widen logarithmically up to max_distance, and the last holds all greater
/// distances (Raffel et al. 2020, 2.1; in single precision like the code the published weights were trained
/// with). With a max_distance below half of a direction's buckets, the numbers of the wider buckets fall, as
/// in transformers; where transformers has no bucket and fails, the last one is meant for a max_distance of
/// just that half, and bucket 0 for one below. Throws ValueError for what RelativeBiasPositions::validate()
/// refuses.
inline index_t relative_bias_bucket(index_t distance, index_t buckets, index_t max_distance,
                                    bool bidirectional) {
  RelativeBiasPositions{.buckets = buckets, .max_distance = max_distance, .bidirectional = bidirectional}
      .validate("relative_bias_bucket");
  distance = std::max(distance, -std::numeric_limits<index_t>::max());  // the lowest has no absolute value
  index_t first = 0, away = std::max<index_t>(0, -distance);
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    away = std::abs(distance);
  }
  const index_t exact = buckets / 2;
  if (away < exact) return first + away;
  const auto widest = static_cast<float>(buckets - exact), none = -static_cast<float>(first + exact);
  const float wide =
      std::log(static_cast<float>(away) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact))) * widest;
  if (!(wide < widest)) return first + buckets - 1;  // infinite or no number for max_distance == exact
  return std::max<index_t>(0, first + exact + static_cast<index_t>(std::max(wide, none)));
}

/// The least distance, at least max_distance, from which on relative_bias_bucket() does not change in either
/// direction, but at most 2^20, since a table of that size is made. Throws as relative_bias_bucket() does.
inline index_t relative_bias_reach(index_t buckets, index_t max_distance, bool bidirectional) {
  const auto bucket = [&](index_t distance) {
    return relative_bias_bucket(bidirectional ? distance : -distance, buckets, max_distance, bidirectional);
  };
  constexpr index_t most = index_t{1} << 20;
  const index_t exact = (bidirectional ? buckets / 2 : buckets) / 2;
  if (max_distance >= exact || exact >= most) return std::min(std::max(exact, max_distance), most);
  index_t low = exact, high = most;  // the buckets fall from `low`; from `high` on they are 0
  while (high - low > 1) {
    const index_t middle = low + (high - low) / 2;
    (bucket(middle) > 0 ? low : high) = middle;
  }
  return high;
}

/// A learned bias for each head and distance, which all layers of a stack add to the scores of their
/// self-attention. Raffel et al. 2020, 2.1.
///
///     ef::RelativeBias<float> bias({.buckets = 32, .max_distance = 128}, 8, true, rng);
///     auto y = attention.self(ctx, x, layout, mask, bias(ctx));
template <class T = float>
struct RelativeBias {
  using value_type = T;  ///< element type, float or double

  Parameter<T> weight;            ///< (buckets, heads)
  RelativeBiasPositions options;  ///< as given
  bool bidirectional;             ///< whether keys after the query have buckets of their own

  /// Starts normal(0, 0.02). both_directions: bidirectional if the options leave it unset. Throws ValueError
  /// that names the invalid field.
  RelativeBias(const RelativeBiasPositions& given, index_t heads, bool both_directions, RandomGenerator& rng)
      : options(given), bidirectional(given.bidirectional.value_or(both_directions)) {
    RelativeBiasPositions{options.buckets, options.max_distance, bidirectional}.validate("relative_bias");
    require_positive("relative_bias", "heads", heads);
    weight = Parameter<T>(init::normal<T>({options.buckets, heads}, rng, 0, 0.02));
    name_parameters(*this);
  }

  /// The bias by distance, (heads, 2 reach + 1) with the reach of relative_bias_reach(): column c is distance
  /// c - reach; the first and last columns also hold for all greater distances.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx) const {
    const index_t reach = relative_bias_reach(options.buckets, options.max_distance, bidirectional);
    Tensor<std::int32_t> ids(Shape{2 * reach + 1});
    for (index_t c = 0; c < ids.numel(); ++c) {
      ids.data()[c] = static_cast<std::int32_t>(
          relative_bias_bucket(c - reach, options.buckets, options.max_distance, bidirectional));
    }
    return transpose(embedding(ctx.use(weight), ids));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) { visit("weight", self.weight); }
};

EIGENFORMER_MODULE_INSTANCES(RelativeBias)

}  // namespace eigenformer::detail
