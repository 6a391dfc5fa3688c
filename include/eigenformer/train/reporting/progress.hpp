#pragma once

#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Why a training ended.
enum class TrainingEnd {
  epochs,          ///< LoopOptions::epochs is reached
  max_steps,       ///< LoopOptions::max_steps is reached
  max_minutes,     ///< LoopOptions::max_minutes are over
  early_stopping,  ///< LoopOptions::patience validations brought no improvement
  interrupted,     ///< the stop token was set
  early_decay      ///< the token for an early decay was set, and the learning rate has decayed
};
EIGENFORMER_ENUM_NAMES(TrainingEnd, "epochs", "max_steps", "max_minutes", "early_stopping", "interrupted",
                       "early_decay")

/// A named number: what a validation measured, or a term of a training's objective without its weight there.
struct Measured {
  std::string name;  ///< such as "bleu" or "alignment"
  double value = 0;  ///< in the measure's own unit; of a term a sum in LossParts, a mean in StepReport

  /// Compares names and values.
  friend bool operator==(const Measured&, const Measured&) = default;
};

/// The progress of a training, reported every LoopOptions::report_every updates.
struct StepReport {
  index_t epoch = 0;        ///< from 1
  index_t step = 0;         ///< updates so far
  index_t total_steps = 0;  ///< expected in all, by the limits and the speed so far
  index_t step_limit = 0;   ///< updates that epochs and max_steps allow; 0: no such limit
  double time_limit = 0;    ///< seconds that this run may take; 0: no such limit
  /// Weighted mean training loss since the last report; NaN when all updates were skipped. Trainer: the cross
  /// entropy in nats per target token, without label smoothing and other terms, as in a validation but with
  /// dropout.
  double loss = 0;
  double objective = 0;  ///< mean of what updates minimise; Trainer: with label smoothing and all terms
  /// Means of the other terms of the objective. Trainer: "alignment", "r-drop" and "distillation", in nats
  /// per target token.
  std::vector<Measured> parts{};
  double weight = 0;             ///< of the batches since the last report, without skipped updates
  double weight_per_second = 0;  ///< since the last report. Trainer: target tokens; without weights: batches
  double learning_rate = 0;      ///< of the last update
  double gradient_norm = 0;      ///< of the last update, before clipping
  double seconds = 0;            ///< since the start of this run
  double remaining_seconds = 0;  ///< expected until total_steps
};

/// A sentence, its reference and the model's translation.
struct SampleTranslation {
  std::string source,  ///< the sentence
      reference,       ///< its reference translation
      output;          ///< what the model translates it to
};

/// The result of a validation.
struct ValidationReport {
  index_t epoch = 0;  ///< from 1
  index_t step = 0;   ///< updates so far
  std::string name;   ///< Validation::name. Trainer: "loss", unless the options have a metric
  double value = 0;   ///< Trainer's loss: nats per target token, without dropout and label smoothing
  bool best = false;  ///< whether it is the best so far
  std::vector<Measured> others{};            ///< further measures, which decide nothing
  std::vector<SampleTranslation> samples{};  ///< of the same sentences at each validation
  index_t averaged = 0;     ///< number of snapshots in the mean that was validated; 0: no mean
  double seconds = 0;       ///< since the start of this run
  index_t total_steps = 0;  ///< as StepReport::total_steps
};

/// Receives the events of a training, on the thread that runs it; the library itself prints nothing. The
/// defaults ignore them. An exception from a sink ends run().
class TrainingSink {
 public:
  virtual ~TrainingSink() = default;
  /// Progress, every LoopOptions::report_every updates.
  virtual void on_step(const StepReport&) {}
  /// A validation was measured; on_best() follows if it is the best so far.
  virtual void on_validation(const ValidationReport&) {}
  /// A message for people, such as a skipped update or averaged weights.
  virtual void on_notice(const std::string&) {}
  /// The model holds the best weights so far (without validation: the latest): save it for use now.
  virtual void on_best() {}
  /// The state to resume from has advanced: save TrainingLoop::state() or Trainer::state() now.
  virtual void on_checkpoint() {}
  /// The learning rate begins to decay towards the end of the training: save state() now, and keep it beside
  /// later ones. With more time or updates, training goes on from it; see
  /// TrainingFolder::save_before_decay().
  virtual void on_decay() {}

  /// A sink that ignores all events; shared by all threads.
  static TrainingSink& silent() {
    static TrainingSink sink;
    return sink;
  }
};

}  // namespace eigenformer
