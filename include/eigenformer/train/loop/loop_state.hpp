#pragma once

#include "eigenformer/train/loop/loop.hpp"

namespace eigenformer {

// What a TrainingLoop saves, and how it continues from that.

template <class T>
TrainingState<T> TrainingLoop<T>::state() const {
  detail::require_distinct_names("training", parameters_);
  TrainingState<T> state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor<T>& value = !displaced_.empty()   ? displaced_[i]
                             : average_ != nullptr ? average_->trained(i)
                                                   : parameters_[i]->value;
    state.tensors.emplace_back("model." + parameters_[i]->name, value);
  }
  for (const auto& e : sharded_ ? sharded_->state(optimizer_) : optimizer_.state())
    state.tensors.emplace_back("optimizer." + e.name, e.value);
  std::size_t count = 0;
  for (const auto& snapshot : snapshots_.states()) {
    for (const auto& e : snapshot) state.tensors.emplace_back(snapshot_prefix(count) + e.name, e.value);
    ++count;
  }
  if (average_ != nullptr) {
    for (const auto& e : average_->state()) state.tensors.emplace_back("ema." + e.name, e.value);
  }
  state.values = detail::to_json(progress_);
  state.values["snapshots"] = count;
  if (options_.average_best > 1) state.values["snapshot_costs"] = snapshots_.costs();
  if (average_ != nullptr) state.values["ema_updates"] = average_->updates();
  state.values["without_improvement"] = early_stopping_.without_improvement();
  if (validates()) state.values["validation"] = options_.validation.name;
  if (validates() && !options_.validation.data.empty())
    state.values["validation_data"] = options_.validation.data;
  // JSON has no infinity. The key is from the first version, which validated by the loss only.
  if (std::isfinite(early_stopping_.best())) state.values["best_loss"] = early_stopping_.best();
  state.values["seed"] = options_.seed;
  state.values["accumulate"] = options_.accumulate;
  if (const index_t planned = steps_of_limits(); follows_total_ && planned != detail::endless)
    state.values["planned_steps"] = planned;
  if (options_.communicator != nullptr) state.values["ranks"] = options_.communicator->size();
  return state;
}

template <class T>
void TrainingLoop<T>::load(const TrainingState<T>& state) {
  detail::require_distinct_names("training", parameters_);
  require_training_weights();
  const detail::StateReader<T> reader(state);
  reader.require_equal("seed", options_.seed);
  reader.require_equal("accumulate", options_.accumulate);
  if (validates() && reader.has("validation")) reader.require_equal("validation", options_.validation.name);
  const detail::TrainingProgress progress = detail::progress_from(reader);
  const std::string& data = options_.validation.data;
  const bool other_data =
      validates() && !data.empty() && reader.has("validation_data") &&
      !detail::same_fingerprint(reader.template value<std::string>("validation_data"), data);
  const auto without = other_data ? 0 : reader.template value<index_t>("without_improvement");
  const double best = reader.has("best_loss") && !other_data
                          ? reader.template value<double>("best_loss")
                          : detail::EarlyStopping::worst(options_.validation.better);
  StateAverage<T> snapshots = load_snapshots(reader);
  // Snapshots ranked on other validation data cannot be compared.
  if (other_data && options_.average_best > 1) snapshots = no_snapshots();
  std::unique_ptr<ExponentialAverage<T>> average;
  if (options_.ema_decay > 0) {
    average = std::make_unique<ExponentialAverage<T>>(parameters_, options_.ema_decay);
    if (reader.has("ema_updates"))
      average->load(reader.tensors("ema."), reader.template value<index_t>("ema_updates"));
  }
  const std::vector<StateEntry<T>> weights = reader.tensors("model.", parameters_);
  auto entries = reader.tensors("optimizer.");
  optimizer_.load(sharded_ ? sharded_->own(entries) : entries);
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(weights[i].value);
  snapshots_ = std::move(snapshots);
  average_ = std::move(average);
  progress_ = progress;
  early_stopping_.restore(best, without);
  best_at_end_.reset();
  if (other_data) sink_.on_notice("the validation data has changed, so the best value so far is discarded");
  if (const index_t now = steps_of_limits(); follows_total_ && reader.has("planned_steps")) {
    const auto before = reader.template value<index_t>("planned_steps");
    if (before != now) {
      sink_.on_notice("the learning rate was planned for " + std::to_string(before) + " updates and now " +
                      (now == detail::endless ? "follows the time limit" : "for " + std::to_string(now)) +
                      ": the result will differ from that of one training with this limit");
    }
  }
  if (resumes_before_decay(state)) {
    sink_.on_notice("the learning rate had decayed since update " + std::to_string(progress.decay_step) +
                    " and rises again: the result will differ from that of one training with this limit");
  }
  const int now = options_.communicator == nullptr ? 1 : options_.communicator->size();
  if (const int before = reader.has("ranks") ? reader.template value<int>("ranks") : 1; before != now) {
    const auto counted = [](int ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); };
    sink_.on_notice("the training was saved with " + counted(before) + " and resumes with " + counted(now));
  }
}

