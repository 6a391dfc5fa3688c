#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/reporting/console_line.hpp"
#include "eigenformer/train/trainer.hpp"

namespace eigenformer {

/// What plan_training() knows of a corpus; corpus_statistics() counts it.
struct CorpusStatistics {
  index_t pairs = 0;          ///< sentence pairs of an epoch
  index_t distinct = 0;       ///< pairs whose target side differs from those of all others
  index_t source_tokens = 0;  ///< of an epoch, without begin and end
  index_t target_tokens = 0;  ///< of an epoch, each sentence with its end
  double entropy = 0;         ///< of the distribution of target tokens, in nats

  /// A description for people in one line.
  std::string str() const {
    return detail::format(
        "%lld pairs (%.0f %% of the targets distinct), %lld source and %lld target tokens, "
        "entropy %.3f nats",
        static_cast<long long>(pairs), 100 * static_cast<double>(distinct) / static_cast<double>(pairs),
        static_cast<long long>(source_tokens), static_cast<long long>(target_tokens), entropy);
  }
};

/// Target tokens per second of a training with these options; measured_speed() returns such a function.
using TrainingSpeed = std::function<double(const Seq2SeqOptions&, const TrainingOptions&)>;

/// What limits a training, and what of it is decided already.
struct TrainingBudget {
  double seconds = 0;     ///< of training; 0: no limit
  index_t max_steps = 0;  ///< updates; 0: no limit
  index_t epochs = 0;     ///< passes over the corpus; 0: no limit
  TrainingSpeed speed{};  ///< needed with a limit of seconds, and asked for sizes that may be best
  /// The options that a plan starts from: vocabulary sizes, and whatever plan_training() does not choose.
  Seq2SeqOptions model{};
  TrainingOptions training{};  ///< likewise, for the training
  /// Called several times for each size that is considered: sets what is decided already, and the rest is
  /// planned around it. May be empty.
  std::function<void(Seq2SeqOptions&, TrainingOptions&)> given{};
  /// Whether a training fits in memory; may split its batches for that, with which its speed is measured.
  /// Called for each size but the smallest; no larger ones than the first that does not fit are considered.
  /// Empty: all fit.
  std::function<bool(const Seq2SeqOptions&, TrainingOptions&)> fits{};
};

/// What a size of the model would reach.
struct PlannedLoss {
  index_t d_model = 0;  ///< the size
  double loss = 0;      ///< expected validation loss, in nats per target token
};

/// A recipe for a training, and what it is expected to reach; see plan_training().
struct TrainingPlan {
  CorpusStatistics corpus{};     ///< what it was made for
  Seq2SeqOptions model{};        ///< the size of the model, its norms and dropout
  TrainingOptions training{};    ///< batches, learning rate, schedule, validations, limits
  double tokens_per_second = 0;  ///< of this size; 0: not measured
  double updates = 0;            ///< expected updates
  double epochs = 0;             ///< expected passes over the corpus
  double loss = 0;               ///< expected validation loss, in nats per target token
  double spread = 0;             ///< of that loss: about two thirds of trainings are within loss +- spread
  std::vector<PlannedLoss> others{};    ///< other sizes that were considered
  index_t does_not_fit = 0;             ///< the d_model that was too large for the memory; 0: none was
  std::vector<std::string> warnings{};  ///< what speaks against the training, and what would help

  /// A description for people in a few lines, without the warnings.
  std::string str() const;

