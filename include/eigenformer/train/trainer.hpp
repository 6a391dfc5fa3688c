#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/adapters/adapter_folder.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/optim/adafactor.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/optim/sgd.hpp"
#include "eigenformer/train/checkpoint/saved_corpus.hpp"
#include "eigenformer/train/loop/loop.hpp"
#include "eigenformer/train/objectives/loss.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/step/prefetched.hpp"

namespace eigenformer {

namespace detail {

/// Creates the optimizer that the options name, for these parameters. For a subset of a model's parameters
/// set options.groups to groups_of() of that subset. Throws ValueError for invalid options, and for a group
/// that matches none of the parameters.
template <class T>
[[nodiscard]] std::unique_ptr<Optimizer<T>> make_optimizer(const std::vector<ParameterHandle<T>>& parameters,
                                                           const TrainingOptions& options) {
  options.optimizer.validate();
  switch (options.optimizer.kind) {
    case OptimizerKind::adafactor:
      return std::make_unique<Adafactor<T>>(
          parameters, AdafactorOptions{.weight_decay = options.weight_decay,
                                       .scale_parameter = options.optimizer.scale_parameter,
                                       .relative_step = options.optimizer.relative_step,
                                       .groups = options.groups});
    case OptimizerKind::sgd:
      return std::make_unique<Sgd<T>>(parameters, SgdOptions{.momentum = options.optimizer.momentum,
                                                             .weight_decay = options.weight_decay,
                                                             .groups = options.groups});
    case OptimizerKind::adam:
      break;
  }
  return std::make_unique<AdamW<T>>(  // without decay it is Adam
      parameters, AdamOptions{.beta1 = options.beta1,
                              .beta2 = options.beta2,
                              .eps = options.adam_eps,
                              .weight_decay = options.weight_decay,
                              .groups = options.groups,
                              .state = options.optimizer.state});
}

}  // namespace detail

/// Trains an encoder-decoder on sentence pairs: a TrainingLoop with batches of sentence pairs, Adam or
/// another optimizer, and validation by the loss of a corpus or by any metric.
///
/// M: a SourceTargetModel, such as Seq2SeqTransformer. The model, the corpora and the sink must outlive it.
/// It prints nothing and handles no signals.
///
///     ef::Trainer trainer(model, corpus, &validation, {.loop = {.max_steps = 1000}});
///     trainer.run();
///
/// Fine-tuning a model from a folder or an import on other text, with its text conventions:
///
///     auto loaded = ef::load_model_folder("en-de");
///     auto corpus = ef::encode_corpus(ef::read_parallel_files("own.en", "own.de"), loaded.tokenizers,
///                                     loaded.description.text);
///     ef::Trainer trainer(
///         loaded.model, corpus, nullptr,
///         {.loop = {.max_steps = 1000}, .frozen = "encoder.*", .text = loaded.description.text});
///     trainer.run();
///     ef::save_model_folder("own", loaded);
///
/// LoRA: with options.lora, or when an adapter is attached to the model (add_lora, load_adapter), only the
/// adapter's factors are trained; gradients, moments and states are those of the factors. The adapter stays
/// attached afterwards: save_adapter() writes it, merge_lora() merges it into the model.
///
/// Validation by a metric, such as BLEU of the model's translations: pass no validation corpus, and set
///
///     .loop = {.max_steps = 1000,
///              .validation = {.measure = [&] { return bleu(model); },
///                             .better = ef::Better::higher,
///                             .name = "BLEU"}}
template <class M>
class Trainer {
 public:
  using value_type = typename M::value_type;  ///< the model's scalar type
  using T = value_type;                       ///< short for value_type

