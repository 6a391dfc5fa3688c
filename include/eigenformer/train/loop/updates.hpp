#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/kernels/packed/weight_cache.hpp"
#include "eigenformer/train/loop/progress.hpp"

namespace eigenformer {

/// Sums of what a loss is made of, by name, for reports.
class LossParts {
 public:
  /// sum: of a batch, not its mean.
  void add(const std::string& name, double sum) {
    for (LossPart& part : parts_) {
      if (part.name != name) continue;
      part.value += sum;
      return;
    }
    parts_.push_back({name, sum});
  }
  void add(const LossParts& other) {
    for (const LossPart& part : other.parts_) add(part.name, part.value);
  }
  /// In the order in which they were added first.
  const std::vector<LossPart>& sums() const noexcept { return parts_; }
  /// Sums divided by a weight. The loss of that name, if there, is left out.
  std::vector<LossPart> means(double weight) const {
    std::vector<LossPart> result;
    for (const LossPart& part : parts_) {
      if (part.name != shown_loss) result.push_back({part.name, part.value / weight});
    }
    return result;
  }
  /// The sum that StepReport::loss shows, or `otherwise`.
  double shown(double otherwise) const {
    for (const LossPart& part : parts_) {
      if (part.name == shown_loss) return part.value;
    }
    return otherwise;
  }

  /// The name of the sum that StepReport::loss shows in place of the objective.
  static constexpr const char* shown_loss = "loss";

 private:
  std::vector<LossPart> parts_;
};

/// The weight of all batches of an update. A loss function that takes it as a third argument returns not its
/// batch's mean but the sum of its losses divided by `total`, which spares the loop a product and a rounding.
/// To `parts`, if there, it may add sums that are to be reported.
struct UpdateWeight {
  double total = 1;
  LossParts* parts = nullptr;
};

/// A loss function, and how much each batch counts in an update of several: for example its target tokens.
/// Without weights all batches count 1.
///
///     ef::WeightedLoss{loss, [](const MyBatch& batch) { return batch.tokens(); }}
template <class Loss, class Weight>
struct WeightedLoss {
  Loss loss;
  Weight weight_of;

