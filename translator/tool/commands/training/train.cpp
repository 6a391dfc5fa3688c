#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command_line/checks.hpp"
#include "commands.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/train/trainer.hpp"
#include "eigenformer/train/validation/validation.hpp"
#include "options/train_settings.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/status_line.hpp"
#include "terminal/threads.hpp"
#include "training/adapter_training.hpp"
#include "training/corpora/training_corpora.hpp"
#include "training/corpora/training_pairs.hpp"
#include "training/folder_sink.hpp"
#include "training/teachers.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"
#include "training/training_ranks.hpp"
#include "translator/training/memory_plan.hpp"
#include "translator/training/training_lock.hpp"
#include "translator/training/training_log.hpp"

namespace translator {

namespace {

/// Adds --memory-limit.
void add_memory_limit(CLI::App& command, TrainCommand& train) {
  command
      .add_option(
          "--memory-limit", train.memory_limit,
          "memory limit of the process, such as 800M or 2G: plans a model that fits, splits batches into "
          "as many parts as needed, and then checkpoints activations; the tokens per update stay the "
          "same")
      ->check(CLI::Validator(
          [](std::string& text) {
            try {
              (void)ef::bytes_of(text);
            } catch (const ef::ValueError&) {
              return "is '" + text + "', expected an amount of memory such as 800M or 2G";
            }
            return std::string();
          },
          ""));
}

/// The settings of a resumed training.
TrainSettings resumed_settings(const TrainCommand& command) {
  if (resumes_adapter(command)) return resumed_adapter_settings(command);
  const ef::ModelDescription saved = ef::read_model_description(command.folder);
  return command.flags->resumed(saved.model, saved.training);
}

/// Where a training starts: a model folder to resume or to start from, or nothing.
std::optional<ef::TranslationModel<float>> starting_model(const TrainCommand& command) {
  if (!command.resume && command.init_from.empty()) return std::nullopt;
  const std::string folder = resumes_adapter(command) ? ef::read_adapter_description(command.folder).base
                             : command.resume         ? command.folder
                                                      : command.init_from;
  auto start = ef::load_model_folder<float>(folder);
  ef::detail::require_tokenizers(folder, start.tokenizers);
  if (start.description.model.causal) return start;
  throw ef::ValueError("train", {"the model in '", command.init_from,
                                 "' has a decoder that is not causal, which cannot learn to translate"});
}

/// Trains; the log gets the reason why training ended, which may be an error.
ef::TrainingEnd logged_run(Trainer& trainer, const InterruptWatcher& interrupts, ef::TrainingLog& log) {
  try {
    const ef::TrainingEnd end = trainer.run(interrupts.token(), interrupts.decay_token());
    log.end(end, trainer.step());
    return end;
  } catch (const std::exception& error) {
    log.end(error.what());
    throw;
  }
}

/// Prints a plan, the memory that it takes and when it ends.
void say(const ef::TrainingPlan& plan, const TrainSettings& s, double seconds, std::size_t bytes,
         TerminalProgress& progress) {
  std::string text = "plan (each given option is kept; --help lists them)\n" + plan.str() +
                     "\nmemory: at most about " + ef::MemoryPlan::text_of(bytes);
  if (seconds > 0) {
    const std::time_t end = std::time(nullptr) + static_cast<std::time_t>(seconds);
    char clock[16] = "";
    std::tm local{};
    if (localtime_r(&end, &local) != nullptr) std::strftime(clock, sizeof(clock), "%H:%M", &local);
    text += std::string("; ends at ") + clock;
  } else if (s.training.loop.patience > 0) {
    text += "; ends when validations no longer improve";
  }
  std::string indent;
  for (const std::string& line : ef::detail::parts_of(text, '\n'))
    progress.say(std::exchange(indent, "  ") + line);
  for (const std::string& warning : plan.warnings) progress.say("warning: " + warning);
}

/// One call of `translator train`: settings, text, plan, model and updates, each from those before it.
class TrainingCall {
 public:
  TrainingCall(const TrainCommand& command, const TrainingRanks& ranks, InterruptWatcher& interrupts)
      : command_(command), ranks_(ranks), interrupts_(interrupts) {
    if (command.plan && (command.resume || !command.init_from.empty())) {
      throw ef::ValueError("train",
                           "--plan is for new models: with --resume and --init-from there is a model, and "
                           "nothing is planned");
    }
    if (ranks.first() && !command.plan) {
      check_folder(command);
      lock_.emplace(command.folder);
      check_folder(command);  // another training may have ended meanwhile
      remove_leftovers(command.folder);
    }
    if (!ranks.first()) progress_.silence();
  }

