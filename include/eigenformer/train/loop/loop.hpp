#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/train/distributed/agreement.hpp"
#include "eigenformer/train/distributed/ranks.hpp"
#include "eigenformer/train/distributed/workers.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/reporting/progress.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer::detail {

// The counters of a training.
struct TrainingProgress {
  index_t step = 0;             // updates
  index_t epoch = 0;            // complete passes over the corpus
  index_t batch = 0;            // of the epoch under way
  index_t validated_step = -1;  // after which the last validation was
  index_t bad_updates = 0;      // skipped in a row
  index_t expected_steps = 0;   // estimated for a time limit; 0: not yet
  index_t decay_step = -1;      // after which the learning rate began to decay; -1: it has not
  index_t decay_steps = 0;      // updates of the training that decays; 0: it follows the clock or a request
};

EIGENFORMER_IO_FUNCTION nlohmann::json to_json(const TrainingProgress& p);

// Looks up the parts of a training state. All functions throw ValueError for a part that is missing or wrong.
template <class T>
class StateReader {
 public:
  explicit StateReader(const TrainingState<T>& state) : state_(state) {
    for (const auto& [name, tensor] : state.tensors) tensors_[name] = &tensor;
  }

  bool has(const char* key) const { return state_.values.contains(key); }

  template <class U>
  U value(const char* key) const {
    if (!has(key)) throw ValueError("training", {"the training state has no '", key, "'"});
    const nlohmann::json& found = state_.values.at(key);
    // nlohmann-json would convert 1e300 to an integer, which is undefined.
    constexpr bool counts = std::integral<U> && !std::same_as<U, bool>;
    try {
      if (!counts || found.is_number_integer()) return found.template get<U>();
    } catch (const nlohmann::json::exception&) {
    }
    throw ValueError("training",
                     {"'", key, "' of the training state has another type than expected: ", found.dump()});
  }

  template <class U>
  void require_equal(const char* key, const U& now) const {
    if (value<U>(key) == now) return;
    throw ValueError("training", {"the training state was made with ", key, " ", state_.values.at(key).dump(),
                                  ", cannot resume with ", nlohmann::json(now).dump()});
  }

  // All tensors whose names begin with `prefix`, without it.
  std::vector<StateEntry<T>> tensors(const std::string& prefix) const {
    std::vector<StateEntry<T>> found;
    for (auto at = tensors_.lower_bound(prefix); at != tensors_.end() && at->first.rfind(prefix, 0) == 0;
         ++at) {
      found.push_back({at->first.substr(prefix.size()), *at->second, {}});
    }
    return found;
  }

  // One for each parameter, in their order.
  std::vector<StateEntry<T>> tensors(const std::string& prefix,
                                     const std::vector<ParameterHandle<T>>& parameters) const {
    std::vector<StateEntry<T>> found;
    for (const auto& p : parameters) {
      const auto at = tensors_.find(prefix + p->name);
      if (at == tensors_.end())
        throw ValueError("training", {"the training state has no '", prefix, p->name, "'"});
      if (at->second->shape() != p->value.shape()) {
        throw ValueError("training", {"'", prefix, p->name, "' of the training state has shape ",
                                      at->second->shape(), ", must be ", p->value.shape()});
      }
      found.push_back({p->name, *at->second, {}});
    }
    return found;
  }

 private:
  const TrainingState<T>& state_;
  std::map<std::string, const Tensor<T>*> tensors_;
};

template <class T>
TrainingProgress progress_from(const StateReader<T>& reader) {
  TrainingProgress p;
  p.step = reader.template value<index_t>("step");
  p.epoch = reader.template value<index_t>("epoch");
  p.batch = reader.template value<index_t>("batch");
  p.validated_step = reader.template value<index_t>("validated_step");
  p.bad_updates = reader.template value<index_t>("bad_updates");
  if (reader.has("expected_steps")) p.expected_steps = reader.template value<index_t>("expected_steps");
  if (reader.has("decay_step")) {
    p.decay_step = reader.template value<index_t>("decay_step");
    p.decay_steps = reader.template value<index_t>("decay_steps");
  }
  if (p.step < 0 || p.epoch < 0 || p.batch < 0 || p.bad_updates < 0 || p.expected_steps < 0)
    throw ValueError("training", "a counter of the training state is negative, must be 0 or above");
  return p;
}

}  // namespace eigenformer::detail

