#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace translator {

/// Reads lines from a file or from stdin, in chunks of what is there: a chunk ends when no line is waiting,
/// so that whoever types or pipes sees answers at once.
class LineReader {
 public:
  /// Reads stdin where the name is empty. Throws IoError.
  explicit LineReader(const std::string& path) : name_(path.empty() ? "standard input" : path) {
    if (!path.empty()) descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) refuse();
  }
  ~LineReader() {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// At least one line, and up to `most` as far as they are there; nothing at the end. "\n" and "\r\n" end a
  /// line, the last one needs no end.
  std::vector<std::string> chunk(std::size_t most) {
    std::vector<std::string> lines;
    std::string line;
    while (lines.size() < most && (lines.empty() || line_waits()) && next(line)) lines.push_back(line);
    return lines;
  }

  /// What messages call this source.
  const std::string& name() const noexcept { return name_; }

 private:
  [[noreturn]] void refuse() const {
    throw eigenformer::IoError("translate", "cannot read '" + name_ + "': " + std::strerror(errno));
  }

  bool next(std::string& line) {
    std::size_t end;
    while ((end = buffer_.find('\n', searched_)) == std::string::npos && !over_) {
      searched_ = buffer_.size();
      fill();
    }
    if (end == std::string::npos && begin_ == buffer_.size()) return false;
    const std::size_t stop = std::min(end, buffer_.size());
    line.assign(buffer_, begin_, stop - begin_);
    begin_ = searched_ = end == std::string::npos ? buffer_.size() : end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
  }

  bool line_waits() {
    if (over_ || buffer_.find('\n', begin_) != std::string::npos) return true;
    pollfd wait{descriptor_, POLLIN, 0};
    return ::poll(&wait, 1, 0) != 0;
  }

  void fill() {
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    std::array<char, 1 << 16> block;
    const ssize_t n = ::read(descriptor_, block.data(), block.size());
    if (n < 0 && errno != EINTR) refuse();
    if (n == 0) over_ = true;
    if (n > 0) buffer_.append(block.data(), static_cast<std::size_t>(n));
  }

  std::string name_;
  int descriptor_ = STDIN_FILENO;
  std::string buffer_;
  std::size_t begin_ = 0;     // of what was not handed out yet
  std::size_t searched_ = 0;  // up to here there is no line end
  bool over_ = false;
};

inline void drop_byte_order_mark(std::string& line) {
  if (line.rfind("\xEF\xBB\xBF", 0) == 0) line.erase(0, 3);
}

/// Keeps the lines before the first that is not UTF-8, and says what is wrong with that; empty: nothing.
/// before: lines that were read earlier.
inline std::string cut_at_invalid_utf8(std::vector<std::string>& lines, std::size_t before,
                                       const LineReader& reader) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto bad = eigenformer::find_invalid_utf8(lines[i]);
    if (!bad) continue;
    lines.resize(i);
    return "invalid UTF-8 in line " + std::to_string(before + i + 1) + " of " + reader.name() + ", at byte " +
           std::to_string(*bad + 1) + " of the line";
  }
  return {};
}

}  // namespace translator
