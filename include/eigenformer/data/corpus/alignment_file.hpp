#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace eigenformer {

/// Links as Moses, fast_align and Marian write them: "0-0 1-2".
inline std::string alignment_text(std::span<const AlignmentLink> links) {
  std::string text;
  for (const AlignmentLink& link : links) {
    if (!text.empty()) text += ' ';
    text += std::to_string(link.source) + '-' + std::to_string(link.target);
  }
  return text;
}

/// The links of a line "0-0 1-2", with spaces or tabs between them. Throws ValueError that names the first
/// word that is no link.
inline std::vector<AlignmentLink> parse_alignment(std::string_view line) {
  std::vector<AlignmentLink> links;
  const auto number = [](std::string_view digits) -> std::optional<index_t> {
    std::int32_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
    return value;
  };
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    const std::size_t dash = word.find('-');
    const auto source = number(word.substr(0, dash));
    const auto target = dash == std::string_view::npos ? std::nullopt : number(word.substr(dash + 1));
    if (!source || !target) {
      throw ValueError("alignment", "'" + std::string(word) +
                                        "' is no link, expected links such as 0-0 1-2, numbers from 0");
    }
    links.push_back({*source, *target});
  }
  return links;
}

/// The links of each line of a file; a line may be empty. Throws IoError for a file that cannot be read and
/// for a line of another form.
inline std::vector<std::vector<AlignmentLink>> read_alignments(const std::filesystem::path& path) {
  std::vector<std::vector<AlignmentLink>> all;
  for (const std::string& line : read_lines(path)) {
    try {
      all.push_back(parse_alignment(line));
    } catch (const ValueError& error) {
      throw IoError("alignment", "'" + path.string() + "', line " + std::to_string(all.size() + 1) + ": " +
                                     std::string(error.what()));
    }
  }
  return all;
}

}  // namespace eigenformer