  /// The validation loss to expect at the end of `all` updates, now that it is `validation_loss` after `done`
  /// of them. How hard the corpus is shows by then, so this is nearer than `loss`: docs/design/plans.md has
  /// the errors. Empty where it was not measured: in the first eighth of the updates, in the decay of the
  /// learning rate, for other schedules than warmup_stable_decay, with a moving average of the weights, where
  /// the law knows only the entropy, and for losses near 0.
  EIGENFORMER_IO_FUNCTION std::optional<double> expected_at_end(double done, double all,
                                                                double validation_loss) const;
};

/// Counts a corpus. Throws ValueError for an empty one.
[[nodiscard]] EIGENFORMER_IO_FUNCTION CorpusStatistics corpus_statistics(const PairSource& corpus);

namespace detail::loss_law {

// Written by bench/training/fit.
inline constexpr double floor_of_entropy = 0.1347, size_factor = 213.4, size_power = 0.4832,
                        half_way = 1.849e+05, half_way_of_entropy = 0.5819, data_power = 0.8908,
                        worth_of_repeats = 3.428, critical_batch = 1846, dropout_slows = 1.754,
                        bpe_dropout_slows = 8.145, relative_error = 0.07, peak_rate_costs = 0.16;

}  // namespace detail::loss_law

/// The expected validation loss, in nats per target token, of a model with this many weights in its layers
/// (embeddings not counted), trained with `updates` batches of `batch_tokens` target tokens:
///
///     E + A N^-a + (H - E) / (1 + (D / D0)^b),  E = e H,  D0 = d exp(h (H - 6))
///
/// with N the weights in layers, H the entropy of the corpus' target tokens, and D the tokens of training, of
/// which repeated ones count less (Muennighoff et al. 2023, eq. 5), and so do those of batches above the
/// critical size (McCandlish et al. 2018, eq. 5.1). Dropout, here that of residuals, and BPE dropout make
/// tokens count less. For long trainings this is the form of Hoffmann et al. 2022, eq. 2; short ones begin at
/// H. `bench/training/fit` fitted the constants to the trainings of
/// docs/figures/training/sweep.jsonl; docs/design/plans.md has the errors.
[[nodiscard]] EIGENFORMER_IO_FUNCTION double expected_loss(const CorpusStatistics& corpus,
                                                           double layer_weights, double updates,
                                                           double batch_tokens, double dropout = 0,
                                                           double bpe_dropout = 0);

namespace detail {

// Weights in the layers of a model, without biases and norms.
EIGENFORMER_IO_FUNCTION double layer_weights(const Seq2SeqOptions& options);

/// How much of the time in which threads of this process could run they did run: less than 1 while other
/// programs use the same processors. Linux tells it (schedstat); elsewhere it is 1.
class ProcessorShare {
 public:
  ProcessorShare() { (void)since_last(); }
  /// Of the time since the last call, at least 0.1.
  EIGENFORMER_IO_FUNCTION double since_last();

 private:
  double ran_ = 0, waited_ = 0;
};

}  // namespace detail

/// Chooses the recipe of a training for a corpus and a budget: the size of the model, batches, learning rate,
/// schedule, dropout and the interval of validations. It considers sizes from d64 to d512 with at most 12
/// weights in layers for a target token of the corpus, computes what each is expected to reach
/// (expected_loss), and takes the lowest; dropout follows the number of epochs. Without a limit of seconds it
/// takes a larger size only if its expected loss is 4 % lower, and without any limit it trains until
/// twice the updates are worth less than 2 %, with patience.
///
///     const ef::TrainingPlan plan = ef::plan_training(
///         ef::corpus_statistics(corpus),
///         {.seconds = 600, .speed = ef::measured_speed(corpus), .model = {.source_vocab_size = 8000}});
///     ef::Seq2SeqTransformer<float> model(plan.model, rng);
///     ef::Trainer trainer(model, corpus, &validation, plan.training);
///
/// The result depends only on the arguments, and on whether products in bf16 are faster on this CPU. Throws
/// ValueError for an empty corpus, negative limits, and a limit of seconds without `speed`.
[[nodiscard]] EIGENFORMER_IO_FUNCTION TrainingPlan plan_training(const CorpusStatistics& corpus,
                                                                 const TrainingBudget& budget);

/// Measures the speed of trainings on this corpus, with the threads and the precision of this process: trains
/// a model with random weights for four updates, which takes seconds. Time in which other programs had the
/// processor is left out, as they may have ended soon after (Linux only). The corpus must outlive the
/// function.
[[nodiscard]] EIGENFORMER_IO_FUNCTION TrainingSpeed measured_speed(const PairSource& corpus);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION CorpusStatistics corpus_statistics(const PairSource& corpus) {
  CorpusStatistics s{.pairs = corpus.size()};
  if (s.pairs == 0) throw ValueError("plan", "the corpus has no pairs, expected at least one");
  std::unordered_set<std::uint64_t> targets;
  std::vector<double> counts;
  EncodedPair pair;
  for (index_t i = 0; i < s.pairs; ++i) {
    corpus.read(0, i, pair);
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const std::int32_t id : pair.target) {
      hash = (hash ^ static_cast<std::uint32_t>(id)) * 0x100000001b3;
      const auto at = static_cast<std::size_t>(id);
      if (at >= counts.size()) counts.resize(at + 1);
      counts[at] += 1;
    }
    targets.insert(hash);
    s.source_tokens += static_cast<index_t>(pair.source.size());
    s.target_tokens += static_cast<index_t>(pair.target.size()) + 1;
  }
  s.distinct = static_cast<index_t>(targets.size());
  counts.push_back(static_cast<double>(s.pairs));  // the end of each sentence
  const auto all = static_cast<double>(s.target_tokens);
  for (const double count : counts) {
    if (count > 0) s.entropy -= count / all * std::log(count / all);
  }
  return s;
}

