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
  const char* why = "";
  switch (end) {
    case ef::TrainingEnd::epochs:
      why = "all epochs finished";
      break;
    case ef::TrainingEnd::max_steps:
      why = "maximum steps reached";
      break;
    case ef::TrainingEnd::max_minutes:
      why = "time limit reached";
      break;
    case ef::TrainingEnd::early_stopping:
      why = "early stopping";
      break;
    case ef::TrainingEnd::early_decay:
      why = "finished early";
      break;
    case ef::TrainingEnd::interrupted:
      why = "interrupted";
      break;
  }
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
