#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "commands.hpp"
#include "eigenformer/train/trainer.hpp"
#include "interrupt.hpp"
#include "model_folder.hpp"
#include "terminal_progress.hpp"
#include "train_settings.hpp"

namespace translator {

namespace {

namespace fs = std::filesystem;

struct TrainCommand {
  TrainSettings settings;
  std::string folder;
  int threads = 0;
  bool resume = false;
  bool overwrite = false;
};

struct Corpora {
  ef::ParallelCorpus train, validation;
};

ef::ParallelCorpus read_corpus(const TrainSettings& s) {
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
    taken += take ? 1 : 0;
  }
  rest.report = corpus.report;
  corpus = std::move(rest);
  return held_out;
}

Corpora read_corpora(const TrainSettings& s, TerminalProgress& progress) {
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
                   : "validation data: none given, and too few pairs to hold any out: the latest weights count as the best");
  return corpora;
}

fs::path state_file(const fs::path& folder) { return folder / "training" / "last.safetensors"; }

/// Keeps a model folder up to date while its model is trained, and tells the terminal.
class Sink final : public ef::TrainingSink {
 public:
  Sink(TerminalProgress& progress, fs::path folder, const ef::Seq2SeqTransformer<float>& model,
       const ef::TokenizerPair& tokenizers, nlohmann::json settings)
      : progress_(progress), folder_(std::move(folder)), model_(model), tokenizers_(tokenizers), settings_(std::move(settings)) {}

  void watch(const ef::Trainer<float>& trainer) { trainer_ = &trainer; }

  void on_step(const ef::StepReport& report) override { progress_.step(report); }
  void on_validation(const ef::ValidationReport& report) override { progress_.validation(report); }
  void on_notice(const std::string& text) override { progress_.say(text); }
  void on_best() override { ef::save_model_folder(folder_, model_, tokenizers_, settings_); }
  void on_checkpoint() override {
    fs::create_directories(state_file(folder_).parent_path());
    ef::save_training_state(state_file(folder_), trainer_->state());
  }

 private:
  TerminalProgress& progress_;
  fs::path folder_;
  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  nlohmann::json settings_;
  const ef::Trainer<float>* trainer_ = nullptr;
};

/// Throws unless training may write to the folder as it was asked to.
void check_folder(const TrainCommand& command) {
  if (command.resume && command.overwrite) throw ef::ValueError("train", "give --resume or --overwrite, not both");
  if (command.resume) {
    if (!ef::is_model_folder(command.folder)) {
      throw ef::IoError("train", "'" + command.folder + "' holds no model to go on with");
    }
    const ef::WeightFormat weights = ef::read_model_description(command.folder).weights;
    if (weights != ef::WeightFormat::float32) {
      throw ef::IoError("train", "'" + command.folder + "' has " + ef::weight_format_name(weights) +
                                     " weights, which cannot be trained; go on with the model it was made of");
    }
    if (!fs::exists(state_file(command.folder))) {
      throw ef::IoError("train", "'" + command.folder + "' cannot be resumed: '" + state_file(command.folder).string() +
                                     "' does not exist");
    }
  } else if (!command.overwrite && ef::is_model_folder(command.folder)) {
    throw ef::IoError("train", "'" + command.folder + "' already holds a model; give --resume to go on with its training, " +
                                   "or --overwrite to start again");
  }
}

ef::TokenizerPair make_tokenizers(const TrainSettings& s, const ef::ParallelCorpus& corpus, TerminalProgress& progress) {
  ef::TokenizerPair tokenizers =
      ef::train_tokenizers({.kind = s.tokenizer, .vocabulary_size = s.vocab_size, .joint = !s.separate_vocab}, corpus);
  const std::string source = std::to_string(tokenizers.source->vocabulary_size());
  progress.say("vocabulary: " + s.tokenizer + ", " +
               (tokenizers.joint() ? source + " entries for both languages"
                                   : source + " and " + std::to_string(tokenizers.target->vocabulary_size()) + " entries"));
  return tokenizers;
}

