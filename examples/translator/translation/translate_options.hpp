#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>

#include "eigenformer/generation/text/output_format.hpp"
#include "eigenformer/metrics/pairwise.hpp"
#include "options/decoding_options.hpp"

namespace translator {

/// The options of `translator translate`.
struct TranslateOptions : DecodingCommand {
  std::string input, output, attention, alignment, soft_alignment, utility;
  bool prefixes = false;
  std::optional<OptionFlags<ef::OutputOptions>> format;
  std::optional<OptionFlags<ef::AlignmentOptions>> alignment_fields;

  void add_flags(CLI::App& app) {
    add_to(app, true, true);
    app.add_option("--input", input, "file to translate; else standard input");
    app.add_option("--output", output, "file for the translations; else standard output");
    CLI::Option* const attention_option =
        app.add_option("--attention", attention,
                       "file for the attention weights of every line, layer and head, as safetensors");
    app.add_option("--alignment", alignment,
                   "file for the alignments of words: for each line its links, such as 0-0 1-2")
        ->group("Alignments");
    app.add_option("--soft-alignment", soft_alignment,
                   "file for the weights that alignments are made of, token by token as Marian writes them")
        ->group("Alignments");
    alignment_fields.emplace(app, ef::AlignmentOptions{}, "Alignments");
    add_sampling_to(app, attention_option);
    app.add_flag("--with-prefix", prefixes,
                 "lines are \"source<TAB>prefix\", and each translation begins with its line's prefix");
    app.add_option("--mbr", utility,
                   "minimum Bayes risk: of the texts that were drawn, or of the n best, the one most like "
                   "the others, by chrf or bleu");
    format.emplace(app, ef::OutputOptions{}, "Results");
  }

  /// How results are written. Throws ValueError for options that exclude each other.
  ef::OutputOptions output_format() const {
    const std::pair<const char*, const std::string*> files[] = {{"--output", &output},
                                                                {"--attention", &attention},
                                                                {"--alignment", &alignment},
                                                                {"--soft-alignment", &soft_alignment}};
    for (const auto& one : files) {
      for (const auto& other : files) {
        if (one.first == other.first || other.second->empty() || *one.second != *other.second) continue;
        throw ef::ValueError("translate", std::string(other.first) + " and " + one.first + " are both '" +
                                              *one.second + "', expected two files");
      }
    }
    const auto applied = format->applied("translate");
    applied.validate();
    return applied;
  }

  /// The library's options, with what the results need.
  ef::TextTranslatorOptions for_results(const DecodingModels& models,
                                        const ef::OutputOptions& results) const {
    ef::TextTranslatorOptions options = for_models(models);
    options.search.attention = !attention.empty();
    options.search.token_scores = results.scores;
    if (options.sampling) options.sampling->token_scores = results.scores;
    if (options.search.attention && options.search.num_hypotheses > 1)
      throw ef::ValueError("translate", "--attention is of one translation a line, --n-best must be 1");
    if (!alignment.empty() || !soft_alignment.empty()) {
      options.alignment = alignment_fields->applied("alignment", ef::AlignmentOptions{});
      if (utility.empty() &&
          (options.sampling ? options.sampling->num_samples : options.search.num_hypotheses) > 1) {
        throw ef::ValueError(
            "translate", "alignments are of one translation a line, --n-best and --num-samples must be 1");
      }
    } else if (const auto given = alignment_fields->given(); !given.empty()) {
      throw ef::ValueError("translate", flag_of_field(given.begin().key()) +
                                            " has no effect without --alignment or --soft-alignment");
    }
    if (utility.empty()) return options;
    if ((options.sampling ? options.sampling->num_samples : options.search.num_hypotheses) == 1) {
      throw ef::ValueError("translate",
                           "--mbr has nothing to choose from: give --sample with --num-samples, or --n-best");
    }
    if (utility == "chrf") {
      options.utility = ef::pairwise_chrf;
    } else if (utility == "bleu") {
      options.utility = ef::pairwise_bleu;
    } else {
      throw ef::ValueError("translate", "--mbr is '" + utility + "', expected chrf or bleu");
    }
    return options;
  }
};

}  // namespace translator
