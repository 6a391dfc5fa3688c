#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/train/reporting/progress.hpp"

namespace eigenformer {

/// Sums of the terms of a loss by name, for reports.
class LossParts {
 public:
  /// Adds a batch's sum (not its mean) to the term of that name.
  void add(const std::string& name, double sum) {
    const auto at =
        std::find_if(parts_.begin(), parts_.end(), [&](const Measured& part) { return part.name == name; });
    if (at == parts_.end()) return parts_.push_back({name, sum});
    at->value += sum;
  }
  /// Adds all terms of `other`.
  void add(const LossParts& other) {
    for (const Measured& part : other.parts_) add(part.name, part.value);
  }
  /// The terms in the order in which they were first added.
  const std::vector<Measured>& sums() const noexcept { return parts_; }
  /// The sums divided by a weight, without the term shown_loss.
  std::vector<Measured> means(double weight) const {
    std::vector<Measured> result;
    for (const Measured& part : parts_) {
      if (part.name != shown_loss) result.push_back({part.name, part.value / weight});
    }
    return result;
  }
  /// The sum of the term shown_loss, or `otherwise` without one.
  double shown(double otherwise) const {
    for (const Measured& part : parts_) {
      if (part.name == shown_loss) return part.value;
    }
    return otherwise;
  }

  /// The name of the term that StepReport::loss shows in place of the objective.
  static constexpr const char* shown_loss = "loss";

 private:
  std::vector<Measured> parts_;
};

/// The third argument of a loss function that divides by itself: it returns the sum of its batch's losses
/// divided by `total`, instead of the batch's mean, which saves a product and a rounding.
struct UpdateWeight {
  double total = 1;            ///< the summed weight of all batches of the update
  LossParts* parts = nullptr;  ///< receives sums to report; may be null
};

/// A loss function with a weight for each batch of an update, for example its target tokens. Without weights
/// all batches count 1.
///
///     ef::WeightedLoss{loss, [](const MyBatch& batch) { return batch.tokens(); }}
template <class Loss, class Weight>
struct WeightedLoss {
  Loss loss;         ///< (ctx, batch) -> the batch's mean loss
  Weight weight_of;  ///< (batch) -> its weight, finite and not negative

  /// Calls the loss function.
  template <class... Arguments>
  requires std::invocable<const Loss&, const Arguments&...>
  auto operator()(const Arguments&... arguments) const { return loss(arguments...); }
  /// The weight of a batch.
  template <class Batch>
  double weight(const Batch& batch) const {
    return static_cast<double>(weight_of(batch));
  }
};
/// Deduces the types of both functions.
template <class Loss, class Weight>
WeightedLoss(Loss, Weight) -> WeightedLoss<Loss, Weight>;

/// A function (ctx, batch) that returns the batch's mean loss, a recorded scalar, or a function (ctx, batch,
/// UpdateWeight). A member weight(batch) gives the weight of a batch; without it all batches count 1.
template <class Loss, class T, class Batch>
concept LossFunction = requires(Loss& loss, const Context<T>& ctx, const Batch& batch) {
  { loss(ctx, batch) } -> std::convertible_to<Var<T>>;
}
|| requires(Loss& loss, const Context<T>& ctx, const Batch& batch, UpdateWeight weight) {
  { loss(ctx, batch, weight) } -> std::convertible_to<Var<T>>;
};

/// Batches of numbered epochs, such as Batcher: num_batches(epoch), and batch(epoch, k) for each k below it.
/// To resume a training exactly, a batch must depend only on the two numbers.
template <class Batches>
concept EpochBatches = requires(Batches& batches, index_t epoch, index_t k) {
  { batches.num_batches(epoch) } -> std::convertible_to<index_t>;
  batches.batch(epoch, k);
};

/// How long a training will be. A schedule that takes it as a second argument can decay until the training
/// ends.
///
/// The limits epochs and max_steps give the number of updates from the start; every epoch counts as many
/// batches as the first. What max_minutes allows is estimated from the mean speed of the run, first after 20
/// updates and a 50th of the time, or after a tenth of the time, and then at every update; until the first
/// estimate the time limit is ignored. A notice states the estimate, and again whenever it has changed by a
/// tenth. It is saved with the state and used by a resumed training until that has its own. `done` needs no
/// estimate.
///
/// A schedule may have these members:
///
/// - bool uses_total() const: false if it needs no estimate; there are no notices then.
/// - bool follows_total() const: false if its rates depend on the total only for the warm-up, so that no
///   notice is needed when the total changes. Otherwise a training resumed with another total gives one.
/// - double decays_from() const: the part `done` after which it decays. Then TrainingSink::on_decay() is
///   called, and run() takes a token for an early decay.
struct ExpectedSteps {
  index_t count = 0;    ///< updates in all, those already made included
  bool settled = true;  ///< false until a time limit has been estimated
  /// The part of the training that is over before this update, 0 to 1, by the nearest limit: of the updates,
  /// or of the wall-clock time of this run.
  double done = 0;
};

/// A function that returns the learning rate of an update: (step, from 1) or (step, ExpectedSteps).
template <class S>
concept Schedule = requires(S& s, index_t step) {
  { s(step) } -> std::convertible_to<double>;
}
|| requires(S& s, index_t step, ExpectedSteps total) {
  { s(step, total) } -> std::convertible_to<double>;
};

namespace detail {

/// The loss of an update.
struct UpdateLoss {
  double loss = 0;    ///< weighted mean over its batches
  double weight = 0;  ///< of all its batches
  LossParts parts{};  ///< sums that the loss function reported

