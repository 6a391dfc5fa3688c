#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace eigenformer {

/// Returns links in the text form of Moses, fast_align and Marian, such as "0-0 1-2"; no links give an empty
/// text.
EIGENFORMER_IO_FUNCTION std::string alignment_text(std::span<const AlignmentLink> links);

/// Parses a line such as "0-0 1-2": links source-target, counted from 0, separated by spaces or tabs. Throws
/// ValueError that quotes the first word that is not a link.
EIGENFORMER_IO_FUNCTION std::vector<AlignmentLink> parse_alignment(std::string_view line);

/// A gold alignment with sure and possible links (Och and Ney 2003).
struct RightAlignment {
  std::vector<AlignmentLink> sure,  ///< links that every correct alignment has
      possible;                     ///< links that a correct alignment may have; sure ones are not repeated
};

namespace detail {

// Applies `parse` to each line of a file. Throws IoError that names the line for which `parse` throws.
template <class F>
auto read_alignment_lines(const std::filesystem::path& path, F&& parse) {
  std::vector<std::invoke_result_t<F, const std::string&>> all;
  for (const std::string& line : read_lines(path)) {
    try {
      all.push_back(parse(line));
    } catch (const ValueError& error) {
      throw IoError("alignment", {"'", path.string(), "', line ", all.size() + 1, ": ", message_of(error)});
    }
  }
  return all;
}

}  // namespace detail

/// Reads one alignment per line from a file; an empty line is an alignment without links. Throws IoError for
/// a file that cannot be read and for a line that is not an alignment, naming the line.
inline std::vector<std::vector<AlignmentLink>> read_alignments(const std::filesystem::path& path) {
  return detail::read_alignment_lines(path, [](const std::string& line) { return parse_alignment(line); });
}

/// Reads one gold alignment per line from a file, with sure links written 0-0 and possible ones 0p0. Throws
/// as read_alignments() does.
EIGENFORMER_IO_FUNCTION std::vector<RightAlignment> read_right_alignments(const std::filesystem::path& path);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION std::string alignment_text(std::span<const AlignmentLink> links) {
  std::string text;
  for (const AlignmentLink& link : links) {
    if (!text.empty()) text += ' ';
    text += std::to_string(link.source) + '-' + std::to_string(link.target);
  }
  return text;
}

EIGENFORMER_IO_FUNCTION std::vector<AlignmentLink> parse_alignment(std::string_view line) {
  std::vector<AlignmentLink> links;
  const auto number = [](std::string_view digits) -> std::optional<index_t> {
    std::int32_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
    return value;
  };
  for (const std::string_view word : detail::parts_between(line, " \t\r")) {
    if (word.empty()) continue;
    const std::size_t dash = word.find('-');
    const auto source = number(word.substr(0, dash));
    const auto target = dash == std::string_view::npos ? std::nullopt : number(word.substr(dash + 1));
    if (!source || !target) {
      throw ValueError("alignment",
                       {"'", word, "' is not a link, expected links such as 0-0 1-2, counted from 0"});
    }
    links.push_back({*source, *target});
  }
  return links;
}

EIGENFORMER_IO_FUNCTION std::vector<RightAlignment> read_right_alignments(const std::filesystem::path& path) {
  return detail::read_alignment_lines(path, [](const std::string& line) {
    std::string sure, possible;
    for (const std::string_view part : detail::parts_between(line, " \t\r")) {
      std::string word(part);
      const std::size_t mark = word.find('p');
      std::string& list = mark == std::string::npos ? sure : possible;
      if (mark != std::string::npos) word[mark] = '-';
      list += word + ' ';
    }
    return RightAlignment{parse_alignment(sure), parse_alignment(possible)};
  });
}

}  // namespace eigenformer

#endif
