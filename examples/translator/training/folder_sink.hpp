#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "eigenformer/train/loop/progress.hpp"
#include "terminal/terminal_progress.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"

namespace translator {

/// Keeps a model folder up to date while its model is trained, and tells the terminal.
class FolderSink final : public ef::TrainingSink {
 public:
  FolderSink(TerminalProgress& progress, fs::path folder, const ef::Seq2SeqTransformer<float>& model,
             const ef::TokenizerPair& tokenizers, const ef::TextConventions& text, nlohmann::json settings)
      : progress_(progress),
        folder_(std::move(folder)),
        model_(model),
        tokenizers_(tokenizers),
        text_(text),
        settings_(std::move(settings)) {}

  void watch(const Trainer& trainer) { trainer_ = &trainer; }

  void on_step(const ef::StepReport& report) override { progress_.step(report); }
  void on_validation(const ef::ValidationReport& report) override { progress_.validation(report); }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override {
    ef::save_model_folder(folder_, model_, tokenizers_, settings_, ef::WeightFormat::float32, text_);
  }
  void on_checkpoint() override {
    fs::create_directories(state_file(folder_).parent_path());
    ef::save_training_state(state_file(folder_), trainer_->state());
  }

 private:
  TerminalProgress& progress_;
  fs::path folder_;
  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  const ef::TextConventions& text_;
  nlohmann::json settings_;
  const Trainer* trainer_ = nullptr;
};

}  // namespace translator
