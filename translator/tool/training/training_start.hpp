#pragma once

#include <optional>
#include <string>

#include "eigenformer/io/models/translation_model.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"

namespace translator {

/// The settings of a resumed training.
inline TrainSettings resumed_settings(const TrainCommand& command) {
  if (resumes_adapter(command)) return resumed_adapter_settings(command);
  const ef::ModelDescription saved = ef::read_model_description(command.folder);
  return command.flags->resumed(saved.model, saved.training);
}

/// Where a training starts: a model folder to resume or to start from, or nothing.
inline std::optional<ef::TranslationModel<float>> starting_model(const TrainCommand& command) {
  if (!command.resume && command.init_from.empty()) return std::nullopt;
  const std::string folder = resumes_adapter(command) ? ef::read_adapter_description(command.folder).base
                             : command.resume         ? command.folder
                                                      : command.init_from;
  auto start = ef::load_model_folder<float>(folder);
  ef::detail::require_tokenizers(folder, start.tokenizers);
  if (start.description.model.causal) return start;
  throw ef::ValueError("train", {"the model in '", command.init_from,
                                 "' has a decoder that is not causal, which cannot learn to translate"});
}

}  // namespace translator
