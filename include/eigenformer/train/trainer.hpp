#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/train/early_stopping.hpp"
#include "eigenformer/train/loss.hpp"
#include "eigenformer/train/options.hpp"
#include "eigenformer/train/progress.hpp"
#include "eigenformer/train/state.hpp"

namespace eigenformer {

/// Why Trainer::run returned.
enum class TrainingEnd { epochs, max_steps, max_minutes, early_stopping, interrupted };

/// Trains a Seq2SeqTransformer on an encoded corpus: batches, dropout, accumulation, clipping, schedule,
/// Adam, validation, averaging, early stopping. What it did so far can be saved and loaded between any two
/// updates; an interrupted and resumed training ends with the same bits as one that was not interrupted.
///
/// The model, the corpora and the sink must outlive it. It prints nothing and handles no signals.
///
///     ef::TrainingSink quiet;
///     ef::Trainer<float> trainer(model, corpus, &validation, {.max_steps = 1000}, quiet);
///     trainer.run();
template <class T>
class Trainer {
 public:
  /// Throws ValueError for impossible options or an empty corpus. `validation` may be null: then the latest
  /// weights count as the best.
  Trainer(Seq2SeqTransformer<T>& model, const EncodedCorpus& corpus, const EncodedCorpus* validation,
          const TrainingOptions& options, TrainingSink& sink)
      : model_(model),
        validation_(validation),
        options_(checked(options)),
        sink_(sink),
        batcher_(corpus, {.max_target_tokens = options.batch_tokens, .seed = options.seed}),
        corpus_(detail::corpus_fingerprint(corpus)),
        parameters_(parameters(model)),
        optimizer_(parameters_, {.beta1 = options.beta1,
                                 .beta2 = options.beta2,
                                 .eps = options.adam_eps,
                                 .weight_decay = options.weight_decay}),
        gradients_(parameters_),
        early_stopping_(options.patience) {}

  /// Trains until a limit of the options, early stopping or the stop token ends it. Updates are never cut in
  /// two. Throws ValueError when loss or gradients stay infinite or NaN for 20 updates; single ones are
  /// skipped.
  TrainingEnd run(std::stop_token stop = {}) {
    start_ = Clock::now();
    first_step_ = progress_.step;
    skipped_ = 0;
    window_ = Window{.start = start_};
    for (;;) {
      if (options_.max_steps > 0 && progress_.step >= options_.max_steps)
        return finish(TrainingEnd::max_steps);
      if (progress_.epoch >= options_.epochs) return finish(TrainingEnd::epochs);
      if (early_stopping_.stop()) return finish(TrainingEnd::early_stopping);
      if (stop.stop_requested()) {
        sink_.on_checkpoint();
        return TrainingEnd::interrupted;
      }
      if (options_.max_minutes > 0 && seconds() >= options_.max_minutes * 60)
        return finish(TrainingEnd::max_minutes);
      update();
      const bool epoch_ends = progress_.batch >= batcher_.num_batches(progress_.epoch);
      if (epoch_ends) {
        ++progress_.epoch;
        progress_.batch = 0;
      }
      if (progress_.step % options_.report_every == 0) report();
      if (options_.validate_every > 0 ? progress_.step % options_.validate_every == 0 : epoch_ends)
        validate();
    }
  }

  /// Updates so far.
  index_t step() const noexcept { return progress_.step; }
  /// Updates of this run() that were skipped because loss or gradients were infinite or NaN.
  index_t skipped() const noexcept { return skipped_; }
  /// How many of them were the last ones without a good update since, those before a resume included.
  index_t skipped_in_a_row() const noexcept { return progress_.bad_updates; }
  /// Passes over the corpus that are complete.
  index_t epoch() const noexcept { return progress_.epoch; }
  /// The best validation loss so far, nats a target token; infinity before the first.
  double best_loss() const noexcept { return early_stopping_.best(); }

  /// All that training needs to go on besides the options and the corpus: weights, moments, snapshots,
  /// counters.
  TrainingState<T> state() const {
    TrainingState<T> state;
    for (const auto& p : parameters_) state.tensors.emplace_back("model." + p->name, p->value);
    for (const auto& e : optimizer_.state()) state.tensors.emplace_back("optimizer." + e.name, e.value);
    for (std::size_t k = 0; k < snapshots_.size(); ++k) {
      for (const auto& e : snapshots_[k]) state.tensors.emplace_back(snapshot_prefix(k) + e.name, e.value);
    }
    state.values = detail::to_json(progress_);
    state.values["snapshots"] = snapshots_.size();
    state.values["without_improvement"] = early_stopping_.without_improvement();
    // JSON has no infinity.
    if (std::isfinite(early_stopping_.best())) state.values["best_loss"] = early_stopping_.best();
    state.values["seed"] = options_.seed;
    state.values["batch_tokens"] = options_.batch_tokens;
    state.values["accumulate"] = options_.accumulate;
    state.values["corpus"] = corpus_;
    return state;
  }

