#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/compressed_text.hpp"

namespace eigenformer::detail {

/// Whether a file begins as gzip or zstd data; false for one that cannot be read.
bool is_compressed(const std::filesystem::path& path);

/// Reads the lines of a file or of standard input, plain or compressed, one at a time: "\n" and "\r\n" end a
/// line, the last one needs no line end, and a byte order mark at the start is dropped. UTF-8 is not checked.
class FileLines {
 public:
  /// Maximum bytes of a line; longer ones are not text and would only take memory.
  static constexpr std::size_t longest_line = std::size_t{64} << 20;

  /// path: empty: standard input. op: of errors. stop: ends reading as at the end of the input. Throws
  /// IoError.
  explicit FileLines(const std::filesystem::path& path, const char* op = "prepare",
                     std::stop_token stop = {});
  FileLines(const FileLines&) = delete;
  FileLines& operator=(const FileLines&) = delete;
  virtual ~FileLines();

  /// The name of this source in messages.
  const std::string& name() const noexcept { return name_; }
  /// Number of lines read so far.
  std::uint64_t lines() const noexcept { return lines_; }

  /// Replaces `line` by the next line; returns false at the end. Throws IoError, also for a line of more than
  /// `longest_line` bytes.
  bool next(std::string& line);

 protected:
  /// The next line with its end, valid until the next call; nothing at the end or after a stop request.
  std::optional<std::string_view> next_with_end();
  static std::string_view without_end(std::string_view line);

  /// Whether the next line is there, so that reading it does not wait for input.
  bool line_waits();

  /// The rest of the input.
  std::string rest();

  virtual IoError too_long() const;

 private:
  // Returns whether there may be more input; false after a stop request.
  bool fill();

  const char* op_;
  std::string name_;
  std::stop_token stop_;
  DecompressedStream stream_;
  int descriptor_;
  std::string block_, text_;
  std::size_t begin_ = 0, searched_ = 0;  // what was not handed out; where no line end is before
  bool more_ = false, over_ = false;      // whether the stream may return more without further input
  std::uint64_t lines_ = 0;
};

}  // namespace eigenformer::detail