  /// Returns the command's exit code.
  int run() {
    read_settings();
    read_text();
    if (planned()) plan();
    if (!settings_.corpus.guided_alignment.empty()) align_pairs();
    make_model();
    if (command_.plan) return 0;
    return train();
  }

 private:
  bool planned() const { return !command_.resume && !started_; }
  /// The seconds that are left of --minutes, which count from the command's begin: at least half of them, so
  /// that a training whose text takes long to read still trains. 0 is no limit.
  double seconds_left() const {
    const double limit = 60 * settings_.training.loop.max_minutes;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
    return std::max(limit - elapsed.count(), limit / 2);
  }
  std::shared_ptr<ef::Teacher<float>> teacher() const { return teachers_ ? teachers_->teacher : nullptr; }
  ef::index_t room() const {
    return teachers_ ? most_tokens(settings_.corpus, teachers_->models->description())
                     : settings_.corpus.max_length;
  }

  void read_settings() {
    start_ = starting_model(command_);
    started_ = start_.has_value();
    TrainSettings& s = settings_;
    s = command_.resume ? resumed_settings(command_)
        : started_      ? command_.flags->started_from(start_->description)
                        : command_.flags->settings();
    const auto teacher_names = teacher_folders(s.corpus.teacher);
    if (!started_ && !teacher_names.empty())
      s = command_.flags->taught_by(ef::read_model_description(teacher_names.front()));
    ranks_.share(command_, s, progress_);
    s.validate();
    require_base(command_, s, started_ ? &*start_ : nullptr);
    if (!teacher_names.empty()) teachers_.emplace(teacher_names);
    if (teachers_ && started_) teachers_->require_same_text(start_->tokenizers, start_->description.text);
  }

  void read_text() {
    TrainSettings& s = settings_;
    corpora_ = read_corpora(s.corpus, start_, command_.folder, progress_);
    tokenizers_ = started_    ? start_->tokenizers
                  : teachers_ ? teachers_->models->tokenizers()
                              : make_tokenizers(s.corpus, corpora_, progress_);
    description_.model = s.model;
    if (started_) {
      description_.text = start_->description.text;
    } else if (teachers_) {
      description_.text = teachers_->models->first().loaded.description.text;
    } else {
      description_.model.source_vocab_size = tokenizers_.source->vocabulary_size();
      description_.model.target_vocab_size = tokenizers_.target->vocabulary_size();
    }
    description_.text = conventions_of(corpora_, tokenizers_, description_.text);
    if (s.training.lora.rank == 0) {  // an adapter has the conventions of its base
      description_.text.lines_are_sentences =
          lines_are_sentences(corpora_, description_.text.lines_are_sentences, progress_);
    }
    s.training.text = description_.text;
    encode(pairs_, &TextCorpus::train);
    encode(validation_, &TextCorpus::validation);
  }

  void encode(std::optional<TrainingPairs>& pairs, ef::ParallelCorpus TextCorpus::*part) {
    pairs.emplace(corpora_, part, settings_, tokenizers_, description_, room(), progress_);
  }

  bool validates() const { return validation_->pairs() != nullptr; }

  void plan() {
    if (pairs_->pairs() == nullptr) throw ef::ValueError("train", "the training data has no pairs");
    plan_ = command_.flags->plan(settings_, description_.model, *pairs_->pairs(), seconds_left(),
                                 command_.memory_limit.empty() ? 0 : ef::bytes_of(command_.memory_limit),
                                 validates());
    description_.model = settings_.model;
  }

