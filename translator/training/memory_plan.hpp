#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/train/objectives/loss.hpp"
#include "eigenformer/train/trainer.hpp"
#include "translator/training/process_memory.hpp"

namespace eigenformer {

/// Parses a number of bytes such as "800M" or "2G": K, M, G and T are powers of 1024 and may be followed by B
/// or iB. Throws ValueError for anything else, and for less than 1 byte.
[[nodiscard]] std::size_t bytes_of(const std::string& text);

/// Batch settings that keep a training within a memory limit: smaller batches, and checkpoints of activations
/// if those do not suffice. plan_memory() returns one.
struct MemoryPlan {
  index_t batch_tokens = 0;  ///< target tokens of a batch
  index_t accumulate =
      1;  ///< batches per update; batch_tokens * accumulate is at least what the options ask for
  bool checkpoint_activations = false;  ///< see LoopOptions::checkpoint_activations
  std::size_t process = 0;              ///< bytes of the process without training: weights, corpus, program
  std::size_t bytes = 0;                ///< expected peak of the process in bytes
  /// The part of `bytes` that does not depend on the batch: process, gradients, moments.
  std::size_t lasting = 0;

  /// Sets batch_tokens, accumulate and checkpoint_activations in a training's options.
  void apply(TrainingOptions& options) const;
  /// A plan that is within the limit wherever one of these is: the smallest batches, checkpoints if one of
  /// them has any. Ranks of a distributed training need one plan for all, though their processes differ in
  /// size. Throws ValueError without plans.
  static MemoryPlan of_all(std::span<const MemoryPlan> plans);
  /// A description for people: "batches of 512 target tokens, 4 per update, ...: at most about 1.2 GiB".
  std::string str() const { return batches() + ": at most about " + text_of(bytes); }
  /// The same without the memory.
  std::string batches() const;
  /// A number of bytes as text, rounded up: "1.2 GiB", "310 MiB".
  static std::string text_of(std::size_t bytes);
};

namespace detail {

// A linear model of bytes: a constant plus a part per source token and per target token, none negative.
struct BytesOfTokens {
  double rest = 0, source = 0, target = 0;

  // Fits it to the bytes of batches of (n, n), (n / 2, n) and (n, n / 2) tokens.
  static BytesOfTokens of(const std::array<double, 3>& bytes, double n);
  double operator()(double source_tokens, double target_tokens) const {
    return rest + source * source_tokens + target * target_tokens;
  }
};

// A batch whose sequences have one length per side, made of another batch's tokens.
Batch probe_batch(const Batch& from, index_t sequences, index_t source_length, index_t target_length);

// The memory of an update besides weights and moments, measured by running small batches forward and
// backward.
template <class T>
class UpdateMemory {
 public:
  template <class Loss>
  UpdateMemory(const std::vector<ParameterHandle<T>>& parameters, Loss& loss, const Batch& sample,
               const LoopOptions& options, bool checkpoints) {
    MemoryPool& pool = Runtime::instance().pool();
    Tape<T> tape;
    tape.set_checkpoints_layers(checkpoints);
    const auto in_use = [&] { return static_cast<double>(pool.statistics().bytes_in_use); };
    const double empty = in_use();
    Gradients<T> gradients(parameters);
    small_gradients_ = in_use() - empty;
    Gradients<T> part(parameters);
    const auto cache = std::make_shared<kernels::WeightCache>();
    const auto ctx = Context<T>::training(tape, DropoutKey{1, 0, 0})
                         .with_precision(kernels::faster_precision(options.precision))
                         .with_weight_cache(cache);
    const auto longest = [](const SequenceLayout& layout) {
      index_t length = 1;
      for (index_t i = 0; i < layout.batch(); ++i) length = std::max(length, layout.length(i));
      return length;
    };
    // A length that real sentences have, so that it is within the model's positions; even, so that it can be
    // halved.
    const index_t shorter =
        std::min({index_t{32}, longest(sample.source_layout), longest(sample.target_layout)});
    const index_t length = std::max<index_t>(2, shorter / 2 * 2), sequences = (tokens + length - 1) / length;
    const auto batch_of = [&](index_t source, index_t target) {
      return probe_batch(sample, sequences, source, target);
    };
    const double without = in_use();
    {
      const Batch batch = batch_of(length, length);  // creates what lasts: large gradients, packed weights
      tape.backward(loss(ctx, batch, UpdateWeight{1}), gradients);
    }
    large_gradients_ = in_use() - without;
    std::array<double, 3> kept{}, further{};
    const std::array<Batch, 3> batches = {batch_of(length, length), batch_of(length / 2, length),
                                          batch_of(length, length / 2)};
    for (std::size_t i = 0; i < 3; ++i) {
      pool.trim();
      pool.reset_peak();
      const double before = in_use();
      const Var<T> value =
          loss(ctx, batches[i], UpdateWeight{static_cast<double>(batches[i].target_tokens())});
      kept[i] = in_use() - before;
      if (i == 0) block_ = kept[0] / static_cast<double>(tape.size() * batches[0].target_output.size());
      // The gradients exist already, so this measures what backward needs besides them and the activations.
      add_backward(false, value, tape, part, gradients);
      further[i] = std::max(0.0, static_cast<double>(pool.statistics().peak_bytes) - before - kept[i]);
    }
    const auto n = static_cast<double>(sequences * length);
    activations_ = BytesOfTokens::of(kept, n);
    transient_ = BytesOfTokens::of(further, n);
    tape.clear();
    gradients = part = Gradients<T>();
    pool.trim();
  }

