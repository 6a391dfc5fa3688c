#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoding_model.hpp"
#include "eigenformer/generation/text/text_translator.hpp"
#include "threads.hpp"

namespace translator {

namespace ef = eigenformer;

/// How sentences are translated.
struct DecodingOptions {
  std::optional<ef::index_t> beam{};  ///< this and what follows: else the model's
  std::optional<ef::index_t> max_length{};
  std::optional<ef::index_t> no_repeat_ngram{};
  std::optional<double> length_penalty{};
  ef::index_t batch_size = 32;
  bool sample = false;  ///< draw translations in place of searching for the best; the four below say how
  double temperature = 1;
  ef::index_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;

  /// The library's options for a model. Throws ValueError for a beam that takes more memory than it can be of
  /// use.
  ef::TextTranslatorOptions for_model(const DecodingModel& model) const {
    ef::TextTranslatorOptions options = ef::text_translator_options(model.loaded.description);
    ef::GenerationOptions& search = options.search;
    search.beam_size = beam.value_or(search.beam_size);
    search.max_length = max_length.value_or(search.max_length);
    search.no_repeat_ngram_size = no_repeat_ngram.value_or(search.no_repeat_ngram_size);
    if (length_penalty) search.length_penalty = *length_penalty;
    options.batching.batch_size = batch_size;
    // A beam takes memory for each of its hypotheses, and there are no more tokens than this to begin with.
    const ef::index_t most = std::min<ef::index_t>(4096, model.loaded.tokenizers.target->vocabulary_size());
    if (beam && *beam > most) {
      throw ef::ValueError("generation", "beam_size is " + std::to_string(*beam) + ", must be at most " +
                                             std::to_string(most) +
                                             (most < 4096 ? ", the size of the vocabulary" : ""));
    }
    if (sample) {
      ef::SamplingOptions sampling = ef::sampling_options(model.loaded.description);
      sampling.temperature = temperature;
      sampling.top_k = top_k;
      sampling.top_p = top_p;
      sampling.seed = seed;
      sampling.max_length = search.max_length;
      sampling.no_repeat_ngram_size = search.no_repeat_ngram_size;
      options.sampling = sampling;
    }
    return options;
  }
};

using SentenceTranslator = ef::TextTranslator<ef::Seq2SeqTransformer<float>>;

/// The texts of translations.
inline std::vector<std::string> texts(const std::vector<ef::Translation>& translations) {
  std::vector<std::string> lines;
  for (const ef::Translation& translation : translations) lines.push_back(translation.text);
  return lines;
}

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
        "forbid repeated n-grams of this size in a translation; 0: off; default: 0, or as an imported model "
        "says");
    app.add_option(
        "--length-penalty", decoding.length_penalty,
        "divide scores by ((5 + length) / 6) to this power (imported models: by length); higher: longer "
        "sentences; default: 1, or as an imported model says");
    app.add_option("--batch-size", decoding.batch_size, "sentences that are translated together")
        ->capture_default_str();
    app.add_option("--threads", threads, "threads; 0: as many as there are cores")->capture_default_str();
  }

  void set_threads() const { translator::set_threads(threads); }
};

}  // namespace translator
