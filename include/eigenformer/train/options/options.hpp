#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/io/models/conventions_json.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/nn/adapters/lora_options.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/optim/parameter_groups.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/train/options/distributed.hpp"
#include "eigenformer/train/options/objectives.hpp"
#include "eigenformer/train/reporting/progress.hpp"

namespace eigenformer {

/// What a validation can measure.
enum class ValidationMeasure {
  loss,  ///< cross entropy of the references, in nats per target token
  bleu,  ///< corpus_bleu() of translations, 0 to 100
  chrf   ///< corpus_chrf() of translations, 0 to 100
};
EIGENFORMER_ENUM_NAMES(ValidationMeasure, "loss", "bleu", "chrf")

/// What validations on sentence pairs measure, and which measure decides what is best and when to stop;
/// validation_of() creates the Validation.
struct ValidationOptions {
  std::string measures = "loss";                   ///< names of ValidationMeasure, separated by commas
  ValidationMeasure by = ValidationMeasure::loss;  ///< the deciding measure, always measured
  index_t sample = 500;                            ///< maximum pairs to translate; 0: all
  index_t beam = 1;                                ///< beam size of these translations; 1: greedy

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"validate_with", "comma-separated validation metrics: loss, bleu, chrf"},
          self.measures);
    visit(OptionField{"validate_by", "metric that selects the best weights and decides when to stop"},
          self.by);
    visit(OptionField{"validate_sample",
                      "pairs translated for BLEU and chrF, evenly spread over the data; 0: all",
                      Allowed::not_negative},
          self.sample);
    visit(
        OptionField{"validate_beam", "beam size of these translations; 1: greedy search", Allowed::positive},
        self.beam);
  }

  /// Whether validations measure it: it is `by` or one of `measures`.
  bool has(ValidationMeasure measure) const {
    const std::vector<std::string> all = names();
    return measure == by || std::find(all.begin(), all.end(), word_of(measure)) != all.end();
  }
  /// Whether validations translate the sample.
  bool translates() const { return has(ValidationMeasure::bleu) || has(ValidationMeasure::chrf); }

  /// Throws ValueError when `measures` contains an unknown name, or one twice.
  void validate() const;

 private:
  // The names in `measures`, without spaces.
  std::vector<std::string> names() const;
};

/// Which of two measurements is better.
enum class Better {
  lower,  ///< as for a loss
  higher  ///< as for BLEU
};

namespace detail {

/// Tracks the best validation, and stops after `patience` validations without improvement.
class EarlyStopping {
 public:
  /// patience: validations without improvement after which stop() is true; 0: never.
  explicit EarlyStopping(index_t patience = 0, Better better = Better::lower)
      : patience_(patience), better_(better), best_(worst(better)) {}

  /// Records a validation's value; returns true when it is the best so far, which NaN never is.
  bool update(double value);

  /// Whether a value is better than best(); false for NaN. Records nothing.
  bool improves(double value) const noexcept {
    return better_ == Better::lower ? value < best_ : value > best_;
  }
  /// Whether `patience` validations in a row brought no improvement.
  bool stop() const noexcept { return patience_ > 0 && without_improvement_ >= patience_; }
  /// The best value so far; before the first it is worst().
  double best() const noexcept { return best_; }
  /// The number of validations since the best one.
  index_t without_improvement() const noexcept { return without_improvement_; }
  /// Restores a saved best() and without_improvement().
  void restore(double best, index_t without_improvement) noexcept {
    best_ = best;
    without_improvement_ = without_improvement;
  }

  /// A value worse than every number: infinity, or -infinity when higher is better.
  static double worst(Better better) noexcept {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return better == Better::lower ? infinity : -infinity;
  }