  double gradients() const { return large_gradients_ + small_gradients_; }
  // Bytes of gradients below MemoryPool::large, which have memory all the time: those of the update, and
  // those of a batch (of each worker) that are added to them.
  double small_gradients(bool several, index_t workers) const {
    return small_gradients_ * static_cast<double>(workers > 1 ? 1 + workers : several ? 2 : 1);
  }
  // Bytes of the process per byte in use, at most: blocks below MemoryPool::large are reused for smaller
  // requests and lie between blocks of other sizes (1.6 measured in a training of width 192); larger ones are
  // cut from segments.
  double pool_factor(double target_tokens) const {
    return block_ * target_tokens < static_cast<double>(MemoryPool::large) ? 1.8 : 1.15;
  }
  // Peak bytes of batches of this size with large gradients, when `workers` of them run at once.
  double operator()(double source_tokens, double target_tokens, bool several, index_t workers) const {
    const double kept = activations_(source_tokens, target_tokens);
    const double further = transient_(source_tokens, target_tokens);
    if (workers > 1)
      return large_gradients_ + static_cast<double>(workers) * (large_gradients_ + kept + further);
    // Gradients replace activations as backward proceeds, unless they exist from an earlier batch.
    return further + (several ? large_gradients_ + kept : std::max(kept, large_gradients_));
  }

 private:
  static constexpr index_t tokens = 512;
  double small_gradients_ = 0, large_gradients_ = 0;  // of all parameters
  double block_ = 0;                                  // bytes of an activation per target token
  BytesOfTokens activations_, transient_;
};

// Bytes that a rank of a distributed training needs beside the gradients of an update: those of a batch,
// which stay for the next one, the sums of its pieces, and three messages of a bucket's size. trained: bytes
// of the parameters that are trained.
std::size_t reduction_memory(const LoopOptions& options, std::size_t trained);

// Attaches the adapter that Trainer will add, until it is destroyed; then the model is as it was. Without
// effect without options.lora, and for a model that has adapters.
template <class M>
class PlannedAdapter {
 public:
  PlannedAdapter(M& model, const TrainingOptions& options) : model_(model) {
    if (options.lora.rank == 0 || !lora_parameters(model).empty()) return;
    for (const auto& p : parameters(model)) {
      if (!p->frozen) trained_.push_back(p);
    }
    RandomGenerator rng(options.loop.seed);
    add_lora(model, options.lora, rng);
    attached_ = true;
  }
  ~PlannedAdapter() {
    if (!attached_) return;
    for_each_parameter(model_, [](const std::string&, auto& weight) { weight.set_adapter(nullptr); });
    for (const auto& p : trained_) p->frozen = false;
  }
  PlannedAdapter(const PlannedAdapter&) = delete;
  PlannedAdapter& operator=(const PlannedAdapter&) = delete;

