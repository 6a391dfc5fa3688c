#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "alignment_file.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/data/files/resumable_file.hpp"
#include "run_identity.hpp"
#include "terminal/result_output.hpp"

namespace translator {

namespace ef = eigenformer;

/// How far a run has read its input.
struct InputPosition {
  std::uint64_t lines = 0;   ///< of this run's part of the input
  std::uint64_t offset = 0;  ///< LineReader::offset() after them
  std::uint64_t hash = 0;    ///< LineReader::hash() there
};

/// Takes the results of a run: to standard output, a device or a pipe as they come; to a file by way of
/// "<file>.part", so that an interrupted run can go on.
class TranslationOutput {
 public:
  /// alignments: begin and go on with the results; must outlive it. identity: of this run; empty: an
  /// interrupted one cannot go on. go_on: whether to go on after what an interrupted run has done, if there
  /// is any. Throws IoError, and ValueError where an interrupted run was another one, or there is one and it
  /// is not to go on.
  TranslationOutput(const std::string& path, AlignmentFiles& alignments, RunIdentity identity, bool go_on)
      : to_file_(!path.empty() && is_regular_file_if_any(path)),
        alignments_(alignments),
        identity_(std::move(identity)),
        compression_(ef::compression_of_name(path)) {
    if (go_on && !to_file_)
      throw ef::ValueError("translate",
                           "--continue needs a regular file as --output, but '" + path + "' is not one");
    if (!to_file_ || identity_.empty()) {
      stream_.emplace(path);
      alignments_.restart();
      return;
    }
    (void)ef::compress(compression_, "");  // throws now where it cannot
    file_.emplace(path);
    if (!file_->saved()) {
      file_->restart();
      alignments_.restart();
      return;
    }
    if (!go_on) {
      throw ef::ValueError("translate", "'" + file_->part().string() +
                                            "' holds the translations of an interrupted run; give --continue "
                                            "to resume it, or remove the file to start again");
    }
    take_up(*file_->saved());
    file_->resume();
  }

  /// Whether results are lost, or kept for another run, when finish() is not reached.
  bool appears_at_the_end() const { return to_file_; }

  /// How far an earlier run came, where this one goes on.
  const std::optional<InputPosition>& begin() const { return begin_; }

  /// Writes results, as a member or frame of their own where the file is compressed.
  void write(const std::string& text) {
    if (stream_) {
      stream_->write(text);
    } else if (!text.empty()) {
      file_->write(ef::compress(compression_, text));
    }
  }

  /// Says that the results of all lines up to a position were written. Notes it in the file now and then: as
  /// often as takes no more than 5 % of the time.
  void reached(const InputPosition& position) {
    position_ = position;
    using clock = std::chrono::steady_clock;
    const auto now = clock::now();
    if (!file_ || (saved_at_ && now - *saved_at_ < 20 * save_takes_)) return;
    save();
    saved_at_ = clock::now();
    save_takes_ = *saved_at_ - now;
  }

  /// Notes how far the run came, for another one to go on, as well as it can. Returns whether there is
  /// anything to go on with.
  bool keep() noexcept {
    if (!file_) return false;
    try {
      if (position_) save();
    } catch (const ef::Error&) {  // such as on a full disk: what was noted before stays
    }
    return file_->saved().has_value();
  }

  /// The file that holds what was written so far.
  std::string part() const { return file_->part().string(); }

  void finish() {
    if (stream_) {
      stream_->finish();
      return;
    }
    // No bytes are no compressed text.
    if (file_->bytes_written() == 0) file_->write(ef::compress(compression_, ""));
    file_->commit();
  }

 private:
  void save() {
    // Before the state: it names no bytes of theirs that could get lost.
    nlohmann::json alignments = alignments_.save();
    file_->save(nlohmann::json{
        {"lines", position_->lines},
        {"offset", position_->offset},
        {"hash", position_->hash},
        {"alignments", std::move(alignments)},
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
      throw ef::IoError("translate", cannot + "its .state file is damaged; remove both to start again");
    }
    const std::string changed = difference(before, identity_);
    if (!changed.empty()) {
      throw ef::ValueError(
          "translate",
          cannot + changed + "; expected the same options and input; remove the file to start again");
    }
    alignments_.resume(alignments);
  }

  bool to_file_;
  AlignmentFiles& alignments_;
  RunIdentity identity_;
  ef::Compression compression_;
  std::optional<ResultOutput> stream_;
  std::optional<ef::ResumableFile> file_;
  std::optional<InputPosition> begin_, position_;
  std::optional<std::chrono::steady_clock::time_point> saved_at_;
  std::chrono::steady_clock::duration save_takes_{};
};

}  // namespace translator
