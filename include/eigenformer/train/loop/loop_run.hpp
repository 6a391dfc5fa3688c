#pragma once

#include "eigenformer/train/loop/loop.hpp"

namespace eigenformer {

namespace detail {

// Whether a loss function takes what the batches are made of.
template <class Loss, class T, class Batches>
consteval bool loss_takes_batches() {
  using Source = std::remove_reference_t<Batches>;
  if constexpr (EpochBatches<Source>) {
    using Batch = std::remove_cvref_t<decltype(std::declval<Source&>().batch(index_t{}, index_t{}))>;
    return LossFunction<Loss, T, Batch>;
  } else if constexpr (BatchRange<Source>) {
    return LossFunction<Loss, T, std::ranges::range_value_t<Source>>;
  } else if constexpr (std::invocable<Source&, index_t>) {
    using Made = std::remove_cvref_t<std::invoke_result_t<Source&, index_t>>;
    if constexpr (LossFunction<Loss, T, Made>) {
      return true;
    } else if constexpr (std::ranges::forward_range<Made>) {
      return LossFunction<Loss, T, std::ranges::range_value_t<Made>>;
    }
  }
  return false;
}

}  // namespace detail

template <class T>
template <class Loss, class Batches, Optimizer Steps, class Rates>
TrainingLoop<T>::TrainingLoop(const std::vector<ParameterHandle<T>>& parameters, Loss&& loss,
                              Batches&& batches, Steps& optimizer, Rates&& schedule,
                              const LoopOptions& options, TrainingSink& sink)
    : options_(options),
      sink_(sink),
      parameters_(detail::distinct("training", parameters)),
      gradients_(parameters_),
      early_stopping_(options.patience, options.validation.better),
      snapshots_(std::max<index_t>(options.average_last, 1)) {
  using Source = std::remove_reference_t<Batches>;
  using LossOwned = std::decay_t<Loss>;
  using RatesOwned = std::decay_t<Rates>;
  static_assert(
      EpochBatches<Source> || detail::BatchRange<Source> || std::invocable<Source&, index_t>,
      "batches: a random-access range of batches, a type with num_batches(epoch) and batch(epoch, k), or a "
      "function of the update that returns its batches");
  static_assert(
      detail::loss_takes_batches<LossOwned, T, Batches>(),
      "loss: a function (const Context<T>&, const Batch&) that returns a Var<T>, where Batch is what the "
      "batches are made of");
  static_assert(Schedule<RatesOwned>,
                "schedule: a function of the update, an index_t, that returns a learning rate");
  static_assert(std::same_as<typename Steps::value_type, T>,
                "the optimizer and the parameters have different types");
  options_.validate();
  if (options_.patience > 0 && !validates()) {
    throw ValueError("training", "patience is " + std::to_string(options_.patience) +
                                     ", which needs a validation: give one, or set patience = 0");
  }
  tape_.set_checkpoints_layers(options_.checkpoint_activations);
  updates_ = std::make_unique<detail::UpdatesOf<T, LossOwned, Batches>>(std::forward<Loss>(loss),
                                                                        std::forward<Batches>(batches));
  if (updates_->num_batches(0) == detail::endless) {
    if (options_.accumulate > 1) {
      throw ValueError("training", "accumulate is " + std::to_string(options_.accumulate) +
                                       ", must be 1 where a function returns all batches of an update");
    }
    if (options_.max_steps == 0 && !(options_.max_minutes > 0)) {
      throw ValueError("training",
                       "batches that a function makes have no epochs: max_steps or max_minutes must be "
                       "positive");
    }
  }
  optimizer_ = {[&optimizer](const Gradients<T>& gradients, double rate, double scale) {
                  optimizer.step(gradients, rate, scale);
                },
                [&optimizer] { return optimizer.state(); },
                [&optimizer](const std::vector<StateEntry<T>>& entries) { optimizer.load(entries); }};
  schedule_ = [rates = RatesOwned(std::forward<Rates>(schedule))](index_t step, index_t total) mutable {
    if constexpr (std::invocable<RatesOwned&, index_t, ExpectedSteps>) {
      return static_cast<double>(rates(step, ExpectedSteps{total}));
    } else {
      (void)total;
      return static_cast<double>(rates(step));
    }
  };
}

template <class T>
TrainingEnd TrainingLoop<T>::run(std::stop_token stop) {
  start_ = Clock::now();
  first_step_ = progress_.step;
  skipped_ = 0;
  window_ = Window{.start = start_};
  for (;;) {
    if (options_.max_steps > 0 && progress_.step >= options_.max_steps) return finish(TrainingEnd::max_steps);
    if (options_.epochs > 0 && progress_.epoch >= options_.epochs) return finish(TrainingEnd::epochs);
    if (early_stopping_.stop()) return finish(TrainingEnd::early_stopping);
    if (stop.stop_requested()) {
      sink_.on_checkpoint();
      return TrainingEnd::interrupted;
    }
    if (options_.max_minutes > 0 && seconds() >= options_.max_minutes * 60)
      return finish(TrainingEnd::max_minutes);
    update();
    const bool epoch_ends = progress_.batch >= updates_->num_batches(progress_.epoch);
    if (epoch_ends) {
      ++progress_.epoch;
      progress_.batch = 0;
    }
    if (progress_.step % options_.report_every == 0) report();
    if (options_.validate_every > 0 ? progress_.step % options_.validate_every == 0 : epoch_ends) validate();
  }
}

template <class T>
std::vector<StateEntry<T>> TrainingLoop<T>::weights() const {
  std::vector<StateEntry<T>> entries;
  for (const auto& p : parameters_) entries.push_back({p->name, p->value, {}});
  return entries;
}

template <class T>
TrainingState<T> TrainingLoop<T>::state() const {
  detail::require_distinct_names("training", parameters_);
  TrainingState<T> state;
  for (const auto& e : weights()) state.tensors.emplace_back("model." + e.name, e.value);
  for (const auto& e : optimizer_.state()) state.tensors.emplace_back("optimizer." + e.name, e.value);
  std::size_t count = 0;
  for (const auto& snapshot : snapshots_.states()) {
    for (const auto& e : snapshot) state.tensors.emplace_back(snapshot_prefix(count) + e.name, e.value);
    ++count;
  }
  state.values = detail::to_json(progress_);
  state.values["snapshots"] = count;
  state.values["without_improvement"] = early_stopping_.without_improvement();
  if (validates()) state.values["validation"] = options_.validation.name;
  // JSON has no infinity. The name is that of the first version, which knew no other validation.
  if (std::isfinite(early_stopping_.best())) state.values["best_loss"] = early_stopping_.best();
  state.values["seed"] = options_.seed;
  state.values["accumulate"] = options_.accumulate;
  return state;
}

template <class T>
void TrainingLoop<T>::load(const TrainingState<T>& state) {
  detail::require_distinct_names("training", parameters_);
  const detail::StateReader<T> reader(state);
  reader.require_equal("seed", options_.seed);
  reader.require_equal("accumulate", options_.accumulate);
  if (validates() && reader.has("validation")) reader.require_equal("validation", options_.validation.name);
  const detail::TrainingProgress progress = detail::progress_from(reader);
  const auto without = reader.template value<index_t>("without_improvement");
  const double best = reader.has("best_loss") ? reader.template value<double>("best_loss")
                                              : EarlyStopping::worst(options_.validation.better);
  StateAverage<T> snapshots(std::max<index_t>(options_.average_last, 1));
  const auto count = reader.template value<std::size_t>("snapshots");
  for (std::size_t k = 0; k < count; ++k) snapshots.add(reader.tensors(snapshot_prefix(k), parameters_));
  const std::vector<StateEntry<T>> weights = reader.tensors("model.", parameters_);
  optimizer_.load(reader.tensors("optimizer."));
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(weights[i].value);
  snapshots_ = std::move(snapshots);
  progress_ = progress;
  early_stopping_.restore(best, without);
}

// Updates in all, as far as the limits tell; what time allows is judged by the speed so far.
template <class T>
index_t TrainingLoop<T>::total_steps() {
  index_t total = detail::endless;
  if (options_.epochs > 0) {
    const index_t batches = updates_->num_batches(std::min(progress_.epoch, options_.epochs - 1));
    if (batches != detail::endless)
      total = (batches + options_.accumulate - 1) / options_.accumulate * options_.epochs;
  }
  if (options_.max_steps > 0) total = std::min(total, options_.max_steps);
  const index_t done = progress_.step - first_step_;
  if (options_.max_minutes > 0 && done > 0) {
    const double left = std::max(0.0, options_.max_minutes * 60 / seconds() - 1) * static_cast<double>(done);
    if (left < static_cast<double>(total))
      total = std::min(total, progress_.step + static_cast<index_t>(left) + 1);
  }
  return total;
}

template <class T>
void TrainingLoop<T>::update() {
  const index_t batches = updates_->num_batches(progress_.epoch);
  if (batches < 1) {
    throw ValueError("training", "epoch " + std::to_string(progress_.epoch) + " has " +
                                     std::to_string(batches) + " batches, must be at least 1");
  }
  const index_t count = std::min(options_.accumulate, batches - progress_.batch);
  const DropoutKey key{options_.seed, static_cast<std::uint32_t>(progress_.step), 0};
  gradients_.zero();
  const UpdateLoss mean =
      updates_->accumulate(progress_.epoch, progress_.batch, count, tape_, key,
                           kernels::faster_precision(options_.precision), weights_, gradients_);
  const ClipFactor clipped = clip_factor(gradients_, options_.clip_norm);
  learning_rate_ = schedule_(progress_.step + 1, total_steps());
  gradient_norm_ = clipped.norm;
  ++progress_.step;
  progress_.batch += count;
  if (std::isfinite(mean.loss) && clipped.finite) {
    optimizer_.step(gradients_, learning_rate_, clipped.factor);
    weights_->clear();  // whether or not the optimizer counts its changes
    progress_.bad_updates = 0;
    window_.loss += mean.loss * mean.weight;
    window_.weight += mean.weight;
  } else {
    skip(mean.loss, clipped.norm);
  }
}

template <class T>
void TrainingLoop<T>::skip(double loss, double norm) {
  ++skipped_;
  if (++progress_.bad_updates >= max_bad_updates) {
    throw ValueError("training", "loss or gradient was infinite or NaN for " +
                                     std::to_string(max_bad_updates) + " updates in a row, up to update " +
                                     std::to_string(progress_.step) +
                                     "; try a lower learning rate or a longer warm-up");
  }
  sink_.on_notice("update " + std::to_string(progress_.step) + " skipped: loss " +
                  std::to_string(std::fabs(loss)) + ", gradient norm " +
                  std::to_string(std::fabs(norm)));  // without the sign of a NaN
}

template <class T>
void TrainingLoop<T>::report() {
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - window_.start).count();
  StepReport r;
  r.epoch = options_.epochs > 0 ? std::min(progress_.epoch + 1, options_.epochs) : progress_.epoch + 1;
  r.step = progress_.step;
  r.total_steps = total_steps();
  r.loss = window_.weight > 0 ? window_.loss / window_.weight : std::numeric_limits<double>::quiet_NaN();
  r.weight_per_second = elapsed > 0 ? window_.weight / elapsed : 0;
  r.learning_rate = learning_rate_;
  r.gradient_norm = gradient_norm_;
  r.seconds = seconds();
  r.remaining_seconds = r.seconds / static_cast<double>(progress_.step - first_step_) *
                        static_cast<double>(std::max<index_t>(0, r.total_steps - progress_.step));
  window_ = Window{.start = now};
  sink_.on_step(r);
}

