#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "eigenformer/io/adapters/merged_model.hpp"

namespace eigenformer {

/// A packed model with adapters that share its weights.
struct AdaptedModel {
  PackedModel<Seq2SeqTransformer<float>> packed;                             ///< the model without an adapter
  std::map<std::string, std::shared_ptr<const AdapterSet<float>>> adapters;  ///< by name

  /// A context for inference with the packed weights and one of the adapters. Throws ValueError that lists
  /// the names for an unknown one.
  Context<float> context(const std::string& adapter) const;
};

/// Loads a translation model for inference, packed in the weight format of its folder, with adapters that are
/// not merged into its weights, so that each request can choose one. adapters: their folders, by name. Throws
/// as load_model_folder() and read_adapter() do, and IoError for a model with int8 weights, whose rounding
/// would lose the small changes of an adapter.
///
///     const auto model = ef::load_adapted_folder("en-de", {{"legal", "legal"}, {"medical", "medical"}});
///     auto sentences = ef::generate(model.packed.loaded.model, model.context("legal"), sources);
EIGENFORMER_IO_FUNCTION AdaptedModel load_adapted_folder(
    const std::filesystem::path& folder, const std::map<std::string, std::filesystem::path>& adapters);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION Context<float> AdaptedModel::context(const std::string& adapter) const {
  const auto found = adapters.find(adapter);
  if (found != adapters.end()) return packed.context().with_adapters(found->second);
  std::string names;
  for (const auto& [name, set] : adapters) names += (names.empty() ? "" : ", ") + name;
  throw ValueError("adapter", {"the adapter is '", adapter, "', ",
                               (names.empty() ? "but the model has none" : "expected one of " + names)});
}

EIGENFORMER_IO_FUNCTION AdaptedModel load_adapted_folder(
    const std::filesystem::path& folder, const std::map<std::string, std::filesystem::path>& adapters) {
  detail::require_adaptable(folder);
  TranslationModel<float> loaded = load_model_folder<float>(folder);
  std::map<std::string, std::shared_ptr<const AdapterSet<float>>> sets;
  for (const auto& [name, place] : adapters) sets.emplace(name, read_adapter(place, loaded.model));
  auto weights = pack_weights_in_place(loaded.model, loaded.description.weights);
  return {{std::move(loaded), std::move(weights)}, std::move(sets)};
}

}  // namespace eigenformer

#endif