EIGENFORMER_IO_FUNCTION double expected_loss(const CorpusStatistics& corpus, double layer_weights,
                                             double updates, double batch_tokens, double dropout,
                                             double bpe_dropout) {
  using namespace detail::loss_law;
  const double tokens = updates * batch_tokens / (1 + batch_tokens / critical_batch) /
                        (1 + dropout_slows * dropout + bpe_dropout_slows * bpe_dropout);
  const auto unique = static_cast<double>(corpus.target_tokens);
  const double repeats = std::max(0.0, tokens / unique - 1);
  const double effective =
      std::min(tokens, unique) + unique * worth_of_repeats * (1 - std::exp(-repeats / worth_of_repeats));
  const double floor = floor_of_entropy * corpus.entropy;
  const double half = half_way * std::exp(half_way_of_entropy * (corpus.entropy - 6));
  const double loss = floor + size_factor * std::pow(layer_weights, -size_power) +
                      (corpus.entropy - floor) / (1 + std::pow(effective / half, data_power));
  return std::min(loss, corpus.entropy);  // nothing worse than counting words
}

namespace detail {

EIGENFORMER_IO_FUNCTION double layer_weights(const Seq2SeqOptions& options) {
  const auto of = [&](const ModelStack& stack, double attentions) {
    const LayerOptions& layer = stack.layer ? *stack.layer : options.layer;
    const auto d = static_cast<double>(options.layer.d_model),
               ff = static_cast<double>(layer.dim_feedforward);
    return static_cast<double>(stack.num_layers) * (attentions * 4 * d * d + 2 * d * ff);
  };
  return of(options.encoder, 1) + of(options.decoder, 2);
}

// A size that plans choose from.
struct PlannedSize {
  index_t d_model, num_heads, layers;
  double learning_rate;
};
inline constexpr std::array<PlannedSize, 7> planned_sizes = {{{64, 2, 2, 4e-3},
                                                              {96, 3, 3, 3.5e-3},
                                                              {128, 4, 3, 3e-3},
                                                              {192, 4, 3, 2e-3},
                                                              {256, 4, 3, 1.5e-3},
                                                              {384, 6, 4, 1e-3},
                                                              {512, 8, 6, 7e-4}}};

// The options of a plan before its length is known, with what is given. docs/design/plans.md has the
// measurements behind each rule.
inline TrainingPlan plan_of_size(const PlannedSize& size, const TrainingBudget& budget) {
  TrainingPlan plan{.model = budget.model, .training = budget.training};
  LayerOptions& layer = plan.model.layer;
  layer.d_model = size.d_model;
  layer.num_heads = size.num_heads;
  layer.dim_feedforward = 4 * size.d_model;
  layer.norm_first = true;
  plan.model.encoder.num_layers = plan.model.decoder.num_layers = size.layers;
  TrainingOptions& training = plan.training;
  training.schedule = ScheduleKind::warmup_stable_decay;
  training.batch_tokens = 1024;
  training.learning_rate = size.learning_rate;
  if (bf16_products_pay()) training.loop.precision = GemmPrecision::bf16;
  if (budget.given) budget.given(plan.model, plan.training);
  return plan;
}

// The sizes that a plan chooses from: if d_model is given that one alone, with the rest as for the next
// smaller size.
inline std::vector<PlannedSize> sizes_to_plan(const TrainingBudget& budget) {
  const auto width_of = [&](const PlannedSize& size) {
    return plan_of_size(size, budget).model.layer.d_model;
  };
  const index_t given = width_of(planned_sizes[0]);
  if (given != width_of(planned_sizes[1])) return {planned_sizes.begin(), planned_sizes.end()};
  PlannedSize size = planned_sizes.front();
  for (const PlannedSize& other : planned_sizes) {
    if (other.d_model <= given) size = other;
  }
  size.d_model = given;
  while (given % size.num_heads != 0) --size.num_heads;
  return {size};
}

// A number of updates that is easy to read: its first two digits.
inline index_t two_digits(double updates) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(std::max(updates, 1.0))) - 1));
  return std::max<index_t>(1, static_cast<index_t>(std::round(updates / unit) * unit));
}