  /// Goes back to a saved state. Throws ValueError when it belongs to another model, to another corpus or to
  /// options that would make other batches (seed, batch_tokens, accumulate), and then changes nothing.
  void load(const TrainingState<T>& state) {
    const detail::StateReader<T> reader(state);
    reader.require_equal("seed", options_.seed);
    reader.require_equal("batch_tokens", options_.batch_tokens);
    reader.require_equal("accumulate", options_.accumulate);
    reader.require_equal("corpus", corpus_);
    const detail::TrainingProgress progress = detail::progress_from(reader);
    const auto without = reader.template value<index_t>("without_improvement");
    const double best = reader.has("best_loss") ? reader.template value<double>("best_loss")
                                                : std::numeric_limits<double>::infinity();
    std::deque<std::vector<StateEntry<T>>> snapshots;
    const auto count = reader.template value<std::size_t>("snapshots");
    for (std::size_t k = 0; k < count; ++k) {
      snapshots.push_back(reader.tensors(snapshot_prefix(k), parameters_));
      for (auto& e : snapshots.back()) e.value = e.value.clone();
    }
    const std::vector<StateEntry<T>> weights = reader.tensors("model.", parameters_);
    optimizer_.load(reader.tensors("optimizer."));
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(weights[i].value);
    snapshots_ = std::move(snapshots);
    progress_ = progress;
    early_stopping_.restore(best, without);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // What has happened since the last report.
  struct Window {
    Clock::time_point start{};
    double loss = 0;
    index_t tokens = 0;
  };

  static constexpr index_t max_bad_updates = 20;

  static const TrainingOptions& checked(const TrainingOptions& options) {
    options.validate();
    return options;
  }

  static std::string snapshot_prefix(std::size_t k) { return "snapshot." + std::to_string(k) + "."; }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Updates in all, as far as the limits tell; what time allows is judged by the speed so far.
  index_t total_steps() {
    const index_t batches = batcher_.num_batches(std::min(progress_.epoch, options_.epochs - 1));
    index_t total = (batches + options_.accumulate - 1) / options_.accumulate * options_.epochs;
    if (options_.max_steps > 0) total = std::min(total, options_.max_steps);
    const index_t done = progress_.step - first_step_;
    if (options_.max_minutes > 0 && done > 0) {
      const double left =
          std::max(0.0, options_.max_minutes * 60 / seconds() - 1) * static_cast<double>(done);
      if (left < static_cast<double>(total))
        total = std::min(total, progress_.step + static_cast<index_t>(left) + 1);
    }
    return total;
  }

  void update() {
    const index_t count =
        std::min(options_.accumulate, batcher_.num_batches(progress_.epoch) - progress_.batch);
    std::vector<Batch> batches;
    index_t tokens = 0;
    for (index_t i = 0; i < count; ++i) {
      batches.push_back(batcher_.batch(progress_.epoch, progress_.batch + i));
      tokens += batches.back().target_tokens();
    }
    const DropoutKey key{options_.seed, static_cast<std::uint32_t>(progress_.step), 0};
    gradients_.zero();
    const double loss = accumulate_gradients(model_, tape_, std::span<const Batch>(batches), key,
                                             options_.label_smoothing, options_.precision, gradients_);
    const ClipFactor clipped = clip_factor(gradients_, options_.clip_norm);
    learning_rate_ = options_.rate(progress_.step + 1, model_.options.d_model, total_steps());
    gradient_norm_ = clipped.norm;
    ++progress_.step;
    progress_.batch += count;
    if (std::isfinite(loss) && clipped.finite) {
      optimizer_.step(gradients_, learning_rate_, clipped.factor);
      progress_.bad_updates = 0;
      window_.loss += loss * static_cast<double>(tokens);
      window_.tokens += tokens;
    } else {
      skip(loss, clipped.norm);
    }
  }

  void skip(double loss, double norm) {
    ++skipped_;
    if (++progress_.bad_updates >= max_bad_updates) {
      throw ValueError("trainer", "loss or gradient was infinite or NaN for " +
                                      std::to_string(max_bad_updates) + " updates in a row, up to update " +
                                      std::to_string(progress_.step) +
                                      "; try a lower learning rate or a longer warm-up");
    }
    sink_.on_notice("update " + std::to_string(progress_.step) + " skipped: loss " +
                    std::to_string(std::fabs(loss)) + ", gradient norm " +
                    std::to_string(std::fabs(norm)));  // without the sign of a NaN
  }

  void report() {
    const auto now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - window_.start).count();
    StepReport r;
    r.epoch = std::min(progress_.epoch + 1, options_.epochs);
    r.step = progress_.step;
    r.total_steps = total_steps();
    r.loss = window_.tokens == 0 ? std::numeric_limits<double>::quiet_NaN()
                                 : window_.loss / static_cast<double>(window_.tokens);
    r.tokens_per_second = elapsed > 0 ? static_cast<double>(window_.tokens) / elapsed : 0;
    r.learning_rate = learning_rate_;
    r.gradient_norm = gradient_norm_;
    r.seconds = seconds();
    r.remaining_seconds = r.seconds / static_cast<double>(progress_.step - first_step_) *
                          static_cast<double>(std::max<index_t>(0, r.total_steps - progress_.step));
    window_ = Window{.start = now};
    sink_.on_step(r);
  }

