#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/optim/ema.hpp"
#include "eigenformer/optim/optimizer_state.hpp"
#include "eigenformer/train/distributed/agreement.hpp"
#include "eigenformer/train/distributed/ranks.hpp"
#include "eigenformer/train/distributed/workers.hpp"
#include "eigenformer/train/loop/progress.hpp"
#include "eigenformer/train/loop/state.hpp"
#include "eigenformer/train/loop/updates.hpp"
#include "eigenformer/train/options.hpp"

namespace eigenformer {

/// What steps parameters: Adam, AdamW, Sgd, or a type of the caller's own.
template <class O>
concept Optimizer = requires(O& o, const O& c, const Gradients<typename O::value_type>& gradients,
                             const std::vector<StateEntry<typename O::value_type>>& entries) {
  o.step(gradients, 1e-3, 1.0);  // learning rate, and what the gradients are multiplied by first
  { c.state() } -> std::convertible_to<std::vector<StateEntry<typename O::value_type>>>;
  o.load(entries);
};

/// How many updates a training is expected to have in all. A schedule that takes it as a second argument can
/// end where the training does.
///
/// What epochs and max_steps allow is known from the start: an epoch counts as many batches as the first one.
/// What max_minutes allows is judged once, by the speed of the first updates of a run (a 50th of the time and
/// 20 of them, or a tenth of the time). It is then saved with the state and stays what it is, so that rates
/// do not follow the clock; and a training whose schedule uses it ends there, on a limit of time, if that
/// comes first, unless it has a member `bool ends_with_total() const` that returns false. Before it is judged
/// the time counts as without limit. A schedule with a member `bool uses_total() const` that returns false is
/// spared all this.
struct ExpectedSteps {
  index_t count = 0;
  bool settled = true;  ///< whether it stays: false before what a time limit allows is judged
};

/// A function of the update, from 1, that returns its learning rate.
template <class S>
concept Schedule = requires(S& s, index_t step) {
  { s(step) } -> std::convertible_to<double>;
}
|| requires(S& s, index_t step, ExpectedSteps total) {
  { s(step, total) } -> std::convertible_to<double>;
};

/// As long as it lives, a model has the weights that count for validations and use; see
/// TrainingLoop::evaluation_weights().
class EvaluationWeights {
 public:
  explicit EvaluationWeights(std::function<void()> restore = {}) : restore_(std::move(restore)) {}
  ~EvaluationWeights() {
    if (restore_) restore_();
  }
  EvaluationWeights(EvaluationWeights&& other) noexcept : restore_(std::exchange(other.restore_, {})) {}
  EvaluationWeights(const EvaluationWeights&) = delete;
  EvaluationWeights& operator=(const EvaluationWeights&) = delete;

 private:
  std::function<void()> restore_;
};

/// Trains parameters by any loss: batches, dropout, accumulation, clipping, a schedule, an optimizer,
/// validation, averaging, early stopping. What it did so far can be saved and loaded between any two updates;
/// an interrupted and resumed training ends with the same bits as one that was not interrupted.
///
/// The optimizer, the sink and batches that are an lvalue must outlive it. It prints nothing and handles no
/// signals.
///
///     ef::AdamW<float> optimizer(ef::parameters(model), {.weight_decay = 0.01});
///     ef::TrainingLoop loop(
///         ef::parameters(model),
///         [&](const ef::Context<float>& ctx, const MyBatch& batch) { return model.loss(ctx, batch.x,
///         batch.y); }, batches, optimizer, [](ef::index_t step) { return ef::schedule::cosine(step, 1e-3,
///         100, 1000); },
///         {.max_steps = 1000}, sink);
///     loop.run();
template <class T = float>
class TrainingLoop {
 public:
  /// parameters: those that get gradients; the optimizer's.
  /// loss: (ctx, batch) -> the batch's mean loss, a scalar; see LossFunction, WeightedLoss.
  /// batches: a range of batches, gone through in its order in each epoch; or EpochBatches such as Batcher;
  /// or a function of the update, from 1, that returns its batch or a range of its batches, and then has no
  /// epochs. What a function returns must follow from the step alone if the training is to be resumed.
  /// schedule: update, from 1 -> learning rate; see Schedule.
  /// Throws ValueError for impossible options.
  template <class Loss, class Batches, Optimizer Steps, class Rates>
  TrainingLoop(const std::vector<ParameterHandle<T>>& parameters, Loss&& loss, Batches&& batches,
               Steps& optimizer, Rates&& schedule, const LoopOptions& options,
               TrainingSink& sink = TrainingSink::silent());

