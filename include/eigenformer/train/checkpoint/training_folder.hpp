#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"

namespace eigenformer {

/// Saves a model folder and, in training/last.safetensors, the state that its training resumes from. Both are
/// replaced in one transaction, so an interruption at any moment leaves a model and the state that belongs to
/// it. After an error the folder holds what was saved last. Not thread-safe.
///
///     ef::TrainingFolder folder("model");
///     // in a TrainingSink: on_best
///     folder.stage([&](const ef::FolderTransaction& save) { ef::stage_model(save, model, tokenizers); });
///     // on_checkpoint
///     folder.save(trainer.state());
///     // later
///     ef::resume_training(trainer, ef::TrainingFolder::state_file("model"));
class TrainingFolder {
 public:
  /// Stores the path only; stage() and save() create the folder.
  explicit TrainingFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The path of the state in a folder, also after an interrupted save. The file need not exist.
  static std::filesystem::path state_file(const std::filesystem::path& folder) {
    return folder_file(folder, state_name);
  }

  /// Writes a model with write(transaction) next to the current one; the next save() replaces the current one
  /// with it. Throws IoError, and what `write` throws.
  template <class F>
  void stage(F&& write) {
    attempt([&](FolderTransaction& transaction) { write(std::as_const(transaction)); });
  }

  /// Saves a state together with the model staged since the last save, if any. Throws IoError.
  template <class T>
  void save(const TrainingState<T>& state) {
    attempt([&](FolderTransaction& transaction) {
      save_training_state(transaction.file(state_name), state);
      transaction.commit();
    });
    open_.reset();
  }

 private:
  static constexpr const char* state_name = "training/last.safetensors";

  // After an error the files written so far are removed at once: the disk may be full.
  template <class F>
  void attempt(F&& write) {
    if (!open_) open_.emplace(folder_);
    try {
      write(*open_);
    } catch (const IoError& error) {
      const std::string message = open_->with_final_names(detail::message_of(error));
      open_.reset();
      throw IoError(error.op(), message);
    } catch (...) {
      open_.reset();
      throw;
    }
  }

  std::filesystem::path folder_;
  std::optional<FolderTransaction> open_;
};

/// Loads a saved state into a training (a Trainer or a TrainingLoop), whose run() then resumes from it.
/// Throws IoError that names the file when it is damaged, incomplete or of another training; the training is
/// then unchanged.
template <class Training>
void resume_training(Training& training, const std::filesystem::path& file) {
  using Tensors = decltype(training.state().tensors);
  const auto state = load_training_state<typename Tensors::value_type::second_type::value_type>(file);
  try {
    training.load(state);
  } catch (const ValueError& error) {
    throw IoError("training", "'" + file.string() + "': " + detail::message_of(error));
  }
}

}  // namespace eigenformer
