#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "eigenformer/io/adapters/load_adapter.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "options/train_settings.hpp"
#include "training/train_command.hpp"

// Training an adapter (--lora-rank): its folder holds the adapter, the state, and the name of its base model.
namespace translator {

namespace fs = std::filesystem;

/// Whether the resumed training is that of an adapter.
inline bool resumes_adapter(const TrainCommand& command) {
  return command.resume && ef::is_adapter_folder(command.folder);
}

/// The settings of a resumed adapter training, with the model options of its base.
inline TrainSettings resumed_adapter_settings(const TrainCommand& command) {
  nlohmann::json saved = ef::read_adapter_description(command.folder).training;
  if (!saved.is_object() || !saved.contains("model"))
    throw ef::IoError("train",
                      {"'", command.folder,
                       "' holds an adapter that translator train did not write; it cannot be resumed"});
  const auto model = ef::options_from_json<ef::Seq2SeqOptions>(saved.at("model"));
  saved.erase("model");
  TrainSettings settings = command.flags->resumed(model, saved);
  settings.model = model;
  return settings;
}

/// The description in an adapter's folder: base model and training options.
inline std::optional<ef::AdapterDescription> adapter_description(const TrainCommand& command,
                                                                 const TrainSettings& settings) {
  if (settings.training.lora.rank == 0) return std::nullopt;
  ef::AdapterDescription description;
  if (command.resume) {
    description = ef::read_adapter_description(command.folder);
  } else {
    description.base = fs::absolute(command.init_from).lexically_normal().string();
    if (!command.adapter_names.empty())
      ef::detail::option_from_json("adapter_names", command.adapter_names, description.names);
  }
  description.training = settings.to_json();
  description.training["model"] = ef::options_to_json(settings.model);
  return description;
}

/// Throws for an impossible adapter: without a base model, of one with int8 weights or without the targets,
/// or in the folder of a model. base: null without a model to start from.
inline void require_base(const TrainCommand& command, const TrainSettings& settings,
                         ef::TranslationModel<float>* base) {
  if (settings.training.lora.rank == 0) {
    if (!command.adapter_names.empty())
      throw ef::ValueError("train", "--adapter-names has no effect without --lora-rank: give both");
    if (!command.resume && ef::is_adapter_folder(command.folder))
      throw ef::IoError("train", {"'", command.folder, "' holds an adapter; give the model another folder"});
    return;
  }
  if (command.resume) return;
  if (command.init_from.empty()) {
    throw ef::ValueError(
        "train", "--lora-rank trains an adapter for an existing model; give that model as --init-from");
  }
  if (base->description.weights == ef::WeightFormat::int8) {
    throw ef::ValueError("train", {"'", command.init_from,
                                   "' has int8 weights, which cannot be trained with an adapter; give the "
                                   "float32 model that it was made from"});
  }
  if (ef::is_model_folder(command.folder))
    throw ef::IoError("train", {"'", command.folder, "' holds a model; give the adapter another folder"});
  (void)ef::detail::lora_targets(ef::detail::adaptable_rows(base->model), settings.training.lora.targets);
}

/// The result of a training in its folder: the model, or the adapter.
class TrainedModel {
 public:
  TrainedModel(fs::path folder, const ef::Seq2SeqTransformer<float>& model,
               const ef::TokenizerPair& tokenizers, const ef::ModelConventions& text, nlohmann::json settings,
               std::optional<ef::AdapterDescription> adapter)
      : folder_(std::move(folder)),
        model_(model),
        tokenizers_(tokenizers),
        text_(text),
        settings_(std::move(settings)),
        adapter_(std::move(adapter)) {}

  const fs::path& folder() const { return folder_; }
  /// The options with which other commands load it.
  std::string options() const {
    if (adapter_) return "--model " + adapter_->base + " --adapter " + folder_.string();
    return "--model " + folder_.string();
  }

  /// Writes it in a transaction of its folder.
  void stage(const ef::FolderTransaction& save) const {
    if (adapter_) {
      ef::detail::stage_adapter(save, model_, *adapter_);
    } else {
      ef::stage_model(save, model_, tokenizers_, settings_, ef::WeightFormat::float32, text_);
    }
  }

  /// Writes the settings of this training into the description of the model or adapter in the folder.
  void stage_settings(const ef::FolderTransaction& save) const {
    ef::detail::stage_training_options(save, folder_, adapter_ ? adapter_->training : settings_);
  }

  /// The approximate size in bytes: that of its parameters.
  std::uint64_t bytes() const {
    std::uint64_t numbers = 0;
    if (adapter_) {
      for (const auto& p : ef::lora_parameters(model_))
        numbers += static_cast<std::uint64_t>(p->value.numel());
    } else {
      numbers = static_cast<std::uint64_t>(ef::count_parameters(model_));
    }
    return numbers * sizeof(float);
  }

 private:
  fs::path folder_;
  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  const ef::ModelConventions& text_;
  nlohmann::json settings_;
  std::optional<ef::AdapterDescription> adapter_;
};

}  // namespace translator
