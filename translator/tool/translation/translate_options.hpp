#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "command_line/checks.hpp"
#include "command_line/config_file.hpp"
#include "eigenformer/metrics/pairwise.hpp"
#include "eigenformer/search/constraints/glossary.hpp"
#include "eigenformer/version.hpp"
#include "options/decoding_options.hpp"
#include "run_identity.hpp"
#include "shard.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/result_output.hpp"
#include "translator/documents/markup/parsing/markup_token.hpp"
#include "translator/text/output_format.hpp"

namespace translator {

/// The options of `translator translate`.
struct TranslateOptions : DecodingCommand {
  std::string input, output, shard_text, attention, alignment, soft_alignment, explore, utility, glossary;
  bool go_on = false;
  bool prefixes = false, glossary_ignores_case = false, replaces_invalid = false;
  std::optional<OptionFlags<ef::OutputOptions>> format;
  std::optional<OptionFlags<ef::AlignmentOptions>> alignment_fields;
  std::string input_format = "text";
  bool protect = false;

  void add_flags(CLI::App& app) {
    command_ = &app;
    const auto file = [&](CLI::Option* option) { return option->group("Files"); };
    file(app.add_option("--input", input,
                        "file to translate; plain text, gzip or zstd; not given: standard input"));
    CLI::Option* const to = file(app.add_option("--output", output,
                                                "file to write the translations to, compressed if its name "
                                                "ends in .gz or .zst; not given: standard output"));
    CLI::Option* const resume = file(app.add_flag("--continue", go_on,
                                                  "resume an interrupted run with the same options and "
                                                  "--output; start from the beginning if there is none"))
                                    ->needs(to);
    file(app.add_option("--shard", shard_text,
                        "i/n: translate only the i-th of n consecutive parts of --input; the outputs of all "
                        "parts, concatenated in order, are the whole output"));
    file(app.add_flag(
        "--replace-invalid-utf8", replaces_invalid,
        "read bytes that are not UTF-8 as U+FFFD, as Python's errors=\"replace\" does, instead of "
        "refusing them"));
    CLI::Option* const attention_option = app.add_option(
        "--attention", attention,
        "file to write the attention weights of every line, layer and head to, as safetensors");
    file(attention_option)->excludes(resume);
    CLI::Option* const explore_option =
        app.add_option("--explore", explore,
                       "file to write an HTML page to that shows the attention of every layer and head");
    file(explore_option)->excludes(resume);
    add_to(app, true, true);
    app.add_option("--alignment", alignment,
                   "file to write word alignments to: for each line its links, such as 0-0 1-2; -: standard "
                   "output, with --output")
        ->group("Alignments");
    app.add_option("--soft-alignment", soft_alignment,
                   "file to write soft alignments to: attention weights per token, as Marian writes them; "
                   "-: standard output, with --output")
        ->group("Alignments");
    alignment_fields.emplace(app, ef::AlignmentOptions{}, "Alignments");
    add_sampling_to(app, attention_option);
    explore_option->excludes(app.get_option("--sample"));
    app.get_option("--split-sentences")->excludes(attention_option)->excludes(explore_option);
    app.add_flag("--with-prefix", prefixes,
                 "lines are \"source<TAB>prefix\"; each translation begins with the prefix of its line");
    CLI::Option* const terms =
        app.add_option("--glossary", glossary,
                       "file of terms, one \"source<TAB>target\" per line: source terms are translated as "
                       "the target; a source without target stays untranslated");
    terms->group("Glossary")->excludes("--sample");
    app.add_flag("--glossary-ignore-case", glossary_ignores_case,
                 "ignore case when matching glossary sources")
        ->group("Glossary")
        ->needs(terms);
    app.add_option("--mbr", utility,
                   "minimum Bayes risk decoding: of the samples or the n best, return the one most similar "
                   "to the others by this metric: chrf or bleu");
    format.emplace(app, ef::OutputOptions{}, "Results");
    app.add_option("--input-format", input_format,
                   "text: lines; html or xml: one document, whose tags, comments, entities and placeholders "
                   "(see --protect) are kept")
        ->check(one_of({"text", "html", "xml"}))
        ->capture_default_str()
        ->group("Markup");
    app.add_flag("--protect", protect,
                 "copy placeholders, such as {name}, %s, <0>, URLs and e-mail addresses, unchanged")
        ->group("Markup");
  }

  /// The format of the input.
  ef::MarkupFormat markup() const {
    return input_format == "html"  ? ef::MarkupFormat::html
           : input_format == "xml" ? ef::MarkupFormat::xml
                                   : ef::MarkupFormat::text;
  }

  /// Throws ValueError for options of line input if the input is a document.
  void check_markup() const {
    if (markup() == ef::MarkupFormat::text) return;
    static constexpr std::array<std::string_view, 11> of_lines = {
        "explore", "alignment", "attention",      "continue",    "n-best", "output-format",
        "scores",  "shard",     "soft-alignment", "with-prefix", "protect"};
    for (const auto& [name, value] : given_options(*command_)) {
      if (!is_among(name, of_lines)) continue;
      if (name == "n-best" && !utility.empty()) continue;
      throw ef::ValueError("translate", {"--", name, " is for lines, but with --input-format ", input_format,
                                         " the input is one document"});
    }
  }

  /// Whether an interrupted run can be resumed: not if it collects attention weights in memory,
  /// and not if it writes alignments to standard output.
  bool resumable() const {
    return !output.empty() && attention.empty() && explore.empty() && alignment != "-" &&
           soft_alignment != "-";
  }