 private:
  index_t patience_;
  Better better_;
  double best_;
  index_t without_improvement_ = 0;
};

/// The default length of the linear warm-up, in updates, for a training of `total` updates: 400, or a quarter
/// of the total if that is less, and at least 1.
inline index_t fitted_warmup(index_t total) noexcept { return std::clamp<index_t>(total / 4, 1, 400); }

// The warm-up of one training: as given, or fitted once to the expected number of updates. Reports a fitted
// or an overlong warm-up when it is decided.
class Warmup {
 public:
  // given: updates, or empty. say: receives notices.
  Warmup(std::optional<index_t> given, std::function<void(const std::string&)> say)
      : given_(given), say_(std::move(say)) {}

  // Updates of warm-up for the next update. total: expected updates in all. settled: whether that is final;
  // until then the warm-up may still get shorter.
  index_t at(index_t total, bool settled);

  // For the training state: empty before it is decided.
  std::optional<index_t> decided() const noexcept { return decided_; }
  // Restores decided(). A warm-up given now takes precedence.
  void restore(std::optional<index_t> decided) noexcept { decided_ = given_ ? given_ : decided; }

 private:
  std::optional<index_t> given_;
  std::function<void(const std::string&)> say_;
  std::optional<index_t> decided_;
};

}  // namespace detail

EIGENFORMER_ENUM_NAMES(GemmPrecision, "full", "bf16")

class Communicator;

/// What validations measure: a loss, BLEU, or any other number.
///
///     .validation = {.measure = [&] { return bleu_of(model, sentences); },
///                    .better = ef::Better::higher,
///                    .name = "BLEU"}
struct Validation {
  std::function<double()> measure{};  ///< measures the current weights; empty: no validation
  Better better = Better::lower;      ///< which values are better
  std::string name = "loss";          ///< in reports and in saved states
  /// Identifies the validation data, such as PairSource::fingerprint(). A training resumed with other data
  /// resets its best value; empty: not compared.
  std::string data{};
  /// Called after `measure`: adds further numbers and translations to the report. May be empty.
  /// validation_of() returns a Validation with the loss, BLEU and chrF.
  std::function<void(ValidationReport&)> details{};
};

/// Options of a TrainingLoop. At least one of epochs, max_steps and max_minutes must be above 0.
struct LoopOptions {
  index_t epochs = 0;            ///< maximum passes over the batches; 0: no limit
  index_t max_steps = 0;         ///< maximum updates, counted over all runs; 0: no limit
  double max_minutes = 0;        ///< maximum wall-clock minutes of one run; 0: no limit
  index_t accumulate = 1;        ///< batches per update (gradient accumulation)
  double clip_norm = 1.0;        ///< maximum global gradient norm; 0: no clipping
  index_t validate_every = 500;  ///< updates between validations; 0: at the end of an epoch
  index_t patience = 0;          ///< validations without improvement after which training ends; 0: never
  /// At the end, average the weights of the last `average_last` validations; 0 and 1: off.
  index_t average_last = 0;
  /// At the end, average the weights of the best `average_best` validations; 0 and 1: off. Only one of the
  /// two may be above 1.
  index_t average_best = 0;
  /// Decay of an exponential moving average of the weights, which is validated, saved and averaged in place
  /// of the weights (see ExponentialAverage), in [0, 1); 0: off.
  double ema_decay = 0;
  index_t report_every = 20;  ///< updates between two StepReports
  std::uint64_t seed = 1;     ///< of dropout and of the order of Trainer's batches
  /// bf16: matrix products of bfloat16 with float sums where the CPU computes them faster
  /// (bf16_products_pay()), else float. Parameters, updates and activations are float in both cases.
  GemmPrecision precision = GemmPrecision::full;
  /// Recompute the activations inside each layer of a Stack in backward instead of storing them (see
  /// checkpoint()): less memory, the time of another forward pass, the same bits. May change when a training
  /// is resumed.
  bool checkpoint_activations = false;
  Validation validation{};  ///< what validations measure; by default there are none
  /// Threads that each compute a batch of an update, with the same weights and the same bits as one thread.
  /// Above 1 the loss function is called by several threads at once and must be thread-safe.
  index_t workers = 1;
  /// Connects the ranks of a distributed training: each of N ranks computes every N-th of the `accumulate`
  /// batches of an update. Null: no other ranks.
  std::shared_ptr<Communicator> communicator{};
  DistributedOptions distributed{};  ///< how ranks exchange gradients

