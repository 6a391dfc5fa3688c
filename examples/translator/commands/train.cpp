#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "commands.hpp"
#include "eigenformer/data/corpus/alignment_file.hpp"
#include "eigenformer/generation/alignment/aligned_corpus.hpp"
#include "eigenformer/generation/text/conventions.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/train/trainer.hpp"
#include "model/model_folder.hpp"
#include "options/train_settings.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/terminal_progress.hpp"
#include "terminal/threads.hpp"

namespace translator {

namespace {

namespace fs = std::filesystem;

using Trainer = ef::Trainer<ef::Seq2SeqTransformer<float>>;

struct TrainCommand {
  std::unique_ptr<TrainFlags> flags;
  std::string folder, init_from;
  ef::index_t threads = 0;
  bool resume = false;
  bool overwrite = false;
};

struct Corpora {
  ef::ParallelCorpus train, validation;
};

ef::ParallelCorpus read_corpus(const CorpusOptions& s) {
  return s.tsv.empty() ? ef::read_parallel_files(s.source, s.target) : ef::read_parallel_tsv(s.tsv);
}

/// Takes every so manieth pair out of a corpus: 1 %, at most 1000, and nothing of less than 1000 pairs.
ef::ParallelCorpus hold_out(ef::ParallelCorpus& corpus) {
  ef::ParallelCorpus held_out, rest;
  const ef::index_t n = corpus.size();
  const ef::index_t count = n < 1000 ? 0 : std::min<ef::index_t>(1000, n / 100);
  for (ef::index_t i = 0, taken = 0; i < n; ++i) {
    const bool take = taken < count && i == taken * n / count + n / count / 2;
    ef::ParallelCorpus& side = take ? held_out : rest;
    side.source.push_back(std::move(corpus.source[static_cast<std::size_t>(i)]));
    side.target.push_back(std::move(corpus.target[static_cast<std::size_t>(i)]));
    side.lines.push_back(corpus.lines[static_cast<std::size_t>(i)]);
    taken += take ? 1 : 0;
  }
  rest.report = corpus.report;
  corpus = std::move(rest);
  return held_out;
}

Corpora read_corpora(const CorpusOptions& s, TerminalProgress& progress) {
  Corpora corpora;
  corpora.train = read_corpus(s);
  progress.say("training data: " + corpora.train.report.str());
  if (!s.valid_source.empty()) {
    corpora.validation = ef::read_parallel_files(s.valid_source, s.valid_target);
    progress.say("validation data: " + corpora.validation.report.str());
    return corpora;
  }
  corpora.validation = hold_out(corpora.train);
  progress.say(corpora.validation.size() > 0
                   ? "validation data: none given, so " + std::to_string(corpora.validation.size()) +
                         " pairs spread evenly over the training data are held out"
                   : "validation data: none given, and too few pairs to hold any out: the latest weights "
                     "count as the best");
  return corpora;
}

fs::path state_file(const fs::path& folder) { return folder / "training" / "last.safetensors"; }

/// Keeps a model folder up to date while its model is trained, and tells the terminal.
class Sink final : public ef::TrainingSink {
 public:
  Sink(TerminalProgress& progress, fs::path folder, const ef::Seq2SeqTransformer<float>& model,
       const ef::TokenizerPair& tokenizers, const ef::TextConventions& text, nlohmann::json settings)
      : progress_(progress),
        folder_(std::move(folder)),
        model_(model),
        tokenizers_(tokenizers),
        text_(text),
        settings_(std::move(settings)) {}

  void watch(const Trainer& trainer) { trainer_ = &trainer; }

  void on_step(const ef::StepReport& report) override { progress_.step(report); }
  void on_validation(const ef::ValidationReport& report) override { progress_.validation(report); }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override {
    ef::save_model_folder(folder_, model_, tokenizers_, settings_, ef::WeightFormat::float32, text_);
  }
  void on_checkpoint() override {
    fs::create_directories(state_file(folder_).parent_path());
    ef::save_training_state(state_file(folder_), trainer_->state());
  }

