#pragma once

#include <iostream>

#include "eigenformer/train/reporting/console_sink.hpp"
#include "status_line.hpp"

namespace translator {

/// Shows the progress of training on stderr.
struct TerminalProgress : eigenformer::ConsoleSink {
  explicit TerminalProgress(double seconds_between_plain_lines = 10)
      : ConsoleSink(std::cerr, stderr_columns(), seconds_between_plain_lines) {}
};

}  // namespace translator
