#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/core/base/bfloat16.hpp"
#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/io/adapters/peft_names.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/nn/adapters/lora.hpp"

/// An adapter's folder has PEFT's files, and one of its own:
///
///   adapter_config.json         rank, alpha, targets and what else PEFT says of a LoRA adapter
///   adapter_model.safetensors   the factors: base_model.model.<module>.lora_A.weight and lora_B.weight
///   base.json                   written here: the base model's folder, a hash of the weights that are
///   adapted,
///                               what training was told
namespace eigenformer {

/// What base.json of an adapter's folder says; an adapter that PEFT wrote has none.
struct AdapterDescription {
  std::string base{};         ///< the folder of the model that it was trained on
  std::string fingerprint{};  ///< of the base's adapted weights; empty: not known
  AdapterNames names = AdapterNames::own;
  nlohmann::json training = nlohmann::json::object();  ///< what training was told
};

namespace detail {

inline std::string word_of(AdapterNames names) {
  return EnumNames<AdapterNames>::names[static_cast<std::size_t>(names)];
}

// A whole number without a fraction, as Python writes it.
inline nlohmann::json number(double x) {
  if (x == std::floor(x) && std::fabs(x) < 1e9) return static_cast<std::int64_t>(x);
  return x;
}

// target_modules as people write them: the last names of modules, where they choose these and no others; else
// the whole names. chosen: whole names; all: those of all matrices.
inline std::vector<std::string> target_modules(const std::set<std::string>& chosen,
                                               const std::vector<std::string>& all) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::set<std::string> ends;
  for (const std::string& name : chosen) ends.insert(last(name));
  for (const std::string& name : all) {
    if (ends.contains(last(name)) && !chosen.contains(name)) return {chosen.begin(), chosen.end()};
  }
  return {ends.begin(), ends.end()};
}

}  // namespace detail

/// Whether a folder holds an adapter.
inline bool is_adapter_folder(const std::filesystem::path& folder) {
  return has_folder_file(folder, "adapter_config.json");
}

/// A hash of the weights that the adapters of a model are for (FNV-1a, 64 bits), each rounded to bfloat16, so
/// that a base in bf16 has that of the same base in float32. Throws ValueError for weights whose memory was
/// given back.
template <class T>
std::string adapted_fingerprint(const std::vector<const Parameter<T>*>& weights) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const Parameter<T>* weight : weights) {
    detail::require_memory("adapter", *weight);
    for (const T value : weight->value().span()) {
      const auto bits = std::bit_cast<std::uint16_t>(static_cast<bfloat16>(static_cast<float>(value)));
      hash = (hash ^ bits) * 0x100000001B3u;
    }
  }
  return std::to_string(weights.size()) + " matrices, " + std::to_string(hash);
}
/// Of the weights that a model's attached adapters are for.
template <class M>
std::string adapted_fingerprint(const M& model) {
  using T = typename M::value_type;
  std::vector<const Parameter<T>*> weights;
  for_each_parameter(model, [&](const std::string&, const Parameter<T>& weight) {
    if (weight.adapter() != nullptr) weights.push_back(&weight);
  });
  return adapted_fingerprint(weights);
}

/// Writes the files of save_adapter() into a transaction, which the caller commits, with files of its own
/// perhaps.
template <class M>
void stage_adapter(const FolderTransaction& save, const M& model,
                   const AdapterDescription& description = {}) {
  using T = typename M::value_type;
  // Names are read alone.
  const auto rows = adaptable_rows(const_cast<M&>(model));
  const auto names = detail::adapter_module_names(rows, description.names);
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  std::set<std::string> targets;
  nlohmann::json ranks = nlohmann::json::object(), alphas = nlohmann::json::object();
  const auto in_float = [](const Tensor<T>& value) {
    Tensor<float> out(value.shape());
    std::transform(value.span().begin(), value.span().end(), out.span().begin(),
                   [](T x) { return static_cast<float>(x); });
    return out;
  };
  const LowRankPart<T>* first = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].weight->adapter() == nullptr) continue;
    for (const LowRankPart<T>& part : rows[i].weight->adapter()->parts) {
      if (part.module != rows[i].module) continue;
      if (names[i].empty()) {
        throw ValueError("adapter", "'" + part.module + "' has no name in the scheme '" +
                                        detail::word_of(description.names) + "'");
      }
      if (first == nullptr) first = &part;
      writer.add("base_model.model." + names[i] + ".lora_A.weight", in_float(part.a.value()));
      writer.add("base_model.model." + names[i] + ".lora_B.weight", in_float(part.b.value()));
      if (part.rank() != first->rank()) ranks[names[i]] = part.rank();
      if (part.alpha != first->alpha) alphas[names[i]] = detail::number(part.alpha);
      targets.insert(names[i]);
    }
  }
  if (first == nullptr) throw ValueError("adapter", "the model has no adapters to save");
  const nlohmann::json config = {
      {"peft_type", "LORA"},
      {"task_type", description.names == AdapterNames::own ? nlohmann::json() : "SEQ_2_SEQ_LM"},
      {"base_model_name_or_path", description.base},
      {"inference_mode", true},
      {"r", first->rank()},
      {"lora_alpha", detail::number(first->alpha)},
      {"lora_dropout", first->dropout},
      {"use_rslora", first->rank_stabilized},
      {"target_modules", detail::target_modules(targets, names)},
      {"rank_pattern", ranks},
      {"alpha_pattern", alphas},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"init_lora_weights", true},
      {"modules_to_save", nullptr}};
  const nlohmann::json base = {{"base", description.base},
                               {"fingerprint", adapted_fingerprint(model)},
                               {"names", detail::word_of(description.names)},
                               {"training", description.training}};
  write_file(save.file("adapter_config.json"), config.dump(2) + "\n");
  write_file(save.file("base.json"), base.dump(2) + "\n");
  writer.save(save.file("adapter_model.safetensors"));
}

/// Writes the adapters that are attached to a model, in PEFT's layout and in float32; the base is not
/// written. description.fingerprint is made here. Its files are replaced together. Throws ValueError for a
/// model without adapters or whose matrices have no such names, and IoError.
///
///     ef::save_adapter("legal", model, {.base = "en-de"});
template <class M>
void save_adapter(const std::filesystem::path& folder, const M& model,
                  const AdapterDescription& description = {}) {
  FolderTransaction save(folder);
  stage_adapter(save, model, description);
  save.commit();
}

}  // namespace eigenformer
