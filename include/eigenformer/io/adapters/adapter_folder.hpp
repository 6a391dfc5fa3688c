#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/float16.hpp"
#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/nn/options/field.hpp"

/// @file
/// The folder of a LoRA adapter has the files of PEFT and one more:
///
/// | file | contents |
/// |---|---|
/// | adapter_config.json | rank, alpha, target modules and other settings of PEFT |
/// | adapter_model.safetensors | factors `base_model.model.MODULE.lora_A.weight` and `lora_B.weight` |
/// | base.json | ours: folder of the base model, a hash of its adapted weights, training options |
namespace eigenformer {

/// The naming scheme for a model's matrices in the file of an adapter.
enum class AdapterNames {
  own,   ///< as the modules here: encoder.layers.0.self_attn.q_proj, decoder.layers.0.linear1
  bart,  ///< as transformers' BART, mBART, Marian and M2M100 (NLLB): model.encoder.layers.0.fc1
  t5,    ///< as transformers' T5: encoder.block.0.layer.0.SelfAttention.q
};
EIGENFORMER_ENUM_NAMES(AdapterNames, "own", "bart", "t5")

namespace detail {

/// The name of a module such as "encoder.layers.3.self_attn.q_proj" in a naming scheme; empty when it has
/// none. gated: whether the module's layer has a linear3.
EIGENFORMER_IO_FUNCTION std::string adapter_module_name(const std::string& module, AdapterNames names,
                                                        bool gated);

/// The names of a model's adaptable rows in a naming scheme; empty for those that it does not name.
template <class T>
std::vector<std::string> adapter_module_names(const std::vector<AdaptableRows<T>>& rows, AdapterNames names) {
  std::vector<std::string> out;
  for (const AdaptableRows<T>& r : rows) {
    const std::string gate = r.module.substr(0, r.module.rfind('.')) + ".linear3";
    const bool gated = std::any_of(rows.begin(), rows.end(),
                                   [&](const AdaptableRows<T>& other) { return other.module == gate; });
    out.push_back(adapter_module_name(r.module, names, gated));
  }
  return out;
}

}  // namespace detail

/// The contents of base.json of an adapter's folder; adapters written by PEFT have none.
struct AdapterDescription {
  std::string base{};                      ///< path of the base model's folder
  std::string fingerprint{};               ///< adapted_fingerprint() of the base model; empty: not known
  AdapterNames names = AdapterNames::own;  ///< naming scheme of the modules in the file
  nlohmann::json training = nlohmann::json::object();  ///< options of its training, for information
};

namespace detail {

// A whole number without a fraction, as Python writes it.
inline nlohmann::json number(double x) {
  if (x == std::floor(x) && std::fabs(x) < 1e9) return static_cast<std::int64_t>(x);
  return x;
}

// The setting target_modules: the last parts of the modules' names when these select exactly the chosen
// modules, else the full names. chosen: full names; all: those of all matrices.
EIGENFORMER_IO_FUNCTION std::vector<std::string> target_modules(const std::set<std::string>& chosen,
                                                                const std::vector<std::string>& all);

/// A fingerprint of base weights, "12 matrices, 1234567": their number and a hash (FNV-1a, 64 bits) of their
/// values rounded to bfloat16, so that a base model in bf16 and in float32 have the same. Throws ValueError
/// for weights whose memory was released.
template <class T>
std::string adapted_fingerprint(const std::vector<const Parameter<T>*>& weights) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const Parameter<T>* weight : weights) {
    require_memory("adapter", *weight);
    for (const T value : weight->value().span()) {
      const auto bits = std::bit_cast<std::uint16_t>(static_cast<bfloat16>(static_cast<float>(value)));
      hash = (hash ^ bits) * 0x100000001B3u;
    }
  }
  return std::to_string(weights.size()) + " matrices, " + std::to_string(hash);
}
/// The fingerprint of the weights to which a model's attached adapters belong. Throws ValueError for weights
/// whose memory was released.
template <class M>
std::string adapted_fingerprint(const M& model) {
  using T = typename M::value_type;
  std::vector<const Parameter<T>*> weights;
  for_each_parameter(model, [&](const std::string&, const Parameter<T>& weight) {
    if (weight.adapter() != nullptr) weights.push_back(&weight);
  });
  return adapted_fingerprint(weights);
}