  /// Throws IoError where a file of the results cannot be written, before models are loaded.
  void check_files() const {
    for (const std::string* path : {&output, &attention, &alignment, &soft_alignment, &explore})
      if (!path->empty() && *path != "-" && is_regular_file_if_any(*path)) check_writable_file(*path);
  }

  /// The shard to translate, if any. Throws ValueError.
  std::optional<Shard> shard() const {
    if (shard_text.empty()) return std::nullopt;
    const Shard parsed = Shard::parse(shard_text);
    std::error_code ignored;
    if (input.empty())
      throw ef::ValueError("translate", "--shard needs --input: standard input can be read only once");
    if (std::filesystem::exists(input, ignored) && !std::filesystem::is_regular_file(input, ignored)) {
      throw ef::ValueError(
          "translate",
          {"--shard needs a regular file as --input, which can be read twice; '", input, "' is not one"});
    }
    return parsed;
  }

  /// Everything besides the input lines that determines the results: given options, contents of the files
  /// that they name, the models, and with shards the size of the whole input, if it is given. Throws IoError.
  RunIdentity identity(std::optional<std::uint64_t> input_size) const {
    // These only affect where results go and the speed; models are compared by their contents.
    static constexpr std::array<std::string_view, 8> without_effect = {
        "input", "output", "continue", "threads", "batch-size", "batch-tokens", "config", "model"};
    RunIdentity identity = {{"the version", ef::version_string()}};
    for (const auto& [name, value] : given_options(*command_)) {
      if (is_among(name, without_effect)) continue;
      std::error_code ignored;
      const bool is_written = name == "alignment" || name == "soft-alignment";
      if (!is_written && std::filesystem::is_regular_file(value, ignored)) {
        identity["content of --" + name] = content_hash(value);
      } else {
        identity["--" + name] = value;
      }
    }
    if (input_size) identity["the size of the input"] = std::to_string(*input_size);
    for (std::size_t i = 0; i < folders.size(); ++i)
      add_folder(identity, i == 0 ? "the model" : "the model " + std::to_string(i + 1), folders[i]);
    if (!adapter.empty()) add_folder(identity, "the adapter", adapter);
    return identity;
  }

  /// The output format. Throws ValueError for options that exclude each other.
  ef::OutputOptions output_format() const {
    const std::pair<const char*, const std::string*> files[] = {{"--output", &output},
                                                                {"--attention", &attention},
                                                                {"--alignment", &alignment},
                                                                {"--soft-alignment", &soft_alignment},
                                                                {"--explore", &explore}};
    for (const std::string* path : {&alignment, &soft_alignment}) {
      if (*path != "-") continue;
      if (output.empty()) {
        throw ef::ValueError("translate",
                             "alignments and translations would both go to standard output; give --output "
                             "for the translations");
      }
      if (go_on) throw ef::ValueError("translate", "--continue cannot resume alignments on standard output");
    }
    for (const auto& [flag, path] : files) {
      if (path->empty()) continue;
      require_no_stream_file(flag, *path);
      for (const auto& other : files) {
        if (flag != other.first && !other.second->empty() && is_same_path(*path, *other.second))
          throw ef::ValueError("translate",
                               {other.first, " and ", flag, " are both '", *path, "', expected two files"});
      }
      require_not_read("translate", flag, *path,
                       {{"--input", input}, {"--glossary", glossary}, {"--shortlist", shortlist_file()}});
      for (const std::string& folder : folders) {
        std::error_code ignored;
        const std::filesystem::path place = std::filesystem::absolute(*path, ignored).parent_path();
        if (std::filesystem::is_regular_file(*path, ignored) && is_same_path(place, folder))
          throw ef::ValueError("translate",
                               {flag, " is '", *path, "', a file in the model folder; give another path"});
      }
    }
    const auto applied = format->applied("translate");
    applied.validate();
    return applied;
  }

  /// The library's options, including what the output format needs.
  ef::TextTranslatorOptions for_results(const DecodingModels& models,
                                        const ef::OutputOptions& results) const {
    ef::TextTranslatorOptions options = for_models(models);
    options.search.attention = !attention.empty() || !explore.empty();
    options.search.token_scores = results.scores || !explore.empty();
    if (options.search.attention && options.search.num_hypotheses > 1)
      throw ef::ValueError("translate",
                           "attention weights are written for one translation per line; --n-best must be 1");
    const bool written = !alignment.empty() || !soft_alignment.empty();
    if (written || protect || markup() != ef::MarkupFormat::text) {
      options.alignment = alignment_fields->applied("alignment", guided_alignment_options(models));
      if (written && utility.empty() && options.search.num_hypotheses > 1) {
        throw ef::ValueError("translate",
                             "alignments are written for one translation per line; --n-best must be 1");
      }
    } else if (const auto given = alignment_fields->given(); !given.empty()) {
      throw ef::ValueError("translate", {flag_of_field(given.begin().key()),
                                         " has no effect without --alignment, --soft-alignment, --protect or "
                                         "--input-format html or xml"});
    }
    if (!glossary.empty()) {
      options.glossary =
          std::make_shared<const ef::Glossary>(ef::Glossary::load(glossary, glossary_ignores_case));
    }
    if (utility.empty()) return options;
    if (options.search.num_hypotheses == 1) {
      throw ef::ValueError("translate",
                           "--mbr needs several candidates; give --n-best, alone or with --sample");
    }
    if (utility == "chrf") {
      options.utility = ef::pairwise_chrf;
    } else if (utility == "bleu") {
      options.utility = ef::pairwise_bleu;
    } else {
      throw ef::ValueError("translate", {"--mbr is '", utility, "', expected chrf or bleu"});
    }
    return options;
  }

 private:
  const CLI::App* command_ = nullptr;
};

}  // namespace translator
