#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/train/reporting/console_line.hpp"
#include "eigenformer/train/reporting/progress.hpp"

namespace eigenformer {

/// Shows the progress of a training on a stream, and passes its events on to another sink. On a terminal one
/// line changes in place; elsewhere there is a plain line every few seconds. Validations show their measures,
/// on a terminal a curve of their losses, and their sample translations. A loss that rises, stands still or
/// shows overfitting gives a notice, once, with the options that help.
///
///     ef::ConsoleSink console(std::clog);
///     ef::Trainer trainer(model, corpus, &validation, options, console);
///
/// With an average loss in nats per token, as Trainer reports, the perplexity shown is its exponential.
class ConsoleSink : public TrainingSink {
 public:
  /// - out, next: must outlive the sink.
  /// - columns: returns the width of the terminal that shows `out`; empty: it is not a terminal.
  /// - seconds_between_lines: between two plain lines.
  explicit ConsoleSink(std::ostream& out, std::function<std::size_t()> columns = {},
                       double seconds_between_lines = 10, TrainingSink& next = TrainingSink::silent())
      : line_(out, std::move(columns)), interval_(seconds_between_lines), next_(next) {}

  EIGENFORMER_IO_FUNCTION void on_step(const StepReport& r) override;
  EIGENFORMER_IO_FUNCTION void on_validation(const ValidationReport& r) override;
  void on_notice(const std::string& notice) override {
    line_.say(notice);
    next_.on_notice(notice);
  }
  void on_best() override { next_.on_best(); }
  void on_checkpoint() override { next_.on_checkpoint(); }
  void on_decay() override { next_.on_decay(); }

  /// The loss that a validation predicts for the end, empty if it predicts none: of the updates so far, those
  /// in all, and the loss.
  using Expectation = std::function<std::optional<double>(double updates, double all_updates, double loss)>;
  /// Validations show the loss that is expected at the end, for example TrainingPlan::expected_at_end().
  void expect(Expectation expectation) { expectation_ = std::move(expectation); }

  /// Prints a permanent line.
  void say(const std::string& text) { line_.say(text); }
  /// Shows nothing from now on, but passes events on.
  void silence() { line_.silence(); }

  /// The line about updates. Totals are the limits that were set, which do not change with the speed.
  static std::string text(const StepReport& r);

  /// The line about a validation, beginning with the loss.
  static std::string text(const ValidationReport& r);

  /// The last 40 of some losses as a line of block characters between the first and the last value, in
  /// UTF-8: "  loss 5.213 █▆▄▂▁ 2.871". Values that are not finite are blank.
  static std::string curve(const std::vector<double>& values);

 private:
  // printf shows the sign of a NaN.
  static double without_sign_of_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }

  static std::optional<double> loss_of(const ValidationReport& r) {
    if (r.name == "loss") return r.value;
    for (const Measured& other : r.others) {
      if (other.name == "loss") return other.value;
    }
    return std::nullopt;
  }

  void watch(const StepReport& r);

  void watch_validations();

