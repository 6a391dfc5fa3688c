#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_line/checks.hpp"
#include "commands.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/train/checkpoint/training_lock.hpp"
#include "eigenformer/train/reporting/training_log.hpp"
#include "eigenformer/train/trainer.hpp"
#include "eigenformer/train/validation/validation.hpp"
#include "model/model_folder.hpp"
#include "options/train_settings.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/terminal_progress.hpp"
#include "terminal/threads.hpp"
#include "training/adapter_training.hpp"
#include "training/corpora/training_corpora.hpp"
#include "training/corpora/training_pairs.hpp"
#include "training/folder_sink.hpp"
#include "training/memory_limit.hpp"
#include "training/teachers.hpp"
#include "training/train_command.hpp"
#include "training/training_end.hpp"
#include "training/training_folder.hpp"
#include "training/training_ranks.hpp"
#include "training/training_start.hpp"

namespace translator {

namespace {

/// Throws ValueError for validation metrics that the data does not allow.
void require_validation_data(const ef::ValidationOptions& validation, bool given) {
  if (given || !validation.translates()) return;
  throw ef::ValueError("train",
                       "validation by BLEU or chrF needs validation data, and there are too few pairs to "
                       "hold some out; give --valid-source and --valid-target");
}

/// Begins the log, or continues it if the folder already holds this training; the log of another training is
/// kept until the first save.
void start_log(ef::TrainingLog& log, std::optional<ef::index_t> resumed, const FolderSink& sink,
               const nlohmann::json& about) {
  if (sink.saved()) {
    log.start(about, resumed);
  } else {
    log.start_when_saved(about, [&sink] { return sink.saved(); });
  }
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

double target_bytes(const std::vector<TextCorpus>& corpora) {
  double bytes = 0;
  for (const TextCorpus& corpus : corpora) {
    for (const std::string& line : corpus.train.target) bytes += static_cast<double>(line.size());
  }
  return bytes;
}

/// Seconds since the command began, which count towards --minutes.
class CommandClock {
 public:
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  /// What is left of a limit in seconds: at least half of it, so that a training whose text takes long to
  /// read still trains. 0 is no limit.
  double left(double seconds) const { return std::max(seconds - elapsed(), seconds / 2); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

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
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find('\n', from), text.size());
    progress.say((from == 0 ? "" : "  ") + text.substr(from, to - from));
    from = to + 1;
  }
  for (const std::string& warning : plan.warnings) progress.say("warning: " + warning);
}

int train(const TrainCommand& command, const TrainingRanks& ranks, InterruptWatcher& interrupts) {
  const CommandClock clock;
  if (command.plan && (command.resume || !command.init_from.empty())) {
    throw ef::ValueError("train",
                         "--plan is for new models: with --resume and --init-from there is a model, and "
                         "nothing is planned");
  }
  std::optional<ef::TrainingLock> lock;
  if (ranks.first() && !command.plan) {
    check_folder(command);
    lock.emplace(command.folder);
    check_folder(command);  // another training may have ended meanwhile
    remove_leftovers(command.folder);
  }
  TerminalProgress progress;
  if (!ranks.first()) progress.silence();
  auto start = starting_model(command);
  TrainSettings s = command.resume ? resumed_settings(command)
                    : start        ? command.flags->started_from(start->description)
                                   : command.flags->settings();
  const auto teacher_names =
      s.corpus.teacher.empty() ? std::vector<std::string>() : teacher_folders(s.corpus.teacher);
  if (!start && !teacher_names.empty())
    s = command.flags->taught_by(ef::read_model_description(teacher_names.front()));
  ranks.share(command, s, progress);
  s.validate();
  require_base(command, s, start ? &*start : nullptr);
  const auto teachers = teacher_names.empty() ? nullptr : std::make_unique<Teachers>(teacher_names);
  if (teachers && start) teachers->require_same_text(start->tokenizers, start->description.text);

  std::vector<TextCorpus> corpora = read_corpora(s.corpus, start, command.folder, progress);
  const bool planned = !command.resume && !start;
  if (planned && !teachers) command.flags->plan_vocabulary(s, target_bytes(corpora));
  const ef::TokenizerPair tokenizers = start      ? start->tokenizers
                                       : teachers ? teachers->models->tokenizers()
                                                  : make_tokenizers(s.corpus, corpora, progress);
  ef::ModelDescription description;
  description.model = s.model;
  if (start) {
    description.text = start->description.text;
  } else if (teachers) {
    description.text = teachers->models->first().loaded.description.text;
  } else {
    description.model.source_vocab_size = tokenizers.source->vocabulary_size();
    description.model.target_vocab_size = tokenizers.target->vocabulary_size();
  }
  description.text = conventions_of(corpora, tokenizers, description.text);
  if (s.training.lora.rank == 0) {  // an adapter has the conventions of its base
    description.text.lines_are_sentences =
        lines_are_sentences(corpora, description.text.lines_are_sentences, progress);
  }
  s.training.text = description.text;
  const ef::index_t room =
      teachers ? most_tokens(s.corpus, teachers->models->description()) : s.corpus.max_length;
  std::optional<TrainingPairs> pairs;
  pairs.emplace(corpora, &TextCorpus::train, s, tokenizers, description, room, progress);
  const TrainingPairs validation_set(corpora, &TextCorpus::validation, s, tokenizers, description, room,
                                     progress);
  const bool validates = validation_set.pairs() != nullptr;
  std::optional<ef::TrainingPlan> plan;
  if (planned) {
    if (pairs->pairs() == nullptr) throw ef::ValueError("train", "the training data has no pairs");
    plan = command.flags->plan(
        s, description.model, *pairs->pairs(), clock.left(60 * s.training.loop.max_minutes),
        command.memory_limit.empty() ? 0 : ef::bytes_of(command.memory_limit), validates);
    description.model = s.model;
    // Random segmentations need the text, so they are decided last.
    if (plan->bpe_dropout > 0 && !command.plan)
      pairs.emplace(corpora, &TextCorpus::train, s, tokenizers, description, room, progress);
  }
  const TrainingPairs& train_set = *pairs;
  if (!s.corpus.guided_alignment.empty()) {
    // The words of an alignment are counted within the line.
    if (!description.text.source_text.empty()) {
      throw ef::ValueError("train", {"--guided-alignment does not work with this model, which adds '",
                                     description.text.source_text, "' before each source line"});
    }
    if (train_set.single() == nullptr)
      throw ef::ValueError("train", "--guided-alignment does not work with tags and target languages");
    progress.say(align(*train_set.single(), corpora[0].train, tokenizers, s.corpus.guided_alignment));
  }

  ef::RandomGenerator rng(s.training.loop.seed);
  ef::Seq2SeqTransformer<float> model(description.model, rng);
  const auto adapter = adapter_description(command, s);
  if (start && (!command.resume || adapter)) {
    ef::load_state_dict(model, ef::state_dict(start->model));
    progress.say("starting from the model in '" + (adapter ? adapter->base : command.init_from) + "'");
  }
  start.reset();
  progress.say(format("model: %.2f million parameters, %s",
                      static_cast<double>(ef::count_parameters(model)) / 1e6,
                      counted(ef::Runtime::instance().threads(), "thread").c_str()));
  if (s.training.loop.precision == ef::GemmPrecision::bf16 && !ef::bf16_products_pay()) {
    progress.say(format("using float32 products: on this CPU (%s) they are faster than bf16",
                        ef::isa_name(ef::isa())));
  }

  limit_memory(command, model, *train_set.pairs(), s.training, progress,
               teachers ? teachers->teacher : nullptr);
  if (plan) {
    say(*plan, s, clock.left(60 * s.training.loop.max_minutes),
        ef::plan_memory(model, *train_set.pairs(), s.training, std::numeric_limits<std::size_t>::max(), true,
                        teachers ? teachers->teacher : nullptr)
            .bytes,
        progress);
  }
  if (command.plan) return 0;
  require_validation_data(s.training.validation, validates);
  if (validates) {
    s.training.loop.validation =
        ef::validation_of(model, *validation_set.pairs(), validation_set.texts(), tokenizers, s.training);
  }
  const TrainedModel trained(command.folder, model, tokenizers, description.text, s.to_json(), adapter);
  FolderSink sink(progress, trained);
  ef::TrainingLog log(ef::training_log_file(command.folder), sink);
  ef::TrainingOptions now = s.training;
  now.loop.max_minutes = clock.left(60 * now.loop.max_minutes) / 60;
  Trainer trainer(model, *train_set.pairs(), nullptr, now,
                  ranks.first() ? static_cast<ef::TrainingSink&>(log) : ef::TrainingSink::silent(),
                  teachers ? teachers->teacher : nullptr);
  if (!ranks.first()) return ranks.follow(trainer, command, interrupts.token());
  if (adapter) {
    ef::index_t factors = 0;
    for (const auto& p : ef::lora_parameters(model)) factors += p->value.numel();
    progress.say(format("adapter: training %.3f million parameters; the model's own stay unchanged",
                        static_cast<double>(factors) / 1e6));
  }
  if (command.resume) {
    const bool before_decay = resume(trainer, command.folder);
    progress.say("resuming after step " + std::to_string(trainer.step()) +
                 (before_decay ? ", before the learning rate decayed" : ""));
  }
  sink.watch(trainer, command.resume, description.model.target_size());
  const bool decays = s.training.schedule == ef::ScheduleKind::warmup_stable_decay;
  sink.require_room(decays);
  // Another model is kept until this training has a validated one.
  if (!ef::is_model_folder(command.folder) && !ef::is_adapter_folder(command.folder)) sink.save_initial();
  const ef::index_t first = trainer.step();
  start_log(log, command.resume ? std::optional(first) : std::nullopt, sink,
            {{"settings", s.to_json()},
             {"model", ef::options_to_json(s.model)},
             {"parameters", ef::count_parameters(model)},
             {"pairs", train_set.pairs()->size()},
             {"validation_pairs", validates ? validation_set.pairs()->size() : 0},
             {"threads", ef::Runtime::instance().threads()},
             {"instructions", ef::isa_name(ef::isa())}});
  if (decays) interrupts.offer_decay();
  ef::TrainingEnd end{};
  try {
    end = logged_run(trainer, interrupts, log);
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
  } catch (const ef::ValueError&) {  // it diverged; after an IoError --resume goes on
    sink.remove_initial();
    throw;
  }
  if (!sink.saved() && end == ef::TrainingEnd::interrupted) {
    progress.say("interrupted before the first update: '" + command.folder + "' is unchanged");
    return interrupted_exit_code;
  }
  if (!sink.saved()) {
    throw ef::ValueError("train", {"no validation gave a finite value, so '", command.folder,
                                   "' keeps its previous model; lower --learning-rate"});
  }
  describe_end(end, trainer, s.training.validation.by, trained, progress);
  return end == ef::TrainingEnd::interrupted ? interrupted_exit_code : 0;
}

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
    return train(command, ranks, interrupts);
  } catch (const std::exception& error) {
    if (ranks.fail(error)) throw;
    return 1;
  }
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("train", "Trains a model on sentences and their translations");
  auto command = std::make_shared<TrainCommand>();
  sub->add_option("--model", command->folder, "model folder to write, or to resume")->required();
  command->flags = std::make_unique<TrainFlags>(*sub);
  sub->add_option("--threads", command->threads, "number of threads; 0: one per core")->capture_default_str();
  add_memory_limit(*sub, *command);
  sub->add_flag("--resume", command->resume,
                "resume the interrupted training in the model folder, bit-identically; other given options "
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
      "plan. The defaults in brackets are those of trainings with --init-from.\n\n"
      "Most model options can differ between encoder and decoder: put --encoder- or --decoder- before the "
      "name, as in --decoder-num-heads 4 --decoder-dim-feedforward 512. --help-all lists them.\n" +
      sub->get_footer() +
      "\n\nExamples:\n"
      "translator train --source train.en --target train.de --model en-de --minutes 60\n"
      "translator train --resume --model en-de --minutes 60");
  sub->callback([&run, command] { run = [command] { return train(*command); }; });
}

}  // namespace translator
