#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/train/checkpoint/training_folder.hpp"
#include "eigenformer/train/reporting/progress.hpp"
#include "model/confidence_file.hpp"
#include "terminal/status_line.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"
#include "translator/training/room.hpp"

namespace translator {

/// Keeps a model folder up to date while its model is trained, and reports to the terminal. The model and the
/// training state are replaced together; until the first save, a folder keeps its old model.
class FolderSink final : public ef::TrainingSink {
 public:
  FolderSink(TerminalProgress& progress, const TrainedModel& trained)
      : progress_(progress), trained_(trained), folder_(trained.folder()) {}

  /// The training to save; `is_in_folder` if the folder already holds its model and state. target_entries:
  /// of the target vocabulary, whose logarithm is the loss of a guess.
  void watch(const Trainer& trainer, bool is_in_folder, ef::index_t target_entries) {
    trainer_ = &trainer;
    saved_ = is_in_folder;
    saved_step_ = trainer.step();
    highest_loss_ = std::log(static_cast<double>(target_entries)) + 10;
  }

  /// Throws IoError unless the disk has space for all later saves: a new model and state beside the old ones.
  /// decays: the state before the decay of the learning rate is kept, too.
  void require_room(bool decays) const {
    std::uint64_t there = 0;
    for (const char* name : {"model.safetensors", "adapter_model.safetensors", "training/last.safetensors",
                             "training/before_decay.safetensors"}) {
      if (!decays && std::string_view(name).ends_with("before_decay.safetensors")) continue;  // it stays
      std::error_code none;
      const std::uintmax_t size = fs::file_size(ef::detail::folder_file(trained_.folder(), name), none);
      if (!none) there += size;
    }
    // Everything else is small: a vocabulary, options, headers.
    constexpr std::uint64_t rest = 1 << 18;
    const std::uint64_t model = trained_.bytes() + rest, state = trainer_->expected_state_bytes() + rest;
    const std::uint64_t kept = decays ? 2 * state : 0, all = model + state + kept;
    const std::uint64_t second = all - std::min(all, there);
    ef::detail::require_room(trained_.folder(),
                             {model, state, std::min(second, model), second - std::min(second, model)});
  }

  /// Whether the folder's model and state belong to this training.
  bool saved() const { return saved_; }

  /// Saves the initial model, so that --resume works from now on.
  void save_initial() {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(trained_.folder(), none)) before_.insert(entry.path());
    on_best();
    on_checkpoint();
    initial_ = true;
  }

  /// Throws if the training diverged: its last loss is far above that of a guess, or updates were skipped at
  /// the end, at least five of them or half of all. updates: of this run.
  void refuse_diverged(ef::index_t updates) const {
    const ef::index_t last = trainer_->skipped_in_a_row();
    const bool skipped = updates > 0 && last > 0 && (last >= 5 || 2 * last >= updates);
    if (!skipped && !diverged()) return;
    throw ef::ValueError(
        "train",
        {"training diverged: ",
         (skipped ? "it skipped " + std::to_string(trainer_->skipped()) + " of " + counted(updates, "update")
                  : format("its loss was %.4g after step %lld, and that of guessing is %.2f", loss(),
                           static_cast<long long>(trainer_->step()), highest_loss_ - 10)),
         "; lower --learning-rate"});
  }

  /// Removes the model of a training that failed if the folder has only its initial one. The log stays.
  void remove_initial() {
    if (!initial_) return;
    std::error_code none;
    std::vector<fs::path> made;
    for (const auto& entry : fs::directory_iterator(trained_.folder(), none)) {
      if (entry.path().filename() != "training" && !before_.contains(entry.path())) made.push_back(entry);
    }
    for (const fs::path& path : made) fs::remove(path, none);
    fs::remove(ef::TrainingFolder::state_file(trained_.folder()), none);
    fs::remove(ef::TrainingFolder::before_decay_file(trained_.folder()), none);
  }

  void on_step(const ef::StepReport& report) override { progress_.on_step(report); }
  void on_validation(const ef::ValidationReport& report) override {
    progress_.on_validation(report);
    if (report.averaged > 0) return;  // a mean of weights is kept only if it is better
    if (report.name == "loss") validated_ = report.value;
    for (const ef::Measured& other : report.others) {
      if (other.name == "loss") validated_ = other.value;
    }
  }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override {
    if (diverged()) return;
    attempt([&] { folder_.stage([&](const ef::FolderTransaction& save) { trained_.stage(save); }); });
    staged_ = has_settings_ = true;
  }
  void on_decay() override {
    if (diverged()) return;
    attempt([&] {
      if (saved_ && !staged_) return folder_.save_before_decay(trainer_->state());  // the saved model stays
      folder_.stage_before_decay(trainer_->state());  // the first save replaces that of an earlier training
    });
  }
  void on_checkpoint() override {
    if (diverged()) return;  // the state saved last is worth more
    // A state without its model, beside the model of another training, would be useless.
    if (!saved_ && !staged_) return;
    // A resumed training may have other settings than the one that saved the model.
    if (!std::exchange(has_settings_, true)) {
      attempt(
          [&] { folder_.stage([&](const ef::FolderTransaction& save) { trained_.stage_settings(save); }); });
    }
    attempt([&] { folder_.save(trainer_->state()); });
    if (staged_) {
      remove_confidence(trained_.folder());
      initial_ = false;
    }
    staged_ = false;
    saved_ = true;
    saved_step_ = trainer_->step();
  }

 private:
  // The loss validated last, and without one that of the last update; NaN before the first.
  double loss() const { return validated_.value_or(trainer_->last_loss()); }
  // A training's loss begins about there. NaN comes from skipped updates, which may be few.
  bool diverged() const { return loss() > highest_loss_; }

  template <class F>
  void attempt(F&& write) const {
    try {
      write();
    } catch (const ef::IoError& error) {
      throw ef::IoError(
          "train",
          {format("cannot save the training after step %lld: ", static_cast<long long>(trainer_->step())),
           ef::detail::message_of(error),
           (saved_ ? format("; --resume continues from step %lld", static_cast<long long>(saved_step_))
                   : std::string("; nothing was saved before"))});
    }
  }

  TerminalProgress& progress_;
  const TrainedModel& trained_;
  ef::TrainingFolder folder_;
  const Trainer* trainer_ = nullptr;
  std::optional<double> validated_;
  double highest_loss_ = 0;
  std::set<fs::path> before_;  // in the folder before its first model
  bool initial_ = false;       // the folder has only the initial model
  bool staged_ = false;
  bool saved_ = false;
  bool has_settings_ = false;  // the folder's or the staged model's description has those of this run
  ef::index_t saved_step_ = 0;
};

}  // namespace translator
