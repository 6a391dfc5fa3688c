#pragma once

#include <filesystem>
#include <utility>

#include "eigenformer/io/adapters/load_adapter.hpp"
#include "eigenformer/io/models/translation_model.hpp"

namespace eigenformer {

namespace detail {

/// Throws IoError for a model folder with int8 weights: adapters change weights by less than their rounding.
inline void require_adaptable(const std::filesystem::path& folder) {
  if (read_model_description(folder).weights != WeightFormat::int8) return;
  throw IoError("adapter", {"'", folder.string(),
                            "' has int8 weights, which no adapter can change; merge the adapter into the "
                            "float32 model it was quantized from, and quantize the result"});
}

}  // namespace detail

/// Loads a translation model from its folder and merges an adapter into its weights, which can then be saved,
/// packed or trained like any others. Throws as load_model_folder() and load_adapter() do, and IoError for a
/// model with int8 weights, whose rounding would lose the small changes of an adapter.
///
///     auto loaded = ef::load_merged_model<float>("en-de", "legal");
///     ef::save_model_folder("en-de-legal", loaded);
template <std::floating_point T = float>
TranslationModel<T> load_merged_model(const std::filesystem::path& folder,
                                      const std::filesystem::path& adapter) {
  detail::require_adaptable(folder);
  TranslationModel<T> loaded = load_model_folder<T>(folder);
  load_adapter(adapter, loaded.model);
  merge_lora(loaded.model);
  for (const auto& p : parameters(loaded.model)) p->frozen = false;
  return loaded;
}

/// Loads a translation model with a merged adapter for inference, packed in the weight format of its folder,
/// as load_packed_folder(). Throws as load_merged_model() does.
inline PackedModel<Seq2SeqTransformer<float>> load_packed_folder(const std::filesystem::path& folder,
                                                                 const std::filesystem::path& adapter) {
  auto loaded = load_merged_model<float>(folder, adapter);
  auto weights = pack_weights_in_place(loaded.model, loaded.description.weights);
  return {std::move(loaded), std::move(weights)};
}

}  // namespace eigenformer
