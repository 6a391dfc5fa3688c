#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "eigenformer/data/files/compressed_text.hpp"
#include "translator/preparing/prepare_options.hpp"

namespace eigenformer::detail {

/// Reads the lines of a file, plain or compressed, one at a time: "\n" and "\r\n" end a line, the last one
/// needs no line end, and a byte order mark at the start is dropped. UTF-8 is not checked.
class FileLines {
 public:
  static constexpr std::size_t longest_line = std::size_t{64} << 20;

  /// Throws IoError.
  explicit FileLines(const std::filesystem::path& path);
  ~FileLines();
  FileLines(const FileLines&) = delete;
  FileLines& operator=(const FileLines&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Number of lines read so far.
  std::uint64_t lines() const noexcept { return lines_; }

  /// Replaces `line` by the next line; returns false at the end. Throws IoError, also for a line of more than
  /// `longest_line` bytes.
  bool next(std::string& line);

 private:
  void fill();

  std::filesystem::path path_;
  DecompressedStream stream_;
  int descriptor_ = -1;
  std::string block_, text_;
  std::size_t begin_ = 0, searched_ = 0;  // what was not handed out; where no line end is before
  bool more_ = false, over_ = false;
  std::uint64_t lines_ = 0;
};

/// Pairs as read, not normalised. A line of a TSV file without a tab has a source and no target.
struct StoredPairs {
  std::vector<std::string> source;
  std::vector<std::optional<std::string>> target;
};

/// Reads pairs in blocks.
class PairReader {
 public:
  /// Throws ValueError unless `files` names a source and a target file or one TSV file, and IoError.
  explicit PairReader(const PrepareFiles& files);

  /// Reads at most `most` pairs; none at the end. Throws IoError, also for files with different numbers of
  /// lines.
  StoredPairs next(std::size_t most);

 private:
  [[noreturn]] void refuse_unequal(bool source_has_more);

  std::optional<FileLines> source_, target_;
};

}  // namespace eigenformer::detail