void describe_end(ef::TrainingEnd end, const ef::Trainer<float>& trainer, const std::string& folder,
                  TerminalProgress& progress) {
  const char* why = "";
  switch (end) {
    case ef::TrainingEnd::epochs: why = "all epochs done"; break;
    case ef::TrainingEnd::max_steps: why = "all steps done"; break;
    case ef::TrainingEnd::max_minutes: why = "time is up"; break;
    case ef::TrainingEnd::early_stopping: why = "no better validation any more"; break;
    case ef::TrainingEnd::interrupted: why = "interrupted"; break;
  }
  std::string text = format("%s after %lld steps", why, static_cast<long long>(trainer.step()));
  if (std::isfinite(trainer.best_loss())) text += format(", best validation perplexity %.3f", std::exp(trainer.best_loss()));
  progress.say(text);
  if (end == ef::TrainingEnd::interrupted) {
    progress.say("go on with: translator train --resume --model " + folder);
  } else {
    progress.say("translate with: translator translate --model " + folder);
  }
}

int train(const CLI::App& app, TrainCommand& command) {
  const InterruptWatcher interrupts;
  if (command.threads != 0) ef::Runtime::instance().set_threads(command.threads);
  check_folder(command);
  TerminalProgress progress;
  TrainSettings& s = command.settings;
  if (command.resume) s = resumed_settings(app, s, ef::read_model_description(command.folder).training);
  s.validate();
  s.training.precision = s.bf16 ? ef::kernels::GemmPrecision::bf16 : ef::kernels::GemmPrecision::full;

  const Corpora corpora = read_corpora(s, progress);
  const ef::TokenizerPair tokenizers = command.resume ? ef::load_model_folder<float>(command.folder).tokenizers
                                                      : make_tokenizers(s, corpora.train, progress);
  const auto encode = [&](const ef::ParallelCorpus& corpus, const char* name) {
    ef::EncodedCorpus encoded = ef::encode_corpus(corpus, *tokenizers.source, *tokenizers.target, s.max_length);
    progress.say(format("%s: %lld pairs, %lld source and %lld target tokens", name, static_cast<long long>(encoded.size()),
                        static_cast<long long>(encoded.source.tokens()), static_cast<long long>(encoded.target.tokens())) +
                 (encoded.report.over_long > 0 ? ", " + std::to_string(encoded.report.over_long) + " over-long left out" : ""));
    return encoded;
  };
  const ef::EncodedCorpus train_set = encode(corpora.train, "training on");
  const bool validates = corpora.validation.size() > 0;
  const ef::EncodedCorpus validation_set = validates ? encode(corpora.validation, "validating on") : ef::EncodedCorpus{};

  ef::RandomGenerator rng(s.training.seed);
  ef::Seq2SeqTransformer<float> model(s.model(tokenizers.source->vocabulary_size(), tokenizers.target->vocabulary_size()), rng);
  progress.say(format("model: %.2f million parameters, %d threads", static_cast<double>(ef::count_parameters(model)) / 1e6,
                      ef::Runtime::instance().threads()));

  Sink sink(progress, command.folder, model, tokenizers, ef::options_to_json(s));
  ef::Trainer<float> trainer(model, train_set, validates ? &validation_set : nullptr, s.training, sink);
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
  const ef::TrainingEnd end = trainer.run(interrupts.token());
  // Before the first validation the folder has the weights training began with: rather have the latest.
  if (end == ef::TrainingEnd::interrupted && !std::isfinite(trainer.best_loss())) sink.on_best();
  describe_end(end, trainer, command.folder, progress);
  return end == ef::TrainingEnd::interrupted ? interrupted_exit_code : 0;
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("train", "Trains a model on two files of sentences and their translations");
  auto command = std::make_shared<TrainCommand>();
  sub->add_option("--model", command->folder, "folder for the model")->required();
  add_options(*sub, command->settings);
  sub->add_option("--threads", command->threads, "threads; 0: as many as there are cores")->capture_default_str();
  sub->add_flag("--resume", command->resume, "go on with the training of the model in the folder; the options stay");
  sub->add_flag("--overwrite", command->overwrite, "replace a model that is in the folder");
  sub->callback([&run, sub, command] { run = [sub, command] { return train(*sub, *command); }; });
}

}  // namespace translator
