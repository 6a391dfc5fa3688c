#pragma once

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/train/checkpoint/training_folder.hpp"
#include "terminal/output_checks.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"

namespace translator {

/// Throws unless training may write to the folder with the given options.
inline void check_folder(const TrainCommand& command) {
  require_folder_if_any("train", command.folder);
  if (command.resume && command.overwrite)
    throw ef::ValueError("train", "give --resume or --overwrite, not both");
  if (command.resume && !command.init_from.empty()) {
    throw ef::ValueError("train",
                         "give --resume to continue a training, or --init-from to start one, not both");
  }
  const auto require_state = [&] {
    const fs::path state = ef::TrainingFolder::state_file(command.folder);
    if (fs::exists(state)) return;
    throw ef::IoError("train", {"'", command.folder, "' cannot be resumed: '", state.string(),
                                "' does not exist; --init-from starts a new training from its model"});
  };
  if (resumes_adapter(command)) {
    require_state();
  } else if (command.resume) {
    if (!ef::is_model_folder(command.folder)) {
      throw ef::IoError("train", {"'", command.folder, "' holds no model to resume"});
    }
    const ef::WeightFormat weights = ef::read_model_description(command.folder).weights;
    if (weights != ef::WeightFormat::float32) {
      throw ef::IoError("train",
                        {"'", command.folder, "' has ", ef::word_of(weights),
                         " weights, which cannot be trained; use the float32 model that it was made from"});
    }
    require_state();
  } else if (const bool model = ef::is_model_folder(command.folder);
             !command.overwrite && (model || ef::is_adapter_folder(command.folder))) {
    throw ef::IoError("train", {"'", command.folder, "' already holds ", (model ? "a model" : "an adapter"),
                                "; give --resume to continue its training, or --overwrite to start again"});
  }
  if (ef::is_prepared_corpus(command.folder)) {
    throw ef::IoError("train",
                      {"'", command.folder, "' holds a prepared corpus; give another folder for the model"});
  }
  check_writable_folder("train", command.folder);
}

/// Loads a folder's state, or the one before its decay if the new limits put the decay off; returns whether
/// it was the latter.
inline bool resume(Trainer& trainer, const fs::path& folder) {
  return ef::resume_training(trainer, ef::TrainingFolder::state_file(folder),
                             ef::TrainingFolder::before_decay_file(folder));
}

/// Completes an interrupted save, and removes temporary files that killed runs left in a model's folder.
inline void remove_leftovers(const fs::path& folder) {
  ef::FolderTransaction::recover(folder);
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const fs::path& place : {folder, folder / "training"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(place, ignored)) {
      const std::string name = entry.path().filename().string();
      const std::size_t mark = name.rfind(".tmp-");
      if (mark == std::string::npos || !entry.is_regular_file(ignored)) continue;
      // "<name>.tmp-<process>-<number>"; files of a running process are in use
      const std::size_t dash = name.find('-', mark + 5);
      const std::string process = name.substr(mark + 5, dash - (mark + 5));
      if (dash == std::string::npos || !is_number(name.substr(dash + 1))) continue;
      if (!is_number(process) || process.size() > 9) continue;
      if (::kill(std::stoi(process), 0) != 0 && errno == ESRCH) fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace translator