  template <class... Arguments>
  requires std::invocable<const Loss&, const Arguments&...>
  auto operator()(const Arguments&... arguments) const { return loss(arguments...); }
  template <class Batch>
  double weight(const Batch& batch) const {
    return static_cast<double>(weight_of(batch));
  }
};
template <class Loss, class Weight>
WeightedLoss(Loss, Weight) -> WeightedLoss<Loss, Weight>;

/// A function (ctx, batch) that returns the batch's mean loss, a recorded scalar, or (ctx, batch,
/// UpdateWeight); with a member weight(batch) its batches count accordingly.
template <class Loss, class T, class Batch>
concept LossFunction = requires(Loss& loss, const Context<T>& ctx, const Batch& batch) {
  { loss(ctx, batch) } -> std::convertible_to<Var<T>>;
}
|| requires(Loss& loss, const Context<T>& ctx, const Batch& batch, UpdateWeight weight) {
  { loss(ctx, batch, weight) } -> std::convertible_to<Var<T>>;
};

/// Batches of numbered epochs, such as Batcher makes: num_batches(epoch), and batch(epoch, k) for each k
/// below it. To be resumed in the middle of an epoch, a batch must follow from the two numbers alone.
template <class Batches>
concept EpochBatches = requires(Batches& batches, index_t epoch, index_t k) {
  { batches.num_batches(epoch) } -> std::convertible_to<index_t>;
  batches.batch(epoch, k);
};

/// The mean loss of an update, the weight of its batches, and what the loss function said of its parts.
struct UpdateLoss {
  double loss = 0;
  double weight = 0;
  LossParts parts{};
};

namespace detail {

template <class Loss, class Batch>
double batch_weight(const Loss& loss, const Batch& batch) {
  if constexpr (requires { loss.weight(batch); }) {
    const auto weight = static_cast<double>(loss.weight(batch));
    if (weight >= 0 && std::isfinite(weight)) return weight;
    throw ValueError("training", "the weight of a batch is " + std::to_string(weight) +
                                     ", must be finite and not negative");
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

}  // namespace detail

/// Adds the gradients of an update's mean loss to `gradients`, and returns the loss.
///
/// The loss is the mean of the batches' losses, each by its weight; all batches draw their dropout masks from
/// `key`. So cutting one large batch into small ones changes nothing but the order of sums, where the loss
/// function's masks follow the rows (Context::for_rows). Throws ValueError for weights that are negative or
/// all 0. `weights`, if there, keeps what products in bf16 pack (Context::with_weight_cache).
template <class T, class Loss, std::ranges::forward_range Batches>
requires LossFunction<Loss, T, std::ranges::range_value_t<Batches>> UpdateLoss
accumulate_gradients(Loss& loss, const Batches& batches, Tape<T>& tape, const DropoutKey& key,
                     kernels::GemmPrecision precision, Gradients<T>& gradients,
                     const std::shared_ptr<kernels::WeightCache>& weights = nullptr) {
  UpdateLoss sum;
  for (const auto& batch : batches) sum.weight += detail::batch_weight(loss, batch);
  if (!(sum.weight > 0)) throw ValueError("training", "an update has no batch of a weight above 0");
  for (const auto& batch : batches) {
    tape.clear();
    const Context<T> ctx =
        Context<T>::training(tape, key).with_precision(precision).with_weight_cache(weights);
    const Var<T> part = detail::share_of_loss<T>(loss, ctx, batch, UpdateWeight{sum.weight, &sum.parts});
    if (part.numel() != 1) {
      throw ShapeError("training",
                       "the loss function returned shape " + part.shape().str() +
                           ", must be a scalar, the mean loss of the batch",
                       {part.shape()});
    }
    sum.loss += static_cast<double>(part.value().item());
    tape.backward(part, gradients);
  }
  return sum;
}

namespace detail {

inline constexpr index_t endless = std::numeric_limits<index_t>::max();

// What of a training depends on the types of its batches and its loss.
template <class T>
class Updates {
 public:
  virtual ~Updates() = default;
  // Batches of an epoch; `endless` where a function makes them.
  virtual index_t num_batches(index_t epoch) = 0;
  // Adds the gradients of batches [first, first + count) of an epoch.
  virtual UpdateLoss accumulate(index_t epoch, index_t first, index_t count, Tape<T>& tape,
                                const DropoutKey& key, kernels::GemmPrecision precision,
                                const std::shared_ptr<kernels::WeightCache>& weights,
                                Gradients<T>& gradients) = 0;
};

// std::ranges::subrange, which Clang 14 does not compile with GCC's library.
template <class Iterator>
struct Slice {
  Iterator first, last;
  Iterator begin() const { return first; }
  Iterator end() const { return last; }
};

template <class Batches>
concept BatchRange = std::ranges::random_access_range<Batches> && std::ranges::sized_range<Batches>;

template <class T, class Loss, class Batches>
class UpdatesOf final : public Updates<T> {
 public:
  UpdatesOf(Loss loss, Batches batches)
      : loss_(std::forward<Loss>(loss)), batches_(std::forward<Batches>(batches)) {}

  index_t num_batches(index_t epoch) override {
    if constexpr (EpochBatches<Source>) {
      return batches_.num_batches(epoch);
    } else if constexpr (BatchRange<Source>) {
      return static_cast<index_t>(std::ranges::size(batches_));
    } else {
      return endless;
    }
  }

  UpdateLoss accumulate(index_t epoch, index_t first, index_t count, Tape<T>& tape, const DropoutKey& key,
                        kernels::GemmPrecision precision,
                        const std::shared_ptr<kernels::WeightCache>& weights,
                        Gradients<T>& gradients) override {
    const auto add = [&](const auto& range) {
      return accumulate_gradients(loss_, range, tape, key, precision, gradients, weights);
    };
    if constexpr (EpochBatches<Source>) {
      std::vector<std::remove_cvref_t<decltype(batches_.batch(epoch, first))>> update;
      for (index_t k = 0; k < count; ++k) update.push_back(batches_.batch(epoch, first + k));
      return add(update);
    } else if constexpr (BatchRange<Source>) {
      using Difference = std::ranges::range_difference_t<Source>;
      const auto begin = std::ranges::begin(batches_) + static_cast<Difference>(first);
      return add(Slice<std::ranges::iterator_t<Source>>{begin, begin + static_cast<Difference>(count)});
    } else {
      const auto made = batches_(first + 1);  // one batch, or a range of them
      using Made = std::remove_const_t<decltype(made)>;
      if constexpr (LossFunction<std::remove_reference_t<Loss>, T, Made>) {
        return add(std::span<const Made>(&made, 1));
      } else {
        return add(made);
      }
    }
  }

 private:
  using Source = std::remove_reference_t<Batches>;
  Loss loss_;
  Batches batches_;
};

}  // namespace detail

}  // namespace eigenformer