  /// Trains until a limit of the options, early stopping or the stop token ends it. Updates are never cut in
  /// two. Throws ValueError when loss or gradients stay infinite or NaN for 20 updates; single ones are
  /// skipped.
  ///
  /// With a communicator all ranks call it, after they have loaded the same state; they begin with the
  /// weights of rank 0, and end together: by any rank's stop token, and by the time of rank 0, which alone
  /// measures validations. Where a rank throws, the others throw IoError with its message.
  ///
  /// At a limit the weights are validated once more if they were not just now, and averaged if so asked. That
  /// is for the model to use, and leaves no trace in state(): with another limit, training goes on from there
  /// as if it had not ended.
  TrainingEnd run(std::stop_token stop = {});

  /// Updates so far.
  index_t step() const noexcept { return progress_.step; }
  /// Updates of this run() that were skipped because loss or gradients were infinite or NaN.
  index_t skipped() const noexcept { return skipped_; }
  /// How many of them were the last ones without a good update since, those before a resume included.
  index_t skipped_in_a_row() const noexcept { return progress_.bad_updates; }
  /// Passes over the batches that are complete.
  index_t epoch() const noexcept { return progress_.epoch; }
  /// The best validation so far, those at the end of run() included; infinity before the first, -infinity
  /// where higher is better.
  double best() const noexcept { return best_at_end_.value_or(early_stopping_.best()); }

  /// About how many bytes state() will have when the optimizer has stepped and all snapshots are there.
  std::uint64_t expected_state_bytes() const;

  /// Puts the weights that count for validations and use, those of the options' moving average, into the
  /// parameters, and takes them out when the result is destroyed; where there is no average, or they are
  /// there already, nothing happens. Validations and the sink's on_best() find them in place. While they are,
  /// state() gives the weights of training all the same, and run() and load() must not be called.
  ///
  ///     trainer.run();
  ///     const auto average = trainer.evaluation_weights();
  ///     ef::save_model_folder("en-de", model, ...);
  [[nodiscard]] EvaluationWeights evaluation_weights();

  /// All that training needs to go on besides options and batches: weights, the optimizer's state, snapshots,
  /// counters. Throws ValueError when two parameters have one name. Where ranks keep parts of the optimizer's
  /// state, rank 0 has all of it in its sink's calls; at other times all ranks must call it together.
  TrainingState<T> state() const;
  /// Goes back to a saved state. Throws ValueError when it belongs to other parameters, to another optimizer
  /// or to options that would make other updates (seed, accumulate, what validations measure), and then
  /// changes nothing.
  void load(const TrainingState<T>& state);

 private:
  using Clock = std::chrono::steady_clock;

  // What has happened since the last report.
  struct Window {
    Clock::time_point start{};
    double loss = 0;  // what is shown; of it and of the next two the sums
    double objective = 0;
    double weight = 0;
    LossParts parts{};
  };
  struct OptimizerCalls {
    std::function<void(const Gradients<T>&, double, double)> step;
    std::function<std::vector<StateEntry<T>>()> state;
    std::function<void(const std::vector<StateEntry<T>>&)> load;
  };

  static constexpr index_t max_bad_updates = 20;

