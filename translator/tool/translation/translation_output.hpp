#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "../terminal/result_output.hpp"
#include "alignment_file.hpp"
#include "run_identity.hpp"
#include "translator/text/resumable_file.hpp"

namespace translator {

/// How much of its input a run has read.
struct InputPosition {
  std::uint64_t lines = 0;   ///< lines of this run's part of the input
  std::uint64_t offset = 0;  ///< LineReader::offset() after them
  std::uint64_t hash = 0;    ///< LineReader::hash() there
};

/// Writes the results of a run: directly to standard output, a device or a pipe; to a file by way of
/// "<file>.part", so that an interrupted run can be resumed.
class TranslationOutput {
 public:
  /// alignments: written and resumed with the results; must outlive it. identity: of this run; empty: it
  /// cannot be resumed. go_on: whether to resume an interrupted run, if there is one. Throws IoError, and
  /// ValueError if the interrupted run was a different one, or if there is one that is not to be resumed.
  TranslationOutput(const std::string& path, AlignmentFiles& alignments, RunIdentity identity, bool go_on)
      : to_file_(!path.empty() && is_regular_file_if_any(path)),
        alignments_(alignments),
        identity_(std::move(identity)) {
    if (go_on && !to_file_)
      throw ef::ValueError("translate",
                           {"--continue needs a regular file as --output, but '", path, "' is not one"});
    if (identity_.empty()) {
      output_.emplace(path);
    } else {
      output_.emplace(path, go_on, "give --continue to resume it, or remove the file to start again");
      if (output_->file()) file_ = &*output_->file();
    }
    if (file_ != nullptr && file_->saved()) {
      take_up(*file_->saved());
      file_->resume();
    } else {
      alignments_.restart();
    }
  }

  /// Whether results are lost, or kept for another run, if finish() is not reached.
  bool appears_at_the_end() const { return to_file_; }

  /// The position that an earlier run reached, if this one resumes it.
  const std::optional<InputPosition>& begin() const { return begin_; }

  /// Writes results; in a compressed file as a separate member or frame.
  void write(const std::string& text) { output_->write(text); }

  /// Reports that the results of all lines up to a position were written. Saves the position now and then, so
  /// that saving takes at most 5 % of the time.
  void reached(const InputPosition& position) {
    position_ = position;
    aligned_ = alignments_.written();
    using clock = std::chrono::steady_clock;
    const auto now = clock::now();
    if (file_ == nullptr || (saved_at_ && now - *saved_at_ < 20 * save_takes_)) return;
    save();
    saved_at_ = clock::now();
    save_takes_ = *saved_at_ - now;
  }

  /// Saves the position for a later run if possible. Returns whether a run can be resumed.
  bool keep() noexcept {
    if (file_ == nullptr) return false;
    try {
      if (position_) save();
    } catch (const ef::Error&) {  // such as on a full disk: the position saved before remains valid
    }
    return file_->saved().has_value();
  }

  /// The file with the results written so far.
  std::string part() const { return file_->part().string(); }

  void finish() { output_->finish(); }

 private:
  void save() {
    // Before the state: it names no bytes of theirs that could get lost. They may have lines after the
    // position, if an error ended the run between a line and the end of its chunk.
    alignments_.save();
    file_->save(nlohmann::json{
        {"lines", position_->lines},
        {"offset", position_->offset},
        {"hash", position_->hash},
        {"alignments", aligned_},
        {"run",
         identity_}}.dump(1));
  }

  void take_up(const std::string& text) {
    const std::string cannot = "cannot resume '" + file_->part().string() + "': ";
    RunIdentity before;
    nlohmann::json alignments;
    try {
      const auto state = nlohmann::json::parse(text);
      begin_ = {state.at("lines").get<std::uint64_t>(), state.at("offset").get<std::uint64_t>(),
                state.at("hash").get<std::uint64_t>()};
      before = state.at("run").get<RunIdentity>();
      alignments = state.at("alignments");
    } catch (const nlohmann::json::exception&) {
      throw ef::IoError("translate", {cannot, "its .state file is damaged; remove both to start again"});
    }
    const std::string changed = difference(before, identity_);
    if (!changed.empty()) {
      throw ef::ValueError(
          "translate",
          {cannot, changed, "; expected the same options and input; remove the file to start again"});
    }
    alignments_.resume(alignments);
  }

  bool to_file_;
  AlignmentFiles& alignments_;
  RunIdentity identity_;
  std::optional<ResultOutput> output_;
  ef::ResumableFile* file_ = nullptr;  // of output_, if the run can be resumed
  std::optional<InputPosition> begin_, position_;
  nlohmann::json aligned_;  // what was written of alignments_ at position_
  std::optional<std::chrono::steady_clock::time_point> saved_at_;
  std::chrono::steady_clock::duration save_takes_{};
};

}  // namespace translator