  detail::ConsoleLine line_;
  double interval_;
  TrainingSink& next_;
  Expectation expectation_;
  double next_line_ = 0;
  double lowest_ = std::numeric_limits<double>::infinity();  // training loss
  double training_loss_ = 0;                                 // of the last report
  std::vector<double> losses_, training_losses_;             // at validations
  bool told_diverging_ = false, told_overfitting_ = false, told_stalled_ = false;
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION void ConsoleSink::on_step(const StepReport& r) {
  if (line_.on_terminal()) {
    line_.show(text(r));
  } else if (r.seconds >= next_line_) {
    next_line_ = r.seconds + interval_;
    line_.say(text(r));
  }
  watch(r);
  next_.on_step(r);
}

EIGENFORMER_IO_FUNCTION void ConsoleSink::on_validation(const ValidationReport& r) {
  const std::optional<double> loss = loss_of(r);
  std::optional<double> at_end;
  if (expectation_ && loss && r.averaged == 0)
    at_end = expectation_(static_cast<double>(r.step), static_cast<double>(r.total_steps), *loss);
  line_.say(text(r) + (at_end ? detail::format("  expected at the end: %.2f", *at_end) : ""));
  if (loss && r.averaged == 0) losses_.push_back(*loss);
  if (line_.on_terminal() && losses_.size() > 2) line_.say(curve(losses_));
  for (const SampleTranslation& s : r.samples) {
    line_.say("  source     " + s.source);
    line_.say("  reference  " + s.reference);
    line_.say("  output     " + s.output);
  }
  if (loss && r.averaged == 0) watch_validations();
  next_.on_validation(r);
}

EIGENFORMER_IO_FUNCTION std::string ConsoleSink::text(const StepReport& r) {
  const double loss = without_sign_of_nan(r.loss);
  std::string line = detail::join({"epoch ", r.epoch, "  step ", r.step});
  if (r.step_limit > 0) line += detail::join({"/", r.step_limit});
  line += detail::format("  loss %.3f  perplexity %.1f", loss, std::exp(loss));
  for (const auto& part : r.parts) line += detail::format("  %s %.3f", part.name.c_str(), part.value);
  line += "  elapsed " + detail::clock(r.seconds);
  if (r.time_limit > 0) line += "/" + detail::clock(r.time_limit);
  return line + detail::format("  ETA %s  %.0f tokens/s  lr %.1e", detail::clock(r.remaining_seconds).c_str(),
                               r.weight_per_second, r.learning_rate);
}

EIGENFORMER_IO_FUNCTION std::string ConsoleSink::text(const ValidationReport& r) {
  std::string line = detail::join(
      {"validation after step ", r.step, ", epoch ", r.epoch, r.averaged > 0 ? ", averaged weights:" : ":"});
  std::vector<Measured> all = r.others;
  all.insert(r.name == "loss" ? all.begin() : all.end(), {r.name, r.value});
  for (const auto& [name, value] : all) {
    const double size = without_sign_of_nan(value);
    line += name == "loss"   ? detail::format(" loss %.4f  perplexity %.3f ", size, std::exp(size))
            : name == "bleu" ? detail::format(" BLEU %.2f ", size)
            : name == "chrf" ? detail::format(" chrF %.2f ", size)
                             : detail::format(" %s %.4f ", name.c_str(), value);
  }
  line += r.best ? " (best so far)" : "";
  while (line.back() == ' ') line.pop_back();
  return line;
}

EIGENFORMER_IO_FUNCTION std::string ConsoleSink::curve(const std::vector<double>& values) {
  static constexpr const char* blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t most = 40;
  const std::size_t begin = values.size() > most ? values.size() - most : 0;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::size_t i = begin; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  if (values.empty()) return {};
  std::string line = detail::format("  loss %.3f ", values[begin]);
  for (std::size_t i = begin; i < values.size(); ++i) {
    const double part = high > low ? (values[i] - low) / (high - low) : 0;
    line += std::isfinite(values[i]) ? blocks[std::lround(7 * part)] : " ";
  }
  return line + detail::format(" %.3f", values.back());
}

EIGENFORMER_IO_FUNCTION void ConsoleSink::watch(const StepReport& r) {
  if (!std::isfinite(r.loss)) return;
  if (!told_diverging_ && r.loss > lowest_ + 0.5 * std::fabs(lowest_) + 1) {
    told_diverging_ = true;
    on_notice(
        detail::format("the loss has risen from %.3f to %.3f: the training may diverge; a lower "
                       "learning_rate (--learning-rate) or a longer warmup (--warmup) helps",
                       lowest_, r.loss));
  }
  lowest_ = std::min(lowest_, r.loss);
  training_loss_ = r.loss;
}

EIGENFORMER_IO_FUNCTION void ConsoleSink::watch_validations() {
  training_losses_.push_back(training_loss_);
  const std::size_t n = losses_.size();
  const auto at = [&](std::size_t back) { return losses_[n - 1 - back]; };
  if (!told_overfitting_ && n > 3 && at(0) > at(1) && at(1) > at(2) && at(2) > at(3) &&
      training_losses_[n - 1] < training_losses_[n - 4]) {
    told_overfitting_ = true;
    on_notice(
        detail::format("the validation loss has risen three times, from %.3f to %.3f, while the "
                       "training loss falls: overfitting; more dropout (--dropout) helps, and "
                       "patience (--patience) ends the training in time",
                       at(3), at(0)));
  }
  constexpr std::size_t recent = 4;
  if (told_stalled_ || n <= recent) return;
  const auto first = losses_.end() - static_cast<std::ptrdiff_t>(recent);
  const double before = *std::min_element(losses_.begin(), first),
               now = *std::min_element(first, losses_.end());
  const double highest = *std::max_element(first, losses_.end());
  if (std::fabs(before - now) > 0.002 * std::fabs(before) || highest - now > 0.01 * std::fabs(now)) return;
  told_stalled_ = true;
  on_notice(
      detail::format("the validation loss has hardly changed in %zu validations (%.3f): a falling "
                     "learning rate (--schedule wsd or cosine), a larger model or more text helps, and "
                     "patience (--patience) ends the training in time",
                     recent, now));
}

}  // namespace eigenformer

#endif