  static std::string snapshot_prefix(std::size_t k) { return "snapshot." + std::to_string(k) + "."; }
  std::vector<StateEntry<T>> weights() const;
  StateAverage<T> load_snapshots(const detail::StateReader<T>& reader) const;
  bool validates() const { return static_cast<bool>(options_.validation.measure); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  index_t steps_of_limits();
  ExpectedSteps expected_steps();
  index_t reported_steps();
  void judge_time();
  TrainingEnd run_to_end(const std::stop_token& stop);
  void make_accumulator();
  void begin_together();
  void checkpoint();
  static std::string counted_ranks(int ranks);
  void update();
  void skip(double loss, double norm);
  void report();
  void validate();
  void validate_into(EarlyStopping& early_stopping, StateAverage<T>& snapshots);
  void tell(double value, bool best, index_t averaged = 0);
  TrainingEnd finish(TrainingEnd end);
  void try_average(EarlyStopping& early_stopping, const StateAverage<T>& snapshots);

  LoopOptions options_;
  TrainingSink& sink_;
  std::vector<ParameterHandle<T>> parameters_;
  std::unique_ptr<detail::Updates<T>> updates_;
  std::unique_ptr<detail::Accumulator<T>> accumulator_;
  std::unique_ptr<detail::ShardedState<T>> sharded_;  // where ranks keep parts of the optimizer's state
  OptimizerCalls optimizer_;
  std::function<double(index_t, ExpectedSteps)> schedule_;
  bool uses_total_ = false;
  bool ends_with_total_ = false;
  Gradients<T> gradients_;
  std::shared_ptr<kernels::WeightCache> weights_ = std::make_shared<kernels::WeightCache>();
  Tape<T> tape_;
  EarlyStopping early_stopping_;
  StateAverage<T> snapshots_;
  std::optional<double> best_at_end_;
  std::unique_ptr<ExponentialAverage<T>> average_;  // with ema_decay
  std::vector<Tensor<T>> displaced_;  // the weights of training, while a mean of snapshots is in their place
  detail::TrainingProgress progress_;
  index_t first_epoch_steps_ = 0;  // 0: not counted yet
  double learning_rate_ = 0;
  double gradient_norm_ = 0;
  index_t first_step_ = 0;
  index_t skipped_ = 0;
  Clock::time_point start_{};
  Clock::time_point judged_from_{};  // the end of this run's first update, later by what validations took
  Window window_;
};

/// What a training came to.
struct TrainingResult {
  TrainingEnd end{};
  index_t steps = 0;    ///< updates
  index_t skipped = 0;  ///< of these, the ones left out because loss or gradients were infinite or NaN
  double best = 0;      ///< the best validation; infinity without one (-infinity where higher is better)
};

/// Trains parameters by any loss, from the start to a limit of the options or to early stopping. The
/// arguments are those of TrainingLoop, which can also be stopped, saved and resumed. Throws as it does.
///
///     ef::train(ef::parameters(model),
///               [&](const ef::Context<float>& ctx, const MyBatch& batch) { return model.loss(ctx, batch.x,
///               batch.y); }, batches, optimizer, [](ef::index_t step) { return ef::schedule::cosine(step,
///               1e-3, 100, 1000); },
///               {.max_steps = 1000}, sink);
template <class T, class Loss, class Batches, Optimizer Steps, class Rates>
TrainingResult train(const std::vector<ParameterHandle<T>>& parameters, Loss&& loss, Batches&& batches,
                     Steps& optimizer, Rates&& schedule, const LoopOptions& options,
                     TrainingSink& sink = TrainingSink::silent()) {
  TrainingLoop<T> loop(parameters, std::forward<Loss>(loss), std::forward<Batches>(batches), optimizer,
                       std::forward<Rates>(schedule), options, sink);
  const TrainingEnd end = loop.run();
  return {end, loop.step(), loop.skipped(), loop.best()};
}

}  // namespace eigenformer

#include "eigenformer/train/loop/loop_run.hpp"
