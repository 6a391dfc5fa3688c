#pragma once

#include <array>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Why a training ended.
enum class TrainingEnd { epochs, max_steps, max_minutes, early_stopping, interrupted };
template <>
struct EnumNames<TrainingEnd> {
  static constexpr std::array names = {"epochs", "max_steps", "max_minutes", "early_stopping", "interrupted"};
};

/// A part of a training's objective: its mean, without the weight that it has in the objective.
struct LossPart {
  std::string name;
  double value = 0;

  friend bool operator==(const LossPart&, const LossPart&) = default;
};

/// Where training stands, every few updates.
struct StepReport {
  index_t epoch = 0;        ///< from 1
  index_t step = 0;         ///< updates so far
  index_t total_steps = 0;  ///< expected in all, as far as the limits tell
  index_t step_limit = 0;   ///< updates that epochs and max_steps allow, whatever the speed; 0: no such limit
  double time_limit = 0;    ///< seconds that this run may take; 0: no such limit
  double loss = 0;  ///< mean training loss since the last report, each batch by its weight; NaN when all
                    ///< updates were skipped. Trainer: the cross entropy of the words in nats a target token,
                    ///< without smoothing and other parts, as a validation has it, but with dropout
  double objective = 0;  ///< the mean of what updates minimise: for Trainer with smoothing and all parts
  /// Trainer: what the objective has beside the words, in nats a target token: "alignment", "r-drop",
  /// "distillation".
  std::vector<LossPart> parts{};
  double weight = 0;  ///< of the batches since the last report, those of skipped updates aside
  double weight_per_second =
      0;  ///< of the batches since the last report. Trainer: target tokens; without weights: batches
  double learning_rate = 0;
  double gradient_norm = 0;      ///< of the last update, before clipping
  double seconds = 0;            ///< of this run so far
  double remaining_seconds = 0;  ///< expected
};

/// A number that a validation measured.
struct Measured {
  std::string name;
  double value = 0;
};

/// A sentence, its reference, and what the model makes of it.
struct SampleTranslation {
  std::string source, reference, output;
};

/// A validation.
struct ValidationReport {
  index_t epoch = 0;
  index_t step = 0;
  std::string name;   ///< what was measured: Validation::name. Trainer: "loss", unless a metric was given
  double value = 0;   ///< Trainer's loss: nats a target token, without dropout and smoothing
  bool best = false;  ///< the best so far
  std::vector<Measured> others{};            ///< what was measured besides, and decides nothing
  std::vector<SampleTranslation> samples{};  ///< of the same sentences at each validation
  index_t averaged = 0;  ///< of the mean of so many validations' weights; 0: of the weights as they are
  double seconds = 0;    ///< of this run so far
};

/// Receives what training has to say; the library itself prints nothing. The default ignores it all.
class TrainingSink {
 public:
  virtual ~TrainingSink() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_validation(const ValidationReport&) {}
  /// Anything else that a person should know: a skipped update, averaged weights.
  virtual void on_notice(const std::string&) {}
  /// The model holds the best weights so far (without validation: the latest): the moment to save it for use.
  virtual void on_best() {}
  /// The state to go on from has advanced: the moment to save TrainingLoop::state() or Trainer::state().
  virtual void on_checkpoint() {}

  /// A sink that ignores it all.
  static TrainingSink& silent() {
    static TrainingSink sink;
    return sink;
  }
};

}  // namespace eigenformer
