#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "sentence_translator.hpp"
#include "threads.hpp"

namespace translator {

/// The options that translate and evaluate have in common.
struct DecodingCommand {
  std::string folder;
  DecodingOptions decoding;
  ef::index_t threads = 0;

  void add_to(CLI::App& app) {
    app.add_option("--model", folder, "folder of the model")->required();
    app.add_option("--beam", decoding.beam,
                   "hypotheses kept for each sentence; 1: greedy; else 4, or as an imported model says");
    app.add_option("--max-length", decoding.max_length,
                   "tokens of a translation at most; else 256, or as an imported model says");
    app.add_option(
        "--no-repeat-ngram", decoding.no_repeat_ngram,
        "so many tokens in a row come only once in a translation; 0: as often as they may; else 0, or as an "
        "imported model says");
    app.add_option("--length-penalty", decoding.length_penalty,
                   "scores are divided by ((5 + length) / 6) to this power, of imported models by length; "
                   "higher: longer "
                   "sentences; else 1, or as the imported model says");
    app.add_option("--batch-size", decoding.batch_size, "sentences that are translated together")
        ->capture_default_str();
    app.add_option("--threads", threads, "threads; 0: as many as there are cores")->capture_default_str();
  }

  void set_threads() const { translator::set_threads(threads); }
};

}  // namespace translator