// Dropout of residuals. The law does not say when it helps; docs/design/plans.md has what was measured.
inline double planned_dropout(const TrainingPlan& plan, double weights_for_a_token) {
  if (plan.epochs >= 30 && weights_for_a_token >= 5) return 0.3;
  if (plan.epochs >= 11) return 0.2;
  return plan.epochs >= 7 || plan.training.r_drop.weight > 0 ? 0.1 : 0;  // R-Drop needs some
}

// The target tokens of an update, which are at most those of an epoch.
inline double tokens_of_update(const TrainingPlan& plan) {
  return static_cast<double>(
      std::min(plan.training.batch_tokens * plan.training.loop.accumulate, plan.corpus.target_tokens));
}

// Appends the plan of one size; false if it does not fit in memory.
inline bool plan_size(const PlannedSize& size, const CorpusStatistics& corpus, const TrainingBudget& budget,
                      std::vector<TrainingPlan>& plans) {
  TrainingPlan plan = plan_of_size(size, budget);
  plan.corpus = corpus;
  TrainingOptions fitting = plan.training;
  if (budget.fits && !plans.empty() && !budget.fits(plan.model, fitting)) return false;
  const auto epoch = static_cast<double>(corpus.target_tokens);
  const double update = tokens_of_update(plan);
  const double weights = layer_weights(plan.model);
  const auto loss_of = [&](double tokens) {
    return expected_loss(corpus, weights, tokens / update, update, plan.model.layer.residual_dropout());
  };
  double tokens = std::numeric_limits<double>::infinity();
  if (budget.seconds > 0) {
    plan.tokens_per_second = budget.speed(plan.model, fitting);
    constexpr double part_of_updates = 0.97;  // the rest is that of validations
    tokens = part_of_updates * budget.seconds * plan.tokens_per_second;
  }
  if (budget.max_steps > 0) tokens = std::min(tokens, static_cast<double>(budget.max_steps) * update);
  if (budget.epochs > 0) tokens = std::min(tokens, static_cast<double>(budget.epochs) * epoch);
  if (std::isinf(tokens)) {  // until twice as many tokens are worth less than 2 %
    tokens = epoch;
    while (loss_of(2 * tokens) < 0.98 * loss_of(tokens)) tokens *= 2;
    plan.training.loop.patience = 5;
  }
  plan.updates = std::max(1.0, tokens / update);
  plan.epochs = tokens / epoch;
  plan.model.layer.dropout = {
      .rate = planned_dropout(plan, weights / epoch), .attention = 0.0, .feed_forward = 0.0};
  if (budget.given) budget.given(plan.model, plan.training);
  plan.loss = loss_of(tokens);
  plan.spread = loss_law::relative_error * plan.loss;
  plan.training.warmup = std::clamp<index_t>(two_digits(plan.updates / 10), 1, 200);
  plan.training.loop.validate_every = std::max<index_t>(20, two_digits(plan.updates / 12));
  if (budget.given) budget.given(plan.model, plan.training);
  plans.push_back(std::move(plan));
  return true;
}