  /// Visits all fields but validation and communicator with their names and descriptions, for files and
  /// command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"epochs", "maximum passes over the training data; 0: no limit", Allowed::not_negative},
          self.epochs);
    visit(OptionField{"max_steps", "maximum updates; 0: no limit", Allowed::not_negative}, self.max_steps);
    visit(OptionField{"max_minutes", "maximum minutes of one run; 0: no limit", Allowed::not_negative},
          self.max_minutes);
    visit(OptionField{"accumulate", "batches per update (gradient accumulation)", Allowed::positive},
          self.accumulate);
    visit(OptionField{"clip_norm", "clip gradients to this norm; 0: no clipping", Allowed::not_negative},
          self.clip_norm);
    visit(OptionField{"validate_every", "updates between validations; 0: validate after each epoch",
                      Allowed::not_negative},
          self.validate_every);
    visit(OptionField{"patience", "stop after this many validations without improvement; 0: never",
                      Allowed::not_negative},
          self.patience);
    visit(OptionField{"average_last",
                      "average the weights of this many last validations at the end; 0 or 1: no averaging",
                      Allowed::not_negative},
          self.average_last);
    visit(OptionField{"average_best",
                      "average the weights of this many best validations at the end; 0 or 1: no averaging",
                      Allowed::not_negative},
          self.average_best);
    visit(
        OptionField{
            "ema_decay",
            "validate and keep a moving average of the weights with this decay (such as 0.999); 0: off",
            Allowed::rate},
        self.ema_decay);
    visit(OptionField{"report_every", "updates between progress reports", Allowed::positive},
          self.report_every);
    visit(OptionField{"seed", "seed of batches and dropout"}, self.seed);
    visit(
        OptionField{"precision",
                    "precision of matrix products: float, or bfloat16 summed in float where that is faster"},
        self.precision);
    visit(OptionField{"checkpoint_activations",
                      "recompute the activations inside layers in backward instead of storing them: less "
                      "memory, more time, the same results"},
          self.checkpoint_activations);
    visit(OptionField{"workers", "data-parallel threads, each of which computes batches of an update",
                      Allowed::positive},
          self.workers);
    DistributedOptions::fields(self.distributed, visit);
  }

  /// Throws ValueError for an invalid field or combination, and names it.
  void validate() const;
};

/// The learning rate after the linear warm-up.
enum class ScheduleKind {
  constant,             ///< stays at the peak
  inverse_square_root,  ///< Vaswani et al. 2017, eq. 3; their peak is schedule::noam_peak()
  cosine,  ///< to zero at the last update that the limits allow; for time limits see ExpectedSteps
  /// stays at the peak and decays to zero in the last fifth, of the updates or of the time, whichever is
  /// nearer: schedule::warmup_stable_decay(). A training can go on from the state before the decay.
  warmup_stable_decay,
};
EIGENFORMER_ENUM_NAMES(ScheduleKind, "constant", "inverse-sqrt", "cosine", "wsd")

