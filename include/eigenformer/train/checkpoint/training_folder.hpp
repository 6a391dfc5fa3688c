#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"

namespace eigenformer {

/// The folder of a model that is trained: the model to use, and in training/last.safetensors the state that
/// its training goes on from. They change together, in one transaction, so that after an interruption at any
/// moment the folder holds a model and the state that belongs to it. An error leaves what was saved last.
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
  explicit TrainingFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Where a folder keeps the state, also after an interrupted save.
  static std::filesystem::path state_file(const std::filesystem::path& folder) {
    return folder_file(folder, state_name);
  }

  /// Writes a model by write(transaction), beside the one that is there; the next save() puts it in its
  /// place. Throws IoError, and what `write` throws.
  template <class F>
  void stage(F&& write) {
    attempt([&](FolderTransaction& transaction) { write(std::as_const(transaction)); });
  }

  /// Saves a state, and with it the model that was staged since the last save. Throws IoError.
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

  // What was written so far goes with an error, at once: the disk may be full.
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

/// Goes on with a training, a Trainer or a TrainingLoop, from a file. Throws IoError that names the file for
/// one that is damaged, lacks something or belongs to another training, which then is unchanged.
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