namespace eigenformer {

namespace detail {

/// A guard that keeps the weights for evaluation in a model for its lifetime; see
/// TrainingLoop::evaluation_weights().
class EvaluationWeights {
 public:
  /// restore: called by the destructor, and must not throw; empty: nothing to restore.
  explicit EvaluationWeights(std::function<void()> restore = {}) : restore_(std::move(restore)) {}
  ~EvaluationWeights() {
    if (restore_) restore_();
  }
  /// Takes over the duty to restore.
  EvaluationWeights(EvaluationWeights&& other) noexcept : restore_(std::exchange(other.restore_, {})) {}
  EvaluationWeights(const EvaluationWeights&) = delete;
  EvaluationWeights& operator=(const EvaluationWeights&) = delete;

 private:
  std::function<void()> restore_;
};

}  // namespace detail

/// Trains parameters with any loss: batches, dropout, gradient accumulation, clipping, a schedule, an
/// optimizer, validation, weight averaging, early stopping. Its state can be saved and loaded between any two
/// updates; a resumed training ends with the same bits as one that was not interrupted.
///
/// The optimizer, the sink, and batches passed as an lvalue must outlive it; a loss and a schedule are copied
/// or moved. It prints nothing and handles no signals. Not thread-safe: only a stop token may be used from
/// another thread.
///
///     ef::AdamW<float> optimizer(ef::parameters(model), {.weight_decay = 0.01});
///     const auto loss = [&](const ef::Context<float>& ctx, const MyBatch& batch) {
///       return model.loss(ctx, batch.x, batch.y);
///     };
///     const auto rate = [](ef::index_t step) { return ef::schedule::cosine(step, 1e-3, 100, 1000); };
///     ef::TrainingLoop loop(ef::parameters(model), loss, batches, optimizer, rate, {.max_steps = 1000});
///     loop.run();
template <class T = float>
class TrainingLoop {
 public:
  /// Stores the arguments; run() trains. Throws ValueError for invalid options.
  ///
  /// - parameters: the parameters that get gradients; the optimizer must hold the same ones.
  /// - loss: (ctx, batch) -> the batch's mean loss, a scalar; see LossFunction and WeightedLoss.
  /// - batches: a random-access range of batches, in its order in each epoch; or EpochBatches such as
  /// Batcher; or a function (step, from 1) that returns the batch or the batches of an update, without
  /// epochs. To resume a training exactly, what the function returns must depend only on the step.
  /// - schedule: the learning rate of an update; see Schedule.
  template <class Loss, class Batches, class Rates>
  TrainingLoop(const std::vector<ParameterHandle<T>>& parameters, Loss&& loss, Batches&& batches,
               Optimizer<T>& optimizer, Rates&& schedule, const LoopOptions& options,
               TrainingSink& sink = TrainingSink::silent());

  /// Trains until a limit of the options, early stopping or the stop token ends the run. The stop token is
  /// checked between updates. An update whose loss or gradients are infinite or NaN is skipped; 20 of them in
  /// a row throw ValueError, and so does a parameter that is infinite or NaN at a validation, before the sink
  /// could save it. Also throws what the loss, the batches, the schedule and the sink throw.
  ///
  /// With a communicator all ranks call it, after loading the same state. They start with the weights of rank
  /// 0 and end together: when any rank's stop token is set, or by the clock of rank 0, the only one that
  /// measures validations. When a rank throws, the others throw IoError with its message.
  ///
  /// At a limit the weights are validated once more if they have changed since the last validation, and
  /// averaged if the options ask for it. This affects the model for use and not state(): with a higher limit,
  /// training goes on as if it had not ended.
  ///
  /// decay: a request to finish early and well. A schedule that decays at the end (decays_from() in
  /// ExpectedSteps) then decays at once, over as many updates as if they were the last part of the training;
  /// a notice says how long that takes, and `stop` still stops. With another schedule it is a stop.
  TrainingEnd run(std::stop_token stop = {}, std::stop_token decay = {});

