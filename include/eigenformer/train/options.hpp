#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/optim/schedule.hpp"

namespace eigenformer {

/// How the learning rate goes on after the linear warm-up.
enum class ScheduleKind {
  constant,
  inverse_square_root,
  cosine,  ///< to zero at the last update that the limits allow (those on time: judged by the speed so far)
  noam,    ///< learning_rate is then the factor of the paper's formula
};

/// How a model is trained. The defaults suit 20,000 to 200,000 sentence pairs on a desktop.
struct TrainingOptions {
  index_t epochs = 20;          ///< passes over the corpus at most
  index_t max_steps = 0;        ///< updates at most; 0: no limit
  double max_minutes = 0;       ///< wall-clock time at most, of one run; 0: no limit
  index_t batch_tokens = 2048;  ///< target tokens of a batch, without padding
  index_t accumulate = 1;       ///< batches whose gradients make one update
  double learning_rate = 1e-3;  ///< at the end of the warm-up
  index_t warmup = 400;         ///< updates of linear warm-up
  ScheduleKind schedule = ScheduleKind::inverse_square_root;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double adam_eps = 1e-9;
  double weight_decay = 0;  ///< decoupled (AdamW)
  double clip_norm = 1.0;   ///< global gradient norm at most; 0: no clipping
  double label_smoothing = 0.1;
  index_t validate_every = 500;  ///< updates between validations; 0: at the end of an epoch
  index_t patience = 0;          ///< validations without improvement before training ends; 0: never
  index_t average_last =
      0;  ///< average the weights of the last so many validations at the end; 0 and 1: do not
  index_t report_every = 20;  ///< updates between two reports of progress
  std::uint64_t seed = 1;     ///< of batches and dropout
  kernels::GemmPrecision precision = kernels::GemmPrecision::full;

  /// Throws ValueError that names an impossible field.
  void validate() const {
    const auto at_least = [](const char* name, auto value, auto least) {
      if (value >= least) return;
      throw ValueError("training", std::string(name) + " is " + std::to_string(value) +
                                       ", must be at least " + std::to_string(least));
    };
    const auto rate = [](const char* name, double value) {
      if (value >= 0 && value < 1) return;
      throw ValueError("training",
                       std::string(name) + " is " + std::to_string(value) + ", must be in [0, 1)");
    };
    at_least("epochs", epochs, index_t{1});
    at_least("max_steps", max_steps, index_t{0});
    at_least("max_minutes", max_minutes, 0.0);
    at_least("batch_tokens", batch_tokens, index_t{1});
    at_least("accumulate", accumulate, index_t{1});
    at_least("warmup", warmup, index_t{0});
    at_least("weight_decay", weight_decay, 0.0);
    at_least("adam_eps", adam_eps, 0.0);
    at_least("clip_norm", clip_norm, 0.0);
    at_least("validate_every", validate_every, index_t{0});
    at_least("patience", patience, index_t{0});
    at_least("average_last", average_last, index_t{0});
    at_least("report_every", report_every, index_t{1});
    rate("beta1", beta1);
    rate("beta2", beta2);
    rate("label_smoothing", label_smoothing);
    if (!(learning_rate > 0) || !std::isfinite(learning_rate)) {
      throw ValueError("training",
                       "learning_rate is " + std::to_string(learning_rate) + ", must be positive");
    }
  }

  /// The learning rate of update `step`, from 1, for a model of width d_model and `total` updates in all.
  double rate(index_t step, index_t d_model, index_t total) const {
    switch (schedule) {
      case ScheduleKind::constant:
        return schedule::constant(step, learning_rate, warmup);
      case ScheduleKind::cosine:
        return schedule::cosine(step, learning_rate, warmup, std::max(total, warmup + 1));
      case ScheduleKind::noam:
        return schedule::noam(step, d_model, std::max<index_t>(warmup, 1), learning_rate);
      case ScheduleKind::inverse_square_root:
        break;
    }
    return schedule::inverse_square_root(step, learning_rate, warmup);
  }
};

}  // namespace eigenformer
