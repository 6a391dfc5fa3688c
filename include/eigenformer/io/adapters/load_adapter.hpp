#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/io/adapters/adapter_folder.hpp"
#include "eigenformer/io/models/json_file.hpp"
#include "eigenformer/io/models/model_folder.hpp"

namespace eigenformer::detail {

/// The settings of a LoRA adapter in PEFT's adapter_config.json.
struct PeftConfig {
  double alpha = 8;
  double dropout = 0;
  bool rank_stabilized = false;
  std::map<std::string, double> alphas{};     // alpha_pattern: modules with an alpha of their own
  std::vector<std::string> target_modules{};  // empty when they are not a plain list of names
  std::string base{};

  double alpha_of(const std::string& module) const;
};

/// Reads an adapter_config.json. Throws IoError that names the file and lists all unsupported settings.
EIGENFORMER_IO_FUNCTION PeftConfig read_peft_config(const std::filesystem::path& path);

}  // namespace eigenformer::detail

namespace eigenformer {

/// Reads base.json of an adapter's folder; for one written by PEFT, only `base`, from its
/// adapter_config.json. Throws IoError for a folder without an adapter and for a damaged file.
EIGENFORMER_IO_FUNCTION AdapterDescription read_adapter_description(const std::filesystem::path& folder);

namespace detail {

/// A module's name in the file of an adapter, and those of its factors; empty for one that is not adapted.
struct AdapterFactors {
  std::string module, a, b;
};

/// Finds the factors of the modules of a model. Throws IoError that lists the tensors that do not match.
template <class T>
std::vector<AdapterFactors> find_factors(const SafetensorsFile& file, const PeftConfig& config,
                                         const std::vector<AdaptableRows<T>>& rows) {
  const std::string prefix = "base_model.model.", end_a = ".lora_A.weight", end_b = ".lora_B.weight";
  std::map<std::string, std::pair<std::size_t, AdapterNames>> modules;  // by their names in files
  for (const AdapterNames names : {AdapterNames::own, AdapterNames::bart, AdapterNames::t5}) {
    const auto of_rows = adapter_module_names(rows, names);
    for (std::size_t i = 0; i < of_rows.size(); ++i) {
      if (!of_rows[i].empty()) modules.emplace(of_rows[i], std::pair{i, names});
    }
  }
  std::vector<AdapterFactors> found(rows.size());
  std::vector<std::string> missing, unknown, unsupported, misshaped;
  AdapterNames scheme = AdapterNames::own;
  for (const std::string& name : file.names()) {
    const bool is_a = name.ends_with(end_a);
    if (!name.starts_with(prefix) || !(is_a || name.ends_with(end_b))) {
      unsupported.push_back(name);
      continue;
    }
    const std::string module = name.substr(prefix.size(), name.size() - prefix.size() - end_a.size());
    const auto at = modules.find(module);
    if (at == modules.end()) {
      unknown.push_back(name);
      continue;
    }
    scheme = at->second.second;
    AdapterFactors& factors = found[at->second.first];
    factors.module = module;
    (is_a ? factors.a : factors.b) = name;
  }
  // All target modules of the configuration must have factors.
  const auto names = adapter_module_names(rows, scheme);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool target =
        std::any_of(config.target_modules.begin(), config.target_modules.end(),
                    [&](const std::string& end) { return names[i] == end || names[i].ends_with("." + end); });
    if (found[i].module.empty() && target) missing.push_back(prefix + names[i] + end_a);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const AdapterFactors& f = found[i];
    if (f.module.empty()) continue;
    if (f.a.empty() || f.b.empty()) {
      missing.push_back(prefix + f.module + (f.a.empty() ? end_a : end_b));
      continue;
    }
    const Shape a = file.info(f.a).shape, b = file.info(f.b).shape;
    const index_t in = rows[i].weight->shape()[1];
    if (a.rank() != 2 || a[0] < 1 || a[1] != in) {
      misshaped.push_back(f.a + " is " + a.str() + ", expected (r, " + std::to_string(in) + ")");
    } else if (const Shape expected{rows[i].rows, a[0]}; b != expected) {
      misshaped.push_back(f.b + " is " + b.str() + ", expected " + expected.str());
    }
  }
  std::string problems;
  const auto tell = [&](const char* what, const std::vector<std::string>& list) {
    if (list.empty()) return;
    // For another model nothing matches, so a few names suffice.
    const std::size_t shown = list.size() <= 7 ? list.size() : 6;
    problems += std::string(problems.empty() ? "" : "; ") + what + ": " +
                join_list({list.begin(), list.begin() + static_cast<std::ptrdiff_t>(shown)});
    if (shown < list.size()) problems += " and " + std::to_string(list.size() - shown) + " more";
  };
  tell("missing", missing);
  tell("that match no weight matrix of the model", unknown);
  tell("not supported", unsupported);
  tell("of the wrong shape", misshaped);
  if (!problems.empty())
    throw IoError("adapter", {"'", file.path().string(), "' does not fit the model; tensors ", problems});
  return found;
}

/// Reads an adapter for the modules of a model. Returns it and the weights that it adapts.
template <class T>
std::pair<std::shared_ptr<AdapterSet<T>>, std::vector<const Parameter<T>*>> read_factors(
    const std::filesystem::path& folder, const std::vector<AdaptableRows<T>>& rows) {
  const PeftConfig config = read_peft_config(folder_file(folder, "adapter_config.json"));
  const std::filesystem::path path = folder_file(folder, "adapter_model.safetensors");
  if (!file_exists(path))
    throw IoError("adapter", {"'", folder.string(), "' has no adapter_model.safetensors"});
  const SafetensorsFile file = SafetensorsFile::open(path);
  const std::vector<AdapterFactors> found = find_factors(file, config, rows);
  auto set = std::make_shared<AdapterSet<T>>();
  std::vector<const Parameter<T>*> weights;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (found[i].module.empty()) continue;
    const Parameter<T>& weight = *rows[i].weight;
    auto adapter = set->find(weight);
    if (adapter == nullptr) {
      adapter = std::make_shared<WeightAdapter<T>>();
      set->add(weight, adapter);
      weights.push_back(&weight);
    }
    // Copies, because factors may be trained and the file may be replaced.
    adapter->parts.push_back(
        make_part(rows[i], LowRankPart<T>{.a = Parameter<T>(file.tensor<T>(found[i].a).clone()),
                                          .b = Parameter<T>(file.tensor<T>(found[i].b).clone()),
                                          .alpha = config.alpha_of(found[i].module),
                                          .rank_stabilized = config.rank_stabilized,
                                          .dropout = config.dropout}));
  }
  return {std::move(set), std::move(weights)};
}

}  // namespace detail

