#pragma once

#include <filesystem>
#include <string>

#include "eigenformer/train/loop/progress.hpp"
#include "terminal/terminal_progress.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"

namespace translator {

/// Keeps a model folder up to date while its model is trained, and tells the terminal.
class FolderSink final : public ef::TrainingSink {
 public:
  FolderSink(TerminalProgress& progress, const TrainedModel& trained)
      : progress_(progress), trained_(trained) {}

  void watch(const Trainer& trainer) { trainer_ = &trainer; }

  void on_step(const ef::StepReport& report) override { progress_.step(report); }
  void on_validation(const ef::ValidationReport& report) override { progress_.validation(report); }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override { trained_.save(); }
  void on_checkpoint() override {
    const fs::path file = state_file(trained_.folder());
    fs::create_directories(file.parent_path());
    ef::save_training_state(file, trainer_->state());
  }

 private:
  TerminalProgress& progress_;
  const TrainedModel& trained_;
  const Trainer* trainer_ = nullptr;
};

}  // namespace translator
