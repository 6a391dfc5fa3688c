#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "eigenformer/train/checkpoint/room.hpp"
#include "eigenformer/train/checkpoint/training_folder.hpp"
#include "eigenformer/train/loop/progress.hpp"
#include "model/confidence_file.hpp"
#include "terminal/terminal_progress.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"

namespace translator {

/// Keeps a model folder up to date while its model is trained, and reports to the terminal. The model and the
/// training state are replaced together; until the first save, a folder keeps its old model.
class FolderSink final : public ef::TrainingSink {
 public:
  FolderSink(TerminalProgress& progress, const TrainedModel& trained)
      : progress_(progress), trained_(trained), folder_(trained.folder()) {}

  /// The training to save; `is_in_folder` if the folder already holds its model and state.
  void watch(const Trainer& trainer, bool is_in_folder) {
    trainer_ = &trainer;
    saved_ = is_in_folder;
    saved_step_ = trainer.step();
  }

  /// Throws IoError unless the disk has space for all later saves: a new model and state beside the old ones.
  void require_room() const {
    std::uint64_t there = 0;
    for (const char* name : {"model.safetensors", "adapter_model.safetensors", "training/last.safetensors"}) {
      std::error_code none;
      const std::uintmax_t size = fs::file_size(ef::folder_file(trained_.folder(), name), none);
      if (!none) there += size;
    }
    // Everything else is small: a vocabulary, options, headers.
    constexpr std::uint64_t rest = 1 << 18;
    const std::uint64_t model = trained_.bytes() + rest, state = trainer_->expected_state_bytes() + rest;
    const std::uint64_t second = model + state - std::min(model + state, there);
    ef::require_room(trained_.folder(),
                     {model, state, std::min(second, model), second - std::min(second, model)});
  }

  /// Whether the folder's model and state belong to this training.
  bool saved() const { return saved_; }

  void on_step(const ef::StepReport& report) override { progress_.step(report); }
  void on_validation(const ef::ValidationReport& report) override { progress_.validation(report); }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override {
    attempt([&] { folder_.stage([&](const ef::FolderTransaction& save) { trained_.stage(save); }); });
    staged_ = has_settings_ = true;
  }
  void on_checkpoint() override {
    // A state without its model, beside the model of another training, would be useless.
    if (!saved_ && !staged_) return;
    // A resumed training may have other settings than the one that saved the model.
    if (!std::exchange(has_settings_, true)) {
      attempt(
          [&] { folder_.stage([&](const ef::FolderTransaction& save) { trained_.stage_settings(save); }); });
    }
    attempt([&] { folder_.save(trainer_->state()); });
    if (staged_) remove_confidence(trained_.folder());
    staged_ = false;
    saved_ = true;
    saved_step_ = trainer_->step();
  }

 private:
  template <class F>
  void attempt(F&& write) const {
    try {
      write();
    } catch (const ef::IoError& error) {
      throw ef::IoError(
          "train",
          format("cannot save the training after step %lld: ", static_cast<long long>(trainer_->step())) +
              ef::detail::message_of(error) +
              (saved_ ? format("; --resume continues from step %lld", static_cast<long long>(saved_step_))
                      : std::string("; nothing was saved before")));
    }
  }

  TerminalProgress& progress_;
  const TrainedModel& trained_;
  ef::TrainingFolder folder_;
  const Trainer* trainer_ = nullptr;
  bool staged_ = false;
  bool saved_ = false;
  bool has_settings_ = false;  // the folder's or the staged model's description has those of this run
  ef::index_t saved_step_ = 0;
};

}  // namespace translator
