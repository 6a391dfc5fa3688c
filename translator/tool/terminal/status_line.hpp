#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <iostream>
#include <string>

#include "eigenformer/train/reporting/console_line.hpp"
#include "eigenformer/train/reporting/console_sink.hpp"

namespace translator {

using eigenformer::detail::clock;
using eigenformer::detail::format;

/// "1 step", "2 steps".
template <std::integral N>
std::string counted(N n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// The width of the terminal on stderr; empty if stderr is not a terminal.
inline std::function<std::size_t()> stderr_columns() {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [] {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  };
}

/// The last line on stderr.
struct StatusLine : eigenformer::detail::ConsoleLine {
  StatusLine() : ConsoleLine(std::cerr, stderr_columns()) {}
};

/// Shows the progress of training on stderr.
struct TerminalProgress : eigenformer::ConsoleSink {
  explicit TerminalProgress(double seconds_between_plain_lines = 10)
      : ConsoleSink(std::cerr, stderr_columns(), seconds_between_plain_lines) {}
};

}  // namespace translator