inline void warn(TrainingPlan& plan, const TrainingBudget& budget) {
  const CorpusStatistics& corpus = plan.corpus;
  // Measured: above half of the entropy, translations are hardly sentences (BLEU below 10).
  constexpr double hopeless = 0.5;
  const double update = tokens_of_update(plan);
  const double weights = layer_weights(plan.model);
  if (plan.loss > hopeless * corpus.entropy) {
    constexpr double most = 1e6;
    double factor = 1;
    while (factor < most && expected_loss(corpus, weights, factor * plan.updates, update,
                                          plan.model.layer.residual_dropout()) > hopeless * corpus.entropy)
      factor *= 1.25;
    std::string text = format(
        "%lld %s too few: the expected loss is %.2f, and translations are hardly "
        "sentences above about %.2f",
        static_cast<long long>(plan.updates), plan.updates < 2 ? "update is" : "updates are", plan.loss,
        hopeless * corpus.entropy);
    if (factor >= most) {
      text += "; this corpus needs more pairs";
    } else if (budget.seconds > 0) {
      text += format("; about %s would suffice", clock(factor * budget.seconds).c_str());
    } else {
      text += format("; about %.0f updates would suffice", factor * plan.updates);
    }
    plan.warnings.push_back(text);
  }
  constexpr index_t few = 100000;
  if (corpus.target_tokens < few) {
    plan.warnings.push_back(format(
        "the corpus has only %lld target tokens: the model will know its words alone; more pairs help, or "
        "starting from a trained model (--init-from)",
        static_cast<long long>(corpus.target_tokens)));
  }
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION TrainingPlan plan_training(const CorpusStatistics& corpus,
                                                   const TrainingBudget& budget) {
  if (corpus.target_tokens < 1) throw ValueError("plan", "the corpus has no target tokens, expected some");
  if (!(budget.seconds >= 0) || budget.max_steps < 0 || budget.epochs < 0)
    throw ValueError("plan", "a limit of the budget is negative, expected 0 (no limit) or more");
  if (budget.seconds > 0 && !budget.speed) {
    throw ValueError("plan",
                     "the budget is a time, which needs speed; expected a function such as "
                     "measured_speed()");
  }
  std::vector<TrainingPlan> plans;
  std::size_t best = 0;
  index_t does_not_fit = 0;
  const double least_gain = budget.seconds > 0 ? 0 : 0.04;
  for (const detail::PlannedSize& size : detail::sizes_to_plan(budget)) {
    if (!detail::plan_size(size, corpus, budget, plans)) {
      does_not_fit = size.d_model;
      break;
    }
    // The law knows nothing of larger models for so little text.
    constexpr double most_weights_per_token = 12;
    if (plans.size() > 1 && detail::layer_weights(plans.back().model) >
                                most_weights_per_token * static_cast<double>(corpus.target_tokens)) {
      plans.pop_back();
      break;
    }
    const TrainingPlan& last = plans.back();
    if (last.loss < (1 - least_gain) * plans[best].loss) best = plans.size() - 1;
    // Larger models are slower still: their losses would be higher again.
    if (last.loss > 1.03 * plans[best].loss || plans.size() > best + 2) break;
  }
  TrainingPlan plan = plans[best];
  plan.does_not_fit = does_not_fit;
  for (const TrainingPlan& other : plans) {
    if (other.model.layer.d_model != plan.model.layer.d_model)
      plan.others.push_back({other.model.layer.d_model, other.loss});
  }
  LoopOptions& loop = plan.training.loop;
  loop.max_minutes = budget.seconds / 60;
  loop.max_steps = budget.max_steps;
  loop.epochs = budget.epochs;
  if (budget.seconds == 0 && budget.max_steps == 0 && budget.epochs == 0) {
    loop.epochs = std::max<index_t>(1, static_cast<index_t>(std::ceil(plan.epochs)));
    if (budget.speed) plan.tokens_per_second = budget.speed(plan.model, plan.training);  // to tell how long
  }
  detail::warn(plan, budget);
  return plan;
}

EIGENFORMER_IO_FUNCTION double detail::ProcessorShare::since_last() {
  double ran = 0, waited = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator threads("/proc/self/task", error), end; !error && threads != end;
       threads.increment(error)) {
    double thread_ran = 0, thread_waited = 0;
    if (std::ifstream(threads->path() / "schedstat") >> thread_ran >> thread_waited) {
      ran += thread_ran;
      waited += thread_waited;
    }
  }
  const double runs = ran - std::exchange(ran_, ran), waits = waited - std::exchange(waited_, waited);
  return runs > 0 && waits >= 0 ? std::max(0.1, runs / (runs + waits)) : 1;
}