  void align_pairs() {
    // The words of an alignment are counted within the line.
    if (!description_.text.source_text.empty()) {
      throw ef::ValueError("train", {"--guided-alignment does not work with this model, which adds '",
                                     description_.text.source_text, "' before each source line"});
    }
    if (pairs_->single() == nullptr)
      throw ef::ValueError("train", "--guided-alignment does not work with tags and target languages");
    progress_.say(
        align(*pairs_->single(), corpora_[0].train, tokenizers_, settings_.corpus.guided_alignment));
  }

  void make_model() {
    const TrainSettings& s = settings_;
    ef::RandomGenerator rng(s.training.loop.seed);
    model_.emplace(description_.model, rng);
    adapter_ = adapter_description(command_, s);
    if (start_ && (!command_.resume || adapter_)) {
      ef::load_state_dict(*model_, ef::state_dict(start_->model));
      progress_.say("starting from the model in '" + (adapter_ ? adapter_->base : command_.init_from) + "'");
    }
    start_.reset();
    progress_.say(format("model: %.2f million parameters, %s",
                         static_cast<double>(ef::count_parameters(*model_)) / 1e6,
                         counted(ef::Runtime::instance().threads(), "thread").c_str()));
    if (s.training.loop.precision == ef::GemmPrecision::bf16 && !ef::bf16_products_pay()) {
      progress_.say(format("using float32 products: on this CPU (%s) they are faster than bf16",
                           ef::isa_name(ef::isa())));
    }
    if (!command_.memory_limit.empty()) limit_memory();
    if (!plan_) return;
    const std::size_t bytes = ef::plan_memory(*model_, *pairs_->pairs(), s.training,
                                              std::numeric_limits<std::size_t>::max(), true, teacher())
                                  .bytes;
    say(*plan_, s, seconds_left(), bytes, progress_);
    progress_.expect([this](double updates, double all, double loss) {
      return plan_->expected_at_end(updates, all, loss);
    });
  }

  /// Chooses batches, accumulation and checkpoints that keep the process within --memory-limit, and reports
  /// them; ranks agree on one choice. A resumed training keeps its batches. Throws ValueError if the limit is
  /// too low.
  void limit_memory() {
    ef::TrainingOptions& options = settings_.training;
    ef::MemoryPlan plan = ef::plan_memory(*model_, *pairs_->pairs(), options,
                                          ef::bytes_of(command_.memory_limit), command_.resume, teacher());
    if (const auto& ranks = options.loop.communicator; ranks != nullptr)
      plan = ef::MemoryPlan::of_all(ranks->all(plan));
    plan.apply(options);
    progress_.say("memory: " + plan.str());
  }

  int train() {
    TrainSettings& s = settings_;
    if (validates()) {
      s.training.loop.validation =
          ef::validation_of(*model_, *validation_->pairs(), validation_->texts(), tokenizers_, s.training);
    } else if (s.training.validation.translates()) {
      throw ef::ValueError("train",
                           "validation by BLEU or chrF needs validation data, and there are too few pairs to "
                           "hold some out; give --valid-source and --valid-target");
    }
    const TrainedModel trained(command_.folder, *model_, tokenizers_, description_.text, s.to_json(),
                               adapter_);
    FolderSink sink(progress_, trained);
    ef::TrainingLog log(ef::training_log_file(command_.folder), sink);
    ef::TrainingOptions now = s.training;
    now.loop.max_minutes = seconds_left() / 60;
    Trainer trainer(*model_, *pairs_->pairs(), nullptr, now,
                    ranks_.first() ? static_cast<ef::TrainingSink&>(log) : ef::TrainingSink::silent(),
                    teacher());
    if (!ranks_.first()) return ranks_.follow(trainer, command_, interrupts_.token());
    begin(trainer, sink, log);
    const ef::TrainingEnd end = update(trainer, sink, log);
    if (!sink.saved() && end == ef::TrainingEnd::interrupted) {
      progress_.say("interrupted before the first update: '" + command_.folder + "' is unchanged");
      return interrupted_exit_code;
    }
    if (!sink.saved()) {
      throw ef::ValueError("train", {"no validation gave a finite value, so '", command_.folder,
                                     "' keeps its previous model; lower --learning-rate"});
    }
    describe_end(end, trainer, trained);
    return end == ef::TrainingEnd::interrupted ? interrupted_exit_code : 0;
  }

