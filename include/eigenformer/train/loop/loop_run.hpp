#pragma once

#include "eigenformer/train/loop/loop.hpp"

namespace eigenformer {

namespace detail {

// Whether a loss function accepts the type of the batches.
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
template <class Loss, class Batches, class Rates>
TrainingLoop<T>::TrainingLoop(const std::vector<ParameterHandle<T>>& parameters, Loss&& loss,
                              Batches&& batches, Optimizer<T>& optimizer, Rates&& schedule,
                              const LoopOptions& options, TrainingSink& sink)
    : options_(options),
      sink_(sink),
      parameters_(detail::distinct("training", parameters)),
      optimizer_(optimizer),
      gradients_(parameters_),
      early_stopping_(options.patience, options.validation.better),
      snapshots_(no_snapshots()) {
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
  require_options();
  if (options_.ema_decay > 0)
    average_ = std::make_unique<ExponentialAverage<T>>(parameters_, options_.ema_decay);
  if constexpr (std::invocable<RatesOwned&, index_t, ExpectedSteps>) {
    uses_total_ = true;
    if constexpr (requires { schedule.uses_total(); }) uses_total_ = schedule.uses_total();
    follows_total_ = uses_total_;
    if constexpr (requires { schedule.follows_total(); }) follows_total_ = schedule.follows_total();
    if constexpr (requires { schedule.decays_from(); }) decays_from_ = schedule.decays_from();
  }
  updates_ = std::make_unique<detail::UpdatesOf<T, LossOwned, Batches, RatesOwned>>(
      std::forward<Loss>(loss), std::forward<Batches>(batches), std::forward<Rates>(schedule));
  if (updates_->num_batches(0) == detail::endless) {
    if (options_.accumulate > 1) {
      throw ValueError("training", {"accumulate is ", options_.accumulate,
                                    ", must be 1 if a function returns all batches of an update"});
    }
    if (options_.max_steps == 0 && !(options_.max_minutes > 0)) {
      throw ValueError("training",
                       "batches that a function makes have no epochs: max_steps or max_minutes must be "
                       "positive");
    }
  }
  make_accumulator();
}

template <class T>
void TrainingLoop<T>::require_options() const {
  options_.validate();
  if (options_.patience > 0 && !validates()) {
    throw ValueError("training", {"patience is ", options_.patience,
                                  ", which needs a validation: give one, or set patience = 0"});
  }
  if (options_.average_best > 1 && !validates()) {
    throw ValueError("training", {"average_best is ", options_.average_best,
                                  ", which needs a validation: give one, or set average_last instead"});
  }
}

// Chooses who computes the gradients of an update's batches: this thread, workers, or ranks.
template <class T>
void TrainingLoop<T>::make_accumulator() {
  const auto& communicator = options_.communicator;
  const index_t ranks = communicator == nullptr ? 1 : communicator->size();
  if (ranks == 1) {
    options_.communicator = nullptr;
    if (options_.workers == 1) {
      accumulator_ = std::make_unique<detail::SequentialAccumulator<T>>(tape_);
    } else {
      accumulator_ = std::make_unique<detail::WorkerAccumulator<T>>(options_.workers);
    }
  }
  const bool has_epochs = updates_->num_batches(0) != detail::endless;
  for (const auto& [name, count] : {std::pair("ranks", ranks), std::pair("workers", options_.workers)}) {
    if (!has_epochs || options_.accumulate >= count) continue;
    throw ValueError("training", {"accumulate is ", options_.accumulate, ", must be at least the number of ",
                                  name, ", ", count, ", which each compute a batch of an update"});
  }
  if (ranks == 1) return;
  if (options_.workers > 1) {
    throw ValueError("training", {"workers is ", options_.workers,
                                  ", must be 1 with several ranks; start more ranks instead"});
  }
  std::vector<int> owners;
  if (options_.distributed.shard_optimizer) {
    owners = detail::owners_of(parameters_, communicator->size());
    sharded_ = std::make_unique<detail::ShardedState<T>>(parameters_, owners, communicator);
  }
  accumulator_ = std::make_unique<detail::RankAccumulator<T>>(gradients_, communicator, options_.distributed,
                                                              std::move(owners));
  if (validates()) {
    options_.validation.measure = [communicator, measure = options_.validation.measure] {
      double value = communicator->rank() == 0 ? measure() : 0;
      communicator->broadcast(std::as_writable_bytes(std::span(&value, 1)));
      return value;
    };
  }
  if (communicator->rank() != 0) options_.validation.details = nullptr;
}

// Checks that all ranks are at the same update of the same training, and broadcasts the weights of rank 0.
template <class T>
void TrainingLoop<T>::begin_together() {
  Communicator& communicator = *options_.communicator;
  std::string names_and_shapes;
  for (const auto& p : parameters_)
    names_and_shapes += p->name + p->value.shape().str() + (p->frozen ? " frozen, " : ", ");
  detail::require_same_on_ranks(communicator, "the parameters", names_and_shapes);
  detail::require_same_on_ranks(communicator, "the instructions of kernels", isa_name(isa()));
  detail::require_same_options(communicator, options_to_json(options_));
  detail::require_same_on_ranks(communicator, "the counters", detail::to_json(progress_).dump());
  for (const auto& p : parameters_) {
    communicator.broadcast(
        std::as_writable_bytes(std::span(p->value.data(), static_cast<std::size_t>(p->value.numel()))));
    p->value.mark_changed();
  }
}

template <class T>
TrainingEnd TrainingLoop<T>::run(std::stop_token stop, std::stop_token decay) {
  require_training_weights();
  if (options_.communicator == nullptr) return run_to_end(stop, decay);
  try {
    begin_together();
    return run_to_end(stop, decay);
  } catch (const std::exception& error) {
    options_.communicator->fail(error.what());
    throw;
  }
}

template <class T>
TrainingEnd TrainingLoop<T>::run_to_end(const std::stop_token& stop, const std::stop_token& decay) {
  start_ = Clock::now();
  first_step_ = progress_.step;
  skipped_ = 0;
  end_seconds_ = 0;
  early_end_ = detail::endless;
  done_ = 0;
  told_steps_ = 0;
  window_ = Window{.start = start_};
  best_at_end_.reset();
  // The estimate of a run that ended at its time limit does not hold for this run, which estimates anew.
  if (progress_.expected_steps <= progress_.step) progress_.expected_steps = 0;
  if (!same_decay(progress_)) progress_.decay_step = -1;
  for (;;) {
    if (options_.max_steps > 0 && progress_.step >= options_.max_steps) return finish(TrainingEnd::max_steps);
    if (options_.epochs > 0 && progress_.epoch >= options_.epochs) return finish(TrainingEnd::epochs);
    if (progress_.step >= early_end_) return finish(early_reason_);
    // A schedule that decays at the end does so before it ends early, too.
    const bool stalled = early_stopping_.stop() && progress_.decay_step < 0;
    const bool decays = decays_from_ <= 1 && progress_.step > 0;
    if (stalled && !decays) return finish(TrainingEnd::early_stopping);
    const auto now =
        detail::agree(options_.communicator, {.stop = stop.stop_requested(),
                                              .decay = decay.stop_requested(),
                                              .seconds = seconds(),
                                              .limit = options_.max_minutes * 60 - end_seconds_});
    if (now.stop || (now.decay && !(decays && progress_.step > first_step_))) {
      checkpoint();
      return TrainingEnd::interrupted;
    }
    passed_ = now.seconds;
    time_limit_ = now.limit;
    if (options_.max_minutes > 0 && passed_ >= time_limit_) return finish(TrainingEnd::max_minutes);
    // After the validation of the last update: a training resumed from here does not make up for it.
    judge_time();
    if (progress_.decay_step < 0 && (now.decay || stalled || done() >= decays_from_)) {
      early_reason_ = now.decay ? TrainingEnd::early_decay : TrainingEnd::early_stopping;
      begin_decay(now.decay || stalled);
    }
    update();
    const bool epoch_ends = progress_.batch >= updates_->num_batches(progress_.epoch);
    if (epoch_ends) {
      ++progress_.epoch;
      progress_.batch = 0;
    }
    if (progress_.step % options_.report_every == 0) report();
    if (options_.validate_every > 0 ? progress_.step % options_.validate_every == 0 : epoch_ends) {
      progress_.validated_step = progress_.step;
      validate(early_stopping_, snapshots_);
    }
  }
}

template <class T>
std::vector<StateEntry<T>> TrainingLoop<T>::weights() const {
  std::vector<StateEntry<T>> entries;
  for (const auto& p : parameters_) entries.push_back({p->name, p->value, {}});
  return entries;
}

template <class T>
detail::EvaluationWeights TrainingLoop<T>::evaluation_weights() {
  if (average_ == nullptr || average_->updates() == 0 || average_->exchanged() || !displaced_.empty())
    return detail::EvaluationWeights();
  average_->exchange();
  return detail::EvaluationWeights([this] { average_->exchange(); });
}

template <class T>
void TrainingLoop<T>::require_training_weights() const {
  if (displaced_.empty() && (average_ == nullptr || !average_->exchanged())) return;
  throw ValueError("training",
                   "the parameters hold averaged weights, but run() and load() need those of training; "
                   "destroy the guard of evaluation_weights() first");
}

// Updates that epochs and max_steps allow.
template <class T>
index_t TrainingLoop<T>::steps_of_limits() const {
  index_t total = detail::endless;
  if (options_.epochs > 0) {
    if (first_epoch_steps_ == 0) {
      const index_t batches = updates_->num_batches(0);
      first_epoch_steps_ =
          batches == detail::endless ? batches : (batches + options_.accumulate - 1) / options_.accumulate;
    }
    if (first_epoch_steps_ != detail::endless) total = first_epoch_steps_ * options_.epochs;
  }
  if (options_.max_steps > 0) total = std::min(total, options_.max_steps);
  return total;
}

// The part of the training that is over, by the nearest limit. It never falls, although the time kept for the
// end may get shorter: rates that decay must not rise again.
template <class T>
double TrainingLoop<T>::done() {
  double part = 0;
  if (const index_t total = last_step(); total != detail::endless)
    part = static_cast<double>(progress_.step) / static_cast<double>(total);
  if (options_.max_minutes > 0) part = std::max(part, passed_ / time_limit_);
  return done_ = std::max(done_, std::min(part, 1.0));
}

// Whether a decay goes to the end that the limits of updates set.
template <class T>
bool TrainingLoop<T>::same_decay(const detail::TrainingProgress& progress) const {
  return progress.decay_steps > 0 && progress.decay_steps == steps_of_limits();
}

// Keeps the state before the decay, which says nothing of it: to go on from there is to go on as if the end
// had been further away.
template <class T>
void TrainingLoop<T>::begin_decay(bool early) {
  require_finite();
  if (sharded_) sharded_->gather(optimizer_);
  sink_.on_decay();
  progress_.decay_step = progress_.step;
  const bool by_steps =
      static_cast<double>(progress_.step) / static_cast<double>(steps_of_limits()) >= decays_from_;
  progress_.decay_steps = by_steps ? steps_of_limits() : 0;
  if (early) {
    const double part = 1 / decays_from_;
    early_end_ = static_cast<index_t>(std::ceil(static_cast<double>(progress_.step) * part));
  }
  const index_t made = progress_.step - first_step_;
  const index_t last = made > 0 ? std::min(last_step(), steps_by_speed(passed_)) : last_step();
  std::string notice = "the learning rate decays until the end";
  if (last != detail::endless) {
    const index_t left = last - progress_.step;
    notice += ": about " + std::to_string(left) + (left == 1 ? " update" : " updates");
    if (made > 0) {
      const double each = passed_ / static_cast<double>(made);
      notice += ", " + std::to_string(std::lround(each * static_cast<double>(left))) + " s";
    }
  }
  sink_.on_notice(notice);
}

// What schedules use.
template <class T>
ExpectedSteps TrainingLoop<T>::expected_steps() {
  const index_t total = last_step(), judged = progress_.expected_steps;
  return {judged > 0 ? std::min(total, judged) : total, judged > 0 || !(options_.max_minutes > 0), done()};
}

// The total at the mean speed of this run, validations included; endless without a time limit.
template <class T>
index_t TrainingLoop<T>::steps_by_speed(double seconds) const {
  const index_t made = progress_.step - first_step_;
  if (!(options_.max_minutes > 0)) return detail::endless;
  const double left = std::max(0.0, time_limit_ / std::max(seconds, 1e-9) - 1);
  return progress_.step + static_cast<index_t>(std::min(left * static_cast<double>(made), 1e15)) + 1;
}

// Estimates how many updates the time limit allows; see ExpectedSteps.
template <class T>
void TrainingLoop<T>::judge_time() {
  if (!uses_total_ || !(options_.max_minutes > 0)) return;
  const index_t made = progress_.step - first_step_;
  const double part = passed_ / time_limit_;
  if (made < 2 || ((made < 20 || part < 0.02) && part < 0.1)) return;
  const bool first = progress_.expected_steps == 0;
  progress_.expected_steps = steps_by_speed(passed_);
  const index_t expected = expected_steps().count;
  const bool tells = told_steps_ > 0 || expected < last_step();  // time is the nearer limit
  if (follows_total_ && tells && std::abs(expected - told_steps_) > told_steps_ / 10) {
    sink_.on_notice("the time limit allows about " + std::to_string(expected) + " updates" +
                    (told_steps_ > 0 ? ", not " + std::to_string(told_steps_) + ": the learning rate follows"
                                     : " at the speed so far"));
    told_steps_ = expected;
  }
  // Saves the first estimate, which a warm-up depends on: a training resumed from here has the same.
  if (first) checkpoint();
}

template <class T>
void TrainingLoop<T>::update() {
  const index_t batches = updates_->num_batches(progress_.epoch);
  if (batches < 1) {
    throw ValueError("training",
                     {"epoch ", progress_.epoch, " has ", batches, " batches, must be at least 1"});
  }
  const index_t count = std::min(options_.accumulate, batches - progress_.batch);
  const detail::DropoutKey key{options_.seed, static_cast<std::uint32_t>(progress_.step), 0};
  gradients_.zero();
  updates_->begin(progress_.epoch, progress_.batch, count);
  const detail::UpdateLoss mean = accumulator_->add(
      *updates_,
      {key, detail::kernels::faster_precision(options_.precision), weights_, options_.checkpoint_activations},
      gradients_);
  const ClipFactor clipped = clip_factor(accumulator_->norm(gradients_), options_.clip_norm);
  learning_rate_ = updates_->rate(progress_.step + 1, expected_steps());
  gradient_norm_ = clipped.norm;
  last_loss_ = mean.weight > 0 ? mean.parts.shown(mean.loss * mean.weight) / mean.weight : mean.loss;
  ++progress_.step;
  progress_.batch += count;
  if (std::isfinite(mean.loss) && clipped.finite) {
    optimizer_.step(gradients_, learning_rate_, clipped.factor);
    accumulator_->stepped();
    if (sharded_) sharded_->forget();
    weights_->clear();  // the optimizer may not have marked its changes
    if (average_ != nullptr) average_->update();
    progress_.bad_updates = 0;
    window_.loss += mean.parts.shown(mean.loss * mean.weight);
    window_.objective += mean.loss * mean.weight;
    window_.weight += mean.weight;
    window_.parts.add(mean.parts);
  } else {
    skip(mean.loss, clipped.norm);
  }
}

template <class T>
void TrainingLoop<T>::skip(double loss, double norm) {
  ++skipped_;
  if (++progress_.bad_updates >= max_bad_updates) {
    throw ValueError("training", {"the training diverged: loss or gradient was infinite or NaN for ",
                                  max_bad_updates, " updates in a row, up to update ", progress_.step,
                                  "; try a lower learning rate (it was ", detail::number_text(learning_rate_),
                                  ") or a longer warm-up"});
  }
  sink_.on_notice(detail::join({"update ", progress_.step, " skipped: loss ", std::fabs(loss),
                                ", gradient norm ", std::fabs(norm)}));  // without the sign of a NaN
}

template <class T>
void TrainingLoop<T>::require_finite() const {
  for (const auto& p : parameters_) {
    if (p->frozen) continue;  // such as a mask of infinities
    const T* const values = p->value.data();
    for (index_t i = 0; i < p->value.numel(); ++i) {
      if (std::isfinite(values[i])) continue;
      throw ValueError("training",
                       {"the training diverged: parameter '", p->name, "' is infinite or NaN after update ",
                        progress_.step, "; try a lower learning rate (it was ",
                        detail::number_text(learning_rate_), ") or a longer warm-up"});
    }
  }
}

template <class T>
void TrainingLoop<T>::report() {
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - window_.start).count();
  StepReport r;
  r.epoch = options_.epochs > 0 ? std::min(progress_.epoch + 1, options_.epochs) : progress_.epoch + 1;
  r.step = progress_.step;
  r.total_steps = std::min(last_step(), steps_by_speed(seconds()));
  if (const index_t limit = steps_of_limits(); limit != detail::endless) r.step_limit = limit;
  r.time_limit = options_.max_minutes * 60;
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  r.loss = window_.weight > 0 ? window_.loss / window_.weight : none;
  r.objective = window_.weight > 0 ? window_.objective / window_.weight : none;
  if (window_.weight > 0) r.parts = window_.parts.means(window_.weight);
  r.weight = window_.weight;
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
void TrainingLoop<T>::checkpoint() {
  require_finite();
  if (sharded_) sharded_->gather(optimizer_);
  sink_.on_checkpoint();
}

template <class T>
void TrainingLoop<T>::validate(detail::EarlyStopping& early_stopping, StateAverage<T>& snapshots) {
  const auto begin = Clock::now();
  require_finite();
  if (sharded_) sharded_->gather(optimizer_);
  {
    const detail::EvaluationWeights in_place = evaluation_weights();
    if (options_.average_last > 1) snapshots.add(weights());
    if (!validates()) {
      if (progress_.bad_updates == 0) sink_.on_best();
    } else {
      const double value = options_.validation.measure();
      if (options_.average_best > 1)
        snapshots.add_best(weights(), options_.validation.better == Better::lower ? value : -value);
      const bool best = early_stopping.update(value);
      tell(value, best);
      if (best) sink_.on_best();
    }
  }
  checkpoint();
  // Validations do not count for the speed.
  const auto taken = Clock::now() - begin;
  window_.start += taken;
  // The end takes such a validation, and another one for a mean of snapshots: a time limit includes them.
  const double each = std::chrono::duration<double>(taken).count() * (snapshots_.size() > 1 ? 2 : 1);
  end_seconds_ = std::min(each, options_.max_minutes * 60 / 10);
}

template <class T>
void TrainingLoop<T>::tell(double value, bool best, index_t averaged) {
  ValidationReport r;
  r.epoch = progress_.batch == 0 ? std::max<index_t>(1, progress_.epoch) : progress_.epoch + 1;
  r.step = progress_.step;
  r.name = options_.validation.name;
  r.value = value;
  r.best = best;
  r.averaged = averaged;
  if (options_.validation.details) options_.validation.details(r);
  r.seconds = seconds();
  r.total_steps = std::min(last_step(), steps_by_speed(r.seconds));
  sink_.on_validation(r);
}

// Works on copies: state() must not change; see run().
template <class T>
TrainingEnd TrainingLoop<T>::finish(TrainingEnd end) {
  detail::EarlyStopping early_stopping = early_stopping_;
  StateAverage<T> snapshots = snapshots_;
  if (progress_.validated_step != progress_.step) validate(early_stopping, snapshots);
  if (snapshots.size() > 1) try_average(early_stopping, snapshots);
  best_at_end_ = early_stopping.best();
  return end;
}

// The mean of the snapshots becomes the best model when it validates better, or without a validation. The
// weights of training are restored afterwards.
template <class T>
void TrainingLoop<T>::try_average(detail::EarlyStopping& early_stopping, const StateAverage<T>& snapshots) {
  const std::vector<StateEntry<T>> mean = snapshots.average();
  {
    std::vector<Tensor<T>> kept;
    for (const auto& p : parameters_) kept.push_back(p->value.clone());
    displaced_ = std::move(kept);
    const detail::EvaluationWeights in_place([this] {
      for (std::size_t i = 0; i < displaced_.size(); ++i) parameters_[i]->value.copy_from(displaced_[i]);
      displaced_.clear();
    });
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(mean[i].value);
    sink_.on_notice(std::string("the mean of the weights of the ") +
                    (options_.average_best > 1 ? "best " : "last ") + std::to_string(snapshots.size()) +
                    " validations:");
    const double value = validates() ? options_.validation.measure() : 0;
    const bool best = !validates() || early_stopping.improves(value);
    if (validates()) {
      tell(value, best, static_cast<index_t>(snapshots.size()));
      if (best) early_stopping.update(value);
    }
    if (best) sink_.on_best();
  }
  checkpoint();
}

}  // namespace eigenformer
