#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/conventions.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/nn/adapters/lora_options.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/optim/optimizer_options.hpp"
#include "eigenformer/optim/parameter_groups.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/train/distributed/options.hpp"
#include "eigenformer/train/loop/early_stopping.hpp"
#include "eigenformer/train/loop/progress.hpp"
#include "eigenformer/train/loop/warmup.hpp"
#include "eigenformer/train/objectives/distillation_options.hpp"
#include "eigenformer/train/objectives/guided_alignment_options.hpp"
#include "eigenformer/train/objectives/r_drop_options.hpp"
#include "eigenformer/train/validation/validation_options.hpp"

namespace eigenformer {

template <>
struct EnumNames<kernels::GemmPrecision> {
  static constexpr std::array names = {"full", "bf16"};
};

class Communicator;

/// What validations measure: a loss, BLEU, or any other number.
///
///     .validation = {.measure = [&] { return bleu_of(model, sentences); }, .better = ef::Better::higher,
///     .name = "BLEU"}
struct Validation {
  std::function<double()> measure{};  ///< of the weights as they are now; empty: no validation
  Better better = Better::lower;
  std::string name = "loss";  ///< in reports and in saved states
  /// Identifies what is measured on, such as PairSource::fingerprint(). A training that goes on with other
  /// data forgets the best value of the former; empty: not compared.
  std::string data{};
  /// Adds to a report what else there is to say of the weights that were just measured: other numbers,
  /// translations. May be empty. validation_of() has BLEU, chrF and the loss together.
  std::function<void(ValidationReport&)> details{};
};

/// How a training goes on from update to update, whatever is trained. At least one of epochs, max_steps and
/// max_minutes is above 0.
struct LoopOptions {
  index_t epochs = 0;            ///< passes over the batches at most; 0: no limit
  index_t max_steps = 0;         ///< updates at most; 0: no limit
  double max_minutes = 0;        ///< wall-clock time at most, of one run; 0: no limit
  index_t accumulate = 1;        ///< batches whose gradients make one update
  double clip_norm = 1.0;        ///< global gradient norm at most; 0: no clipping
  index_t validate_every = 500;  ///< updates between validations; 0: at the end of an epoch
  index_t patience = 0;          ///< validations without improvement before training ends; 0: never
  index_t average_last = 0;  ///< average the last so many validations' weights at the end; 0 and 1: do not
  /// Average the best so many validations' weights at the end, by what they measure; 0 and 1: do not.
  index_t average_best = 0;
  /// Validate, keep and average an exponential moving average of the weights; see ExponentialAverage. 0: the
  /// weights themselves.
  double ema_decay = 0;
  index_t report_every = 20;  ///< updates between two reports of progress
  std::uint64_t seed = 1;     ///< of dropout, and of Trainer's batches
  /// bf16: products of bfloat16 with float sums where they are faster (kernels::bf16_products_pay()), float
  /// elsewhere. Parameters, their updates, and what is between two products are float either way.
  kernels::GemmPrecision precision = kernels::GemmPrecision::full;
  /// Backward makes the activations inside each layer of a Stack again in place of keeping them
  /// (checkpoint()): less memory, the time of one more forward pass, the same bits. It may change when a
  /// training goes on.
  bool checkpoint_activations = false;
  Validation validation{};
  /// Threads that each compute a batch of an update, with a tape of their own and the same weights; with the
  /// bits of one. The loss function is then called by several threads at once.
  index_t workers = 1;
  /// The ranks that share the work: of each update's `accumulate` batches, N ranks compute every N-th. The
  /// updates are those of one process. Null: this process works alone.
  std::shared_ptr<Communicator> communicator{};
  DistributedOptions distributed{};

  /// All but validation and communicator, which files do not hold.
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

  /// Throws ValueError that names an impossible field.
  void validate() const {
    validate_fields("training", *this);
    distributed.validate();
    if (epochs == 0 && max_steps == 0 && max_minutes == 0) {
      throw ValueError("training", "epochs, max_steps and max_minutes are all 0, one must be positive");
    }
    if (average_last > 1 && average_best > 1) {
      throw ValueError("training", "average_last is " + std::to_string(average_last) +
                                       " and average_best is " + std::to_string(average_best) +
                                       ", only one of them can be above 1");
    }
  }
};

/// How the learning rate goes on after the linear warm-up to its peak.
enum class ScheduleKind {
  constant,
  inverse_square_root,  ///< Vaswani et al. 2017, eq. 3, whose own peak is schedule::noam_peak()
  cosine,  ///< to zero at the last update that the limits allow; of a limit on time see ExpectedSteps
};
template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array names = {"constant", "inverse-sqrt", "cosine"};
};

/// How Trainer trains a model of source and target. The defaults suit 20,000 to 200,000 sentence pairs on a
/// desktop.
struct TrainingOptions {
  LoopOptions loop{.epochs = 20};
  index_t batch_tokens = 2048;  ///< target tokens of a batch, without padding
  index_t prefetch = 4;         ///< batches that a thread of its own makes ahead; 0: none. The same bits
  double learning_rate = 1e-3;  ///< the peak, at the end of the warm-up, whatever the schedule
  /// Updates of linear warm-up; without a value as many as suit the length of the training: fitted_warmup().
  std::optional<index_t> warmup{};
  ScheduleKind schedule = ScheduleKind::inverse_square_root;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double adam_eps = 1e-9;
  double weight_decay = 0;   ///< decoupled (AdamW); norms and biases do not decay
  ParameterGroups groups{};  ///< own rates and decay by name
  double label_smoothing = 0.1;
  /// Names of parameters that are not trained: patterns as in ParameterGroup, separated by commas. Trainer
  /// freezes them in the model (see freeze()).
  std::string frozen{};
  TextConventions text{};  ///< what stands around sentences: that of a model from elsewhere
  GuidedAlignmentOptions guided_alignment{};  ///< of a corpus with an alignment
  ValidationOptions validation{};             ///< what validations measure: see validation_of()
  OptimizerOptions optimizer{};
  LoraOptions lora{};  ///< an adapter that is trained in place of the model; rank 0: none
  RDropOptions r_drop{};
  DistillationOptions distillation{};  ///< of a training with a teacher

  /// All but groups and text, which have places of their own in files or none.
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
    visit(OptionField{"schedule", "learning rate schedule after the warm-up"}, self.schedule);
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

  /// Throws ValueError that names an impossible field.
  void validate() const {
    validate_fields("training", *this);
    loop.validate();
    validation.validate();
    optimizer.validate();
  }

  /// Whether rates depend on the number of updates in all.
  bool uses_total() const { return schedule == ScheduleKind::cosine; }
  /// The learning rate of update `step`, from 1, of `total` in all.
  double rate(index_t step, index_t total) const {
    return rate(step, total, warmup.value_or(fitted_warmup(total)));
  }
  /// The same with so many updates of warm-up.
  double rate(index_t step, index_t total, index_t warmup_updates) const {
    switch (schedule) {
      case ScheduleKind::constant:
        return schedule::constant(step, learning_rate, warmup_updates);
      case ScheduleKind::cosine:
        return schedule::cosine(step, learning_rate, warmup_updates, std::max(total, warmup_updates + 1));
      case ScheduleKind::inverse_square_root:
        break;
    }
    return schedule::inverse_square_root(step, learning_rate, warmup_updates);
  }
};

}  // namespace eigenformer
