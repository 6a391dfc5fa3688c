#pragma once

#include <cmath>
#include <string>

#include "terminal/terminal_progress.hpp"
#include "training/adapter_training.hpp"
#include "training/train_command.hpp"

namespace translator {

/// Prints why a training ended and what to do next. by: the measure that decided validations.
inline void describe_end(ef::TrainingEnd end, const Trainer& trainer, ef::ValidationMeasure by,
                         const TrainedModel& trained, TerminalProgress& progress) {
  const char* const why = [end] {
    switch (end) {
      case ef::TrainingEnd::epochs:
        return "all epochs finished";
      case ef::TrainingEnd::max_steps:
        return "maximum steps reached";
      case ef::TrainingEnd::max_minutes:
        return "time limit reached";
      case ef::TrainingEnd::early_stopping:
        return "early stopping";
      case ef::TrainingEnd::early_decay:
        return "finished early";
      case ef::TrainingEnd::interrupted:
        break;
    }
    return "interrupted";
  }();
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
