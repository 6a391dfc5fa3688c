#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/train/reporting/progress.hpp"
#include "eigenformer/version.hpp"

namespace eigenformer {

/// The path of the training log in a model's folder. The file need not exist.
EIGENFORMER_IO_FUNCTION std::filesystem::path training_log_file(const std::filesystem::path& folder);

/// The lines of a training log; the schema is in docs/training/log.md.
struct TrainingLogLines {
  std::vector<nlohmann::json> lines{};  ///< one object per line
  std::uint64_t bytes = 0;              ///< size of these lines in the file, line ends included
  bool damaged = false;                 ///< whether the line after them is not a line of a training log
};

/// Parses a log's text up to the first line that is damaged or belongs to an update after last_step. A last
/// line without a line end, as a killed process may leave, is ignored. Throws nothing for damaged text.
EIGENFORMER_IO_FUNCTION TrainingLogLines
parse_training_log(std::string_view text, index_t last_step = std::numeric_limits<index_t>::max());

/// Reads a training log. Throws IoError for a file that cannot be read, and for a damaged line, which the
/// message names.
EIGENFORMER_IO_FUNCTION TrainingLogLines read_training_log(const std::filesystem::path& path);

namespace detail {

/// A text file to which whole lines are appended, each with one system call: a killed process leaves no
/// partial line, and a line that a full disk cut short is removed. Not thread-safe.
class LineFile {
 public:
  /// Opens the file for appending; creates it and its folder if they are missing. keep: bytes of an existing
  /// file to keep; the rest is cut off. Throws IoError.
  LineFile(const std::filesystem::path& path, std::uint64_t keep);
  /// Takes over the file; `other` must not be used afterwards.
  LineFile(LineFile&& other) noexcept
      : path_(std::move(other.path_)),
        bytes_(other.bytes_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  /// Appends a line, given without its line end. Returns 0, or the errno of the failure; the file then keeps
  /// the earlier lines, and a later call may succeed.
  int append(std::string_view line);

  /// The path given to the constructor.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool cut(std::uint64_t bytes) const { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0; }

  std::filesystem::path path_;
  std::uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace detail

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
  TrainingLog(std::filesystem::path path, TrainingSink& sink) : path_(std::move(path)), sink_(sink) {}

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
  void end(TrainingEnd end, index_t step) {
    step_ = step;
    this->end(end);
  }
  /// The same after the updates that were reported last.
  void end(TrainingEnd end) { this->end(word_of(end)); }
  /// The same with a reason as text, such as an error's message.
  void end(const std::string& reason) {
    Line line = begun("end");
    line["reason"] = reason;
    write(line);
  }

  EIGENFORMER_IO_FUNCTION void on_step(const StepReport& r) override;
  EIGENFORMER_IO_FUNCTION void on_validation(const ValidationReport& r) override;
  void on_notice(const std::string& text) override {
    Line line = begun("notice");
    line["text"] = text;
    write(line);
    sink_.on_notice(text);
  }
  void on_best() override {
    sink_.on_best();
    best_ = true;
  }
  void on_decay() override { sink_.on_decay(); }
  EIGENFORMER_IO_FUNCTION void on_checkpoint() override;

 private:
  using Line = nlohmann::ordered_json;

  void begin(const nlohmann::json& about, bool resumed);

  // JSON has no infinity and no NaN: null.
  static Line number(double value) { return std::isfinite(value) ? Line(value) : Line(); }

  // "2026-01-31T12:34:56.789Z".
  static std::string now();

  // The fields of every line. seconds: since the start of this run; by default measured here, since the log
  // was made, which is a little earlier than the start that reports count from: seconds never decrease.
  Line begun(const char* event, std::optional<double> seconds = {});

  // Restores the counters from the lines that are kept; returns their size in bytes.
  std::uint64_t take_up(index_t resumed);

  void write(const Line& line);
  void append(const std::string& text);

  std::filesystem::path path_;
  TrainingSink& sink_;
  std::optional<detail::LineFile> file_;
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

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION std::filesystem::path training_log_file(const std::filesystem::path& folder) {
  return folder / "training" / "training.jsonl";
}

EIGENFORMER_IO_FUNCTION TrainingLogLines parse_training_log(std::string_view text, index_t last_step) {
  TrainingLogLines log;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    nlohmann::json line = detail::parse_json(text.substr(begin, end - begin));
    const auto has = [&](const char* name, bool (nlohmann::json::*is)() const noexcept) {
      return line.is_object() && line.contains(name) && (line.at(name).*is)();
    };
    log.damaged = !has("event", &nlohmann::json::is_string) ||
                  !has("step", &nlohmann::json::is_number_integer) ||
                  !has("seconds", &nlohmann::json::is_number);
    if (log.damaged || line["step"].get<index_t>() > last_step) break;
    log.lines.push_back(std::move(line));
    log.bytes = end + 1;
  }
  return log;
}

EIGENFORMER_IO_FUNCTION TrainingLogLines read_training_log(const std::filesystem::path& path) {
  TrainingLogLines log = parse_training_log(detail::read_text_file(path));
  if (log.damaged) {
    throw IoError("training_log", {"'", path.string(), "', line ", log.lines.size() + 1,
                                   " is not a line of a training log, expected a JSON object with "
                                   "\"event\", \"step\" and \"seconds\""});
  }
  return log;
}

namespace detail {

EIGENFORMER_IO_FUNCTION LineFile::LineFile(const std::filesystem::path& path, std::uint64_t keep)
    : path_(path) {
  std::error_code error;
  if (!path_.parent_path().empty()) std::filesystem::create_directories(path_.parent_path(), error);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw detail::errno_error("training", "write", path_, errno);
  struct stat state {};
  if (::fstat(descriptor_, &state) != 0 || (static_cast<std::uint64_t>(state.st_size) > keep && !cut(keep))) {
    const int reason = errno;
    ::close(descriptor_);
    throw detail::errno_error("training", "write", path_, reason);
  }
  bytes_ = std::min(keep, static_cast<std::uint64_t>(state.st_size));
}

EIGENFORMER_IO_FUNCTION int LineFile::append(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  const int error = detail::write_all(descriptor_, std::as_bytes(std::span(text)));
  if (error == 0) {
    bytes_ += text.size();
  } else {
    (void)cut(bytes_);
  }
  return error;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION void TrainingLog::start(const nlohmann::json& about, std::optional<index_t> resumed) {
  std::uint64_t keep = 0;
  seconds_before_ = last_seconds_ = weight_ = 0;
  step_ = resumed.value_or(0);
  std::error_code ignored;
  if (resumed && std::filesystem::exists(path_, ignored)) keep = take_up(*resumed);
  file_.emplace(path_, keep);
  begin(about, resumed.has_value());
}

EIGENFORMER_IO_FUNCTION void TrainingLog::start_when_saved(const nlohmann::json& about,
                                                           std::function<bool()> saved) {
  saved_ = std::move(saved);
  seconds_before_ = last_seconds_ = weight_ = 0;
  step_ = 0;
  waiting_ = true;
  begin(about, false);
}

EIGENFORMER_IO_FUNCTION void TrainingLog::on_step(const StepReport& r) {
  step_ = r.step;
  weight_ += r.weight;
  Line line = begun("step", r.seconds);
  line["epoch"] = r.epoch;
  line["loss"] = number(r.loss);
  line["objective"] = number(r.objective);
  if (!r.parts.empty()) {
    Line& parts = line["parts"];
    for (const LossPart& part : r.parts) parts[part.name] = number(part.value);
  }
  line["learning_rate"] = r.learning_rate;
  line["gradient_norm"] = number(r.gradient_norm);
  line["tokens"] = std::llround(weight_);
  line["tokens_per_second"] = number(r.weight_per_second);
  write(line);
  sink_.on_step(r);
}

EIGENFORMER_IO_FUNCTION void TrainingLog::on_validation(const ValidationReport& r) {
  step_ = r.step;
  Line line = begun("validation", r.seconds);
  line["epoch"] = r.epoch;
  line["tokens"] = std::llround(weight_);
  Line& measures = line["measures"];
  measures[r.name] = number(r.value);
  for (const Measured& other : r.others) measures[other.name] = number(other.value);
  line["by"] = r.name;
  line["best"] = r.best;
  if (r.averaged > 0) line["averaged"] = r.averaged;
  if (!r.samples.empty()) {
    Line& samples = line["samples"] = Line::array();
    for (const SampleTranslation& s : r.samples)
      samples.push_back({{"source", s.source}, {"reference", s.reference}, {"output", s.output}});
  }
  write(line);
  sink_.on_validation(r);
}

EIGENFORMER_IO_FUNCTION void TrainingLog::on_checkpoint() {
  sink_.on_checkpoint();
  if (!waiting_ || !best_ || (saved_ && !saved_())) return;
  waiting_ = false;
  try {
    file_.emplace(path_, 0);
  } catch (const IoError& error) {
    sink_.on_notice(detail::message_of(error) + "; training continues without a log");
  }
  for (const std::string& line : std::exchange(kept_, {})) append(line);
}

EIGENFORMER_IO_FUNCTION void TrainingLog::begin(const nlohmann::json& about, bool resumed) {
  started_ = std::chrono::steady_clock::now();
  Line line = begun("start");
  line["resumed"] = resumed;
  line["format"] = 1;
  line["version"] = version_string();
  for (const auto& [name, value] : about.items()) line[name] = value;
  write(line);
}

EIGENFORMER_IO_FUNCTION std::string TrainingLog::now() {
  using namespace std::chrono;
  const auto time = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(floor<std::chrono::seconds>(time));
  const auto milliseconds = duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[80];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(milliseconds));
  return text;
}

EIGENFORMER_IO_FUNCTION TrainingLog::Line TrainingLog::begun(const char* event,
                                                             std::optional<double> seconds) {
  const double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  last_seconds_ = std::max(last_seconds_, seconds_before_ + seconds.value_or(own));
  return {{"event", event},
          {"time", now()},
          {"step", step_},
          {"seconds", std::round(1000 * last_seconds_) / 1000}};
}

EIGENFORMER_IO_FUNCTION std::uint64_t TrainingLog::take_up(index_t resumed) {
  const TrainingLogLines log = parse_training_log(detail::read_text_file(path_), resumed);
  for (const nlohmann::json& line : log.lines) {
    seconds_before_ = std::max(seconds_before_, line.at("seconds").get<double>());
    const auto tokens = line.find("tokens");
    if (tokens != line.end() && tokens->is_number()) weight_ = std::max(weight_, tokens->get<double>());
  }
  return log.bytes;
}

EIGENFORMER_IO_FUNCTION void TrainingLog::write(const Line& line) {
  // A model's output need not be valid UTF-8.
  std::string text = line.dump(-1, ' ', false, Line::error_handler_t::replace);
  if (waiting_) {
    kept_.push_back(std::move(text));
  } else {
    append(text);
  }
}

EIGENFORMER_IO_FUNCTION void TrainingLog::append(const std::string& text) {
  if (!file_) return;
  const int error = file_->append(text);
  if (error != 0 && !failing_)
    sink_.on_notice("cannot write '" + path_.string() + "': " + detail::errno_text(error) +
                    "; training continues, but lines are missing in this log");
  failing_ = error != 0;
}

}  // namespace eigenformer

#endif
