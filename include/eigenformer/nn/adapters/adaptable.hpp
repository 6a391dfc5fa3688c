#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

namespace detail {

/// Rows of a weight that an adapter may change: a whole matrix, or the queries, keys or values of a fused
/// in-projection.
template <class T>
struct AdaptableRows {
  std::string module;    ///< name, such as "encoder.layers.0.linear1" or "encoder.layers.0.self_attn.q_proj"
  Parameter<T>* weight;  ///< inside the model, which must outlive this
  index_t first_row;     ///< of the weight
  index_t rows;          ///< number of rows
};

inline std::string adapted_module(const std::string& weight, std::size_t part) {
  const auto without = [&](std::string_view end) { return weight.substr(0, weight.size() - end.size()); };
  if (weight.ends_with("in_proj_weight")) {
    static constexpr const char* names[] = {"q_proj", "k_proj", "v_proj"};
    return without("in_proj_weight") + names[part];
  }
  if (weight.ends_with("_proj_weight")) return without("_weight");
  return weight.ends_with(".weight") ? without(".weight") : weight;
}

/// The rows that adapters may change, in the order of the model's modules: those that modules list in `static
/// void adaptable(auto& self, auto&& visit)`, which calls visit(weight, {rows of each part}), as Linear and
/// InProjection do. Embeddings and output projections to a vocabulary are not included. Names the model's
/// parameters if they have no names yet.
template <class M>
auto adaptable_rows(M& model) {
  using T = typename M::value_type;
  (void)parameters(model);  // gives them their names
  std::vector<AdaptableRows<T>> rows;
  std::unordered_set<std::uint64_t> seen;
  const auto add = [&](Parameter<T>& weight, std::initializer_list<index_t> counts) {
    if (!weight.defined() || !seen.insert(weight.id()).second) return;
    index_t first = 0;
    std::size_t part = 0;
    for (const index_t count : counts) {
      rows.push_back({detail::adapted_module(weight.name(), part++), &weight, first, count});
      first += count;
    }
  };
  const auto visit = [&]<class X>(X& module) {
    if constexpr (requires { X::adaptable(module, add); }) X::adaptable(module, add);
  };
  detail::visit_modules(model, visit);
  return rows;
}

}  // namespace detail

}  // namespace eigenformer
