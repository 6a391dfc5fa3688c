#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/train/checkpoint/room.hpp"
#include "eigenformer/train/checkpoint/training_folder.hpp"
#include "eigenformer/train/loop/progress.hpp"
#include "terminal/terminal_progress.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"

namespace translator {

/// Keeps a model folder up to date while its model is trained, and tells the terminal. The model and the
/// state that its training goes on from are replaced together; before the first of them is saved, a folder
/// keeps the model that it had.
class FolderSink final : public ef::TrainingSink {
 public:
  FolderSink(TerminalProgress& progress, fs::path folder, const ef::Seq2SeqTransformer<float>& model,
             const ef::TokenizerPair& tokenizers, const ef::TextConventions& text, nlohmann::json settings)
      : progress_(progress),
        path_(std::move(folder)),
        folder_(path_),
        model_(model),
        tokenizers_(tokenizers),
        text_(text),
        settings_(std::move(settings)) {}

  /// The training that is saved; `is_in_folder` when the folder's model and state are its own.
  void watch(const Trainer& trainer, bool is_in_folder) {
    trainer_ = &trainer;
    saved_ = is_in_folder;
    saved_step_ = trainer.step();
  }

  /// Throws IoError unless the disk has room for all saves to come: a new model and state beside the old
  /// ones.
  void require_room() const {
    std::error_code ignored;
    std::uint64_t there = 0;
    for (const char* name : {"model.safetensors", "training/last.safetensors"}) {
      const std::uintmax_t size = fs::file_size(ef::folder_file(path_, name), ignored);
      if (!ignored) there += size;
    }
    // What is not parameters is small: a vocabulary, options, headers.
    constexpr std::uint64_t rest = 1 << 18;
    const std::uint64_t model =
        static_cast<std::uint64_t>(ef::count_parameters(model_)) * sizeof(float) + rest;
    const std::uint64_t state = trainer_->expected_state_bytes() + rest;
    const std::uint64_t second = model + state - std::min(model + state, there);
    ef::require_room(path_, {model, state, std::min(second, model), second - std::min(second, model)});
  }

  /// Whether the folder's model and state are of this training.
  bool saved() const { return saved_; }

  void on_step(const ef::StepReport& report) override { progress_.step(report); }
  void on_validation(const ef::ValidationReport& report) override { progress_.validation(report); }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override {
    attempt([&] { folder_.stage([&](const ef::FolderTransaction& save) { stage_trained(save); }); });
    staged_ = true;
  }
  void on_checkpoint() override {
    // A state without its model, beside the model of another training, would be of use to nobody.
    if (!saved_ && !staged_) return;
    attempt([&] { folder_.save(trainer_->state()); });
    staged_ = false;
    saved_ = true;
    saved_step_ = trainer_->step();
  }

 private:
  /// Writes what is trained, for use: all files but the state.
  void stage_trained(const ef::FolderTransaction& save) const {
    ef::stage_model(save, model_, tokenizers_, settings_, ef::WeightFormat::float32, text_);
  }

  template <class F>
  void attempt(F&& write) const {
    try {
      write();
    } catch (const ef::IoError& error) {
      throw ef::IoError("train", format("cannot save the training after step %lld: ",
                                        static_cast<long long>(trainer_->step())) +
                                     ef::detail::message_of(error) +
                                     (saved_ ? format("; it can go on from step %lld with --resume",
                                                      static_cast<long long>(saved_step_))
                                             : std::string("; nothing of it was saved")));
    }
  }

  TerminalProgress& progress_;
  fs::path path_;
  ef::TrainingFolder folder_;
  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  const ef::TextConventions& text_;
  nlohmann::json settings_;
  const Trainer* trainer_ = nullptr;
  bool staged_ = false;
  bool saved_ = false;
  ef::index_t saved_step_ = 0;
};

}  // namespace translator
