#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/train/loop/progress.hpp"
#include "eigenformer/train/reporting/line_file.hpp"
#include "eigenformer/train/reporting/training_log_file.hpp"
#include "eigenformer/version.hpp"

namespace eigenformer {

/// Writes what a training tells to a file, one JSON object a line, and passes it on to another sink: the
/// schema is in docs/training/log.md.
///
/// Until start() nothing is written. A line that cannot be written, on a full disk, is left out, the other
/// sink gets a notice, and training goes on.
///
///     ef::TrainingLog log(ef::training_log_file("model"), sink);
///     ef::Trainer trainer(model, corpus, nullptr, options, log);
///     log.start({{"settings", settings}});
///     const ef::TrainingEnd end = trainer.run();
///     log.end(end);
class TrainingLog final : public TrainingSink {
 public:
  /// sink: gets everything as well; it must outlive this.
  TrainingLog(std::filesystem::path path, TrainingSink& sink) : path_(std::move(path)), sink_(sink) {}

  /// Begins a log, or goes on with the one that is there. about: an object, becomes part of the first line:
  /// settings, sizes. resumed: the update after which a training goes on; lines of later ones are cut off, as
  /// those updates are made again, and so is what is damaged. Throws IoError for a file that cannot be
  /// written.
  void start(const nlohmann::json& about = nlohmann::json::object(), std::optional<index_t> resumed = {}) {
    std::uint64_t keep = 0;
    seconds_before_ = weight_ = 0;
    step_ = resumed.value_or(0);
    if (resumed && std::filesystem::exists(path_)) keep = take_up(*resumed);
    file_.emplace(path_, keep);
    begin(about, resumed.has_value());
  }
  /// Begins a log where another training's may be, which stays until this training has saved a model: lines
  /// are kept until the on_checkpoint() that follows an on_best().
  void start_when_saved(const nlohmann::json& about = nlohmann::json::object()) {
    seconds_before_ = weight_ = 0;
    step_ = 0;
    waiting_ = true;
    begin(about, false);
  }

  /// Writes why a training ended.
  void end(TrainingEnd end) { this->end(EnumNames<TrainingEnd>::names[static_cast<std::size_t>(end)]); }
  /// The same for an end of another kind, such as an error's message.
  void end(const std::string& reason) {
    Line line = begun("end");
    line["reason"] = reason;
    write(line);
  }

  void on_step(const StepReport& r) override {
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
  void on_validation(const ValidationReport& r) override {
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
  void on_checkpoint() override {
    sink_.on_checkpoint();
    if (!waiting_ || !best_) return;
    waiting_ = false;
    try {
      file_.emplace(path_, 0);
    } catch (const IoError& error) {
      sink_.on_notice(detail::message_of(error) + "; training continues without a log");
    }
    for (const std::string& line : std::exchange(kept_, {})) append(line);
  }

 private:
  using Line = nlohmann::ordered_json;

  void begin(const nlohmann::json& about, bool resumed) {
    started_ = std::chrono::steady_clock::now();
    Line line = begun("start");
    line["resumed"] = resumed;
    line["format"] = 1;
    line["version"] = version_string();
    for (const auto& [name, value] : about.items()) line[name] = value;
    write(line);
  }

  // JSON has no infinity and no NaN.
  static Line number(double value) { return std::isfinite(value) ? Line(value) : Line(); }

  // "2026-01-31T12:34:56.789Z".
  static std::string now() {
    using namespace std::chrono;
    const auto time = system_clock::now();
    const std::time_t seconds = system_clock::to_time_t(floor<std::chrono::seconds>(time));
    const auto milliseconds =
        duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[80];
    const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    std::snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(milliseconds));
    return text;
  }

  // What every line has. seconds: of this run.
  Line begun(const char* event, std::optional<double> seconds = {}) const {
    const double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    return {{"event", event},
            {"time", now()},
            {"step", step_},
            {"seconds", std::round(1000 * (seconds_before_ + seconds.value_or(own))) / 1000}};
  }

  // Goes on with the counts of the lines that stay; returns their bytes.
  std::uint64_t take_up(index_t resumed) {
    const TrainingLogLines log = parse_training_log(read_text_file(path_), resumed);
    for (const nlohmann::json& line : log.lines) {
      seconds_before_ = std::max(seconds_before_, line.at("seconds").get<double>());
      const auto tokens = line.find("tokens");
      if (tokens != line.end() && tokens->is_number()) weight_ = std::max(weight_, tokens->get<double>());
    }
    return log.bytes;
  }

  void write(const Line& line) {
    // What a model writes need not be UTF-8.
    std::string text = line.dump(-1, ' ', false, Line::error_handler_t::replace);
    if (waiting_) {
      kept_.push_back(std::move(text));
    } else {
      append(text);
    }
  }
  void append(const std::string& text) {
    if (!file_) return;
    const int error = file_->append(text);
    if (error != 0 && !failing_)
      sink_.on_notice("cannot write '" + path_.string() + "': " + detail::errno_text(error) +
                      "; training continues, but lines are missing in this log");
    failing_ = error != 0;
  }

  std::filesystem::path path_;
  TrainingSink& sink_;
  std::optional<LineFile> file_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  double seconds_before_ = 0;  // of the runs before
  double weight_ = 0;
  index_t step_ = 0;
  bool failing_ = false;
  bool waiting_ = false;  // until the first save
  bool best_ = false;
  std::vector<std::string> kept_;  // lines, meanwhile
};

}  // namespace eigenformer