  /// Everything before the first update: the state of a resumed training, room on the disk, the log.
  void begin(Trainer& trainer, FolderSink& sink, ef::TrainingLog& log) {
    const TrainSettings& s = settings_;
    if (adapter_) {
      ef::index_t factors = 0;
      for (const auto& p : ef::lora_parameters(*model_)) factors += p->value.numel();
      progress_.say(format("adapter: training %.3f million parameters; the model's own stay unchanged",
                           static_cast<double>(factors) / 1e6));
    }
    if (command_.resume) {
      const bool before_decay = resume(trainer, command_.folder);
      progress_.say("resuming after step " + std::to_string(trainer.step()) +
                    (before_decay ? ", before the learning rate decayed" : ""));
    }
    sink.watch(trainer, command_.resume, description_.model.target_size());
    const bool decays = s.training.schedule == ef::ScheduleKind::warmup_stable_decay;
    sink.require_room(decays);
    // Another model is kept until this training has a validated one.
    if (!ef::is_model_folder(command_.folder) && !ef::is_adapter_folder(command_.folder)) sink.save_initial();
    const nlohmann::json about = {{"settings", s.to_json()},
                                  {"model", ef::options_to_json(s.model)},
                                  {"parameters", ef::count_parameters(*model_)},
                                  {"pairs", pairs_->pairs()->size()},
                                  {"validation_pairs", validates() ? validation_->pairs()->size() : 0},
                                  {"threads", ef::Runtime::instance().threads()},
                                  {"instructions", ef::isa_name(ef::isa())}};
    if (sink.saved()) {
      log.start(about, command_.resume ? std::optional(trainer.step()) : std::nullopt);
    } else {  // the log of another training is kept until the first save
      log.start_when_saved(about, [&sink] { return sink.saved(); });
    }
    if (decays) interrupts_.offer_decay();
  }

  ef::TrainingEnd update(Trainer& trainer, FolderSink& sink, ef::TrainingLog& log) {
    const ef::index_t first = trainer.step();
    try {
      const ef::TrainingEnd end = logged_run(trainer, interrupts_, log);
      // Before the first validation, the folder has the initial weights or another model: save the latest
      // weights instead.
      if (end == ef::TrainingEnd::interrupted && !std::isfinite(trainer.best()) && trainer.step() > first) {
        {
          const ef::detail::EvaluationWeights in_place = trainer.evaluation_weights();
          log.on_best();
        }
        log.on_checkpoint();
      }
      if (end != ef::TrainingEnd::interrupted) sink.refuse_diverged(trainer.step() - first);
      return end;
    } catch (const ef::ValueError&) {  // it diverged; after an IoError --resume goes on
      sink.remove_initial();
      throw;
    }
  }

