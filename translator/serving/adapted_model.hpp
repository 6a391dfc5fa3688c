#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/adapters/lora.hpp"

namespace eigenformer {

/// Loads a translation model from its folder and merges an adapter into its weights, which can then be saved,
/// packed or trained like any others. Throws as load_model_folder() and load_adapter() do, and IoError for a
/// model with int8 weights, whose rounding would lose the small changes of an adapter.
///
///     auto loaded = ef::load_merged_model("en-de", "legal");
///     ef::save_model_folder("en-de-legal", loaded);
TranslationModel<float> load_merged_model(const std::filesystem::path& folder,
                                          const std::filesystem::path& adapter);

/// Loads a translation model with a merged adapter for inference, packed in the weight format of its folder,
/// as load_packed_folder(). Throws as load_merged_model() does.
PackedModel<Seq2SeqTransformer<float>> load_packed_folder(const std::filesystem::path& folder,
                                                          const std::filesystem::path& adapter);

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
AdaptedModel load_adapted_folder(const std::filesystem::path& folder,
                                 const std::map<std::string, std::filesystem::path>& adapters);

}  // namespace eigenformer
