#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "../terminal/status_line.hpp"

namespace translator {

/// Shows on a terminal how far a translation has come.
class LineProgress {
 public:
  /// total: lines of the input, where that is known. done: those that an earlier run has translated. shown:
  /// whether to show anything.
  LineProgress(std::optional<std::uint64_t> total, std::uint64_t done, bool shown)
      : total_(total), before_(done), shown_(shown && status_.on_terminal()) {}

  /// Whether anybody sees it.
  bool shown() const { return shown_; }

  /// done: lines, with those of earlier runs. tokens: of their translations, further ones.
  void add(std::uint64_t done, std::uint64_t tokens) {
    tokens_ += tokens;
    if (!shown_) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    status_.show(text(done, seconds));
  }

  /// A line that stays.
  void say(const std::string& line) { status_.say(line); }

  /// What is shown after so many seconds.
  std::string text(std::uint64_t done, double seconds) const {
    std::string line = "line " + std::to_string(done);
    if (total_) line += "/" + std::to_string(*total_);
    if (seconds <= 0) return line;
    line += format("  %.0f tokens/s", static_cast<double>(tokens_) / seconds);
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
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace translator