/// Reads an adapter written by save_adapter() or PEFT for this model, without attaching it: for
/// Context::with_adapters(), with which several adapters share one model. PEFT's adapters for transformers'
/// BART, mBART, Marian, M2M100 (NLLB) and T5 match models that were imported from them.
///
/// Throws IoError that lists all missing, unexpected and misshaped tensors and all unsupported settings of
/// PEFT, and when base.json has the fingerprint of other weights than this model's. With such a fingerprint,
/// throws ValueError for weights whose memory was released (packed ones): read adapters before packing.
///
///     auto legal = ef::read_adapter("legal", loaded.model);
///     auto ctx = ef::Context<float>::inference().with_adapters(legal);
template <class M>
auto read_adapter(const std::filesystem::path& folder, M& model) {
  using T = typename M::value_type;
  auto [description, read] =
      detail::read_folder(folder, {"adapter_config.json", "adapter_model.safetensors"}, [&] {
        AdapterDescription found =
            read_adapter_description(folder);  // first, because its message says what is not an adapter
        return std::pair(std::move(found), detail::read_factors<T>(folder, detail::adaptable_rows(model)));
      });
  auto& [set, weights] = read;
  if (!description.fingerprint.empty()) {
    const std::string now = detail::adapted_fingerprint(weights);
    if (now != description.fingerprint) {
      throw IoError("adapter", {"'", folder.string(), "' was trained on another model than this one: on '",
                                description.base, "', whose weights where it is added (",
                                description.fingerprint, ") are not those of this model (", now, ")"});
    }
  }
  return std::shared_ptr<AdapterSet<T>>(std::move(set));
}

