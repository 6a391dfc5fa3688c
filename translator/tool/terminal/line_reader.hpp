#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "translator/preparing/file_lines.hpp"

namespace translator {

/// Reads lines from a file or from stdin, decompresses gzip and zstd, and returns the lines that are
/// available: a chunk ends when no further line is waiting, so that interactive input is answered at once.
class LineReader : private eigenformer::detail::FileLines {
 public:
  /// Reads stdin if the name is empty. stop: ends reading as at the end of the input. Throws IoError.
  explicit LineReader(const std::string& path, std::stop_token stop = {})
      : FileLines(path, "translate", std::move(stop)) {}

  /// Returns at least one line, and up to `most` if they are available; nothing at the end. Lines end with
  /// "\n" or "\r\n"; the last one may lack it. Throws IoError.
  std::vector<std::string> chunk(std::size_t most) {
    std::vector<std::string> lines;
    while (lines.size() < most && offset_ < end_ && (lines.empty() || line_waits())) {
      const auto line = next_line();
      if (!line) break;
      lines.emplace_back(*line);
    }
    return lines;
  }

  /// Skips lines until `lines` were skipped or the next one begins at byte `offset` of the text or later.
  /// Returns the number of lines. Throws IoError.
  std::size_t skip(std::size_t lines, std::uint64_t offset = std::numeric_limits<std::uint64_t>::max()) {
    std::size_t skipped = 0;
    while (skipped < lines && offset_ < offset && next_line()) ++skipped;
    return skipped;
  }

  /// Returns the rest of the input, byte for byte. Throws IoError.
  using FileLines::rest;

  /// Ends reading before the first line that begins at this byte of the text or later.
  void end_at(std::uint64_t offset) { end_ = offset; }

  /// Bytes of the text that were returned or skipped, line ends included.
  std::uint64_t offset() const noexcept { return offset_; }

  /// A hash of all these bytes (FNV-1a, 64 bits).
  std::uint64_t hash() const noexcept { return hash_; }

  using FileLines::name;

 private:
  // The returned line is valid until the next call.
  std::optional<std::string_view> next_line() {
    const std::optional<std::string_view> line = next_with_end();
    if (!line) return std::nullopt;
    for (const char c : *line) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    offset_ += line->size();
    return without_end(*line);
  }

  eigenformer::IoError too_long() const override {
    return eigenformer::IoError("translate", {"'", name(), "' has a line of more than ", longest_line >> 20,
                                              " MiB, from byte ", offset_ + 1, " on"});
  }

  std::uint64_t offset_ = 0;  // position in the text of the first byte that was not returned
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

inline void drop_byte_order_mark(std::string& line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
}

/// Replaces what is not UTF-8 by U+FFFD and returns the number of lines that had some.
inline std::size_t replace_invalid_utf8(std::vector<std::string>& lines) {
  std::size_t replaced = 0;
  for (std::string& line : lines) {
    if (!eigenformer::detail::find_invalid_utf8(line)) continue;
    line = eigenformer::valid_utf8(line);
    ++replaced;
  }
  return replaced;
}

/// Keeps the lines before the first one that is not UTF-8, and returns a message about that line; empty: all
/// are UTF-8. before: number of lines read earlier.
inline std::string cut_at_invalid_utf8(std::vector<std::string>& lines, std::size_t before,
                                       const LineReader& reader) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto bad = eigenformer::detail::find_invalid_utf8(lines[i]);
    if (!bad) continue;
    lines.resize(i);
    return "invalid UTF-8 in line " + std::to_string(before + i + 1) + " of " + reader.name() + ", at byte " +
           std::to_string(*bad + 1) + " of the line";
  }
  return {};
}

}  // namespace translator
