#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>

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

/// The last line of a terminal on stderr, which changes in place; does nothing if stderr is not a terminal.
class StatusLine {
 public:
  StatusLine() = default;
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool on_terminal() const { return terminal_; }

  /// Shows and prints nothing from now on.
  void silence() { terminal_ = false, silent_ = true; }

  /// Shows fields, separated by two spaces.
  void show(const std::string& fields) {
    if (!terminal_) return;
    std::fprintf(stderr, "\r\033[K%s", whole_fields(fields, width()).c_str());
    std::fflush(stderr);
    open_ = true;
  }

  /// Prints a permanent line, on a terminal or not.
  void say(const std::string& text) {
    if (silent_) return;
    clear();
    std::fprintf(stderr, "%s\n", text.c_str());
    std::fflush(stderr);
  }

  void clear() {
    if (open_) std::fputs("\r\033[K", stderr);
    open_ = false;
  }

 private:
  // Only fields that fit completely: a truncated number would be a wrong one.
  static std::string whole_fields(const std::string& line, std::size_t room) {
    if (line.size() <= room) return line;
    const std::size_t end = line.rfind("  ", room);
    return line.substr(0, end == std::string::npos ? 0 : end);
  }

  static std::size_t width() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  }

  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool open_ = false;
  bool silent_ = false;
};

}  // namespace translator
