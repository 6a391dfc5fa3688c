#include "translator/preparing/pair_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer::detail {

FileLines::FileLines(const std::filesystem::path& path) : path_(path), stream_(path.string()) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw errno_error("prepare", "read", path, EISDIR);
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw errno_error("prepare", "read", path, errno);
}

FileLines::~FileLines() { ::close(descriptor_); }

bool FileLines::next(std::string& line) {
  std::size_t end = 0;
  while ((end = text_.find('\n', searched_)) == std::string::npos && !over_) {
    searched_ = text_.size();
    if (searched_ - begin_ > longest_line) {
      throw IoError("prepare", {"'", path_.string(), "', line ", lines_ + 1, " has more than ",
                                longest_line >> 20, " MiB, expected text"});
    }
    fill();
  }
  if (end == std::string::npos && begin_ == text_.size()) return false;
  const std::size_t stop = std::min(end, text_.size());
  line.assign(text_, begin_, stop - begin_);
  begin_ = searched_ = end == std::string::npos ? stop : end + 1;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (lines_++ == 0 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return true;
}

void FileLines::fill() {
  text_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  if (!more_) {
    block_.resize(std::size_t{1} << 18);
    ssize_t n = 0;
    do n = ::read(descriptor_, block_.data(), block_.size());
    while (n < 0 && errno == EINTR);
    if (n < 0) throw errno_error("prepare", "read", path_, errno);
    if (n == 0) stream_.end();
    over_ = n == 0;
    stream_.add(std::string_view(block_.data(), static_cast<std::size_t>(n)));
  }
  more_ = stream_.read(text_);
  if (!over_) return;
  while (more_) more_ = stream_.read(text_);
  stream_.check_end();
}

PairReader::PairReader(const PrepareFiles& files) {
  if (files.tsv.empty() == (files.source.empty() || files.target.empty()) ||
      (!files.tsv.empty() && !(files.source.empty() && files.target.empty()))) {
    throw ValueError("prepare", "expected a source and a target file, or one file with both sides");
  }
  source_.emplace(files.tsv.empty() ? files.source : files.tsv);
  if (files.tsv.empty()) target_.emplace(files.target);
}

StoredPairs PairReader::next(std::size_t most) {
  StoredPairs pairs;
  std::string line, other;
  while (pairs.source.size() < most) {
    const bool more = source_->next(line);
    if (target_ && target_->next(other) != more) refuse_unequal(more);
    if (!more) break;
    if (target_) {
      pairs.target.emplace_back(other);
    } else if (const std::size_t tab = line.find('\t'); tab != std::string::npos) {
      pairs.target.emplace_back(line.substr(tab + 1, line.find('\t', tab + 1) - (tab + 1)));
      line.resize(tab);
    } else if (line.empty()) {
      pairs.target.emplace_back(line);
    } else {
      pairs.target.emplace_back(std::nullopt);
    }
    pairs.source.push_back(line);
  }
  return pairs;
}

void PairReader::refuse_unequal(bool source_has_more) {
  FileLines& longer = source_has_more ? *source_ : *target_;
  FileLines& shorter = source_has_more ? *target_ : *source_;
  throw IoError(
      "prepare",
      {"'", longer.path().string(), "' has more lines than '", shorter.path().string(), "', which has ",
       shorter.lines(),
       "; expected equal numbers: line n of one file must be the translation of line n of the other"});
}

}  // namespace eigenformer::detail
