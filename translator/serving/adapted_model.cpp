#include "translator/serving/adapted_model.hpp"

#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/io/adapters/load_adapter.hpp"

namespace eigenformer {

namespace {

TranslationModel<float> load_adaptable(const std::filesystem::path& folder) {
  if (read_model_description(folder).weights != WeightFormat::int8) return load_model_folder<float>(folder);
  throw IoError("adapter", {"'", folder.string(),
                            "' has int8 weights, which no adapter can change; merge the adapter into the "
                            "float32 model it was quantized from, and quantize the result"});
}

PackedModel<Seq2SeqTransformer<float>> packed(TranslationModel<float> loaded) {
  auto weights = pack_weights_in_place(loaded.model, loaded.description.weights);
  return {std::move(loaded), std::move(weights)};
}

}  // namespace

TranslationModel<float> load_merged_model(const std::filesystem::path& folder,
                                          const std::filesystem::path& adapter) {
  TranslationModel<float> loaded = load_adaptable(folder);
  load_adapter(adapter, loaded.model);
  merge_lora(loaded.model);
  for (const auto& p : parameters(loaded.model)) p->frozen = false;
  return loaded;
}

PackedModel<Seq2SeqTransformer<float>> load_packed_folder(const std::filesystem::path& folder,
                                                          const std::filesystem::path& adapter) {
  return packed(load_merged_model(folder, adapter));
}

Context<float> AdaptedModel::context(const std::string& adapter) const {
  const auto found = adapters.find(adapter);
  if (found != adapters.end()) return packed.context().with_adapters(found->second);
  std::string names;
  for (const auto& [name, set] : adapters) names += (names.empty() ? "" : ", ") + name;
  throw ValueError("adapter", {"the adapter is '", adapter, "', ",
                               (names.empty() ? "but the model has none" : "expected one of " + names)});
}

AdaptedModel load_adapted_folder(const std::filesystem::path& folder,
                                 const std::map<std::string, std::filesystem::path>& adapters) {
  TranslationModel<float> loaded = load_adaptable(folder);
  std::map<std::string, std::shared_ptr<const AdapterSet<float>>> sets;
  for (const auto& [name, place] : adapters) sets.emplace(name, read_adapter(place, loaded.model));
  return {packed(std::move(loaded)), std::move(sets)};
}

}  // namespace eigenformer
