#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/train/reporting/progress.hpp"

namespace eigenformer {

/// The path of the training log in a model's folder. The file need not exist.
std::filesystem::path training_log_file(const std::filesystem::path& folder);

/// The lines of a training log; the schema is in docs/training/log.md.
struct TrainingLogLines {
  std::vector<nlohmann::json> lines{};  ///< one object per line
  std::uint64_t bytes = 0;              ///< size of these lines in the file, line ends included
  bool damaged = false;                 ///< whether the line after them is not a line of a training log
};

/// Parses a log's text up to the first line that is damaged or belongs to an update after last_step. A last
/// line without a line end, as a killed process may leave, is ignored. Throws nothing for damaged text.
TrainingLogLines parse_training_log(std::string_view text,
                                    index_t last_step = std::numeric_limits<index_t>::max());

/// Reads a training log. Throws IoError for a file that cannot be read, and for a damaged line, which the
/// message names.
TrainingLogLines read_training_log(const std::filesystem::path& path);

/// Writes the events of a training to a file, one JSON object per line, and passes them on to another sink.
/// The schema is in docs/training/log.md.
///
/// Nothing is written before start(). A line that cannot be written (full disk) is left out, the other sink
/// gets a notice, and training goes on.
///
///     ef::TrainingLog log(ef::training_log_file("model"), sink);
///     ef::Trainer trainer(model, corpus, nullptr, options, log);
///     log.start({{"settings", settings}});
///     const ef::TrainingEnd end = trainer.run();
///     log.end(end);
class TrainingLog final : public TrainingSink {
 public:
  /// sink: receives all events as well; must outlive the log. Opens nothing yet.
  TrainingLog(std::filesystem::path path, TrainingSink& sink);
  ~TrainingLog() override;

  /// Begins a log, or continues an existing one. about: an object whose members become part of the first
  /// line: settings, sizes. resumed: the update after which a training is resumed; lines of later updates,
  /// which will be made again, and damaged lines are cut off. Without it the file is overwritten. Throws
  /// IoError when the file cannot be read or written.
  void start(const nlohmann::json& about = nlohmann::json::object(), std::optional<index_t> resumed = {});
  /// Begins a log that replaces another training's log only when this training saves its first model: until
  /// the on_checkpoint() after an on_best(), lines are kept in memory. saved: whether the sink saved at that
  /// on_checkpoint(); empty: it always does.
  void start_when_saved(const nlohmann::json& about = nlohmann::json::object(),
                        std::function<bool()> saved = {});

  /// Writes the last line: why the training ended, after `step` updates in all.
  void end(TrainingEnd end, index_t step);
  /// The same after the updates that were reported last.
  void end(TrainingEnd end) { this->end(word_of(end)); }
  /// The same with a reason as text, such as an error's message.
  void end(const std::string& reason);

  void on_step(const StepReport& r) override;
  void on_validation(const ValidationReport& r) override;
  void on_notice(const std::string& text) override;
  void on_best() override;
  void on_decay() override { sink_.on_decay(); }
  void on_checkpoint() override;

 private:
  using Line = nlohmann::ordered_json;
  class LineFile;

  void begin(const nlohmann::json& about, bool resumed);

  // The fields of every line. seconds: since the start of this run; by default measured here, since the log
  // was made, which is a little earlier than the start that reports count from: seconds never decrease.
  Line begun(const char* event, std::optional<double> seconds = {});

  // Restores the counters from the lines that are kept; returns their size in bytes.
  std::uint64_t take_up(index_t resumed);

  void write(const Line& line);
  void append(const std::string& text);

  std::filesystem::path path_;
  TrainingSink& sink_;
  std::unique_ptr<LineFile> file_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  double seconds_before_ = 0;  // of earlier runs
  double last_seconds_ = 0;    // of the last line
  double weight_ = 0;
  index_t step_ = 0;
  bool failing_ = false;
  bool waiting_ = false;  // for the first save
  std::function<bool()> saved_;
  bool best_ = false;
  std::vector<std::string> kept_;  // lines until the first save
};

}  // namespace eigenformer