EIGENFORMER_IO_FUNCTION TrainingSpeed measured_speed(const PairSource& corpus) {
  return [&corpus](const Seq2SeqOptions& options, TrainingOptions training) {
    struct Fastest : TrainingSink {
      double tokens_per_second = 0;
      detail::ProcessorShare share;
      void on_step(const StepReport& r) override {
        tokens_per_second = std::max(tokens_per_second, r.weight_per_second / share.since_last());
      }
    } fastest;
    RandomGenerator rng(1);
    Seq2SeqTransformer<float> model(options, rng);
    training.loop = {.max_steps = 4,
                     .accumulate = training.loop.accumulate,
                     .report_every = 1,
                     .precision = training.loop.precision,
                     .checkpoint_activations = training.loop.checkpoint_activations,
                     .workers = training.loop.workers};
    training.validation = {};
    training.warmup = 4;
    training.schedule = ScheduleKind::constant;
    Trainer trainer(model, corpus, nullptr, training, fastest);
    trainer.run();
    return fastest.tokens_per_second;
  };
}

EIGENFORMER_IO_FUNCTION std::optional<double> TrainingPlan::expected_at_end(double done, double all,
                                                                            double validation_loss) const {
  const double decayed = validation_loss - detail::loss_law::peak_rate_costs;
  if (training.schedule != ScheduleKind::warmup_stable_decay || training.loop.ema_decay > 0 ||
      !(decayed > 0) || !(done > 0) || 8 * done < all || done > (1 - schedule::detail::decay_share) * all)
    return {};
  const double update = detail::tokens_of_update(*this);
  const auto law = [&](double n) {
    return expected_loss(corpus, detail::layer_weights(model), n, update, model.layer.residual_dropout());
  };
  if (!(law(done) < corpus.entropy)) return {};
  return decayed * law(all) / law(done);
}

EIGENFORMER_IO_FUNCTION std::string TrainingPlan::str() const {
  const LayerOptions& layer = model.layer;
  const auto count = [](index_t n) { return static_cast<long long>(n); };
  std::string text = "corpus: " + corpus.str();
  text += detail::format(
      "\nmodel: d_model %lld, %lld + %lld layers, %lld heads, feed-forward %lld, %s, dropout %g",
      count(layer.d_model), count(model.encoder.num_layers), count(model.decoder.num_layers),
      count(layer.num_heads), count(layer.dim_feedforward), layer.norm_first ? "pre-norm" : "post-norm",
      layer.dropout.rate);
  const double update = detail::tokens_of_update(*this);
  text += detail::format("\ntraining: about %lld updates of %.0f target tokens (%.1f epochs)",
                         count(detail::two_digits(updates)), update, epochs);
  if (tokens_per_second > 0) {
    text += detail::format(" at %.0f tokens/s in %s", tokens_per_second,
                           detail::clock(updates * update / tokens_per_second).c_str());
  }
  text += detail::format("; peak rate %g, warm-up %lld, schedule %s; validation ", training.learning_rate,
                         count(training.warmup.value_or(0)), word_of(training.schedule));
  const index_t interval = training.loop.validate_every;
  text += interval > 0 ? detail::format("every %lld updates", count(interval)) : "after each epoch";
  text += detail::format("\nexpected: validation loss %.2f +- %.2f, perplexity %.1f", loss, spread,
                         std::exp(loss));
  for (std::size_t i = 0; i < others.size(); ++i) {
    text += detail::format("%s d%lld %.2f", i == 0 ? "; other sizes:" : ",", count(others[i].d_model),
                           others[i].loss);
  }
  if (does_not_fit > 0) text += detail::format("; d%lld does not fit in memory", count(does_not_fit));
  return text;
}

}  // namespace eigenformer

#endif
