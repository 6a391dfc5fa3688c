#include "translator/training/training_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <span>
#include <system_error>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/version.hpp"

namespace eigenformer {

namespace {

// JSON has no infinity and no NaN: null.
nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

// "2026-01-31T12:34:56.789Z".
std::string now() {
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

}  // namespace

// A text file to which whole lines are appended, each with one system call: a killed process leaves no
// partial line, and a line that a full disk cut short is removed.
class TrainingLog::LineFile {
 public:
  // Opens the file for appending; creates it and its folder if they are missing. keep: bytes of an existing
  // file to keep; the rest is cut off. Throws IoError.
  LineFile(const std::filesystem::path& path, std::uint64_t keep) {
    std::error_code error;
    if (!path.parent_path().empty()) std::filesystem::create_directories(path.parent_path(), error);
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw detail::errno_error("training", "write", path, errno);
    struct stat state {};
    if (::fstat(descriptor_, &state) != 0 ||
        (static_cast<std::uint64_t>(state.st_size) > keep && !cut(keep))) {
      const int reason = errno;
      ::close(descriptor_);
      throw detail::errno_error("training", "write", path, reason);
    }
    bytes_ = std::min(keep, static_cast<std::uint64_t>(state.st_size));
  }
  ~LineFile() { ::close(descriptor_); }
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Appends a line, given without its line end. Returns 0, or the errno of the failure; the file then keeps
  // the earlier lines, and a later call may succeed.
  int append(std::string_view line) {
    const std::string text = std::string(line) + '\n';
    const int error = detail::write_all(descriptor_, std::as_bytes(std::span(text)));
    if (error == 0) {
      bytes_ += text.size();
    } else {
      (void)cut(bytes_);
    }
    return error;
  }

 private:
  bool cut(std::uint64_t bytes) const { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0; }

  std::uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

std::filesystem::path training_log_file(const std::filesystem::path& folder) {
  return folder / "training" / "training.jsonl";
}

TrainingLogLines parse_training_log(std::string_view text, index_t last_step) {
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

TrainingLogLines read_training_log(const std::filesystem::path& path) {
  TrainingLogLines log = parse_training_log(detail::read_text_file(path));
  if (log.damaged) {
    throw IoError("training_log", {"'", path.string(), "', line ", log.lines.size() + 1,
                                   " is not a line of a training log, expected a JSON object with "
                                   "\"event\", \"step\" and \"seconds\""});
  }
  return log;
}

TrainingLog::TrainingLog(std::filesystem::path path, TrainingSink& sink)
    : path_(std::move(path)), sink_(sink) {}
TrainingLog::~TrainingLog() = default;

void TrainingLog::start(const nlohmann::json& about, std::optional<index_t> resumed) {
  std::uint64_t keep = 0;
  seconds_before_ = last_seconds_ = weight_ = 0;
  step_ = resumed.value_or(0);
  std::error_code ignored;
  if (resumed && std::filesystem::exists(path_, ignored)) keep = take_up(*resumed);
  file_.reset();  // before the file is opened again
  file_ = std::make_unique<LineFile>(path_, keep);
  begin(about, resumed.has_value());
}

void TrainingLog::start_when_saved(const nlohmann::json& about, std::function<bool()> saved) {
  saved_ = std::move(saved);
  seconds_before_ = last_seconds_ = weight_ = 0;
  step_ = 0;
  waiting_ = true;
  begin(about, false);
}

void TrainingLog::end(TrainingEnd end, index_t step) {
  step_ = step;
  this->end(end);
}

void TrainingLog::end(const std::string& reason) {
  Line line = begun("end");
  line["reason"] = reason;
  write(line);
}

void TrainingLog::on_step(const StepReport& r) {
  step_ = r.step;
  weight_ += r.weight;
  Line line = begun("step", r.seconds);
  line["epoch"] = r.epoch;
  line["loss"] = number(r.loss);
  line["objective"] = number(r.objective);
  if (!r.parts.empty()) {
    Line& parts = line["parts"];
    for (const Measured& part : r.parts) parts[part.name] = number(part.value);
  }
  line["learning_rate"] = r.learning_rate;
  line["gradient_norm"] = number(r.gradient_norm);
  line["tokens"] = std::llround(weight_);
  line["tokens_per_second"] = number(r.weight_per_second);
  write(line);
  sink_.on_step(r);
}

void TrainingLog::on_validation(const ValidationReport& r) {
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

void TrainingLog::on_notice(const std::string& text) {
  Line line = begun("notice");
  line["text"] = text;
  write(line);
  sink_.on_notice(text);
}

void TrainingLog::on_best() {
  sink_.on_best();
  best_ = true;
}

void TrainingLog::on_checkpoint() {
  sink_.on_checkpoint();
  if (!waiting_ || !best_ || (saved_ && !saved_())) return;
  waiting_ = false;
  try {
    file_ = std::make_unique<LineFile>(path_, 0);
  } catch (const IoError& error) {
    sink_.on_notice(detail::message_of(error) + "; training continues without a log");
  }
  for (const std::string& line : std::exchange(kept_, {})) append(line);
}

void TrainingLog::begin(const nlohmann::json& about, bool resumed) {
  started_ = std::chrono::steady_clock::now();
  Line line = begun("start");
  line["resumed"] = resumed;
  line["format"] = 1;
  line["version"] = version_string();
  for (const auto& [name, value] : about.items()) line[name] = value;
  write(line);
}

TrainingLog::Line TrainingLog::begun(const char* event, std::optional<double> seconds) {
  const double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  last_seconds_ = std::max(last_seconds_, seconds_before_ + seconds.value_or(own));
  return {{"event", event},
          {"time", now()},
          {"step", step_},
          {"seconds", std::round(1000 * last_seconds_) / 1000}};
}

std::uint64_t TrainingLog::take_up(index_t resumed) {
  const TrainingLogLines log = parse_training_log(detail::read_text_file(path_), resumed);
  for (const nlohmann::json& line : log.lines) {
    seconds_before_ = std::max(seconds_before_, line.at("seconds").get<double>());
    const auto tokens = line.find("tokens");
    if (tokens != line.end() && tokens->is_number()) weight_ = std::max(weight_, tokens->get<double>());
  }
  return log.bytes;
}

void TrainingLog::write(const Line& line) {
  // A model's output need not be valid UTF-8.
  std::string text = line.dump(-1, ' ', false, Line::error_handler_t::replace);
  if (waiting_) {
    kept_.push_back(std::move(text));
  } else {
    append(text);
  }
}

void TrainingLog::append(const std::string& text) {
  if (!file_) return;
  const int error = file_->append(text);
  if (error != 0 && !failing_)
    sink_.on_notice("cannot write '" + path_.string() + "': " + detail::errno_text(error) +
                    "; training continues, but lines are missing in this log");
  failing_ = error != 0;
}

}  // namespace eigenformer
