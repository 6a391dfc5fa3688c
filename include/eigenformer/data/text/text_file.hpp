#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer {

namespace detail {

/// Reads all bytes of a file, unchanged. Throws IoError when it is missing, a folder or unreadable.
EIGENFORMER_FUNCTION std::string read_text_file(const std::filesystem::path& path);

}  // namespace detail

/// Splits UTF-8 text into copies of its lines: `\n` and `\r\n` end a line, a byte order mark at the start is
/// dropped, and the last line needs no line end. Messages call the text `name`. Throws IoError for invalid
/// UTF-8 and for a NUL byte, naming line and byte offset.
EIGENFORMER_FUNCTION std::vector<std::string> split_lines(std::string_view text, const std::string& name);

/// Reads the lines of a UTF-8 file, as split_lines() does; an empty file has none. Files that begin as gzip
/// or zstd data are decompressed. most: the most bytes that the text may have. Throws IoError when the file
/// cannot be read, for a longer text, for invalid UTF-8, for NUL bytes and for damaged compressed data.
inline std::vector<std::string> read_lines(const std::filesystem::path& path,
                                           std::size_t most = std::numeric_limits<std::size_t>::max()) {
  return split_lines(decompress(detail::read_text_file(path), path.string(), most), path.string());
}

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

namespace detail {

EIGENFORMER_FUNCTION std::string read_text_file(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) -> IoError {
    return IoError("read_text_file", "cannot read '" + path.string() + "': " + why);
  };
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) throw refuse("it is a folder, expected a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw refuse(errno != 0 ? std::strerror(errno) : "it cannot be opened");
  std::string bytes;
  char block[1 << 16];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    bytes.append(block, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) throw refuse(errno != 0 ? std::strerror(errno) : "an error while reading");
  return bytes;
}

}  // namespace detail

EIGENFORMER_FUNCTION std::vector<std::string> split_lines(std::string_view text, const std::string& name) {
  const auto place = [&](std::size_t offset) {
    std::size_t line = 1;
    for (std::size_t i = 0; i < offset; ++i) line += text[i] == '\n' ? 1 : 0;
    return "'" + name + "', line " + std::to_string(line) + ", byte offset " + std::to_string(offset);
  };
  if (const auto bad = detail::find_invalid_utf8(text)) {
    throw IoError("read_lines",
                  {"invalid UTF-8 in ", place(static_cast<std::size_t>(*bad)), "; expected text in UTF-8"});
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw IoError("read_lines", {"NUL byte in ", place(nul), "; expected text in UTF-8"});
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.emplace_back(line);
  }
  return lines;
}

}  // namespace eigenformer

#endif