template <class T>
void TrainingLoop<T>::validate() {
  const auto begin = Clock::now();
  if (options_.average_last > 1) snapshots_.add(weights());
  progress_.validated_step = progress_.step;
  if (!validates()) {
    sink_.on_best();
  } else {
    const double value = options_.validation.measure();
    const bool best = early_stopping_.update(value);
    tell(value, best);
    if (best) sink_.on_best();
  }
  sink_.on_checkpoint();
  window_.start += Clock::now() - begin;  // the speed reported is that of training
}

template <class T>
void TrainingLoop<T>::tell(double value, bool best) {
  const index_t epoch = progress_.batch == 0 ? std::max<index_t>(1, progress_.epoch) : progress_.epoch + 1;
  sink_.on_validation({epoch, progress_.step, options_.validation.name, value, best});
}

template <class T>
TrainingEnd TrainingLoop<T>::finish(TrainingEnd end) {
  if (progress_.validated_step != progress_.step) validate();
  if (snapshots_.size() > 1) try_average();
  return end;
}

// The mean of the last snapshots becomes the best model when it validates better, or when nothing validates.
// The weights to go on from stay what they were.
template <class T>
void TrainingLoop<T>::try_average() {
  struct Restore {
    const std::vector<ParameterHandle<T>>& parameters;
    std::vector<Tensor<T>> kept;
    ~Restore() {
      for (std::size_t i = 0; i < kept.size(); ++i) parameters[i]->value.copy_from(kept[i]);
    }
  };
  const std::vector<StateEntry<T>> mean = snapshots_.average();
  {
    Restore restore{parameters_, {}};
    for (const auto& p : parameters_) restore.kept.push_back(p->value.clone());
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(mean[i].value);
    sink_.on_notice("the mean of the weights of the last " + std::to_string(snapshots_.size()) +
                    " validations:");
    const double value = validates() ? options_.validation.measure() : 0;
    const bool best = !validates() || early_stopping_.improves(value);
    if (validates()) {
      tell(value, best);
      if (best) early_stopping_.update(value);
    }
    if (best) sink_.on_best();
  }
  sink_.on_checkpoint();
}

}  // namespace eigenformer
