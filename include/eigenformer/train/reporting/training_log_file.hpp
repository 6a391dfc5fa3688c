#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"

namespace eigenformer {

/// The path of the training log in a model's folder. The file need not exist.
inline std::filesystem::path training_log_file(const std::filesystem::path& folder) {
  return folder / "training" / "training.jsonl";
}

/// The lines of a training log; the schema is in docs/training/log.md.
struct TrainingLogLines {
  std::vector<nlohmann::json> lines{};  ///< one object per line
  std::uint64_t bytes = 0;              ///< size of these lines in the file, line ends included
  bool damaged = false;                 ///< whether the line after them is not a line of a training log
};

/// Parses a log's text up to the first line that is damaged or belongs to an update after last_step. A last
/// line without a line end, as a killed process may leave, is ignored. Throws nothing for damaged text.
inline TrainingLogLines parse_training_log(std::string_view text,
                                           index_t last_step = std::numeric_limits<index_t>::max()) {
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

/// Reads a training log. Throws IoError for a file that cannot be read, and for a damaged line, which the
/// message names.
inline TrainingLogLines read_training_log(const std::filesystem::path& path) {
  TrainingLogLines log = parse_training_log(read_text_file(path));
  if (log.damaged) {
    throw IoError("training_log", "'" + path.string() + "', line " + std::to_string(log.lines.size() + 1) +
                                      " is not a line of a training log, expected a JSON object with "
                                      "\"event\", \"step\" and \"seconds\"");
  }
  return log;
}

}  // namespace eigenformer