  /// Updates so far.
  index_t step() const noexcept { return progress_.step; }
  /// Updates of this run() that were skipped because loss or gradients were infinite or NaN.
  index_t skipped() const noexcept { return skipped_; }
  /// The number of updates skipped in a row up to now, those before a resume included.
  index_t skipped_in_a_row() const noexcept { return progress_.bad_updates; }
  /// The mean loss of the last update of this run(), that of StepReport::loss, which may be infinite or NaN;
  /// NaN before the first.
  double last_loss() const noexcept { return last_loss_; }
  /// Complete passes over the batches.
  index_t epoch() const noexcept { return progress_.epoch; }
  /// The best validation so far, including those at the end of run(); before the first infinity, or -infinity
  /// when higher is better.
  double best() const noexcept { return best_at_end_.value_or(early_stopping_.best()); }

  /// The approximate size of state() in bytes once the optimizer has stepped and all snapshots exist.
  std::uint64_t expected_state_bytes() const;

  /// Swaps the moving average of the weights (LoopOptions::ema_decay) into the parameters until the returned
  /// guard is destroyed. Without an average, or when it is already in place, the guard does nothing. During
  /// validations and the sink's on_best() the average is in place. While it is, state() still returns the
  /// weights of training, and run() and load() throw ValueError.
  ///
  ///     trainer.run();
  ///     const auto average = trainer.evaluation_weights();
  ///     ef::save_model_folder("en-de", model, ...);
  [[nodiscard]] detail::EvaluationWeights evaluation_weights();

  /// All that training needs to resume besides options and batches: weights, the optimizer's state,
  /// snapshots, counters. The tensors share memory with the loop: save or clone them before the next update.
  /// Throws ValueError when two parameters have one name. With DistributedOptions::shard_optimizer, rank 0
  /// has the whole state during its sink's calls; at other times the call is collective.
  TrainingState<T> state() const;
  /// Restores a saved state by copying it. Throws ValueError, and changes nothing, when the state belongs to
  /// other parameters, another optimizer, or options that lead to other updates (seed, accumulate, what
  /// validations measure).
  void load(const TrainingState<T>& state);
  /// Whether a saved state is of a decay towards another end than that of these options, so that the state
  /// kept by TrainingSink::on_decay() is the one to load. A run with a time limit has all its time before it.
  bool resumes_before_decay(const TrainingState<T>& state) const;

 private:
  using Clock = std::chrono::steady_clock;

  // Sums since the last report.
  struct Window {
    Clock::time_point start{};
    double loss = 0;  // what reports show; like objective and weight a sum over batches
    double objective = 0;
    double weight = 0;
    LossParts parts{};
  };

  static constexpr index_t max_bad_updates = 20;