template <class T>
bool TrainingLoop<T>::resumes_before_decay(const TrainingState<T>& state) const {
  const detail::TrainingProgress progress = detail::progress_from(detail::StateReader<T>(state));
  // At its limits it has nothing more to do.
  const bool over =
      progress.step >= steps_of_limits() || (options_.epochs > 0 && progress.epoch >= options_.epochs);
  return progress.decay_step >= 0 && decays_from_ <= 1 && !over && !same_decay(progress);
}

// Snapshots are only taken over from a training of the same kind: last ones or best ones.
template <class T>
StateAverage<T> TrainingLoop<T>::load_snapshots(const detail::StateReader<T>& reader) const {
  StateAverage<T> snapshots = no_snapshots();
  const auto count = reader.template value<std::size_t>("snapshots");
  const bool ranked = reader.has("snapshot_costs");
  if (ranked != (options_.average_best > 1)) return snapshots;
  const auto costs =
      ranked ? reader.template value<std::vector<double>>("snapshot_costs") : std::vector<double>(count);
  if (costs.size() != count)
    throw ValueError("training", {"the training state has ", count, " snapshots and ", costs.size(),
                                  " validation costs, must be equal numbers"});
  for (std::size_t k = 0; k < count; ++k) {
    const auto entries = reader.tensors(snapshot_prefix(k), parameters_);
    if (ranked) {
      snapshots.add_best(entries, costs[k]);
    } else {
      snapshots.add(entries);
    }
  }
  return snapshots;
}

template <class T>
std::uint64_t TrainingLoop<T>::expected_state_bytes() const {
  std::uint64_t now = 0, optimizer = 0, average = 0, trained = 0, all = 0;
  const auto bytes = [](const Tensor<T>& tensor) {
    return static_cast<std::uint64_t>(tensor.numel()) * sizeof(T);
  };
  for (const auto& [name, tensor] : state().tensors) {
    if (name.starts_with("optimizer.")) {
      optimizer += bytes(tensor);
    } else if (name.starts_with("ema.")) {
      average += bytes(tensor);
    } else if (!name.starts_with("snapshot.")) {
      now += bytes(tensor);
    }
  }
  for (const auto& p : parameters_) {
    all += bytes(p->value);
    if (!p->frozen) trained += bytes(p->value);
  }
  const index_t kept = std::max(options_.average_last, options_.average_best);
  const auto snapshots = static_cast<std::uint64_t>(kept > 1 ? kept : 0);
  if (average_ != nullptr) now += std::max(average, trained);
  // 2: Adam's, the largest state of all optimizers.
  return now + std::max(optimizer, 2 * trained) + snapshots * all;
}

}  // namespace eigenformer