  void validate() {
    const auto begin = Clock::now();
    if (options_.average_last > 1) {
      snapshots_.emplace_back();
      for (const auto& p : parameters_) snapshots_.back().push_back({p->name, p->value.clone(), {}});
      while (static_cast<index_t>(snapshots_.size()) > options_.average_last) snapshots_.pop_front();
    }
    progress_.validated_step = progress_.step;
    if (validation_ == nullptr) {
      sink_.on_best();
    } else {
      const double loss = corpus_loss(model_, *validation_, options_.batch_tokens);
      const bool best = early_stopping_.update(loss);
      tell(loss, best);
      if (best) sink_.on_best();
    }
    sink_.on_checkpoint();
    window_.start += Clock::now() - begin;  // the speed reported is that of training
  }

  void tell(double loss, bool best) {
    const index_t epoch = progress_.batch == 0 ? std::max<index_t>(1, progress_.epoch) : progress_.epoch + 1;
    sink_.on_validation({epoch, progress_.step, loss, std::exp(loss), best});
  }

  TrainingEnd finish(TrainingEnd end) {
    if (progress_.validated_step != progress_.step) validate();
    if (snapshots_.size() > 1) try_average();
    return end;
  }

  // The mean of the last snapshots becomes the best model when it validates better, or when nothing
  // validates. The weights to go on from stay what they were.
  void try_average() {
    const std::vector<StateEntry<T>> mean =
        average_states(std::vector<std::vector<StateEntry<T>>>(snapshots_.begin(), snapshots_.end()));
    std::vector<Tensor<T>> kept;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      kept.push_back(parameters_[i]->value.clone());
      parameters_[i]->value.copy_from(mean[i].value);
    }
    sink_.on_notice("the mean of the weights of the last " + std::to_string(snapshots_.size()) +
                    " validations:");
    const double loss = validation_ == nullptr ? 0 : corpus_loss(model_, *validation_, options_.batch_tokens);
    const bool best = validation_ == nullptr || loss < early_stopping_.best();
    if (validation_ != nullptr) {
      tell(loss, best);
      if (best) early_stopping_.update(loss);
    }
    if (best) sink_.on_best();
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->value.copy_from(kept[i]);
    sink_.on_checkpoint();
  }

  Seq2SeqTransformer<T>& model_;
  const EncodedCorpus* validation_;
  TrainingOptions options_;
  TrainingSink& sink_;
  Batcher batcher_;
  std::string corpus_;
  std::vector<ParameterHandle<T>> parameters_;
  AdamW<T> optimizer_;  // without weight decay it is Adam
  Gradients<T> gradients_;
  Tape<T> tape_;
  EarlyStopping early_stopping_;
  std::deque<std::vector<StateEntry<T>>> snapshots_;  // of parameters_, the oldest first
  detail::TrainingProgress progress_;
  double learning_rate_ = 0;
  double gradient_norm_ = 0;
  index_t first_step_ = 0;
  index_t skipped_ = 0;
  Clock::time_point start_{};
  Window window_;
};

}  // namespace eigenformer
