#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
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
    return detail::folder_file(folder, state_name);
  }

  /// The path of the state before the decay of the learning rate, which save_before_decay() writes. The file
  /// need not exist.
  static std::filesystem::path before_decay_file(const std::filesystem::path& folder) {
    return detail::folder_file(folder, before_decay_name);
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
  /// Writes the state before the decay next to the saved files; the next save() puts it in place. For a
  /// training that has saved nothing yet. Throws IoError.
  template <class T>
  void stage_before_decay(const TrainingState<T>& state) {
    attempt([&](FolderTransaction& transaction) {
      save_training_state(transaction.file(before_decay_name), state);
    });
  }
  /// Saves a state twice, as save() does and to stay beside later ones: call it in TrainingSink::on_decay().
  /// Both files are replaced together, so that the state to resume from and the one before its decay always
  /// belong to one training. Throws IoError.
  template <class T>
  void save_before_decay(const TrainingState<T>& state) {
    stage_before_decay(state);
    save(state);
  }

 private:
  static constexpr const char* state_name = "training/last.safetensors";
  static constexpr const char* before_decay_name = "training/before_decay.safetensors";

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
/// before_decay: the file to resume from instead when the state is of a decay that the training's limits put
/// off, TrainingFolder::before_decay_file(); empty, or a file that does not exist: none. Throws IoError that
/// names the file when it is damaged, incomplete or of another training; the training is then unchanged.
/// Returns whether it resumed from before_decay.
template <class Training>
bool resume_training(Training& training, const std::filesystem::path& file,
                     const std::filesystem::path& before_decay = {}) {
  using Tensors = decltype(training.state().tensors);
  const auto state_of = load_training_state<typename Tensors::value_type::second_type::value_type>;
  const std::filesystem::path* from = &file;
  try {
    auto state = state_of(file);
    std::error_code ignored;
    if (std::filesystem::exists(before_decay, ignored) && training.resumes_before_decay(state)) {
      from = &before_decay;
      state = state_of(before_decay);
    }
    training.load(state);
    return from == &before_decay;
  } catch (const ValueError& error) {
    throw IoError("training", {"'", from->string(), "': ", detail::message_of(error)});
  }
}

}  // namespace eigenformer
