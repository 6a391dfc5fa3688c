#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "translator/text/resumable_file.hpp"

namespace translator {

namespace ef = eigenformer;

/// Whether a path is free or a regular file, not a device or pipe.
inline bool is_regular_file_if_any(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

/// Writes results: directly to standard output, a device or a pipe; or to a file that appears when it is
/// complete, compressed if its name ends in .gz or .zst. Only one process at a time can write a file.
class ResultOutput {
 public:
  /// resumes: whether to keep what an interrupted run has saved, for file() to resume. way_out: what to do
  /// about that of another run. Throws IoError if the file cannot be written, or another process is writing
  /// it; ValueError if an interrupted run has saved something and `resumes` is false.
  explicit ResultOutput(const std::string& path, bool resumes = false,
                        const char* way_out = "remove the file to start again")
      : compression_(ef::detail::compression_of_name(path)) {
    (void)ef::compress(compression_, "");  // throws now if it is not supported
    if (path.empty()) return;
    if (is_regular_file_if_any(path)) {
      file_.emplace(path);
      if (!file_->saved()) {
        file_->restart();
      } else if (!resumes) {
        throw ef::ValueError("translate", {"'", file_->part().string(),
                                           "' holds the translations of an interrupted run; ", way_out});
      }
    } else {
      stream_ = std::fopen(path.c_str(), "wb");
      if (stream_ == nullptr) refuse("'" + path + "'");
    }
  }
  ~ResultOutput() {
    if (stream_ != stdout && stream_ != nullptr) std::fclose(stream_);
  }
  ResultOutput(const ResultOutput&) = delete;
  ResultOutput& operator=(const ResultOutput&) = delete;

  /// The file; none for standard output, a device or a pipe.
  std::optional<ef::ResumableFile>& file() { return file_; }

  /// Writes results; in a compressed file as a separate member or frame.
  void write(const std::string& text) {
    if (text.empty()) return;
    put(compression_ == ef::Compression::none ? text : ef::compress(compression_, text));
  }

  void finish() {
    // An empty file is not valid compressed text.
    const bool empty = file_ ? file_->bytes_written() == 0 : !written_;
    if (empty && compression_ != ef::Compression::none) put(ef::compress(compression_, ""));
    if (file_) file_->commit();
  }

 private:
  void put(const std::string& bytes) {
    written_ = true;
    if (file_) {
      file_->write(bytes);
    } else if (std::fwrite(bytes.data(), 1, bytes.size(), stream_) != bytes.size() ||
               std::fflush(stream_) != 0) {
      refuse("the results");
    }
  }
  [[noreturn]] static void refuse(const std::string& what) {
    throw ef::IoError("translate", {"cannot write ", what, ": ", ef::detail::errno_text(errno)});
  }

  ef::Compression compression_;
  bool written_ = false;
  std::FILE* stream_ = stdout;
  std::optional<ef::ResumableFile> file_;
};

}  // namespace translator