/// Writes the files of save_adapter() into a transaction, to which the caller may add files and which the
/// caller commits. Throws as save_adapter() does.
template <class M>
void stage_adapter(const FolderTransaction& save, const M& model,
                   const AdapterDescription& description = {}) {
  using T = typename M::value_type;
  // Only names are read.
  const auto rows = adaptable_rows(const_cast<M&>(model));
  const auto names = adapter_module_names(rows, description.names);
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  std::set<std::string> targets;
  nlohmann::json ranks = nlohmann::json::object(), alphas = nlohmann::json::object();
  const LowRankPart<T>* first = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].weight->adapter() == nullptr) continue;
    for (const LowRankPart<T>& part : rows[i].weight->adapter()->parts) {
      if (part.module != rows[i].module) continue;
      if (names[i].empty()) {
        throw ValueError(
            "adapter", {"'", part.module, "' has no name in the scheme '", word_of(description.names), "'"});
      }
      if (first == nullptr) first = &part;
      writer.add("base_model.model." + names[i] + ".lora_A.weight", part.a.value().template to<float>());
      writer.add("base_model.model." + names[i] + ".lora_B.weight", part.b.value().template to<float>());
      if (part.rank() != first->rank()) ranks[names[i]] = part.rank();
      if (part.alpha != first->alpha) alphas[names[i]] = number(part.alpha);
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
      {"lora_alpha", number(first->alpha)},
      {"lora_dropout", first->dropout},
      {"use_rslora", first->rank_stabilized},
      {"target_modules", target_modules(targets, names)},
      {"rank_pattern", ranks},
      {"alpha_pattern", alphas},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"init_lora_weights", true},
      {"modules_to_save", nullptr}};
  const nlohmann::json base = {{"base", description.base},
                               {"fingerprint", adapted_fingerprint(model)},
                               {"names", word_of(description.names)},
                               {"training", description.training}};
  write_file(save.file("adapter_config.json"), config.dump(2) + "\n");
  write_file(save.file("base.json"), base.dump(2) + "\n");
  writer.save(save.file("adapter_model.safetensors"));
}

}  // namespace detail

/// Writes the adapters attached to a model, without the base model, in PEFT's format and in float32. All
/// files are replaced together. description.fingerprint is ignored: it is computed. Throws ValueError for a
/// model without adapters, for modules without a name in description.names, and for weights whose memory was
/// released; IoError when writing fails.
///
///     ef::save_adapter("legal", model, {.base = "en-de"});
template <class M>
void save_adapter(const std::filesystem::path& folder, const M& model,
                  const AdapterDescription& description = {}) {
  FolderTransaction save(folder);
  detail::stage_adapter(save, model, description);
  save.commit();
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::string adapter_module_name(const std::string& module, AdapterNames names,
                                                        bool gated) {
  if (names == AdapterNames::own) return module;
  // The matrices of a layer; empty where a scheme does not name one. T5 numbers the parts of a layer.
  static constexpr struct {
    std::string_view own, bart, t5;
  } matrices[] = {
      {"self_attn.q_proj", "self_attn.q_proj", "0.SelfAttention.q"},
      {"self_attn.k_proj", "self_attn.k_proj", "0.SelfAttention.k"},
      {"self_attn.v_proj", "self_attn.v_proj", "0.SelfAttention.v"},
      {"self_attn.out_proj", "self_attn.out_proj", "0.SelfAttention.o"},
      {"multihead_attn.q_proj", "encoder_attn.q_proj", "1.EncDecAttention.q"},
      {"multihead_attn.k_proj", "encoder_attn.k_proj", "1.EncDecAttention.k"},
      {"multihead_attn.v_proj", "encoder_attn.v_proj", "1.EncDecAttention.v"},
      {"multihead_attn.out_proj", "encoder_attn.out_proj", "1.EncDecAttention.o"},
      {"linear1", "fc1", "DenseReluDense.wi"},
      {"linear2", "fc2", "DenseReluDense.wo"},
      {"linear3", "", "DenseReluDense.wi_1"},
  };
  const auto parts = parts_between(module, ".");
  if (parts.size() < 4 || (parts[0] != "encoder" && parts[0] != "decoder") || parts[1] != "layers") return {};
  const std::string stack(parts[0]), layer(parts[2]);
  const std::size_t matrix = stack.size() + layer.size() + 9;  // after "encoder.layers.3."
  for (const auto& [own, bart, t5] : matrices) {
    if (module.substr(matrix) != own) continue;
    if (names == AdapterNames::bart)
      return bart.empty() ? "" : "model." + stack + ".layers." + layer + "." + std::string(bart);
    std::string name(t5);
    if (own.starts_with("linear")) name = (stack == "decoder" ? "2." : "1.") + name;
    if (own == "linear1" && gated) name += "_0";
    return stack + ".block." + layer + ".layer." + name;
  }
  return {};
}

EIGENFORMER_IO_FUNCTION std::vector<std::string> target_modules(const std::set<std::string>& chosen,
                                                                const std::vector<std::string>& all) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::set<std::string> ends;
  for (const std::string& name : chosen) ends.insert(last(name));
  for (const std::string& name : all) {
    if (ends.contains(last(name)) && !chosen.contains(name)) return {chosen.begin(), chosen.end()};
  }
  return {ends.begin(), ends.end()};
}

}  // namespace eigenformer::detail

#endif