/// Options of a Trainer. The defaults suit 20,000 to 200,000 sentence pairs on a desktop computer.
struct TrainingOptions {
  LoopOptions loop{.epochs = 20};  ///< limits, validation, parallelism
  index_t batch_tokens = 2048;     ///< maximum target tokens per batch; there is no padding
  index_t prefetch = 4;            ///< batches made ahead on another thread; 0: none. Does not change results
  double learning_rate = 1e-3;     ///< the peak, reached at the end of the warm-up, for every schedule
  /// Updates of linear warm-up; without a value fitted_warmup() of the training's length.
  std::optional<index_t> warmup{};
  ScheduleKind schedule = ScheduleKind::inverse_square_root;  ///< the learning rate after the warm-up
  double beta1 = 0.9;                                         ///< Adam's decay of the mean, in [0, 1)
  double beta2 = 0.98;                                        ///< Adam's decay of the mean square, in [0, 1)
  double adam_eps = 1e-9;                                     ///< added to Adam's denominator
  double weight_decay = 0;       ///< decoupled (AdamW); norms and biases do not decay
  ParameterGroups groups{};      ///< learning rates and weight decay for groups of parameters, by name
  double label_smoothing = 0.1;  ///< in [0, 1)
  /// Parameters that are not trained: name patterns as in ParameterGroup, separated by commas. Trainer
  /// freezes them in the model (see freeze()).
  std::string frozen{};
  ModelConventions text{};  ///< special tokens around sentences, of a model folder or an import
  GuidedAlignmentOptions guided_alignment{};  ///< for a corpus with word alignments
  ValidationOptions validation{};             ///< what validations measure; see validation_of()
  OptimizerOptions optimizer{};               ///< which optimizer
  LoraOptions lora{};                         ///< an adapter to train in place of the model; rank 0: none
  RDropOptions r_drop{};                      ///< off by default
  DistillationOptions distillation{};         ///< for a training with a teacher
  /// The largest learning_rate that validate() accepts; no optimizer here trains with more.
  static constexpr double max_learning_rate = 1000;

  /// Visits all fields but groups and text with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    LoopOptions::fields(self.loop, visit);
    visit(OptionField{"batch_tokens", "target tokens per batch", Allowed::positive}, self.batch_tokens);
    visit(OptionField{"prefetch", "batches that a background thread prepares ahead; 0: none",
                      Allowed::not_negative},
          self.prefetch);
    visit(OptionField{"learning_rate", "peak learning rate, reached at the end of the warm-up",
                      Allowed::positive},
          self.learning_rate);
    visit(
        OptionField{
            "warmup",
            "updates of linear warm-up; not given: 400, or a quarter of the expected updates if that is less",
            Allowed::not_negative},
        self.warmup);
    visit(OptionField{"schedule",
                      "learning rate after the warm-up; wsd: stays at the peak, and decays to zero in the "
                      "last fifth of the updates or of the time"},
          self.schedule);
    visit(OptionField{"beta1", "Adam's decay rate of the mean of gradients", Allowed::rate}, self.beta1);
    visit(OptionField{"beta2", "Adam's decay rate of the mean of squared gradients", Allowed::rate},
          self.beta2);
    visit(OptionField{"adam_eps", "Adam's epsilon, added to the denominator", Allowed::not_negative},
          self.adam_eps);
    visit(OptionField{"weight_decay", "decoupled weight decay (AdamW), not of norms and biases",
                      Allowed::not_negative},
          self.weight_decay);
    visit(OptionField{"label_smoothing", "label smoothing; 0: off", Allowed::rate}, self.label_smoothing);
    visit(OptionField{"frozen",
                      "parameters that are not trained: comma-separated name patterns such as encoder.*"},
          self.frozen);
    GuidedAlignmentOptions::fields(self.guided_alignment, visit);
    ValidationOptions::fields(self.validation, visit);
    OptimizerOptions::fields(self.optimizer, visit);
    LoraOptions::fields(self.lora, visit);
    RDropOptions::fields(self.r_drop, visit);
    DistillationOptions::fields(self.distillation, visit);
  }

  /// Throws ValueError for an invalid field or combination, and names it.
  void validate() const;

  /// The learning rate of update `step` (from 1) of `total`. warmup_updates: in place of those of the
  /// options. done: the part of the training before the update, in place of that of its updates; see
  /// ExpectedSteps.
  double rate(index_t step, index_t total, std::optional<index_t> warmup_updates = {},
              std::optional<double> done = {}) const;
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION void ValidationOptions::validate() const {
  std::set<std::string> given;
  for (const std::string& name : names()) {
    const auto& known = EnumNames<ValidationMeasure>::names;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw ValueError("training",
                       {"validate_with has '", name, "', expected loss, bleu and chrf, separated by commas"});
    }
    if (!given.insert(name).second)
      throw ValueError("training", {"validate_with has '", name, "' twice, expected each measure once"});
  }
}