  /// Adds a batch's share of the loss, and its parts.
  void add(const UpdateLoss& of_batch) {
    loss += of_batch.loss;
    parts.add(of_batch.parts);
  }
};

template <class Loss, class Batch>
double batch_weight(const Loss& loss, const Batch& batch) {
  if constexpr (requires { loss.weight(batch); }) {
    const auto weight = static_cast<double>(loss.weight(batch));
    if (weight >= 0 && std::isfinite(weight)) return weight;
    throw ValueError("training", {"the weight of a batch is ", weight, ", must be finite and not negative"});
  } else {
    return 1;
  }
}

// Settings shared by the forward passes of an update.
struct PassOptions {
  DropoutKey key;
  GemmPrecision precision{};
  std::shared_ptr<kernels::WeightCache> weights{};
  bool checkpoint_activations = false;
};

inline constexpr index_t endless = std::numeric_limits<index_t>::max();

template <class Batches>
concept BatchRange = std::ranges::random_access_range<Batches> && std::ranges::sized_range<Batches>;

// As std::ranges::subrange, which Clang 14 cannot compile.
template <class Iterator>
struct PartOfRange {
  Iterator first, last;
  Iterator begin() const { return first; }
  Iterator end() const { return last; }
};

// The batches of one update as a range: `count` batches of a range from `first` on, or what a function of the
// update returns, one batch or a range of them. Of numbered epochs the places of the batches, because each is
// made only where it is computed.
template <class T, class Loss, class Batches>
auto batches_of_update(Batches& batches, index_t first, index_t count) {
  if constexpr (EpochBatches<Batches>) {
    using Batch = std::remove_cvref_t<decltype(batches.batch(index_t{}, index_t{}))>;
    return std::vector<std::optional<Batch>>(static_cast<std::size_t>(count));
  } else if constexpr (BatchRange<Batches>) {
    using Difference = std::ranges::range_difference_t<Batches>;
    auto begin = std::ranges::begin(batches) + static_cast<Difference>(first);
    return PartOfRange<decltype(begin)>{begin, begin + static_cast<Difference>(count)};
  } else {
    using Made = std::remove_cvref_t<std::invoke_result_t<Batches&, index_t>>;
    if constexpr (LossFunction<Loss, T, Made>) {
      return std::array<Made, 1>{batches(first + 1)};
    } else {
      return Made(batches(first + 1));
    }
  }
}

// Erases the types of a training's batches, loss and schedule. No batch depends on who computes the others.
template <class T>
class Updates {
 public:
  virtual ~Updates() = default;
  // The number of batches of an epoch; `endless` when a function makes them.
  virtual index_t num_batches(index_t epoch) = 0;
  // Chooses batches [first, first + count) of an epoch: those of one update, which the others below number
  // from 0.
  virtual void begin(index_t epoch, index_t first, index_t count) = 0;
  virtual index_t size() = 0;
  // The weight of batch k; called before loss(k), by one thread.
  virtual double weight(index_t k) = 0;
  // Batch k's share of the update's mean loss; thread-safe.
  virtual Var<T> loss(index_t k, UpdateWeight update, const Context<T>& ctx) = 0;
  // The learning rate of an update, counted from 1.
  virtual double rate(index_t step, ExpectedSteps total) = 0;
};

template <class T, class Loss, class Batches, class Rates>
class UpdatesOf final : public Updates<T> {
 public:
  UpdatesOf(Loss loss, Batches batches, Rates rates)
      : loss_(std::forward<Loss>(loss)), batches_(std::forward<Batches>(batches)), rates_(std::move(rates)) {}
  UpdatesOf(const UpdatesOf&) = delete;
  UpdatesOf& operator=(const UpdatesOf&) = delete;

  index_t num_batches([[maybe_unused]] index_t epoch) override {
    if constexpr (EpochBatches<Source>) {
      return batches_.num_batches(epoch);
    } else if constexpr (BatchRange<Source>) {
      return static_cast<index_t>(std::ranges::size(batches_));
    } else {
      return endless;
    }
  }
  void begin(index_t epoch, index_t first, index_t count) override {
    epoch_ = epoch;
    first_ = first;
    update_.reset();
    update_.emplace(batches_of_update<T, std::remove_reference_t<Loss>>(batches_, first, count));
  }
  index_t size() override { return static_cast<index_t>(std::ranges::distance(*update_)); }
  double weight(index_t k) override { return batch_weight(loss_, batch(k)); }
  Var<T> loss(index_t k, UpdateWeight update, const Context<T>& ctx) override {
    const auto& of_batch = batch(k);
    if constexpr (std::invocable<Loss&, const Context<T>&, decltype(of_batch), UpdateWeight>) {
      return loss_(ctx, of_batch, update);
    } else {
      const double share = batch_weight(loss_, of_batch) / update.total;
      const Var<T> mean = loss_(ctx, of_batch);
      return share == 1 ? mean : multiply(mean, static_cast<T>(share));
    }
  }
  double rate(index_t step, [[maybe_unused]] ExpectedSteps total) override {
    if constexpr (std::invocable<Rates&, index_t, ExpectedSteps>) {
      return static_cast<double>(rates_(step, total));
    } else {
      return static_cast<double>(rates_(step));
    }
  }