/// Reads an adapter as read_adapter() does, attaches it to the model and freezes the model's own parameters,
/// as add_lora() does. Throws as both of them.
template <class M>
void load_adapter(const std::filesystem::path& folder, M& model) {
  const auto adapters = read_adapter(folder, model);
  attach_lora(model, *adapters);
  for (const auto& p : parameters(model)) p->frozen = true;
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION double PeftConfig::alpha_of(const std::string& module) const {
  for (const auto& [pattern, value] : alphas) {
    const bool whole = pattern.front() == '^';
    const std::string name = whole ? pattern.substr(1) : pattern;
    if (module == name || (!whole && module.ends_with("." + name))) return value;
  }
  return alpha;
}

// Describes a setting that would change results and is not supported; empty for others.
EIGENFORMER_IO_FUNCTION std::string unsupported_peft_setting(const std::string& name,
                                                             const nlohmann::json& value) {
  static const std::set<std::string> known = {
      // read by read_peft_config()
      "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "base_model_name_or_path",
      "target_modules", "alpha_pattern", "exclude_modules", "layers_to_transform",
      // without effect on results
      "auto_mapping", "revision", "inference_mode", "task_type", "peft_version", "rank_pattern",
      "layers_pattern", "megatron_core", "qalora_group_size", "runtime_config", "ensure_weight_tying"};
  if (known.contains(name)) return {};
  if (name == "bias" && is_text(value, "none")) return {};
  if (name == "init_lora_weights") {
    // Other initialisations change the base model's weights.
    static const std::set<std::string> kept = {"gaussian", "eva", "orthogonal"};
    if (value.is_boolean() || (value.is_string() && kept.contains(value.get<std::string>()))) return {};
  } else if (value.is_null() || value == false ||
             ((value.is_array() || value.is_object()) && value.empty())) {
    return {};
  }
  return name + ": " + value.dump();
}

EIGENFORMER_IO_FUNCTION PeftConfig read_peft_config(const std::filesystem::path& path) {
  const JsonFile file = JsonFile::open_unique("adapter", path);
  const nlohmann::json& json = file.json();
  if (json.value("peft_type", nlohmann::json()) != "LORA") {
    throw file.refuse({"describes an adapter of the type ", json.value("peft_type", nlohmann::json()).dump(),
                       ", expected \"LORA\""});
  }
  std::string unsupported;
  for (const auto& [name, value] : json.items()) {
    const std::string why = unsupported_peft_setting(name, value);
    if (!why.empty()) append_listed(unsupported, why);
  }
  if (!unsupported.empty()) throw file.refuse({"has settings that are not supported here: ", unsupported});
  PeftConfig config;
  config.alpha = file.get("lora_alpha", config.alpha);
  config.dropout = file.get("lora_dropout", config.dropout);
  config.rank_stabilized = file.get("use_rslora", false);
  config.base = file.get<std::string>("base_model_name_or_path", "");
  if (file.has("alpha_pattern")) {
    const nlohmann::json& alphas = file.object("alpha_pattern");
    for (const auto& [pattern, value] : alphas.items()) {
      if (pattern.empty() || pattern.find_first_of("*+?[](){}|\\$") != std::string::npos)
        throw file.refuse({"has the alpha_pattern '", pattern, "', expected names of modules"});
      config.alphas[pattern] = file.get_of(alphas, pattern, config.alpha);
    }
  }
  // With these settings only some of the target modules have factors.
  const bool all = !file.has("exclude_modules") && !file.has("layers_to_transform");
  if (all && file.has("target_modules") && json.at("target_modules").is_array()) {
    for (const nlohmann::json& module : json.at("target_modules")) {
      if (!module.is_string())
        throw file.refuse({"has the target module ", module.dump(), ", expected its name"});
      config.target_modules.push_back(module.get<std::string>());
    }
  }
  if (!(config.dropout >= 0 && config.dropout < 1))
    throw file.refuse({"has lora_dropout ", std::to_string(config.dropout), ", expected it in [0, 1)"});
  return config;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION AdapterDescription read_adapter_description(const std::filesystem::path& folder) {
  if (!is_adapter_folder(folder))
    throw IoError("adapter",
                  {"'", folder.string(), "' is not an adapter folder: it has no adapter_config.json"});
  AdapterDescription description;
  const std::filesystem::path path = detail::folder_file(folder, "base.json");
  if (!detail::file_exists(path)) {
    description.base = detail::read_peft_config(detail::folder_file(folder, "adapter_config.json")).base;
    return description;
  }
  const auto file = detail::JsonFile::open_unique("adapter", path);
  description.base = file.require<std::string>("base");
  description.fingerprint = file.require<std::string>("fingerprint");
  description.names = file.require<AdapterNames>("names");
  if (file.has("training")) description.training = file.json().at("training");
  return description;
}

}  // namespace eigenformer

#endif
