#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "commands.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "options/option_flags.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/status_line.hpp"
#include "terminal/threads.hpp"
#include "training/corpora/training_corpora.hpp"
#include "translator/preparing/prepared_corpus.hpp"

namespace translator {

namespace {

struct PrepareCommand {
  std::unique_ptr<OptionFlags<ef::PrepareOptions>> flags;
  std::string output, source, target, tsv, valid_source, valid_target, init_from;
  ef::index_t threads = 0;
  bool overwrite = false;
};

/// Shows on stderr the progress of each stage and how long it took.
class StageProgress {
 public:
  void operator()(const ef::PrepareProgress& p) {
    if (stage_ != p.stage) {
      end();
      stage_ = p.stage;
      start_ = Clock::now();
    }
    pairs_ = p.pairs;
    const std::string of = p.total > 0 ? format(" of %lld", static_cast<long long>(p.total)) : "";
    if (Clock::now() - shown_ < std::chrono::milliseconds(200)) return;
    shown_ = Clock::now();
    status_.show(format("%s  %lld%s pairs  %.0f pairs/s", p.stage, static_cast<long long>(p.pairs),
                        of.c_str(), static_cast<double>(p.pairs) / std::max(seconds(), 1e-3)));
  }
  /// Reports the end of the current stage.
  void end() {
    if (!stage_.empty()) {
      status_.say(format("%s: %s in %.1f s", stage_.c_str(), counted(pairs_, "pair").c_str(), seconds()));
    }
    stage_.clear();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  StatusLine status_;
  std::string stage_;
  ef::index_t pairs_ = 0;
  Clock::time_point start_{}, shown_{};
};

/// The model's tokenizers, with their options.
ef::PrepareModel model_to_start_from(const PrepareCommand& command, ef::PrepareOptions& options) {
  const nlohmann::json given = command.flags->given();
  for (const char* name : {"tokenizer", "vocab_size", "separate_vocab", "tags", "sample_pairs", "seed"}) {
    if (!given.contains(name)) continue;
    throw ef::ValueError(
        "prepare", {flag_of_field(name),
                    " sets up a new vocabulary, but the model of --init-from has its own; leave it out"});
  }
  const ef::ModelDescription d = ef::read_model_description(command.init_from);
  ef::PrepareModel model{ef::detail::load_folder_tokenizers(d.tokenizer, d.joint, command.init_from),
                         d.text.source_text};
  ef::detail::require_tokenizers(command.init_from, model.tokenizers);
  CorpusOptions longest;
  longest.max_length = options.max_length;
  const ef::index_t most = most_tokens(longest, d);
  if (most < options.max_length && given.contains("max_length")) {
    throw ef::ValueError("prepare", {"max_length is ", options.max_length, ", must be at most ", most,
                                     ", the maximum length of the model in '", command.init_from, "'"});
  }
  options.max_length = most;
  options.tokenizer = d.tokenizer;
  options.separate_vocab = !d.joint;
  return model;
}

int prepare(const PrepareCommand& command) {
  set_threads(command.threads);
  ef::PrepareOptions options = command.flags->applied("prepare");
  if (command.valid_source.empty() != command.valid_target.empty())
    throw ef::ValueError("prepare", "give both --valid-source and --valid-target, or neither");
  if (command.tsv.empty() ? command.source.empty() || command.target.empty()
                          : !command.source.empty() || !command.target.empty()) {
    throw ef::ValueError("prepare", "give --source and --target, or --tsv instead of both");
  }
  ef::PrepareModel model;
  if (!command.init_from.empty()) {
    model = model_to_start_from(command, options);
  } else if (options.tokenizer != "char" && options.tokenizer != "word" && options.tokenizer != "subword") {
    throw ef::ValueError("prepare",
                         {"tokenizer is '", options.tokenizer, "', must be char, word or subword"});
  }
  options.validate();
  if (ef::is_prepared_corpus(command.output) && !command.overwrite) {
    throw ef::IoError("prepare", {"'", command.output,
                                  "' already holds a prepared corpus; give --overwrite to replace it"});
  }
  if (ef::is_adapter_folder(command.output)) {
    throw ef::IoError("prepare", {"'", command.output, "' holds an adapter; give the corpus another folder"});
  }
  check_writable_folder("prepare", command.output);
  StageProgress progress;
  const ef::PrepareReport report = ef::prepare_corpus(
      {command.source, command.target, command.tsv}, command.output, options, model,
      {command.valid_source, command.valid_target, {}}, [&](const ef::PrepareProgress& p) { progress(p); });
  progress.end();
  std::fputs(report.str().c_str(), stdout);
  std::fprintf(stderr, "%s\n",
               ("the corpus was written to '" + command.output + "'; train on it with --data").c_str());
  return 0;
}

}  // namespace

void add_prepare(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "prepare",
      "Prepares a corpus of any size: filters sentence pairs and writes a folder of tokens for train --data",
      prepare);
  sub->add_option("--output", command->output, "folder to write the prepared corpus to")->required();
  sub->add_option("--source", command->source, "source sentences, one per line; plain text, gzip or zstd");
  sub->add_option("--target", command->target, "their translations, line by line");
  sub->add_option(
      "--tsv", command->tsv,
      "one file of source, tab, target per line, instead of source and target; further columns are ignored");
  sub->add_option(
      "--valid-source", command->valid_source,
      "source sentences of the validation data; not given: 1 % of the pairs, at most 1000, is held out");
  sub->add_option("--valid-target", command->valid_target, "target sentences of the validation data");
  sub->add_option("--init-from", command->init_from,
                  "model folder whose tokenizers to use, for train --init-from with that model");
  command->flags = std::make_unique<OptionFlags<ef::PrepareOptions>>(*sub, ef::PrepareOptions{}, "Data");
  sub->add_option("--threads", command->threads, "number of threads; 0: one per core")->capture_default_str();
  sub->add_flag("--overwrite", command->overwrite, "replace an existing prepared corpus in the folder");
}

}  // namespace translator
