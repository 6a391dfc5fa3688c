#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "terminal/terminal_progress.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"

namespace translator {

/// Prints why a training ended and what to do next. by: the measure that decided validations.
inline void describe_end(ef::TrainingEnd end, const Trainer& trainer, ef::ValidationMeasure by,
                         const TrainedModel& trained, TerminalProgress& progress) {
  // In the order of TrainingEnd.
  static constexpr std::array reasons = {"all epochs finished", "maximum steps reached", "time limit reached",
                                         "early stopping",      "interrupted",           "finished early"};
  const char* const why = reasons[static_cast<std::size_t>(end)];
  std::string text = format("%s after %s", why, counted(trainer.step(), "step").c_str());
  if (std::isfinite(trainer.best())) {
    text += by == ef::ValidationMeasure::loss
                ? format(", best validation perplexity %.3f", std::exp(trainer.best()))
                : format(", best validation %s %.2f", by == ef::ValidationMeasure::bleu ? "BLEU" : "chrF",
                         trainer.best());
  }
  progress.say(text);
  if (end == ef::TrainingEnd::interrupted) {
    progress.say("resume with: translator train --resume --model " + trained.folder().string());
  } else {
    progress.say("translate with: translator translate " + trained.options());
  }
}

}  // namespace translator