  /// Prints why the training ended and what to do next.
  void describe_end(ef::TrainingEnd end, const Trainer& trainer, const TrainedModel& trained) {
    // In the order of TrainingEnd.
    static constexpr std::array reasons = {"all epochs finished", "maximum steps reached",
                                           "time limit reached",  "early stopping",
                                           "interrupted",         "finished early"};
    const char* const why = reasons[static_cast<std::size_t>(end)];
    const ef::ValidationMeasure by = settings_.training.validation.by;
    std::string text = format("%s after %s", why, counted(trainer.step(), "step").c_str());
    if (std::isfinite(trainer.best())) {
      text += by == ef::ValidationMeasure::loss
                  ? format(", best validation perplexity %.3f", std::exp(trainer.best()))
                  : format(", best validation %s %.2f", by == ef::ValidationMeasure::bleu ? "BLEU" : "chrF",
                           trainer.best());
    }
    progress_.say(text);
    if (end == ef::TrainingEnd::interrupted) {
      progress_.say("resume with: translator train --resume --model " + trained.folder().string());
    } else {
      progress_.say("translate with: translator translate " + trained.options());
    }
  }

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const TrainCommand& command_;
  const TrainingRanks& ranks_;
  InterruptWatcher& interrupts_;
  std::optional<ef::TrainingLock> lock_;
  TerminalProgress progress_;
  std::optional<ef::TranslationModel<float>> start_;  // until the model has its weights
  bool started_ = false;
  TrainSettings settings_;
  std::optional<Teachers> teachers_;
  std::vector<TextCorpus> corpora_;
  ef::TokenizerPair tokenizers_;
  ef::ModelDescription description_;
  std::optional<TrainingPairs> pairs_, validation_;
  std::optional<ef::TrainingPlan> plan_;
  std::optional<ef::Seq2SeqTransformer<float>> model_;
  std::optional<ef::AdapterDescription> adapter_;
};

int train(const TrainCommand& command) {
  InterruptWatcher interrupts(
      "this update", ef::processes_of_mpirun() > 1
                         ? "mpirun interrupts all processes when one has failed or was killed: see its "
                           "message\n"
                         : "");
  set_threads(command.threads);
  const TrainingRanks ranks(command);
  if (!ranks.first()) interrupts.silence();
  try {
    return TrainingCall(command, ranks, interrupts).run();
  } catch (const std::exception& error) {
    if (ranks.fail(error)) throw;
    return 1;
  }
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  const auto [sub, command] =
      add_command(app, run, "train", "Trains a model on sentences and their translations", train);
  sub->add_option("--model", command->folder, "model folder to write, or to resume")->required();
  command->flags = std::make_unique<TrainFlags>(*sub);
  sub->add_option("--threads", command->threads, "number of threads; 0: one per core")->capture_default_str();
  add_memory_limit(*sub, *command);
  sub->add_flag("--resume", command->resume,
                "resume the interrupted training in the model folder, bit-identically without a time limit; "
                "other given options "
                "replace saved ones, where that is allowed");
  sub->add_option("--init-from", command->init_from,
                  "model folder to start from (an imported model works, too): its weights, vocabulary and "
                  "conventions; model options other than dropout cannot change");
  sub->add_flag("--plan", command->plan,
                "print what a new training would do, with the expected loss, memory and time, and end");
  sub->add_flag("--mpi", command->mpi, "train with all MPI processes; automatic under mpirun");
  sub->add_option("--adapter-names", command->adapter_names,
                  "with --lora-rank: names in the adapter file: own, as translator inspect lists them, or as "
                  "PEFT loads them for transformers' models: bart (BART, mBART, Marian, M2M100, NLLB) or t5")
      ->check(one_of({"own", "bart", "t5"}));
  sub->add_flag("--overwrite", command->overwrite,
                "replace an existing model in the folder, at the first validation of the new one");
  sub->set_help_all_flag(
      "--help-all",
      "print all options, also those of single kinds of positions, and of the encoder or the decoder "
      "alone");
  sub->footer(
      "A new model is planned for its text and its limit of time, updates or epochs: size, dropout, "
      "vocabulary, batches, learning rate, schedule and validations, except what is given. --plan shows the "
      "plan. With --init-from, model options are those of the model.\n\n"
      "Most model options can differ between encoder and decoder: put --encoder- or --decoder- before the "
      "name, as in --decoder-num-heads 4 --decoder-dim-feedforward 512. --help-all lists them.\n" +
      sub->get_footer() +
      "\n\nExamples:\n"
      "translator train --source train.en --target train.de --model en-de --minutes 60\n"
      "translator train --resume --model en-de --minutes 60");
}

}  // namespace translator