  /// Attaches options.lora, freezes options.frozen and prepares the batches; run() trains.
  ///
  /// - validation: held-out pairs whose loss is validated; null: validate options.loop.validation, or,
  /// without one, count the latest weights as the best.
  /// - teacher: models to distill from, with the model's target vocabulary; null: none.
  ///
  /// Throws ValueError for invalid options, an empty corpus, a validation corpus together with
  /// options.loop.validation, a corpus with alignments for a model whose attention they cannot train, and a
  /// teacher or R-Drop that the model does not support.
  Trainer(M& model, const PairSource& corpus, const PairSource* validation, const TrainingOptions& options,
          TrainingSink& sink = TrainingSink::silent(), std::shared_ptr<const Teacher<T>> teacher = nullptr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains until a limit of the options, early stopping or the stop token ends the run; see
  /// TrainingLoop::run().
  /// Ranks also compare their corpora and options: when they differ, all throw ValueError before the first
  /// update.
  TrainingEnd run(std::stop_token stop = {}, std::stop_token decay = {});

  /// Updates so far.
  index_t step() const noexcept { return loop_.step(); }
  /// Updates of this run() that were skipped because loss or gradients were infinite or NaN.
  index_t skipped() const noexcept { return loop_.skipped(); }
  /// The number of updates skipped in a row up to now, those before a resume included.
  index_t skipped_in_a_row() const noexcept { return loop_.skipped_in_a_row(); }
  /// The mean loss of the last update of this run(), that of StepReport::loss, which may be infinite or NaN;
  /// NaN before the first.
  double last_loss() const noexcept { return loop_.last_loss(); }
  /// Complete passes over the corpus.
  index_t epoch() const noexcept { return loop_.epoch(); }
  /// The best validation so far, in nats per target token unless the options have a metric; before the first
  /// infinity, or -infinity when higher is better.
  double best() const noexcept { return loop_.best(); }

  /// The approximate size of state() in bytes once the optimizer has stepped and all snapshots exist.
  std::uint64_t expected_state_bytes() const { return loop_.expected_state_bytes(); }

  /// Swaps the moving average of the weights into the model until the returned guard is destroyed; see
  /// TrainingLoop::evaluation_weights().
  [[nodiscard]] detail::EvaluationWeights evaluation_weights() { return loop_.evaluation_weights(); }

  /// All that training needs to resume besides the options and the corpus: weights, moments, snapshots,
  /// counters; see TrainingLoop::state().
  TrainingState<T> state() const;

  /// Whether the state before the decay is the one to load; see TrainingLoop::resumes_before_decay().
  bool resumes_before_decay(const TrainingState<T>& state) const { return loop_.resumes_before_decay(state); }

  /// Restores a saved state. Throws ValueError, and changes nothing, when the state belongs to another model,
  /// another corpus (the message says what differs), or options that lead to other updates (seed,
  /// batch_tokens, accumulate, text, the deciding measure of validations). The warm-up is that of the saved
  /// training unless the options have one.
  void load(const TrainingState<T>& state);

 private:
  struct Rates {
    TrainingOptions options;
    detail::Warmup& warmup;

    // A warm-up above 0 is fitted to the total or compared with it.
    bool uses_total() const { return follows_total() || options.warmup != index_t{0}; }
    bool follows_total() const { return options.schedule == ScheduleKind::cosine; }
    double decays_from() const {
      return options.schedule == ScheduleKind::warmup_stable_decay ? 1 - schedule::detail::decay_share : 2;
    }
    double operator()(index_t step, ExpectedSteps total) const {
      return options.rate(step, total.count, warmup.at(total.count, total.settled), total.done);
    }
  };

  // The warm-up of a saved training; empty: not decided yet.
  static std::optional<index_t> warmup_of(const detail::StateReader<T>& reader);

  static TrainingOptions complete(const M& model, const PairSource* validation, const Teacher<T>* teacher,
                                  TrainingOptions options);
  // The options of an optimizer for stepped_, which may be a part of the parameters.
  TrainingOptions optimizer_options(TrainingOptions options) const;
  static std::vector<ParameterHandle<T>> trained(M& model, const TrainingOptions& options);
  // What must be equal on all ranks.
  nlohmann::json compared_options() const;
  // The options do not describe an adapter that was attached before.
  nlohmann::json lora_settings() const {
    return options_.lora.rank > 0 ? options_to_json(options_.lora) : nlohmann::json("attached before");
  }

  TrainingOptions options_;
  Batcher batcher_;
  PrefetchedBatches<Batcher> batches_;
  nlohmann::json corpus_;  // what identifies it
  std::vector<ParameterHandle<T>> parameters_;
  std::string base_;  // fingerprint of the weights that an adapter's training adapts; else empty
  std::vector<ParameterHandle<T>> stepped_;  // by this rank: all parameters, or its own
  std::unique_ptr<Optimizer<T>> optimizer_;
  detail::Warmup warmup_;
  TrainingLoop<T> loop_;
};

template <class M>
Trainer<M>::Trainer(M& model, const PairSource& corpus, const PairSource* validation,
                    const TrainingOptions& options, TrainingSink& sink,
                    std::shared_ptr<const Teacher<T>> teacher)
    : options_(complete(model, validation, teacher.get(), options)),
      batcher_(corpus,
               {.max_target_tokens = options.batch_tokens, .seed = options.loop.seed, .text = options.text}),
      // A rank takes every N-th batch only; reading ahead would make all of them.
      batches_(batcher_, options.loop.communicator == nullptr ? options.prefetch : 0),
      corpus_(detail::saved_corpus(corpus)),
      parameters_(trained(model, options)),
      base_(lora_parameters(model).empty() ? "" : detail::adapted_fingerprint(model)),
      stepped_(detail::parameters_of_rank(parameters_, options.loop)),
      optimizer_(detail::make_optimizer<T>(stepped_, optimizer_options(options))),
      warmup_(options.warmup, [&sink](const std::string& text) { sink.on_notice(text); }),
      loop_(parameters_, detail::SourceTargetLoss<M>{model, options, teacher}, batches_, *optimizer_,
            Rates{options, warmup_}, options_.loop, sink) {
  if (!corpus.aligned() || options.guided_alignment.weight == 0) return;
  if constexpr (GuidedModel<M>) {
    detail::require_guided(model, options.guided_alignment);
  } else {
    throw ValueError("trainer",
                     "the corpus has an alignment, but the model is not a Seq2SeqTransformer whose "
                     "attention it can guide; leave the alignment out, or set guided_alignment.weight = 0");
  }
}

template <class M>
TrainingEnd Trainer<M>::run(std::stop_token stop, std::stop_token decay) {
  if (const auto& ranks = options_.loop.communicator; ranks != nullptr) {
    try {
      detail::require_same_corpus(*ranks, corpus_);
      detail::require_same_options(*ranks, compared_options());
    } catch (const std::exception& error) {
      ranks->fail(error.what());
      throw;
    }
  }
  return loop_.run(std::move(stop), std::move(decay));
}

template <class M>
auto Trainer<M>::state() const -> TrainingState<T> {
  TrainingState<T> state = loop_.state();
  state.values["batch_tokens"] = options_.batch_tokens;
  state.values.update(corpus_);
  state.values["text"] = detail::training_ids(options_.text);
  const std::optional<index_t> warmup = warmup_.decided();
  state.values["warmup"] = warmup ? nlohmann::json(*warmup) : nlohmann::json();
  state.values["optimizer"] = word_of(options_.optimizer.kind);
  state.values["optimizer_state"] = word_of(options_.optimizer.state);
  if (!base_.empty()) {
    state.values["lora"] = lora_settings();
    state.values["lora_base"] = base_;
  }
  return state;
}

template <class M>
void Trainer<M>::load(const TrainingState<T>& state) {
  const detail::StateReader<T> reader(state);
  reader.require_equal("batch_tokens", options_.batch_tokens);
  if (reader.has("lora") != !base_.empty()) {
    throw ValueError(
        "training",
        base_.empty() ? "the saved training is of an adapter; set options.lora"
                      : "the saved training is of a whole model, not of an adapter; leave options.lora out");
  }
  if (!base_.empty()) {
    reader.require_equal("lora", lora_settings());
    reader.require_equal("lora_base", base_);
  }
  (void)reader.template value<std::string>("corpus");  // throws if it is missing
  detail::require_saved_corpus(corpus_, state.values);
  reader.require_equal("text", detail::training_ids(options_.text));
  const auto warmup = warmup_of(reader);
  reader.require_equal("optimizer", std::string(word_of(options_.optimizer.kind)));
  reader.require_equal("optimizer_state", std::string(word_of(options_.optimizer.state)));
  loop_.load(state);
  warmup_.restore(warmup);
}

template <class M>
std::optional<index_t> Trainer<M>::warmup_of(const detail::StateReader<T>& reader) {
  if (reader.template value<nlohmann::json>("warmup").is_null()) return std::nullopt;
  const auto updates = reader.template value<index_t>("warmup");
  if (updates >= 0) return updates;
  throw ValueError("training",
                   {"the training state has ", updates, " warm-up updates, must not be negative"});
}

template <class M>
TrainingOptions Trainer<M>::complete(const M& model, const PairSource* validation, const Teacher<T>* teacher,
                                     TrainingOptions options) {
  options.validate();
  detail::require_objective(model, options.r_drop, teacher);
  if (options.validation.translates() && !options.loop.validation.measure) {
    throw ValueError("trainer",
                     "the options ask for validation by BLEU or chrF, which needs texts: expected "
                     "loop.validation = validation_of(model, pairs, text, tokenizers, options)");
  }
  if (validation == nullptr) return options;
  if (options.loop.validation.measure) {
    throw ValueError("trainer", {"a validation corpus and the metric '", options.loop.validation.name,
                                 "' are both given, expected only one of them"});
  }
  options.loop.validation = {.measure =
                                 [&model, validation, tokens = options.batch_tokens, text = options.text] {
                                   return corpus_loss(model, *validation, tokens, Context<T>::inference(),
                                                      text);
                                 },
                             .data = validation->fingerprint()};
  return options;
}

template <class M>
TrainingOptions Trainer<M>::optimizer_options(TrainingOptions options) const {
  (void)detail::step_rules("trainer", parameters_, options.groups, options.weight_decay);
  options.groups = detail::groups_of(stepped_, options.groups);
  return options;
}

template <class M>
auto Trainer<M>::trained(M& model, const TrainingOptions& options) -> std::vector<ParameterHandle<T>> {
  if (options.lora.rank > 0) {
    RandomGenerator rng(options.loop.seed);
    add_lora(model, options.lora, rng);
  }
  auto all = lora_parameters(model);
  if (all.empty()) all = parameters(model);
  freeze(all, options.frozen);
  return all;
}

template <class M>
nlohmann::json Trainer<M>::compared_options() const {
  nlohmann::json options = options_to_json(options_);
  options.erase("prefetch");
  options["text"] = detail::training_ids(options_.text);
  options["groups"] = nlohmann::json::array();
  for (const ParameterGroup& group : options_.groups) {
    options["groups"].push_back({group.pattern, group.rate, group.weight_decay.value_or(-1)});
  }
  return options;
}

EIGENFORMER_IO_INSTANCE(class Trainer<Seq2SeqTransformer<float>>)

}  // namespace eigenformer
