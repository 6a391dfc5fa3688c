#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"

namespace translator {

/// Takes results: to standard output as they come, or to a file that appears when all is done.
class ResultOutput {
 public:
  explicit ResultOutput(const std::string& path) {
    if (path.empty()) return;
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      stream_ = std::fopen(path.c_str(), "wb");  // a device or a pipe
      if (stream_ == nullptr) refuse();
    } else {
      file_.emplace(path);
    }
  }
  ~ResultOutput() {
    if (stream_ != stdout && stream_ != nullptr) std::fclose(stream_);
  }
  ResultOutput(const ResultOutput&) = delete;
  ResultOutput& operator=(const ResultOutput&) = delete;

  void write(const std::string& text) {
    if (file_) {
      file_->write(text);
    } else if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size() ||
               std::fflush(stream_) != 0) {
      refuse();
    }
  }

  /// Whether what was written is lost when finish() is not reached.
  bool appears_at_the_end() const { return file_.has_value(); }

  void finish() {
    if (file_) file_->commit();
  }

 private:
  [[noreturn]] static void refuse() {
    throw eigenformer::IoError("translate",
                               "cannot write the results: " + eigenformer::detail::errno_text(errno));
  }

  std::FILE* stream_ = stdout;
  std::optional<eigenformer::AtomicFile> file_;
};

}  // namespace translator
