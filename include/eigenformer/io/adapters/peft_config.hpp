#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"

namespace eigenformer::detail {

/// The settings of a LoRA adapter in PEFT's adapter_config.json.
struct PeftConfig {
  double alpha = 8;
  double dropout = 0;
  bool rank_stabilized = false;
  std::map<std::string, double> alphas{};     // alpha_pattern: modules with an alpha of their own
  std::vector<std::string> target_modules{};  // empty when they are not a plain list of names
  std::string base{};

  double alpha_of(const std::string& module) const {
    for (const auto& [pattern, value] : alphas) {
      const bool whole = pattern.front() == '^';
      const std::string name = whole ? pattern.substr(1) : pattern;
      if (module == name || (!whole && module.ends_with("." + name))) return value;
    }
    return alpha;
  }
};

// Describes a setting that would change results and is not supported; empty for others.
inline std::string unsupported_peft_setting(const std::string& name, const nlohmann::json& value) {
  // Settings that do not change results, or are read below.
  static const std::set<std::string> known = {"auto_mapping",
                                              "base_model_name_or_path",
                                              "revision",
                                              "inference_mode",
                                              "task_type",
                                              "peft_version",
                                              "peft_type",
                                              "r",
                                              "lora_alpha",
                                              "lora_dropout",
                                              "use_rslora",
                                              "target_modules",
                                              "alpha_pattern",
                                              "rank_pattern",
                                              "exclude_modules",
                                              "layers_pattern",
                                              "layers_to_transform",
                                              "megatron_core",
                                              "qalora_group_size",
                                              "runtime_config",
                                              "ensure_weight_tying"};
  if (known.contains(name)) return {};
  if (name == "bias" && value == "none") return {};
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

/// Reads an adapter_config.json. Throws IoError that names the file and lists all unsupported settings.
inline PeftConfig read_peft_config(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& what) {
    return IoError("adapter", "'" + path.string() + "' " + what);
  };
  const nlohmann::json json = read_unique_json("adapter", path);
  if (json.is_discarded() || !json.is_object()) throw refuse("is truncated or not a JSON object");
  if (json.value("peft_type", nlohmann::json()) != "LORA") {
    throw refuse("describes an adapter of the type " + json.value("peft_type", nlohmann::json()).dump() +
                 ", expected \"LORA\"");
  }
  std::string unsupported;
  for (const auto& [name, value] : json.items()) {
    const std::string why = unsupported_peft_setting(name, value);
    if (!why.empty()) unsupported += (unsupported.empty() ? "" : ", ") + why;
  }
  if (!unsupported.empty()) throw refuse("has settings that are not supported here: " + unsupported);
  PeftConfig config;
  try {
    config.alpha = json.value("lora_alpha", config.alpha);
    config.dropout = json.value("lora_dropout", config.dropout);
    config.rank_stabilized = json.value("use_rslora", false);
    if (json.contains("base_model_name_or_path") && json.at("base_model_name_or_path").is_string())
      config.base = json.at("base_model_name_or_path").get<std::string>();
    if (json.contains("alpha_pattern") && json.at("alpha_pattern").is_object()) {
      for (const auto& [pattern, value] : json.at("alpha_pattern").items()) {
        if (pattern.empty() || pattern.find_first_of("*+?[](){}|\\$") != std::string::npos)
          throw refuse("has the alpha_pattern '" + pattern + "', expected names of modules");
        config.alphas[pattern] = value.get<double>();
      }
    }
    if (json.contains("target_modules") && json.at("target_modules").is_array())
      config.target_modules = json.at("target_modules").get<std::vector<std::string>>();
    // With these settings only some of the target modules have factors.
    for (const char* choice : {"exclude_modules", "layers_to_transform"}) {
      if (json.contains(choice) && !json.at(choice).is_null()) config.target_modules.clear();
    }
  } catch (const nlohmann::json::exception& error) {
    throw refuse(std::string("is damaged: ") + error.what());
  }
  if (!(config.dropout >= 0 && config.dropout < 1))
    throw refuse("has lora_dropout " + std::to_string(config.dropout) + ", expected it in [0, 1)");
  return config;
}

}  // namespace eigenformer::detail