  static std::string snapshot_prefix(std::size_t k) { return "snapshot." + std::to_string(k) + "."; }
  std::vector<StateEntry<T>> weights() const;
  StateAverage<T> no_snapshots() const {
    return StateAverage<T>(std::max<index_t>({options_.average_last, options_.average_best, 1}));
  }
  StateAverage<T> load_snapshots(const detail::StateReader<T>& reader) const;
  void require_training_weights() const;
  bool validates() const { return static_cast<bool>(options_.validation.measure); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  index_t steps_of_limits() const;
  index_t last_step() const { return std::min(steps_of_limits(), early_end_); }
  double done();
  bool same_decay(const detail::TrainingProgress& progress) const;
  ExpectedSteps expected_steps();
  index_t steps_by_speed(double seconds) const;
  void judge_time();
  void begin_decay(bool early);
  TrainingEnd run_to_end(const std::stop_token& stop, const std::stop_token& decay);
  void require_options() const;
  void make_accumulator();
  void begin_together();
  void checkpoint();
  void update();
  void skip(double loss, double norm);
  void require_finite() const;
  void report();
  void validate(detail::EarlyStopping& early_stopping, StateAverage<T>& snapshots);
  void tell(double value, bool best, index_t averaged = 0);
  TrainingEnd finish(TrainingEnd end);
  void try_average(detail::EarlyStopping& early_stopping, const StateAverage<T>& snapshots);

  LoopOptions options_;
  TrainingSink& sink_;
  std::vector<ParameterHandle<T>> parameters_;
  std::unique_ptr<detail::Updates<T>> updates_;
  std::unique_ptr<detail::Accumulator<T>> accumulator_;
  std::unique_ptr<detail::ShardedState<T>> sharded_;  // with DistributedOptions::shard_optimizer
  Optimizer<T>& optimizer_;
  bool uses_total_ = false;
  bool follows_total_ = false;
  double decays_from_ = 2;  // above 1: never
  Gradients<T> gradients_;
  std::shared_ptr<detail::kernels::WeightCache> weights_ = std::make_shared<detail::kernels::WeightCache>();
  Tape<T> tape_;
  detail::EarlyStopping early_stopping_;
  StateAverage<T> snapshots_;
  std::optional<double> best_at_end_;
  std::unique_ptr<ExponentialAverage<T>> average_;  // with ema_decay
  std::vector<Tensor<T>> displaced_;  // the weights of training, while a mean of snapshots replaces them
  detail::TrainingProgress progress_;
  mutable index_t first_epoch_steps_ = 0;  // 0: not counted yet
  double learning_rate_ = 0;
  double gradient_norm_ = 0;
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();
  index_t first_step_ = 0;
  index_t skipped_ = 0;
  Clock::time_point start_{};
  // Of this run before this update, the same on all ranks: seconds, and those until its end must begin.
  double passed_ = 0, time_limit_ = 0;
  double end_seconds_ = 0;               // that the end of a run takes: its last validations
  index_t early_end_ = detail::endless;  // the last update of an early decay
  TrainingEnd early_reason_{};           // why it began
  double done_ = 0;                      // see done()
  index_t told_steps_ = 0;               // the estimate of the last notice
  Window window_;
};

/// The result of train().
struct TrainingResult {
  TrainingEnd end{};    ///< why it ended
  index_t steps = 0;    ///< updates, the skipped ones included
  index_t skipped = 0;  ///< updates skipped because loss or gradients were infinite or NaN
  double best = 0;      ///< the best validation; infinity without one (-infinity when higher is better)
};

/// Trains parameters with any loss, from the start to a limit of the options or to early stopping. Takes the
/// arguments of TrainingLoop, which can also be stopped, saved and resumed, and throws as its constructor and
/// run() do.
///
///     const auto loss = [&](const ef::Context<float>& ctx, const MyBatch& batch) {
///       return model.loss(ctx, batch.x, batch.y);
///     };
///     const auto rate = [](ef::index_t step) { return ef::schedule::cosine(step, 1e-3, 100, 1000); };
///     ef::train(ef::parameters(model), loss, batches, optimizer, rate, {.max_steps = 1000}, sink);
template <class T, class Loss, class Batches, class Rates>
TrainingResult train(const std::vector<ParameterHandle<T>>& parameters, Loss&& loss, Batches&& batches,
                     Optimizer<T>& optimizer, Rates&& schedule, const LoopOptions& options,
                     TrainingSink& sink = TrainingSink::silent()) {
  TrainingLoop<T> loop(parameters, std::forward<Loss>(loss), std::forward<Batches>(batches), optimizer,
                       std::forward<Rates>(schedule), options, sink);
  const TrainingEnd end = loop.run();
  return {end, loop.step(), loop.skipped(), loop.best()};
}

}  // namespace eigenformer

#include "eigenformer/train/loop/loop_run.hpp"
#include "eigenformer/train/loop/loop_state.hpp"

namespace eigenformer {
EIGENFORMER_IO_INSTANCE(class TrainingLoop<float>)
}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION nlohmann::json to_json(const TrainingProgress& p) {
  nlohmann::json json = {{"step", p.step},
                         {"epoch", p.epoch},
                         {"batch", p.batch},
                         {"validated_step", p.validated_step},
                         {"bad_updates", p.bad_updates}};
  if (p.expected_steps > 0) json["expected_steps"] = p.expected_steps;
  if (p.decay_step >= 0) {
    json["decay_step"] = p.decay_step;
    json["decay_steps"] = p.decay_steps;
  }
  return json;
}

}  // namespace eigenformer::detail

#endif