 private:
  M& model_;
  std::vector<ParameterHandle<typename M::value_type>> trained_;
  bool attached_ = false;
};

}  // namespace detail

/// Chooses the batches of a training so that the process stays within `limit` bytes: divides
/// options.batch_tokens by 1, 2, 4, ... until the batches fit and multiplies accumulate alike, so that an
/// update has the same number of tokens. When an eighth of a batch does not fit, activations are
/// checkpointed.
///
/// It runs a few batches of about 512 tokens forward and backward to measure the memory per token, and adds
/// the process as it is now, gradients, the optimizer's moments, the snapshots of average_last or
/// average_best, the moving average of ema_decay, and what a rank needs to exchange gradients. Weights do not
/// change; options.frozen is applied to the model, as Trainer does. With options.lora it plans for the
/// adapter that Trainer adds, and the model keeps none.
///
///     ef::TrainingOptions options{.batch_tokens = 8192};
///     ef::plan_memory(model, corpus, options, ef::bytes_of("2G")).apply(options);
///     ef::Trainer trainer(model, corpus, nullptr, options);
///
/// - fixed_batches: keep batch_tokens and accumulate, as a resumed training must; only checkpoints may be
/// added.
/// - teacher: the one given to Trainer; null: none.
///
/// The estimate does not cover the caller's own metrics in validations. Throws ValueError for invalid
/// options, and when even the smallest batches do not fit; the message says how much they need.
template <SourceTargetModel M, class Corpus>
[[nodiscard]] MemoryPlan plan_memory(
    M& model, const Corpus& corpus, const TrainingOptions& options, std::size_t limit,
    bool fixed_batches = false, std::shared_ptr<const Teacher<typename M::value_type>> teacher = nullptr) {
  using T = typename M::value_type;
  options.validate();
  const detail::PlannedAdapter<M> adapter(model, options);
  auto all = lora_parameters(model);
  if (all.empty()) all = parameters(model);
  freeze(all, options.frozen);
  MemoryPool& pool = Runtime::instance().pool();
  const auto batcher_of = [&](index_t batch_tokens) {
    return Batcher(corpus,
                   {.max_target_tokens = batch_tokens, .seed = options.loop.seed, .text = options.text});
  };
  detail::SourceTargetLoss<M> loss{model, options, std::move(teacher)};
  Batcher asked = batcher_of(options.batch_tokens);
  const Batch sample = asked.batch(0, 0);

  std::size_t moments = 0, weights = 0, trained = 0;
  {
    const std::size_t before = pool.statistics().bytes_in_use;
    const auto optimizer = detail::make_optimizer<T>(all, options);
    moments = pool.statistics().bytes_in_use - before;
  }
  for (const auto& p : all) {
    const std::size_t bytes = static_cast<std::size_t>(p->value.numel()) * sizeof(T);
    weights += bytes;
    if (!p->frozen) trained += bytes;
  }
  std::optional<detail::UpdateMemory<T>> measured[2];  // without and with checkpoints, measured on first use
  const auto update_memory = [&](bool checkpoints) -> const detail::UpdateMemory<T>& {
    auto& memory = measured[checkpoints ? 1 : 0];
    if (!memory) memory.emplace(all, loss, sample, options.loop, checkpoints);
    return *memory;
  };
  (void)update_memory(options.loop.checkpoint_activations);
  pool.trim();
  detail::release_freed_memory();
  const std::size_t process = detail::resident_bytes().value_or(pool.statistics().bytes_in_use);
  const index_t snapshots = std::max(options.loop.average_last, options.loop.average_best);
  const std::size_t averaged = (snapshots > 1 ? (static_cast<std::size_t>(snapshots) + 2) * weights : 0) +
                               (options.loop.ema_decay > 0 ? trained : 0);

  const std::size_t exchanged = detail::reduction_memory(options.loop, trained);

  const auto plan_of = [&](index_t parts, bool checkpoints) {
    MemoryPlan plan{(options.batch_tokens + parts - 1) / parts, options.loop.accumulate * parts, checkpoints};
    const auto& memory = update_memory(checkpoints);
    Batcher batcher = batcher_of(plan.batch_tokens);
    const bool several = plan.accumulate > 1;
    const index_t workers = std::min(options.loop.workers, plan.accumulate);
    double most = 0;
    // All batches are filled up to batch_tokens, so the largest of a sample is close to the largest of all.
    const index_t count = batcher.num_batches(0), seen = std::min<index_t>(count, 256);
    for (index_t k = 0; k < seen; ++k) {
      const Batch batch = batcher.batch(0, k * count / seen);
      most = std::max(most, memory(static_cast<double>(batch.source.size()),
                                   static_cast<double>(batch.target_tokens()), several, workers));
    }
    plan.process = process;
    plan.lasting = process + moments + averaged + exchanged + static_cast<std::size_t>(memory.gradients());
    // Small gradients are allocated once and do not fragment the pool.
    const auto update =
        static_cast<std::size_t>(memory.small_gradients(several, workers) +
                                 memory.pool_factor(static_cast<double>(plan.batch_tokens)) * most);
    plan.bytes = process + moments + averaged + exchanged + update + (std::size_t{16} << 20);
    return plan;
  };
  std::optional<MemoryPlan> smallest;
  const auto fits = [&](const MemoryPlan& plan) {
    if (!smallest || plan.bytes < smallest->bytes) smallest = plan;
    return plan.bytes <= limit;
  };
  constexpr index_t most_parts = 256, parts_without = 8;
  for (const bool checkpoints : {false, true}) {
    if (!checkpoints && options.loop.checkpoint_activations) continue;
    const index_t most = fixed_batches ? 1 : checkpoints ? most_parts : parts_without;
    for (index_t parts = 1; parts <= most && (parts == 1 || options.batch_tokens / parts >= 16); parts *= 2) {
      const MemoryPlan plan = plan_of(parts, checkpoints);
      if (fits(plan)) return plan;
    }
  }
  throw ValueError(
      "memory", {"training within ", MemoryPlan::text_of(limit),
                 " of memory is not possible: it takes about ", MemoryPlan::text_of(smallest->bytes),
                 " with ", (fixed_batches ? "its batches (" : "the smallest batches ("), smallest->batches(),
                 "), and ", MemoryPlan::text_of(smallest->lasting), " without any"});
}

}  // namespace eigenformer
