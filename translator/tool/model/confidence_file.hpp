#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/search/text/confidence.hpp"

// The fit that turns a model's probabilities into confidences, saved by `translator calibrate --save`.
namespace translator {

inline std::filesystem::path confidence_file(const std::string& folder) {
  return std::filesystem::path(folder) / "confidence.json";
}

/// Throws IoError.
inline void save_confidence(const std::string& folder, const eigenformer::ConfidenceScale& scale) {
  eigenformer::detail::write_file(confidence_file(folder),
                                  eigenformer::options_to_json(scale).dump(2) + "\n");
}

/// Removes the confidences of a model that was replaced in its folder.
inline void remove_confidence(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove(confidence_file(folder), ignored);
}

/// Reads the file; without it, probabilities are used unchanged. Throws IoError for invalid contents.
inline eigenformer::ConfidenceScale load_confidence(const std::string& folder) {
  const std::filesystem::path path = confidence_file(folder);
  if (!eigenformer::detail::file_exists(path)) return {};
  try {
    auto scale = eigenformer::options_from_json<eigenformer::ConfidenceScale>(
        nlohmann::json::parse(eigenformer::detail::read_file(path)));
    eigenformer::validate_fields("confidence", scale);
    return scale;
  } catch (const nlohmann::json::exception& error) {
    throw eigenformer::IoError("confidence", {"'", path.string(), "' is not JSON: ", error.what()});
  } catch (const eigenformer::ValueError& error) {
    throw eigenformer::IoError("confidence", {"'", path.string(), "': ", error.what()});
  }
}

}  // namespace translator
