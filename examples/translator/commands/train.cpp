#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "commands.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/train/trainer.hpp"
#include "model/model_folder.hpp"
#include "options/train_settings.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/terminal_progress.hpp"
#include "terminal/threads.hpp"
#include "training/folder_sink.hpp"
#include "training/memory_limit.hpp"
#include "training/train_command.hpp"
#include "training/training_corpora.hpp"
#include "training/training_end.hpp"
#include "training/training_folder.hpp"
#include "training/training_start.hpp"

namespace translator {

namespace {

int train(const TrainCommand& command) {
  const InterruptWatcher interrupts("this update");
  set_threads(command.threads);
  check_folder(command);
  if (command.resume) remove_leftovers(command.folder);
  TerminalProgress progress;
  auto start = starting_model(command);
  TrainSettings s = command.resume ? resumed_settings(command)
                    : start        ? command.flags->started_from(start->description)
                                   : command.flags->settings();
  s.validate();

  const Corpora corpora = read_corpora(s.corpus, progress);
  const ef::TokenizerPair tokenizers =
      start ? start->tokenizers : make_tokenizers(s.corpus, corpora.train, progress);
  ef::ModelDescription description;
  description.model = s.model;
  if (start) {
    s.training.text = description.text = start->description.text;
  } else {
    description.model.source_vocab_size = tokenizers.source->vocabulary_size();
    description.model.target_vocab_size = tokenizers.target->vocabulary_size();
  }
  const ef::index_t most = most_tokens(s.corpus, description);
  const auto encode = [&](const ef::ParallelCorpus& corpus, const char* name) {
    ef::EncodedCorpus encoded = ef::encode_corpus(corpus, tokenizers, description.text, most);
    progress.say(format("%s: %s, %lld source and %lld target tokens", name,
                        counted(encoded.size(), "pair").c_str(),
                        static_cast<long long>(encoded.source.tokens()),
                        static_cast<long long>(encoded.target.tokens())) +
                 (encoded.report.over_long > 0
                      ? ", " + std::to_string(encoded.report.over_long) + " over-long left out"
                      : ""));
    return encoded;
  };
  ef::EncodedCorpus train_set = encode(corpora.train, "training on");
  if (!s.corpus.guided_alignment.empty()) {
    // The words of an alignment are counted in the line alone.
    if (!description.text.source_text.empty()) {
      throw ef::ValueError("train", "--guided-alignment does not work with this model, which has '" +
                                        description.text.source_text + "' put before each source line");
    }
    progress.say(align(train_set, corpora.train, tokenizers, s.corpus.guided_alignment));
  }
  const bool validates = corpora.validation.size() > 0;
  const ef::EncodedCorpus validation_set =
      validates ? encode(corpora.validation, "validating on") : ef::EncodedCorpus{};

  ef::RandomGenerator rng(s.training.loop.seed);
  ef::Seq2SeqTransformer<float> model(description.model, rng);
  if (!command.init_from.empty()) {
    ef::load_state_dict(model, ef::state_dict(start->model));
    progress.say("starting from the model in '" + command.init_from + "'");
  }
  start.reset();
  progress.say(format("model: %.2f million parameters, %s",
                      static_cast<double>(ef::count_parameters(model)) / 1e6,
                      counted(ef::Runtime::instance().threads(), "thread").c_str()));
  if (s.training.loop.precision == ef::kernels::GemmPrecision::bf16 && !ef::kernels::bf16_products_pay()) {
    progress.say(format("products in float32: by the features in use (%s) they are faster than in bf16",
                        ef::kernels::isa_name(ef::kernels::isa())));
  }

  limit_memory(command, model, train_set, s.training, progress);
  FolderSink sink(progress, command.folder, model, tokenizers, description.text, s.to_json());
  Trainer trainer(model, train_set, validates ? &validation_set : nullptr, s.training, sink);
  sink.watch(trainer);
  if (command.resume) {
    trainer.load(ef::load_training_state<float>(state_file(command.folder)));
    progress.say("going on after step " + std::to_string(trainer.step()));
  } else {
    // A folder that cannot be written or a disk without room shows now and not at the first validation.
    fs::remove(state_file(command.folder));
    sink.on_best();
    sink.on_checkpoint();
  }
  const ef::index_t first = trainer.step();
  const ef::TrainingEnd end = trainer.run(interrupts.token());
  // Before the first validation the folder has the weights training began with: rather have the latest.
  if (end == ef::TrainingEnd::interrupted && !std::isfinite(trainer.best())) sink.on_best();
  if (end != ef::TrainingEnd::interrupted) refuse_diverged(trainer, trainer.step() - first);
  describe_end(end, trainer, command.folder, progress);
  return end == ef::TrainingEnd::interrupted ? interrupted_exit_code : 0;
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("train", "Trains a model on two files of sentences and their translations");
  auto command = std::make_shared<TrainCommand>();
  sub->add_option("--model", command->folder, "folder for the model")->required();
  command->flags = std::make_unique<TrainFlags>(*sub);
  sub->add_option("--threads", command->threads, "threads; 0: as many as there are cores")
      ->capture_default_str();
  add_memory_limit(*sub, *command);
  sub->add_flag("--resume", command->resume,
                "resume the training in the folder, bit-identically; other options given replace saved ones, "
                "where they may change");
  sub->add_option("--init-from", command->init_from,
                  "folder of a model to start from, imported ones included: its weights, vocabulary and "
                  "conventions; options of the model are its own, but for dropout");
  sub->add_flag("--overwrite", command->overwrite, "replace a model that is in the folder");
  sub->set_help_all_flag("--help-all", "print all options, those of positions and of one stack too");
  sub->footer(
      "Options of the model may differ between the stacks: with --encoder- or --decoder- before the name "
      "they "
      "are one stack's own, such as --decoder-num-heads 4 --decoder-dim-feedforward 512. --help-all lists "
      "them.\n" +
      sub->get_footer());
  sub->callback([&run, command] { run = [command] { return train(*command); }; });
}

}  // namespace translator