 private:
  TerminalProgress& progress_;
  fs::path folder_;
  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  const ef::TextConventions& text_;
  nlohmann::json settings_;
  const Trainer* trainer_ = nullptr;
};

/// Throws unless training may write to the folder as it was asked to.
void check_folder(const TrainCommand& command) {
  require_folder_if_any("train", command.folder);
  if (command.resume && command.overwrite)
    throw ef::ValueError("train", "give --resume or --overwrite, not both");
  if (command.resume && !command.init_from.empty()) {
    throw ef::ValueError("train",
                         "give --resume to go on with a training, or --init-from to begin one, not both");
  }
  if (command.resume) {
    if (!ef::is_model_folder(command.folder)) {
      throw ef::IoError("train", "'" + command.folder + "' holds no model to go on with");
    }
    const ef::WeightFormat weights = ef::read_model_description(command.folder).weights;
    if (weights != ef::WeightFormat::float32) {
      throw ef::IoError("train",
                        "'" + command.folder + "' has " + ef::weight_format_name(weights) +
                            " weights, which cannot be trained; go on with the model it was made of");
    }
    if (!fs::exists(state_file(command.folder))) {
      throw ef::IoError("train", "'" + command.folder + "' cannot be resumed: '" +
                                     state_file(command.folder).string() + "' does not exist");
    }
  } else if (!command.overwrite && ef::is_model_folder(command.folder)) {
    throw ef::IoError("train", "'" + command.folder +
                                   "' already holds a model; give --resume to go on with its training, " +
                                   "or --overwrite to start again");
  }
  check_writable_folder("train", command.folder);
}

ef::TokenizerPair make_tokenizers(const CorpusOptions& s, const ef::ParallelCorpus& corpus,
                                  TerminalProgress& progress) {
  ef::TokenizerPair tokenizers = ef::train_tokenizers(
      {.kind = s.tokenizer, .vocabulary_size = s.vocab_size, .joint = !s.separate_vocab}, corpus);
  const std::string source = std::to_string(tokenizers.source->vocabulary_size());
  progress.say("vocabulary: " + s.tokenizer + ", " +
               (tokenizers.joint()
                    ? source + " entries for both languages"
                    : source + " and " + std::to_string(tokenizers.target->vocabulary_size()) + " entries"));
  return tokenizers;
}

void describe_end(ef::TrainingEnd end, const Trainer& trainer, const std::string& folder,
                  TerminalProgress& progress) {
  const char* why = "";
  switch (end) {
    case ef::TrainingEnd::epochs:
      why = "all epochs done";
      break;
    case ef::TrainingEnd::max_steps:
      why = "all steps done";
      break;
    case ef::TrainingEnd::max_minutes:
      why = "time is up";
      break;
    case ef::TrainingEnd::early_stopping:
      why = "no better validation any more";
      break;
    case ef::TrainingEnd::interrupted:
      why = "interrupted";
      break;
  }
  std::string text = format("%s after %s", why, counted(trainer.step(), "step").c_str());
  if (std::isfinite(trainer.best()))
    text += format(", best validation perplexity %.3f", std::exp(trainer.best()));
  progress.say(text);
  if (end == ef::TrainingEnd::interrupted) {
    progress.say("go on with: translator train --resume --model " + folder);
  } else {
    progress.say("translate with: translator translate --model " + folder);
  }
}

/// Throws when the end of a training consists of updates that were skipped: half of all, or several in a row.
void refuse_diverged(const Trainer& trainer, ef::index_t updates) {
  const ef::index_t last = trainer.skipped_in_a_row();
  if (updates == 0 || last == 0 || (last < 5 && 2 * last < updates)) return;
  throw ef::ValueError("train", "training diverged: it skipped " + std::to_string(trainer.skipped()) +
                                    " of " + counted(updates, "update") + "; lower --learning-rate");
}

/// Removes the temporary files that a run left in a model's folder when it was killed.
void remove_leftovers(const fs::path& folder) {
  for (const fs::path& place : {folder, state_file(folder).parent_path()}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(place, ignored)) {
      const std::string name = entry.path().filename().string();
      const std::size_t mark = name.rfind(".tmp-");
      if (mark == std::string::npos || !entry.is_regular_file(ignored)) continue;
      // "<name>.tmp-<process>-<number>"; that of a process that lives is in use.
      const std::size_t dash = name.find('-', mark + 5);
      if (dash == std::string::npos || dash + 1 == name.size()) continue;
      if (name.find_first_not_of("0123456789", dash + 1) != std::string::npos) continue;
      const std::string process = name.substr(mark + 5, dash - (mark + 5));
      if (process.empty() || process.size() > 9) continue;
      if (process.find_first_not_of("0123456789") != std::string::npos) continue;
      if (::kill(std::stoi(process), 0) != 0 && errno == ESRCH) fs::remove(entry.path(), ignored);
    }
  }
}

/// Gives the training corpus the alignment of a file, and says what it has. Throws IoError that names the
/// file for one that does not fit.
std::string align(ef::EncodedCorpus& encoded, const ef::ParallelCorpus& corpus,
                  const ef::TokenizerPair& tokenizers, const std::string& path) {
  const auto words = ef::read_alignments(path);
  try {
    ef::align_corpus(encoded, corpus, words, *tokenizers.source, *tokenizers.target);
  } catch (const ef::Error& error) {
    throw ef::IoError("train", "'" + path + "': " + ef::detail::message_of(error));
  }
  std::size_t links = 0;
  for (const auto& of_pair : encoded.alignment) links += of_pair.size();
  return "guided alignment: " + std::to_string(links) + " links between tokens";
}

TrainSettings resumed_settings(const TrainCommand& command) {
  const ef::ModelDescription saved = ef::read_model_description(command.folder);
  return command.flags->resumed(saved.model, saved.training);
}

/// Where a training begins: the folder of a model that it goes on with, in either way, or nothing.
std::optional<ef::TranslationModel<float>> starting_model(const TrainCommand& command) {
  if (!command.resume && command.init_from.empty()) return std::nullopt;
  auto start = ef::load_model_folder<float>(command.resume ? command.folder : command.init_from);
  if (start.description.model.causal) return start;
  throw ef::ValueError("train",
                       "the model in '" + command.init_from +
                           "' has a decoder that sees later tokens, which cannot learn to translate");
}

/// Tokens of a side at most: as many as was asked for, and as the model has room for.
ef::index_t most_tokens(const CorpusOptions& corpus, const ef::ModelDescription& description) {
  const ef::index_t target = ef::max_target_tokens(description, std::numeric_limits<ef::index_t>::max());
  return std::min({corpus.max_length, ef::max_source_tokens(description), target - 1});
}

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

  Sink sink(progress, command.folder, model, tokenizers, description.text, s.to_json());
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
