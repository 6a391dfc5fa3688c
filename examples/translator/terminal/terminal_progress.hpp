#pragma once

#include <cmath>
#include <string>

#include "eigenformer/train/loop/progress.hpp"
#include "status_line.hpp"

namespace translator {

/// Shows on stderr how training goes: on a terminal one line that changes in place, elsewhere a plain line
/// every so many seconds.
class TerminalProgress {
 public:
  explicit TerminalProgress(double seconds_between_plain_lines = 10)
      : interval_(seconds_between_plain_lines) {}

  void step(const eigenformer::StepReport& r) {
    if (!status_.on_terminal() && r.seconds < next_plain_) return;
    next_plain_ = r.seconds + interval_;
    const double loss = std::fabs(r.loss);  // printf shows the sign of a NaN
    std::string parts;
    for (const auto& part : r.parts) parts += format("  %s %.3f", part.name.c_str(), part.value);
    const std::string line =
        format("epoch %lld  step %lld/%lld  loss %.3f  perplexity %.1f%s  %.0f tokens/s  ETA %s  lr %.1e",
               static_cast<long long>(r.epoch), static_cast<long long>(r.step),
               static_cast<long long>(r.total_steps), loss, std::exp(loss), parts.c_str(),
               r.weight_per_second, clock(r.remaining_seconds).c_str(), r.learning_rate);
    status_.on_terminal() ? status_.show(line) : status_.say(line);
  }

  void validation(const eigenformer::ValidationReport& r) {
    const double loss = std::fabs(r.value);  // printf shows the sign of a NaN
    say(format("validation after step %lld, epoch %lld: loss %.4f  perplexity %.3f%s",
               static_cast<long long>(r.step), static_cast<long long>(r.epoch), loss, std::exp(loss),
               r.best ? "  (best so far)" : ""));
  }

  /// A line that stays.
  void say(const std::string& text) { status_.say(text); }

 private:
  StatusLine status_;
  double interval_;
  double next_plain_ = 0;
};

}  // namespace translator
