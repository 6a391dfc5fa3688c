#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "../terminal/status_line.hpp"

namespace translator {

/// Shows on a terminal how far a command has come with the lines of its input.
class LineProgress {
 public:
  /// total: lines of the input, where that is known. done: those that an earlier run has translated. shown:
  /// whether to show anything. task: what is done with the lines; empty: what the command's name says.
  LineProgress(std::optional<std::uint64_t> total, std::uint64_t done, bool shown, std::string task = {})
      : total_(total), before_(done), shown_(shown && status_.on_terminal()), task_(std::move(task)) {}

  /// Whether a command whose results go to a file, or to standard output if it is empty, may show progress:
  /// not between results on the same terminal.
  static bool may_show(const std::string& output_file) {
    return isatty(STDERR_FILENO) == 1 && (!output_file.empty() || isatty(STDOUT_FILENO) == 0);
  }

  /// Whether anybody sees it.
  bool shown() const { return shown_; }

  /// done: lines, with those of earlier runs. tokens: of their translations, further ones.
  void add(std::uint64_t done, std::uint64_t tokens) {
    tokens_ += tokens;
    if (!shown_) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    status_.show(text(done, seconds));
  }

  /// The same where tokens are not counted: lines are.
  void add(std::uint64_t done) {
    counts_tokens_ = false;
    add(done, 0);
  }

  /// A line that stays.
  void say(const std::string& line) { status_.say(line); }

  /// Removes what is shown.
  void clear() { status_.clear(); }

  /// What is shown after so many seconds.
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
