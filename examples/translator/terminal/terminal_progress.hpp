#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/train/loop/progress.hpp"
#include "status_line.hpp"

namespace translator {

/// Shows the progress of training on stderr: on a terminal a line that changes in place, elsewhere a plain
/// line every few seconds.
class TerminalProgress {
 public:
  explicit TerminalProgress(double seconds_between_plain_lines = 10)
      : interval_(seconds_between_plain_lines) {}

  void step(const eigenformer::StepReport& r) {
    if (!status_.on_terminal() && r.seconds < next_plain_) return;
    next_plain_ = r.seconds + interval_;
    status_.on_terminal() ? status_.show(text(r)) : status_.say(text(r));
  }

  void validation(const eigenformer::ValidationReport& r) {
    say(text(r));
    for (const eigenformer::SampleTranslation& s : r.samples) {
      say("  source     " + s.source);
      say("  reference  " + s.reference);
      say("  output     " + s.output);
    }
  }

  /// The text about updates. Totals are the limits that were set, which do not change with the speed.
  static std::string text(const eigenformer::StepReport& r) {
    const double loss = std::fabs(r.loss);  // printf shows the sign of a NaN
    std::string line =
        format("epoch %lld  step %lld", static_cast<long long>(r.epoch), static_cast<long long>(r.step));
    if (r.step_limit > 0) line += format("/%lld", static_cast<long long>(r.step_limit));
    line += format("  loss %.3f  perplexity %.1f", loss, std::exp(loss));
    for (const auto& part : r.parts) line += format("  %s %.3f", part.name.c_str(), part.value);
    line += "  elapsed " + clock(r.seconds);
    if (r.time_limit > 0) line += "/" + clock(r.time_limit);
    return line + format("  ETA %s  %.0f tokens/s  lr %.1e", clock(r.remaining_seconds).c_str(),
                         r.weight_per_second, r.learning_rate);
  }

  /// The text about a validation, beginning with the loss.
  static std::string text(const eigenformer::ValidationReport& r) {
    std::string line = format("validation after step %lld, epoch %lld%s:", static_cast<long long>(r.step),
                              static_cast<long long>(r.epoch), r.averaged > 0 ? ", averaged weights" : "");
    std::vector<eigenformer::Measured> all = r.others;
    all.insert(r.name == "loss" ? all.begin() : all.end(), {r.name, r.value});
    for (const auto& [name, value] : all) {
      const double size = std::fabs(value);
      line += name == "loss"   ? format(" loss %.4f  perplexity %.3f ", size, std::exp(size))
              : name == "bleu" ? format(" BLEU %.2f ", size)
              : name == "chrf" ? format(" chrF %.2f ", size)
                               : format(" %s %.4f ", name.c_str(), value);
    }
    line += r.best ? " (best so far)" : "";
    while (line.back() == ' ') line.pop_back();
    return line;
  }

  /// Shows nothing from now on.
  void silence() { status_.silence(); }

  /// Prints a permanent line.
  void say(const std::string& text) { status_.say(text); }

 private:
  StatusLine status_;
  double interval_;
  double next_plain_ = 0;
};

}  // namespace translator
