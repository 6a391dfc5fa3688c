#include "train_settings.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "training/corpora/corpus_list.hpp"
#include "translator/preparing/prepared_corpus.hpp"
#include "translator/training/memory_plan.hpp"
#include "translator/training/process_memory.hpp"

namespace translator {

namespace {

/// Options that cannot change at a resume, besides those of the model.
constexpr std::array<std::string_view, 18> fixed_names = {
    "optimizer",   "optimizer_state", "tokenizer",     "vocab_size",     "separate_vocab",
    "max_length",  "batch_tokens",    "accumulate",    "seed",           "frozen",
    "bpe_dropout", "unigram_alpha",   "sampled_sides", "corpus_weights", "corpus_temperature",
    "validate_by", "validate_sample", "validate_beam"};

/// Model options that may change when a new training starts from a model, because weights do not depend on
/// them.
constexpr std::array<std::string_view, 6> training_only_names = {
    "dropout",          "attention_dropout", "feed_forward_dropout",
    "residual_dropout", "layer_drop",        "embedding_dropout"};

constexpr const char* while_resuming = "cannot change when a training is resumed; it was";
constexpr const char* in_another_model = "differs from the model to start from, which has";

[[noreturn]] void refuse_change(const std::string& flag, const nlohmann::json& now,
                                const nlohmann::json& before, const char* why) {
  throw ef::ValueError("train", {flag, " ", now.dump(), " ", why, " ", before.dump()});
}

/// Throws for a given value that differs from the model's, for the whole model or one stack. why: the middle
/// of the message.
void require_same_model(const nlohmann::json& given, const ef::Seq2SeqOptions& model,
                        const std::string& group, const char* why) {
  const nlohmann::json& values = group.empty() ? given : given.at(group);
  const auto with = [&](const nlohmann::json& some) {
    return ef::options_to_json(ef::options_from_json<ef::Seq2SeqOptions>(
        group.empty() ? some : nlohmann::json{{group, some}}, model));
  };
  const nlohmann::json before = ef::options_to_json(model);
  for (const auto& [name, value] : values.items()) {
    if (group.empty() && (name == "encoder" || name == "decoder")) {
      require_same_model(given, model, name, why);
    } else if (with({{name, value}}) != before) {
      const nlohmann::json& own = group.empty() || !before.contains(group) ? before : before.at(group);
      const nlohmann::json& source = own.contains(name) ? own : before;
      refuse_change(flag_of_field(name, group), value, source.value(name, nlohmann::json()), why);
    }
  }
}

/// Shows in the help that an option of the model is planned; with --init-from it is the model's.
void plan_of_model(CLI::Option& option) {
  option.description(CLI::detail::find_and_replace(option.get_description(), "; not given: dropout", ""));
  option.default_str("planned");
}

/// Shows in the help that an option of the training is planned, and what it is with --init-from.
void plan_of_training(CLI::Option& option) {
  const std::string text = option.get_description(), otherwise = option.get_default_str();
  option.description(otherwise.empty()
                         ? CLI::detail::find_and_replace(text, "not given:", "with --init-from:")
                         : text + "; " + otherwise + " with --init-from");
  option.default_str("planned");
}

/// Uses the values that a prepared corpus fixes. Throws for conflicting options.
void take_prepared(CorpusOptions& corpus, const nlohmann::json& given) {
  const std::vector<std::string> folders = prepared_folders(corpus);
  if (folders.empty()) return;
  for (const char* name : {"tokenizer", "vocab_size", "separate_vocab", "max_length", "guided_alignment"}) {
    if (!given.contains(name)) continue;
    throw ef::ValueError(
        "train",
        {flag_of_field(name),
         " has no effect with a prepared corpus, which has its own tokenizers and lengths; leave it out"});
  }
  corpus.max_length = 0;
  for (const std::string& folder : folders) {
    const ef::PreparedDescription prepared = ef::read_prepared_description(folder);
    corpus.tokenizer = prepared.tokenizer;
    corpus.vocab_size = prepared.vocab_size;
    corpus.separate_vocab = !prepared.joint;
    corpus.max_length = std::max(corpus.max_length, prepared.max_length);
  }
}

/// Whether a training stays below `limit` bytes with batches in at most 8 parts, which it then has, and
/// without checkpoints that it does not have: a smaller model is better than those.
bool fits_in_memory(const ef::Seq2SeqOptions& of, const ef::PairSource& pairs, ef::TrainingOptions& options,
                    std::size_t limit) {
  // Weights, gradients and moments: what is too large for them alone is not even built.
  const double weights =
                   ef::detail::layer_weights(of) + static_cast<double>(of.layer.d_model * of.target_size()),
               bytes_of_weight = options.optimizer.kind == ef::OptimizerKind::adam ? 16 : 8;
  ef::Runtime::instance().pool().trim();
  ef::detail::release_freed_memory();
  const auto process = static_cast<double>(ef::detail::resident_bytes().value_or(0));
  if (process + bytes_of_weight * weights > static_cast<double>(limit)) return false;
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model(of, rng);
  try {
    const ef::MemoryPlan plan = ef::plan_memory(model, pairs, options, limit);
    if (plan.checkpoint_activations && !options.loop.checkpoint_activations) return false;
    plan.apply(options);
    return true;
  } catch (const ef::ValueError&) {  // not even with the smallest batches
    return false;
  }
}

}  // namespace

TrainFlags::TrainFlags(CLI::App& command)
    : corpus_(command, {}, "Data"),
      model_(command, default_model(), "Model",
             [](const OptionRow& row) {
               return !is_among(row.name, model_fields_without_flag) &&
                      (row.group.empty() || row.name != "d_model");  // both stacks have the model's width
             }),
      training_(command, {}, "Training"),
      layers_(command.add_option_function<std::int64_t>(
          "--layers", [](const std::int64_t&) {},
          "number of encoder layers and of decoder layers (above 0)")),
      bf16_(command.add_flag("--bf16")->description("short for --precision bf16")),
      tying_(command.get_option("--tie")) {
  for (const char* name : {"--source", "--target", "--tsv", "--data"})
    command.get_option(name)->multi_option_policy(CLI::MultiOptionPolicy::Join);
  layers_->group("Model");
  bf16_->group("Training");
  for (const char* name : {"--validate-with", "--validate-by", "--validate-sample", "--validate-beam",
                           "--validate-every", "--patience", "--average-last"})
    command.get_option(name)->group("Validation");
  add_word(command.get_option("--positions"), "relative", ef::RelativeBiasPositions::word);
  // The curve of Vaswani et al. 2017 is the same for any peak.
  CLI::Option* const schedule = command.get_option("--schedule");
  schedule->description(schedule->get_description() + "; noam is another name for inverse-sqrt");
  add_word(schedule, "noam", "inverse-sqrt");
  for (const char* name :
       {"--d-model", "--heads", "--ff", "--dropout", "--attention-dropout", "--feed-forward-dropout",
        "--pre-norm", "--num-encoder-layers", "--num-decoder-layers", "--layers"})
    plan_of_model(*command.get_option(name));
  CLI::Option* const pre_norm = command.get_option("--pre-norm");
  pre_norm->description(pre_norm->get_description() + "; on in a plan, and turned off by --pre-norm=false");
  for (const char* name :
       {"--epochs", "--batch-tokens", "--learning-rate", "--warmup", "--schedule", "--precision",
        "--validate-every", "--patience", "--validate-with", "--validate-sample"})
    plan_of_training(*command.get_option(name));
  tying_->description(tying_->get_description() + "; auto: all, or target with --separate-vocab");
  tying_->default_str("auto");
  tying_->transform(CLI::Validator(
      [this](std::string& word) {
        automatic_tying_ = word == "auto";
        return std::string();
      },
      ""));
}

nlohmann::json TrainFlags::given_model() const {
  nlohmann::json given = model_.given();
  if (automatic_tying_) given.erase("tying");
  if (layers_->count() > 0) {
    for (const char* name : {"num_encoder_layers", "num_decoder_layers"}) {
      if (!given.contains(name)) given[name] = layers_->as<std::int64_t>();
    }
  }
  return given;
}

nlohmann::json TrainFlags::given_training() const {
  nlohmann::json given = training_.given();
  if (bf16_->count() > 0 && !given.contains("precision"))
    given["precision"] = bf16_->as<bool>() ? "bf16" : "full";
  return given;
}

void TrainFlags::require_what_options_need(const TrainSettings& settings) const {
  const nlohmann::json given = given_training();
  const auto require = [&](const char* prefix, const std::string& needed, const char* flag) {
    if (!needed.empty()) return;
    for (const auto& [name, value] : given.items()) {
      if (!name.starts_with(prefix)) continue;
      throw ef::ValueError("train", {flag_of_field(name), " has no effect without ", flag, ": give both"});
    }
  };
  require("guided_alignment_", settings.corpus.guided_alignment, "--guided-alignment");
  require("distillation_", settings.corpus.teacher, "--teacher");
}

void TrainFlags::take_vocabulary(TrainSettings& s, const ef::ModelDescription& model,
                                 const char* whose) const {
  const nlohmann::json given_corpus = corpus_.given();
  for (const auto& [name, value] : given_corpus.items()) {
    if (name == "tokenizer" || name == "vocab_size" || name == "separate_vocab") {
      throw ef::ValueError("train", {flag_of_field(name), " sets up a new vocabulary, but the ", whose,
                                     " has its own; leave it out"});
    }
  }
  s.corpus.tokenizer = model.tokenizer;
  // Imported Marian models have two tokenizers with one vocabulary, and tie all embeddings.
  s.corpus.separate_vocab = !model.joint && model.model.tying != ef::Tying::all;
  s.corpus.vocab_size = std::max(model.model.source_vocab_size, model.model.target_size());
}

TrainSettings TrainFlags::settings() const {
  TrainSettings s;
  s.corpus = corpus_.applied("train", s.corpus);
  take_prepared(s.corpus, corpus_.given());
  s.training = training_.applied("train", s.training, given_training());
  s.model = model_.applied("train", s.model, given_model());
  if (automatic_tying_) s.model.tying = s.corpus.separate_vocab ? ef::Tying::target : ef::Tying::all;
  if (s.corpus.tokenizer != "char" && s.corpus.tokenizer != "word" && s.corpus.tokenizer != "subword") {
    if (const auto folders = prepared_folders(s.corpus); !folders.empty()) {
      throw ef::ValueError("train", {"the corpus in '", folders[0], "' was prepared with the tokenizer ",
                                     s.corpus.tokenizer, " of a model; give that model with --init-from"});
    }
    throw ef::ValueError("train", {"tokenizer is '", s.corpus.tokenizer, "', must be char, word or subword"});
  }
  // A size that is chosen for the text is known when the text is read, after the options were checked.
  s.model.source_vocab_size = s.model.target_vocab_size =
      s.corpus.vocab_size > 0 ? s.corpus.vocab_size : 8000;
  s.model.max_length = std::holds_alternative<ef::LearnedPositions>(s.model.input_positions())
                           ? ef::detail::num_positions(s.corpus.max_length)
                           : s.corpus.max_length;
  require_what_options_need(s);
  return s;
}

TrainSettings TrainFlags::taught_by(const ef::ModelDescription& teacher) const {
  TrainSettings s = settings();
  take_vocabulary(s, teacher, "teacher");
  const ef::Seq2SeqOptions& of = teacher.model;
  if (automatic_tying_) s.model.tying = teacher.joint ? ef::Tying::all : ef::Tying::target;
  s.model.source_vocab_size = of.source_vocab_size;
  s.model.target_vocab_size = of.target_size();
  s.model.padding_index = of.padding_index;
  s.model.constant_id = of.constant_id;
  if (std::holds_alternative<ef::LearnedPositions>(s.model.input_positions()))
    s.model.max_length = ef::detail::num_positions(s.corpus.max_length, teacher.text);
  return s;
}

TrainSettings TrainFlags::started_from(const ef::ModelDescription& start) const {
  TrainSettings s;
  s.corpus = corpus_.applied("train", s.corpus);
  take_prepared(s.corpus, corpus_.given());
  take_vocabulary(s, start, "model to start from");
  s.training = training_.applied("train", s.training, given_training());
  const nlohmann::json given = given_model();
  nlohmann::json others = given;
  for (nlohmann::json* fields : {&others, others.contains("encoder") ? &others["encoder"] : nullptr,
                                 others.contains("decoder") ? &others["decoder"] : nullptr}) {
    if (fields == nullptr) continue;
    for (const std::string_view name : training_only_names) fields->erase(std::string(name));
  }
  require_same_model(others, start.model, "", in_another_model);
  s.model = model_.applied("train", start.model, given);
  if (!std::holds_alternative<ef::LearnedPositions>(s.model.input_positions()))
    s.model.max_length = std::max(s.model.max_length, s.corpus.max_length);
  require_what_options_need(s);
  return s;
}

ef::TrainingPlan TrainFlags::plan(TrainSettings& s, const ef::Seq2SeqOptions& model,
                                  const ef::PairSource& pairs, double seconds, std::size_t memory,
                                  bool validates) const {
  const nlohmann::json of_model = given_model(), of_training = given_training();
  const auto limit = [&](const char* name) { return of_training.value(name, ef::index_t{0}); };
  ef::TrainingSpeed speed = ef::measured_speed(pairs);
  std::function<bool(const ef::Seq2SeqOptions&, ef::TrainingOptions&)> fits;
  if (memory > 0) {
    fits = [&pairs, memory](const auto& of, auto& options) {
      return fits_in_memory(of, pairs, options, memory);
    };
  }
  if (const auto& ranks = s.training.loop.communicator; ranks != nullptr) {
    // All ranks plan alike, for the slowest of them and the one with the least room.
    speed = [own = std::move(speed), ranks](const auto& of, const auto& options) {
      const std::vector<double> all = ranks->all(own(of, options));
      return static_cast<double>(all.size()) * *std::min_element(all.begin(), all.end());
    };
    if (fits) {
      fits = [own = std::move(fits), ranks](const auto& of, auto& options) {
        const std::vector<double> all = ranks->all(own(of, options) ? 1.0 : 0.0);
        return *std::min_element(all.begin(), all.end()) > 0;
      };
    }
  }
  ef::TrainingPlan plan = ef::plan_training(
      ef::corpus_statistics(pairs), {.seconds = seconds,
                                     .max_steps = limit("max_steps"),
                                     .epochs = limit("epochs"),
                                     .speed = std::move(speed),
                                     .model = model,
                                     .training = s.training,
                                     .given =
                                         [&](ef::Seq2SeqOptions& of, ef::TrainingOptions& training) {
                                           of.encoder.layer.reset();  // made of the common layer again
                                           of.decoder.layer.reset();
                                           of = model_.applied("train", of, of_model);
                                           training = training_.applied("train", training, of_training);
                                         },
                                     .fits = std::move(fits)});
  ef::LoopOptions& loop = plan.training.loop;
  if (!validates && !of_training.contains("patience")) loop.patience = 0;
  // People see sentences that get better where it costs little.
  constexpr double long_enough = 300;
  const bool shows = seconds >= long_enough || loop.patience > 0;
  if (validates && shows && !of_training.contains("validate_with")) {
    plan.training.validation.measures = "loss,bleu";
    if (!of_training.contains("validate_sample")) plan.training.validation.sample = 100;
  }
  if (of_training.contains("max_minutes")) loop.max_minutes = s.training.loop.max_minutes;
  s.model = plan.model;
  s.training = plan.training;
  return plan;
}

TrainSettings TrainFlags::resumed(const ef::Seq2SeqOptions& model, const nlohmann::json& saved) const {
  TrainSettings s = saved_settings(model, saved);
  const nlohmann::json given = given_model();
  require_same_model(given, model, "", while_resuming);
  (void)model_.applied("train", model, given);
  const auto go_on = [](const auto& flags, const nlohmann::json& now, auto& options) {
    const nlohmann::json before = ef::options_to_json(options);
    for (const auto& [name, value] : now.items()) {
      const bool fixed = is_among(name, fixed_names) || name.starts_with("lora_");
      if (fixed && value != before.at(name))
        refuse_change(flag_of_field(name), value, before.at(name), while_resuming);
    }
    options = flags.applied("train", options, now);
  };
  go_on(corpus_, corpus_.given(), s.corpus);
  go_on(training_, given_training(), s.training);
  return s;
}

void TrainSettings::validate() const {
  const CorpusOptions& c = corpus;
  const std::vector<CorpusEntry> entries = corpus_entries(c);
  if (!c.guided_alignment.empty() && (entries.size() > 1 || c.sampling.on())) {
    throw ef::ValueError("train",
                         "--guided-alignment supports only one corpus, without subword sampling; leave out "
                         "further corpora, --bpe-dropout and --unigram-alpha");
  }
  if (c.sampling.on() && !prepared_folders(c).empty()) {
    throw ef::ValueError("train",
                         "--bpe-dropout and --unigram-alpha need text, but a prepared corpus has only "
                         "tokens; give --source and --target, or --tsv");
  }
  c.sampling.validate();
  if (c.sampling.on() && (c.tokenizer == "char" || c.tokenizer == "word")) {
    throw ef::ValueError(
        "train", {"--bpe-dropout and --unigram-alpha need the tokenizer subword, not '", c.tokenizer, "'"});
  }
  if (c.sampling.sides != ef::SampledSides::both && !c.sampling.on())
    throw ef::ValueError("train",
                         "--sampled-sides has no effect without --bpe-dropout or --unigram-alpha: give both");
  if (c.valid_source.empty() != c.valid_target.empty()) {
    throw ef::ValueError("train", "give both --valid-source and --valid-target, or neither");
  }
  ef::validate_fields("train", c);
  ef::detail::require_vocab_size("train", c.vocab_size);
  if (c.separate_vocab && model.tying == ef::Tying::all) {
    throw ef::ValueError("train", "--tie all needs a joint vocabulary; leave out --separate-vocab");
  }
  model.validate("train");
  training.validate();
  training.r_drop.require_dropout(model);
}

nlohmann::json TrainSettings::to_json() const {
  nlohmann::json json = ef::options_to_json(corpus);
  json.update(ef::options_to_json(training));
  return json;
}

TrainSettings saved_settings(const ef::Seq2SeqOptions& model, const nlohmann::json& saved) {
  static const nlohmann::json of_corpus = ef::options_to_json(CorpusOptions{});
  nlohmann::json corpus = nlohmann::json::object(), training = nlohmann::json::object();
  for (const auto& [name, value] : saved.items())
    (of_corpus.contains(name) ? corpus : training)[name] = value;
  TrainSettings s;
  s.corpus = ef::options_from_json<CorpusOptions>(corpus);
  s.training = ef::options_from_json<ef::TrainingOptions>(training);
  s.model = model;
  return s;
}

}  // namespace translator
