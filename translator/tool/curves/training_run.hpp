#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "translator/training/training_log.hpp"

namespace translator {

namespace ef = eigenformer;

/// The quantity on the x axis.
enum class CurveAxis { steps, minutes, tokens };

struct CurvePoint {
  double x = 0, y = 0;
};
using Curve = std::vector<CurvePoint>;

/// The curves of one training.
struct TrainingRun {
  std::string name;
  Curve loss, learning_rate;                 ///< of updates
  std::map<std::string, Curve> validations;  ///< by measure: "loss", "bleu", "chrf"
};

/// Reads the curves of a training from its folder or its log. Validations of averaged weights are left out,
/// because they are not steps of the training. Throws IoError for a folder without a log and for a log
/// without updates.
inline TrainingRun read_training_run(const std::string& place, CurveAxis axis) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool is_folder = fs::is_directory(place, error);
  const fs::path file = is_folder ? ef::training_log_file(place) : fs::path(place);
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::none)
    throw ef::detail::errno_error("curves", "read", file, error.value());
  if (!fs::exists(status))
    throw ef::IoError("curves", {"'", file.string(), "' does not exist, expected the log of a training"});
  TrainingRun run;
  // A log with another file name is labelled by that name.
  run.name = is_folder                             ? fs::path(place).lexically_normal().string()
             : file.filename() == "training.jsonl" ? file.parent_path().parent_path().string()
                                                   : file.stem().string();
  if (run.name.empty()) run.name = file.string();
  while (run.name.size() > 1 && run.name.back() == '/') run.name.pop_back();
  const ef::TrainingLogLines log = ef::read_training_log(file);
  for (const nlohmann::json& line : log.lines) {
    const auto number = [&](const nlohmann::json& in, const char* name, auto&& use) {
      if (in.contains(name) && in.at(name).is_number()) use(in.at(name).get<double>());
    };
    double x = line.at("step").get<double>();
    if (axis == CurveAxis::minutes) x = line.at("seconds").get<double>() / 60;
    if (axis == CurveAxis::tokens) number(line, "tokens", [&](double tokens) { x = tokens; });
    if (ef::detail::is_text(line.at("event"), "step")) {
      number(line, "loss", [&](double loss) { run.loss.push_back({x, loss}); });
      number(line, "learning_rate", [&](double rate) { run.learning_rate.push_back({x, rate}); });
    } else if (ef::detail::is_text(line.at("event"), "validation") && !line.contains("averaged") &&
               line.contains("measures")) {
      for (const auto& [name, value] : line.at("measures").items()) {
        if (value.is_number()) run.validations[name].push_back({x, value.get<double>()});
      }
    }
  }
  if (run.loss.empty() && run.validations.empty())
    throw ef::IoError("curves", {"'", file.string(), "' has no updates or validations yet"});
  return run;
}

/// Reduces a curve to a maximum number of points, each the mean of neighbouring ones.
inline Curve thinned(const Curve& curve, std::size_t most) {
  const std::size_t each = (curve.size() + most - 1) / most;
  if (each < 2) return curve;
  Curve means;
  for (std::size_t begin = 0; begin < curve.size(); begin += each) {
    const std::size_t end = std::min(curve.size(), begin + each);
    CurvePoint sum;
    for (std::size_t i = begin; i < end; ++i) {
      sum.x += curve[i].x;
      sum.y += curve[i].y;
    }
    const auto count = static_cast<double>(end - begin);
    means.push_back({sum.x / count, sum.y / count});
  }
  return means;
}

}  // namespace translator
