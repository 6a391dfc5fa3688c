#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/optim/parameter_groups.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/train/early_stopping.hpp"

namespace eigenformer {

/// What validations measure: a loss, BLEU, or any other number.
///
///     .validation = {.measure = [&] { return bleu_of(model, sentences); }, .better = ef::Better::higher,
///     .name = "BLEU"}
struct Validation {
  std::function<double()> measure{};  ///< of the weights as they are now; empty: no validation
  Better better = Better::lower;
  std::string name = "loss";  ///< in reports and in saved states
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
  index_t average_last =
      0;  ///< average the weights of the last so many validations at the end; 0 and 1: do not
  index_t report_every = 20;  ///< updates between two reports of progress
  std::uint64_t seed = 1;     ///< of dropout, and of batches where the caller draws them from it
  kernels::GemmPrecision precision = kernels::GemmPrecision::full;
  Validation validation{};

  /// Throws ValueError that names an impossible field.
  void validate() const;
};

/// How the learning rate goes on after the linear warm-up to its peak.
enum class ScheduleKind {
  constant,
  inverse_square_root,  ///< the curve of Vaswani et al. 2017, eq. 3, whose own peak is schedule::noam_peak()
  cosine,  ///< to zero at the last update that the limits allow (those on time: judged by the speed so far)
};

/// How Trainer trains a model of source and target. The defaults suit 20,000 to 200,000 sentence pairs on a
/// desktop.
struct TrainingOptions {
  LoopOptions loop{.epochs = 20};
  index_t batch_tokens = 2048;  ///< target tokens of a batch, without padding
  double learning_rate = 1e-3;  ///< the peak, at the end of the warm-up, whatever the schedule
  index_t warmup = 400;         ///< updates of linear warm-up
  ScheduleKind schedule = ScheduleKind::inverse_square_root;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double adam_eps = 1e-9;
  double weight_decay = 0;   ///< decoupled (AdamW); norms and biases do not decay
  ParameterGroups groups{};  ///< own rates and decay by name
  double label_smoothing = 0.1;

  /// Throws ValueError that names an impossible field.
  void validate() const;

  /// The learning rate of update `step`, from 1, of `total` in all.
  double rate(index_t step, index_t total) const;
};

namespace detail {

inline void require_option(bool valid, const char* name, const std::string& value, const char* rule) {
  if (!valid) throw ValueError("training", std::string(name) + " is " + value + ", must be " + rule);
}

}  // namespace detail

inline void LoopOptions::validate() const {
  const auto at_least = [](const char* name, auto value, auto least) {
    detail::require_option(value >= least, name, std::to_string(value),
                           ("at least " + std::to_string(least)).c_str());
  };
  at_least("epochs", epochs, index_t{0});
  at_least("max_steps", max_steps, index_t{0});
  at_least("max_minutes", max_minutes, 0.0);
  at_least("accumulate", accumulate, index_t{1});
  at_least("clip_norm", clip_norm, 0.0);
  at_least("validate_every", validate_every, index_t{0});
  at_least("patience", patience, index_t{0});
  at_least("average_last", average_last, index_t{0});
  at_least("report_every", report_every, index_t{1});
  if (epochs == 0 && max_steps == 0 && !(max_minutes > 0)) {
    throw ValueError("training",
                     "epochs, max_steps and max_minutes are all 0, one must be positive: nothing else ends "
                     "the training");
  }
}

inline void TrainingOptions::validate() const {
  const auto rate = [](const char* name, double value) {
    detail::require_option(value >= 0 && value < 1, name, std::to_string(value), "in [0, 1)");
  };
  const auto at_least = [](const char* name, auto value, auto least) {
    detail::require_option(value >= least, name, std::to_string(value),
                           ("at least " + std::to_string(least)).c_str());
  };
  loop.validate();
  at_least("batch_tokens", batch_tokens, index_t{1});
  at_least("warmup", warmup, index_t{0});
  at_least("weight_decay", weight_decay, 0.0);
  at_least("adam_eps", adam_eps, 0.0);
  rate("beta1", beta1);
  rate("beta2", beta2);
  rate("label_smoothing", label_smoothing);
  detail::require_option(learning_rate > 0 && std::isfinite(learning_rate), "learning_rate",
                         std::to_string(learning_rate), "positive");
}

inline double TrainingOptions::rate(index_t step, index_t total) const {
  switch (schedule) {
    case ScheduleKind::constant:
      return schedule::constant(step, learning_rate, warmup);
    case ScheduleKind::cosine:
      return schedule::cosine(step, learning_rate, warmup, std::max(total, warmup + 1));
    case ScheduleKind::inverse_square_root:
      break;
  }
  return schedule::inverse_square_root(step, learning_rate, warmup);
}

}  // namespace eigenformer
