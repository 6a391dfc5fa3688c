#pragma once

#include <array>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail {

// printf into a string of at most 511 bytes.
[[gnu::format(printf, 1, 2)]] EIGENFORMER_IO_FUNCTION std::string format(const char* pattern, ...);

// "0:07", "12:34", "1:02:03".
inline std::string clock(double seconds) {
  const auto s = static_cast<long>(std::lround(seconds));
  return s < 3600 ? format("%ld:%02ld", s / 60, s % 60)
                  : format("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

/// The last line of a terminal, which changes in place, above which permanent lines are printed. Elsewhere
/// only the permanent lines are printed.
class ConsoleLine {
 public:
  /// out: must outlive the line. columns: returns the width of the terminal that shows `out`; empty: it is
  /// not a terminal.
  explicit ConsoleLine(std::ostream& out, std::function<std::size_t()> columns = {})
      : out_(&out), columns_(std::move(columns)) {}
  ConsoleLine(const ConsoleLine&) = delete;
  ConsoleLine& operator=(const ConsoleLine&) = delete;
  /// Removes the changing line.
  ~ConsoleLine() { clear(); }

  /// Whether the line changes in place.
  bool on_terminal() const noexcept { return static_cast<bool>(columns_); }
  /// Shows and prints nothing from now on.
  void silence() {
    clear();
    columns_ = {};
    out_ = nullptr;
  }
  /// Shows fields that are separated by two spaces; those that do not fit the width are left out.
  void show(const std::string& fields) {
    if (!on_terminal()) return;
    *out_ << "\r\033[K" << whole_fields(fields, columns_()) << std::flush;
    open_ = true;
  }
  /// Prints a permanent line, on a terminal or not.
  void say(const std::string& text) {
    if (out_ == nullptr) return;
    clear();
    *out_ << text << '\n' << std::flush;
  }
  /// Removes the changing line.
  void clear() {
    if (std::exchange(open_, false)) *out_ << "\r\033[K" << std::flush;
  }

 private:
  // Only fields that fit completely: a truncated number would be a wrong one.
  static std::string whole_fields(const std::string& line, std::size_t room) {
    if (line.size() <= room) return line;
    const std::size_t end = line.rfind("  ", room);
    return line.substr(0, end == std::string::npos ? 0 : end);
  }

  std::ostream* out_;  // null: silent
  std::function<std::size_t()> columns_;
  bool open_ = false;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::string format(const char* pattern, ...) {
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text.data(), text.size(), pattern, arguments);
  va_end(arguments);
  return text.data();
}

}  // namespace eigenformer::detail

#endif
