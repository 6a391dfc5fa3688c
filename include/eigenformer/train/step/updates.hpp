#pragma once

#include <cmath>
#include <concepts>
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
  void add(const std::string& name, double sum);
  /// Adds all terms of `other`.
  void add(const LossParts& other) {
    for (const LossPart& part : other.parts_) add(part.name, part.value);
  }
  /// The terms in the order in which they were first added.
  const std::vector<LossPart>& sums() const noexcept { return parts_; }
  /// The sums divided by a weight, without the term shown_loss.
  std::vector<LossPart> means(double weight) const {
    std::vector<LossPart> result;
    for (const LossPart& part : parts_) {
      if (part.name != shown_loss) result.push_back({part.name, part.value / weight});
    }
    return result;
  }
  /// The sum of the term shown_loss, or `otherwise` without one.
  double shown(double otherwise) const {
    for (const LossPart& part : parts_) {
      if (part.name == shown_loss) return part.value;
    }
    return otherwise;
  }

  /// The name of the term that StepReport::loss shows in place of the objective.
  static constexpr const char* shown_loss = "loss";

 private:
  std::vector<LossPart> parts_;
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

template <class T, class Loss, class Batch>
Var<T> share_of_loss(Loss& loss, const Context<T>& ctx, const Batch& batch, UpdateWeight update) {
  if constexpr (std::invocable<Loss&, const Context<T>&, const Batch&, UpdateWeight>) {
    return loss(ctx, batch, update);
  } else {
    const double share = batch_weight(loss, batch) / update.total;
    const Var<T> mean = loss(ctx, batch);
    return share == 1 ? mean : multiply(mean, static_cast<T>(share));
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

// Batches of a range, in its order in each epoch. begin() chooses those of an update, here and below.
template <class Range>
class RangeSource {
 public:
  explicit RangeSource(Range& range) : range_(range) {}
  index_t num_batches(index_t) const { return static_cast<index_t>(std::ranges::size(range_)); }
  void begin(index_t, index_t first, index_t count) {
    first_ = first;
    count_ = count;
  }
  index_t size() const { return count_; }
  decltype(auto) batch(index_t k) const {
    using Difference = std::ranges::range_difference_t<Range>;
    return std::ranges::begin(range_)[static_cast<Difference>(first_ + k)];
  }

 private:
  Range& range_;
  index_t first_ = 0, count_ = 0;
};

// Batches of numbered epochs, each made only where it is computed.
template <class Batches>
class EpochSource {
 public:
  explicit EpochSource(Batches& batches) : batches_(batches) {}
  index_t num_batches(index_t epoch) const { return batches_.num_batches(epoch); }
  void begin(index_t epoch, index_t first, index_t count) {
    epoch_ = epoch;
    first_ = first;
    made_.clear();
    made_.resize(static_cast<std::size_t>(count));
  }
  index_t size() const { return static_cast<index_t>(made_.size()); }
  const auto& batch(index_t k) {
    auto& made = made_[static_cast<std::size_t>(k)];
    if (!made) made.emplace(batches_.batch(epoch_, first_ + k));
    return *made;
  }

 private:
  using Batch = std::remove_cvref_t<decltype(std::declval<Batches&>().batch(index_t{}, index_t{}))>;
  Batches& batches_;
  index_t epoch_ = 0, first_ = 0;
  std::vector<std::optional<Batch>> made_;
};

// Batches that a function of the update returns: one, or a range of them.
template <class Function, bool one>
class FunctionSource {
 public:
  explicit FunctionSource(Function& function) : function_(function) {}
  index_t num_batches(index_t) const { return endless; }
  void begin(index_t, index_t first, index_t) {
    places_.clear();
    made_.reset();
    made_.emplace(function_(first + 1));
    if constexpr (!one) {
      for (auto at = std::ranges::begin(*made_); at != std::ranges::end(*made_); ++at) places_.push_back(at);
    }
  }
  index_t size() const { return one ? 1 : static_cast<index_t>(places_.size()); }
  decltype(auto) batch(index_t k) const {
    if constexpr (one) {
      return *made_;
    } else {
      return *places_[static_cast<std::size_t>(k)];
    }
  }

 private:
  using Made = std::remove_cvref_t<std::invoke_result_t<Function&, index_t>>;
  static auto place() {
    if constexpr (one) {
      return 0;
    } else {
      return std::ranges::iterator_t<Made>();
    }
  }
  Function& function_;
  std::optional<Made> made_;
  std::vector<decltype(place())> places_;
};

template <class T, class Loss, class Batches>
auto source_of(Batches& batches) {
  if constexpr (EpochBatches<Batches>) {
    return EpochSource<Batches>(batches);
  } else if constexpr (BatchRange<Batches>) {
    return RangeSource<Batches>(batches);
  } else {
    using Made = std::remove_cvref_t<std::invoke_result_t<Batches&, index_t>>;
    return FunctionSource<Batches, LossFunction<Loss, T, Made>>(batches);
  }
}

// Erases the types of a training's batches and loss. No batch depends on who computes the others.
template <class T>
class Updates {
 public:
  virtual ~Updates() = default;
  // The number of batches of an epoch; `endless` when a function makes them.
  virtual index_t num_batches(index_t epoch) = 0;
  // Chooses batches [first, first + count) of an epoch: those of one update, which the others below number
  // from 0.
  virtual void begin(index_t epoch, index_t first, index_t count) = 0;
  virtual index_t size() const = 0;
  // The weight of batch k; called before loss(k), by one thread.
  virtual double weight(index_t k) = 0;
  // Batch k's share of the update's mean loss; thread-safe.
  virtual Var<T> loss(index_t k, UpdateWeight update, const Context<T>& ctx) = 0;
};

template <class T, class Loss, class Batches>
class UpdatesOf final : public Updates<T> {
 public:
  UpdatesOf(Loss loss, Batches batches)
      : loss_(std::forward<Loss>(loss)), batches_(std::forward<Batches>(batches)) {}
  UpdatesOf(const UpdatesOf&) = delete;
  UpdatesOf& operator=(const UpdatesOf&) = delete;

  index_t num_batches(index_t epoch) override { return source_.num_batches(epoch); }
  void begin(index_t epoch, index_t first, index_t count) override { source_.begin(epoch, first, count); }
  index_t size() const override { return source_.size(); }
  double weight(index_t k) override { return batch_weight(loss_, source_.batch(k)); }
  Var<T> loss(index_t k, UpdateWeight update, const Context<T>& ctx) override {
    return share_of_loss<T>(loss_, ctx, source_.batch(k), update);
  }

 private:
  Loss loss_;
  Batches batches_;
  decltype(source_of<T, std::remove_reference_t<Loss>>(
      std::declval<std::remove_reference_t<Batches>&>())) source_{batches_};
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

// Gradients for the same parameters, all zero.
template <class T>
Gradients<T> zeros_like(const Gradients<T>& gradients) {
  Gradients<T> zeros;
  for (const auto& entry : gradients.entries()) zeros.add(entry.parameter);
  return zeros;
}

// Runs backward for a batch and adds each gradient to a sum when it is complete; leaves `part` zero.
template <class T>
void add_backward(const Var<T>& loss, Tape<T>& tape, Gradients<T>& part, Gradients<T>& sum,
                  const typename Tape<T>::OnComplete& added = {}) {
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
    UpdateLoss sum;
    for (index_t k = 0; k < batches.size(); ++k) sum.weight += batches.weight(k);
    require_weight(sum.weight);
    for (index_t k = 0; k < batches.size(); ++k) {
      UpdateLoss of_batch;
      const Var<T> part = micro_batch_loss(batches, k, sum.weight, pass, tape_, of_batch);
      sum.add(of_batch);
      if (k == 0) {
        tape_.backward(part, gradients);
      } else {
        if (part_.entries().empty()) part_ = zeros_like(gradients);
        add_backward(part, tape_, part_, gradients);
      }
    }
    return sum;
  }

 private:
  Tape<T>& tape_;
  Gradients<T> part_;
};

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION void LossParts::add(const std::string& name, double sum) {
  for (LossPart& part : parts_) {
    if (part.name != name) continue;
    part.value += sum;
    return;
  }
  parts_.push_back({name, sum});
}

}  // namespace eigenformer

#endif
