#include "translator/preparing/file_lines.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer::detail {

bool is_compressed(const std::filesystem::path& path) {
  char begin[4] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(begin, sizeof begin);
  return compression_of_content({begin, static_cast<std::size_t>(file.gcount())})
             .value_or(Compression::none) != Compression::none;
}

FileLines::FileLines(const std::filesystem::path& path, const char* op, std::stop_token stop)
    : op_(op),
      name_(path.empty() ? "standard input" : path.string()),
      stop_(std::move(stop)),
      stream_(name_),
      descriptor_(path.empty() ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw errno_error(op_, "read", name_, errno);
}

FileLines::~FileLines() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

bool FileLines::next(std::string& line) {
  const std::optional<std::string_view> found = next_with_end();
  if (!found) return false;
  line = without_end(*found);
  if (lines_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return true;
}

std::optional<std::string_view> FileLines::next_with_end() {
  std::size_t end = 0;
  while ((end = text_.find('\n', searched_)) == std::string::npos && !over_) {
    searched_ = text_.size();
    if (searched_ - begin_ > longest_line) throw too_long();
    if (!fill()) return std::nullopt;
  }
  if (end == std::string::npos && begin_ == text_.size()) return std::nullopt;
  const std::size_t begin = begin_;
  begin_ = searched_ = end == std::string::npos ? text_.size() : end + 1;
  ++lines_;
  return std::string_view(text_).substr(begin, begin_ - begin);
}

std::string_view FileLines::without_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool FileLines::line_waits() {
  if (over_ || text_.find('\n', searched_) != std::string::npos) return true;
  pollfd wait{descriptor_, POLLIN, 0};
  return more_ || ::poll(&wait, 1, 0) != 0;
}

std::string FileLines::rest() {
  while (!over_ && fill()) {
  }
  std::string text = text_.substr(begin_);
  begin_ = searched_ = text_.size();
  return text;
}

IoError FileLines::too_long() const {
  return IoError(op_, {"'", name_, "', line ", lines_ + 1, " has more than ", longest_line >> 20,
                       " MiB, expected text"});
}

bool FileLines::fill() {
  text_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  if (!more_) {
    pollfd wait{descriptor_, POLLIN, 0};
    do {
      if (stop_.stop_requested()) return false;
    } while (stop_.stop_possible() && ::poll(&wait, 1, 50) == 0);
    block_.resize(std::size_t{1} << 18);
    const ssize_t n = ::read(descriptor_, block_.data(), block_.size());
    if (n < 0 && errno == EINTR) return true;
    if (n < 0) throw errno_error(op_, "read", name_, errno);
    if (n == 0) stream_.end();
    over_ = n == 0;
    stream_.add(std::string_view(block_.data(), static_cast<std::size_t>(n)));
  }
  more_ = stream_.read(text_);
  if (!over_) return true;
  while (more_) more_ = stream_.read(text_);
  return true;
}

}  // namespace eigenformer::detail
