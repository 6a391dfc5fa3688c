#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "eigenformer/train/progress.hpp"

namespace translator {

/// printf into a string.
[[gnu::format(printf, 1, 2)]] inline std::string format(const char* pattern, ...) {
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text.data(), text.size(), pattern, arguments);
  va_end(arguments);
  return text.data();
}

/// "1 step", "2 steps".
inline std::string counted(long long n, const char* what) {
  return format("%lld %s%s", n, what, n == 1 ? "" : "s");
}

/// "0:07", "12:34", "1:02:03".
inline std::string clock(double seconds) {
  const auto s = static_cast<long>(std::lround(seconds));
  return s < 3600 ? format("%ld:%02ld", s / 60, s % 60)
                  : format("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

/// Shows on stderr how training goes: on a terminal one line that changes in place, elsewhere a plain line
/// every so many seconds.
class TerminalProgress {
 public:
  explicit TerminalProgress(double seconds_between_plain_lines = 10)
      : terminal_(isatty(STDERR_FILENO) == 1), interval_(seconds_between_plain_lines) {}
  ~TerminalProgress() { finish_line(); }
  TerminalProgress(const TerminalProgress&) = delete;
  TerminalProgress& operator=(const TerminalProgress&) = delete;

  void step(const eigenformer::StepReport& r) {
    if (!terminal_ && r.seconds < next_plain_) return;
    next_plain_ = r.seconds + interval_;
    const double loss = std::fabs(r.loss);  // printf shows the sign of a NaN
    const std::string line =
        format("epoch %lld  step %lld/%lld  loss %.3f  perplexity %.1f  %.0f tokens/s  ETA %s  lr %.1e",
               static_cast<long long>(r.epoch), static_cast<long long>(r.step),
               static_cast<long long>(r.total_steps), loss, std::exp(loss), r.weight_per_second,
               clock(r.remaining_seconds).c_str(), r.learning_rate);
    if (terminal_) {
      std::fprintf(stderr, "\r\033[K%s", whole_fields(line, width()).c_str());
      open_line_ = true;
    } else {
      std::fprintf(stderr, "%s\n", line.c_str());
    }
    std::fflush(stderr);
  }

  void validation(const eigenformer::ValidationReport& r) {
    const double loss = std::fabs(r.value);  // printf shows the sign of a NaN
    say(format("validation after step %lld, epoch %lld: loss %.4f  perplexity %.3f%s",
               static_cast<long long>(r.step), static_cast<long long>(r.epoch), loss, std::exp(loss),
               r.best ? "  (best so far)" : ""));
  }

  /// A line that stays.
  void say(const std::string& text) {
    finish_line();
    std::fprintf(stderr, "%s\n", text.c_str());
    std::fflush(stderr);
  }

 private:
  // As many of the fields, which two spaces part, as there is room for: half a number would be another one.
  static std::string whole_fields(const std::string& line, std::size_t room) {
    if (line.size() <= room) return line;
    const std::size_t end = line.rfind("  ", room);
    return line.substr(0, end == std::string::npos ? 0 : end);
  }

  void finish_line() {
    if (open_line_) std::fputs("\r\033[K", stderr);
    open_line_ = false;
  }

  static std::size_t width() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  }

  bool terminal_;
  double interval_;
  double next_plain_ = 0;
  bool open_line_ = false;
};

}  // namespace translator