 private:
  using Source = std::remove_reference_t<Batches>;

  decltype(auto) batch(index_t k) {
    if constexpr (EpochBatches<Source>) {
      auto& made = (*update_)[static_cast<std::size_t>(k)];
      if (!made) made.emplace(batches_.batch(epoch_, first_ + k));
      return *made;
    } else {
      const auto begin = std::ranges::begin(*update_);
      return *std::ranges::next(begin, static_cast<std::iter_difference_t<decltype(begin)>>(k));
    }
  }

  Loss loss_;
  Batches batches_;
  Rates rates_;
  index_t epoch_ = 0, first_ = 0;
  std::optional<decltype(batches_of_update<T, std::remove_reference_t<Loss>>(std::declval<Source&>(),
                                                                             index_t{}, index_t{}))>
      update_;
};

// Runs a batch forward on a tape; stores its loss and parts in `of_batch`.
template <class T>
Var<T> micro_batch_loss(Updates<T>& batches, index_t k, double total, const PassOptions& pass, Tape<T>& tape,
                        UpdateLoss& of_batch) {
  tape.clear();
  if (pass.checkpoint_activations) tape.set_checkpoints_layers(true);
  const Context<T> ctx =
      Context<T>::training(tape, pass.key).with_precision(pass.precision).with_weight_cache(pass.weights);
  Var<T> part = batches.loss(k, UpdateWeight{total, &of_batch.parts}, ctx);
  if (part.numel() != 1) {
    throw ShapeError(
        "training",
        {"the loss function returned shape ", part.shape(), ", must be a scalar, the mean loss of the batch"},
        {part.shape()});
  }
  of_batch.loss = static_cast<double>(part.value().item());
  return part;
}

inline void require_weight(double total) {
  if (!(total > 0))
    throw ValueError("training", "all batches of an update have weight 0, at least one must be positive");
}

template <class T>
double total_weight(Updates<T>& batches) {
  double total = 0;
  for (index_t k = 0; k < batches.size(); ++k) total += batches.weight(k);
  require_weight(total);
  return total;
}

// Gradients for the same parameters, all zero.
template <class T>
Gradients<T> zeros_like(const Gradients<T>& gradients) {
  Gradients<T> zeros;
  for (const auto& entry : gradients.entries()) zeros.add(entry.parameter);
  return zeros;
}

// Runs backward for a batch and adds each gradient to a sum when it is complete. That of the first batch, to
// which nothing was added, is computed in place, those of others in `part`, which is zero before and after.
template <class T>
void add_backward(bool first, const Var<T>& loss, Tape<T>& tape, Gradients<T>& part, Gradients<T>& sum,
                  const typename Tape<T>::OnComplete& added = {}) {
  if (first) return tape.backward(loss, sum, added);
  if (part.entries().empty()) part = zeros_like(sum);
  tape.backward(loss, part, [&](typename Gradients<T>::Entry& entry) {
    auto& total = sum.entries()[static_cast<std::size_t>(&entry - part.entries().data())];
    total.add(entry);
    entry.reset();
    if (added) added(total);
  });
}

// Computes the gradient of an update from its batches.
template <class T>
class Accumulator {
 public:
  virtual ~Accumulator() = default;
  // Adds the gradients of the update's mean loss to `gradients`, which are zero.
  virtual UpdateLoss add(Updates<T>& batches, const PassOptions& pass, Gradients<T>& gradients) = 0;
  // The global norm of what add() computed.
  virtual double norm(const Gradients<T>& gradients) { return global_norm(gradients); }
  // Called after the optimizer has stepped.
  virtual void stepped() {}
};

// Computes one batch after the other. Each batch's gradient is computed separately and then added, so that
// the sum has the same bits whoever computes a batch.
template <class T>
class SequentialAccumulator final : public Accumulator<T> {
 public:
  // The tape must outlive it.
  explicit SequentialAccumulator(Tape<T>& tape) : tape_(tape) {}

  UpdateLoss add(Updates<T>& batches, const PassOptions& pass, Gradients<T>& gradients) override {
    UpdateLoss sum{.weight = total_weight(batches)};
    for (index_t k = 0; k < batches.size(); ++k) {
      UpdateLoss of_batch;
      const Var<T> loss = micro_batch_loss(batches, k, sum.weight, pass, tape_, of_batch);
      sum.add(of_batch);
      add_backward(k == 0, loss, tape_, part_, gradients);
    }
    return sum;
  }

 private:
  Tape<T>& tape_;
  Gradients<T> part_;
};

}  // namespace detail

}  // namespace eigenformer