EIGENFORMER_IO_FUNCTION std::vector<std::string> ValidationOptions::names() const {
  std::vector<std::string> all(1);
  for (const char c : measures) {
    if (c == ',') {
      all.emplace_back();
    } else if (c != ' ') {
      all.back() += c;
    }
  }
  return all;
}

namespace detail {

EIGENFORMER_IO_FUNCTION bool EarlyStopping::update(double value) {
  if (improves(value)) {
    best_ = value;
    without_improvement_ = 0;
    return true;
  }
  ++without_improvement_;
  return false;
}

EIGENFORMER_IO_FUNCTION index_t Warmup::at(index_t total, bool settled) {
  if (decided_) return *decided_;
  const index_t updates = given_.value_or(fitted_warmup(total));
  if (!settled) return updates;
  decided_ = updates;
  const std::string expected = std::to_string(total) + " expected updates";
  if (given_ && updates > total / 2) {
    say_("the warm-up of " + std::to_string(updates) + " updates takes most of the " + expected +
         ": the learning rate reaches its peak late or never");
  } else if (!given_ && updates == total / 4 && updates > 0) {
    say_("warm-up: " + std::to_string(updates) + " updates, a quarter of the " + expected);
  }
  return updates;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION void LoopOptions::validate() const {
  validate_fields("training", *this);
  distributed.validate();
  if (epochs == 0 && max_steps == 0 && max_minutes == 0) {
    throw ValueError("training", "epochs, max_steps and max_minutes are all 0, one must be positive");
  }
  if (average_last > 1 && average_best > 1) {
    throw ValueError("training", {"average_last is ", average_last, " and average_best is ", average_best,
                                  ", at most one of them may be above 1"});
  }
}

EIGENFORMER_IO_FUNCTION void TrainingOptions::validate() const {
  validate_fields("training", *this);
  if (learning_rate > max_learning_rate) {
    throw ValueError("training",
                     {"learning_rate is ", detail::number_text(learning_rate), ", must be at most ",
                      detail::number_text(max_learning_rate), "; Adam's are about 0.001"});
  }
  if (learning_rate * weight_decay >= 1) {
    throw ValueError("training", {"learning_rate is ", detail::number_text(learning_rate),
                                  " and weight_decay is ", detail::number_text(weight_decay),
                                  ", their product must be below 1: an update shrinks weights by it"});
  }
  loop.validate();
  validation.validate();
  optimizer.validate();
}

EIGENFORMER_IO_FUNCTION double TrainingOptions::rate(index_t step, index_t total,
                                                     std::optional<index_t> warmup_updates,
                                                     std::optional<double> done) const {
  const index_t warm = warmup_updates ? *warmup_updates : warmup.value_or(detail::fitted_warmup(total));
  switch (schedule) {
    case ScheduleKind::constant:
      return schedule::constant(step, learning_rate, warm);
    case ScheduleKind::cosine:
      return schedule::cosine(step, learning_rate, warm, std::max(total, warm + 1));
    case ScheduleKind::warmup_stable_decay:
      if (!done) return schedule::warmup_stable_decay(step, learning_rate, warm, total);
      return schedule::constant(step, learning_rate, warm) * schedule::decay(*done);
    case ScheduleKind::inverse_square_root:
      break;
  }
  return schedule::inverse_square_root(step, learning_rate, warm);
}

}  // namespace eigenformer

#endif
