#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/nn/adapters/lora_options.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/module/pattern.hpp"
#include "eigenformer/nn/options/layer.hpp"

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

// The last parts of the modules' names, without repetitions: "q_proj, k_proj, ...".
template <class T>
std::string short_names(const std::vector<AdaptableRows<T>>& all) {
  std::vector<std::string> names;
  for (const auto& rows : all) {
    std::string name = rows.module.substr(rows.module.rfind('.') + 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return join_list(names);
}

// The rows that the targets match, names or patterns of whole names or of their ends after a dot. Throws
// ValueError for a target that matches none.
template <class T>
std::vector<AdaptableRows<T>> lora_targets(const std::vector<AdaptableRows<T>>& all,
                                           std::string_view targets) {
  std::vector<bool> chosen(all.size(), false);
  for (std::string_view rest = targets; !rest.empty();) {
    const std::string_view target = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), target.size() + 1));
    const std::string ending = "*." + std::string(target);
    bool found = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!matches_pattern(target, all[i].module) && !matches_pattern(ending, all[i].module)) continue;
      chosen[i] = found = true;
    }
    if (found) continue;
    throw ValueError("lora",
                     {"the target '", target,
                      "' matches no weight matrix of the model, expected full names, patterns or some of: ",
                      short_names(all)});
  }
  std::vector<AdaptableRows<T>> rows;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (chosen[i]) rows.push_back(all[i]);
  }
  if (rows.empty()) throw ValueError("lora", {"there are no targets, expected some of: ", short_names(all)});
  return rows;
}

// `part` for these rows, with its factors named.
template <class T>
LowRankPart<T> make_part(const AdaptableRows<T>& rows, LowRankPart<T> part) {
  part.a.set_name(rows.module + ".lora_A.weight");
  part.b.set_name(rows.module + ".lora_B.weight");
  part.module = rows.module;
  part.first_row = rows.first_row;
  part.rows = rows.rows;
  return part;
}

}  // namespace detail

/// The LoRA factors of a model, A before B, in the order of its weights: pass them to an optimizer. Their
/// names are `module`.lora_A.weight and `module`.lora_B.weight. Empty if the model has no adapters.
template <class M>
auto lora_parameters(const M& model) {
  using T = typename M::value_type;
  std::vector<ParameterHandle<T>> factors;
  for_each_parameter(model, [&](const std::string&, const Parameter<T>& weight) {
    if (weight.adapter() == nullptr) return;
    for (const detail::LowRankPart<T>& part : weight.adapter()->parts) {
      factors.push_back(part.a.handle());
      factors.push_back(part.b.handle());
    }
  });
  return factors;
}

/// The adapters of a model, for Context::with_adapters. They share the factors with the model.
template <class M>
auto lora_adapters(const M& model) {
  using T = typename M::value_type;
  auto set = std::make_shared<AdapterSet<T>>();
  for_each_parameter(model, [&](const std::string&, const Parameter<T>& weight) {
    if (weight.adapter() != nullptr) set->add(weight, weight.adapter());
  });
  return set;
}

/// Adds LoRA factors to the matrices that options.targets selects, and freezes all parameters of the model.
/// From then on the model computes y = W x + scale B A dropout(x). A is uniform in +-1 / sqrt(in) (PEFT's
/// Kaiming uniform) and B zero, so the outputs do not change before training. A copy of the model copies the
/// factors; its state dict does not contain them. Hu et al. 2021.
///
///     ef::add_lora(model, {.rank = 8, .alpha = 16}, rng);
///     ef::AdamW<float> optimizer(ef::lora_parameters(model));
///
/// Throws ValueError for invalid options, a target that matches nothing, and a model that already has
/// adapters, Error or std::bad_alloc when memory runs out; then nothing changes.
template <class M>
void add_lora(M& model, const LoraOptions& options, RandomGenerator& rng) {
  using T = typename M::value_type;
  validate_fields("lora", options);
  detail::require_positive("lora", "rank", options.rank);
  if (!lora_parameters(model).empty())
    throw ValueError("lora", "the model already has adapters; merge or remove them first");
  const auto chosen = detail::lora_targets(detail::adaptable_rows(model), options.targets);
  const auto all = parameters(model);
  const RandomGenerator::State before = rng.state();
  std::vector<std::pair<Parameter<T>*, std::shared_ptr<detail::WeightAdapter<T>>>> adapters;
  try {
    for (const detail::AdaptableRows<T>& rows : chosen) {
      const index_t in = rows.weight->shape()[1];
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      // The parts of a weight follow each other.
      if (adapters.empty() || adapters.back().first != rows.weight)
        adapters.emplace_back(rows.weight, std::make_shared<detail::WeightAdapter<T>>());
      adapters.back().second->parts.push_back(detail::make_part(
          rows,
          detail::LowRankPart<T>{.a = Parameter<T>(init::uniform<T>({options.rank, in}, rng, -bound, bound)),
                                 .b = Parameter<T>(Tensor<T>::zeros({rows.rows, options.rank})),
                                 .alpha = options.alpha,
                                 .rank_stabilized = options.rank_stabilized,
                                 .dropout = options.dropout}));
    }
  } catch (...) {
    rng.set_state(before);
    throw;
  }
  // All memory is there: nothing throws from here on.
  for (auto& [weight, adapter] : adapters) weight->set_adapter(std::move(adapter));
  for (const auto& p : all) p->frozen = true;
}

/// Removes the adapters from a model and returns them; the model then computes with its own weights only. Its
/// parameters stay frozen.
template <class M>
auto remove_lora(M& model) {
  auto set = lora_adapters(model);
  for_each_parameter(model, [](const std::string&, auto& weight) { weight.set_adapter(nullptr); });
  return set;
}

/// Attaches adapters that remove_lora() or lora_adapters() returned for the same model. Throws ValueError if
/// the model has adapters.
template <class M, class T>
void attach_lora(M& model, const AdapterSet<T>& adapters) {
  if (!lora_parameters(model).empty())
    throw ValueError("lora", "the model already has adapters; merge or remove them first");
  for_each_parameter(
      model, [&](const std::string&, Parameter<T>& weight) { weight.set_adapter(adapters.find(weight)); });
}

/// Adds the adapters to the weights, W += scale B A, and removes them: the outputs are the same up to
/// rounding, at the speed of the plain model. The parameters stay frozen. Throws ValueError for a model
/// without adapters and for weights whose memory was released.
template <class M>
void merge_lora(M& model) {
  using T = typename M::value_type;
  if (lora_parameters(model).empty()) throw ValueError("lora", "the model has no adapters to merge");
  for_each_parameter(model, [&](const std::string&, Parameter<T>& weight) {
    if (weight.adapter() != nullptr) detail::require_memory("lora", weight);
  });
  for_each_parameter(model, [&](const std::string&, Parameter<T>& weight) {
    if (weight.adapter() == nullptr) return;
    const index_t in = weight.shape()[1];
    for (const detail::LowRankPart<T>& part : weight.adapter()->parts) {
      detail::kernels::gemm<T>(false, false, part.rows, in, part.rank(), static_cast<T>(part.scale()),
                               part.b.value().data(), part.rank(), part.a.value().data(), in, T(1),
                               weight.value().data() + part.first_row * in, in);
    }
    weight.value().mark_changed();
    weight.set_adapter(nullptr);
  });
}

}  // namespace eigenformer
