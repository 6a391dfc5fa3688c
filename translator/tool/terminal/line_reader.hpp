#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace translator {

/// Reads lines from a file or from stdin, decompresses gzip and zstd, and returns the lines that are
/// available: a chunk ends when no further line is waiting, so that interactive input is answered at once.
class LineReader {
 public:
  /// Maximum bytes of a line; longer ones are not text and would only take memory.
  static constexpr std::size_t longest_line = std::size_t{64} << 20;

  /// Reads stdin if the name is empty. stop: ends reading as at the end of the input. Throws IoError.
  explicit LineReader(const std::string& path, std::stop_token stop = {})
      : name_(path.empty() ? "standard input" : path), stop_(std::move(stop)), stream_(name_) {
    if (!path.empty()) descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) refuse();
  }
  ~LineReader() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Returns at least one line, and up to `most` if they are available; nothing at the end. Lines end with
  /// "\n" or "\r\n"; the last one may lack it. Throws IoError.
  std::vector<std::string> chunk(std::size_t most) {
    std::vector<std::string> lines;
    std::string_view line;
    while (lines.size() < most && offset_ < end_ && (lines.empty() || line_waits()) && next(line))
      lines.emplace_back(line);
    return lines;
  }

  /// Skips lines until `lines` were skipped or the next one begins at byte `offset` of the text or later.
  /// Returns the number of lines. Throws IoError.
  std::size_t skip(std::size_t lines, std::uint64_t offset = std::numeric_limits<std::uint64_t>::max()) {
    std::size_t skipped = 0;
    for (std::string_view line; skipped < lines && offset_ < offset && next(line);) ++skipped;
    return skipped;
  }

  /// Returns the rest of the input, byte for byte. Throws IoError.
  std::string rest() {
    while (!over_ && fill()) {
    }
    std::string text = buffer_.substr(begin_);
    begin_ = searched_ = buffer_.size();
    return text;
  }

  /// Ends reading before the first line that begins at this byte of the text or later.
  void end_at(std::uint64_t offset) { end_ = offset; }

  /// Bytes of the text that were returned or skipped, line ends included.
  std::uint64_t offset() const noexcept { return offset_; }

  /// A hash of all these bytes (FNV-1a, 64 bits).
  std::uint64_t hash() const noexcept { return hash_; }

  /// The name of this source in messages.
  const std::string& name() const noexcept { return name_; }

 private:
  [[noreturn]] void refuse() const {
    throw eigenformer::IoError("translate", {"cannot read '", name_, "': ", std::strerror(errno)});
  }

  // The returned line is valid until the next call.
  bool next(std::string_view& line) {
    std::size_t end;
    while ((end = buffer_.find('\n', searched_)) == std::string::npos && !over_) {
      searched_ = buffer_.size();
      if (searched_ - begin_ > longest_line) {
        throw eigenformer::IoError("translate", {"'", name_, "' has a line of more than ", longest_line >> 20,
                                                 " MiB, from byte ", offset_ + 1, " on"});
      }
      if (!fill()) return false;
    }
    if (end == std::string::npos && begin_ == buffer_.size()) return false;
    const std::size_t stop = std::min(end, buffer_.size());
    const std::size_t after = end == std::string::npos ? stop : end + 1;
    line = std::string_view(buffer_).substr(begin_, stop - begin_);
    for (std::size_t i = begin_; i < after; ++i)
      hash_ = (hash_ ^ static_cast<unsigned char>(buffer_[i])) * 0x100000001B3u;
    offset_ += after - begin_;
    begin_ = searched_ = after;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return true;
  }

  bool line_waits() {
    if (over_ || buffer_.find('\n', searched_) != std::string::npos) return true;
    pollfd wait{descriptor_, POLLIN, 0};
    return more_ || ::poll(&wait, 1, 0) != 0;
  }

  // Returns whether there may be more input; false after a stop request.
  bool fill() {
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    if (!more_) {
      pollfd wait{descriptor_, POLLIN, 0};
      do {
        if (stop_.stop_requested()) return false;
      } while (stop_.stop_possible() && ::poll(&wait, 1, 50) == 0);
      std::array<char, 1 << 16> block;
      const ssize_t n = ::read(descriptor_, block.data(), block.size());
      if (n < 0 && errno != EINTR) refuse();
      if (n < 0) return true;
      if (n == 0) stream_.end();
      over_ = n == 0;
      stream_.add({block.data(), static_cast<std::size_t>(n)});
    }
    more_ = stream_.read(buffer_);
    if (over_) {
      while (more_) more_ = stream_.read(buffer_);
      stream_.check_end();
    }
    return true;
  }

  std::string name_;
  int descriptor_ = STDIN_FILENO;
  std::stop_token stop_;
  eigenformer::DecompressedStream stream_;
  bool more_ = false;  // the stream may return more without further input
  std::string buffer_;
  std::size_t begin_ = 0;     // of the bytes that were not returned yet
  std::size_t searched_ = 0;  // there is no line end before this position
  bool over_ = false;
  std::uint64_t offset_ = 0;  // position in the text of the first byte that was not returned
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

inline void drop_byte_order_mark(std::string& line) {
  if (line.rfind("\xEF\xBB\xBF", 0) == 0) line.erase(0, 3);
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
