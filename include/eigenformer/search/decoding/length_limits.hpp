#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/search/model.hpp"

namespace eigenformer::detail {

template <class M>
index_t input_length(const M& model, const typename M::Input& input) {
  if constexpr (models::HasInputLength<M>) {
    return static_cast<index_t>(model.input_length(input));
  } else if constexpr (requires {
                         { input.size() } -> std::convertible_to<std::size_t>;
                       }) {
    return static_cast<index_t>(input.size());
  } else {
    static_assert(
        models::HasInputLength<M>,
        "the model needs `index_t input_length(const Input& input) const`, because its Input has no size()");
    return 1;
  }
}

// The maximum target tokens after prefix_ids.
template <class Options>
index_t max_steps(const Options& options) {
  return std::max<index_t>(0, options.max_length - static_cast<index_t>(options.prefix_ids.size()));
}

// The maximum target tokens of each input after prefix_ids by max_length_factor; empty without a factor.
template <class M, class Options>
std::vector<index_t> length_limits(const M& model, std::span<const typename M::Input> inputs,
                                   const Options& options) {
  std::vector<index_t> limits;
  if (options.max_length_factor == 0) return limits;
  for (const auto& input : inputs) {
    const double tokens =
        std::ceil(options.max_length_factor * static_cast<double>(input_length(model, input)));
    limits.push_back(tokens < static_cast<double>(max_steps(options))
                         ? std::max<index_t>(1, static_cast<index_t>(tokens))
                         : max_steps(options));
  }
  return limits;
}

}  // namespace eigenformer::detail
