#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "../terminal/status_line.hpp"

namespace translator {

/// Shows the progress of a command over its input lines on a terminal.
class LineProgress {
 public:
  /// total: number of input lines, if known. done: those that an earlier run has translated. shown: whether
  /// to show anything. task: what is done with the lines; empty: follows from the command's name.
  LineProgress(std::optional<std::uint64_t> total, std::uint64_t done, bool shown, std::string task = {})
      : total_(total), before_(done), shown_(shown && status_.on_terminal()), task_(std::move(task)) {}

  /// Whether a command whose results go to this file, or to standard output if it is empty, may show
  /// progress: not if results appear on the same terminal.
  static bool may_show(const std::string& output_file) {
    return isatty(STDERR_FILENO) == 1 && (!output_file.empty() || isatty(STDOUT_FILENO) == 0);
  }

  /// Whether progress is shown.
  bool shown() const { return shown_; }

  /// done: lines, including those of earlier runs. tokens: number of new tokens in their translations.
  void add(std::uint64_t done, std::uint64_t tokens) {
    tokens_ += tokens;
    if (!shown_) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    status_.show(text(done, seconds));
  }

  /// The same for commands that count lines instead of tokens.
  void add(std::uint64_t done) {
    counts_tokens_ = false;
    add(done, 0);
  }

  /// Prints a permanent line.
  void say(const std::string& line) { status_.say(line); }

  /// Removes the progress line.
  void clear() { status_.clear(); }

  /// The progress line after a number of seconds.
  std::string text(std::uint64_t done, double seconds) const {
    std::string line = task_ + (task_.empty() ? "line " : "  line ") + std::to_string(done);
    if (total_) line += "/" + std::to_string(*total_);
    if (seconds <= 0) return line;
    line += counts_tokens_ ? format("  %.0f tokens/s", static_cast<double>(tokens_) / seconds)
                           : format("  %.1f lines/s", static_cast<double>(done - before_) / seconds);
    if (total_ && done > before_ && *total_ >= done) {
      const double left = static_cast<double>(*total_ - done);
      line += "  ETA " + clock(left * seconds / static_cast<double>(done - before_));
    }
    return line;
  }

 private:
  StatusLine status_;
  std::optional<std::uint64_t> total_;
  std::uint64_t before_, tokens_ = 0;
  bool shown_;
  bool counts_tokens_ = true;
  std::string task_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace translator
