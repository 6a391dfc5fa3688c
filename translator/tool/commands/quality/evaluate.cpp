#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command_line/checks.hpp"
#include "commands.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/metrics/accuracy.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/metrics/chrf.hpp"
#include "eigenformer/metrics/perplexity.hpp"
#include "model/decoding_model.hpp"
#include "options/decoding_options.hpp"
#include "options/sentence_pairs.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/status_line.hpp"
#include "translation/whole_lines.hpp"
#include "translator/text/output_format.hpp"
#include "translator/text/word_alignments.hpp"

namespace translator {

namespace {

struct EvaluateCommand : DecodingCommand {
  PairFiles files;
  std::string output, alignment, format = "text";
  std::optional<OptionFlags<ef::AlignmentOptions>> alignment_fields;
};

/// The perplexity of the references of all pairs that have words on both sides; 0 without such pairs.
/// num_cut: the pairs of which a side has more tokens than are scored.
double reference_perplexity(const SentenceTranslator& translator, const std::vector<std::string>& sources,
                            const std::vector<std::string>& references, std::size_t& num_cut) {
  ef::Perplexity perplexity;
  for (const ef::Translation& pair : score_whole(translator, sources, references, "scoring references")) {
    perplexity.add(-pair.log_probability, static_cast<ef::index_t>(pair.tokens.size()));
    num_cut += pair.cut ? 1 : 0;
  }
  return perplexity.tokens() == 0 ? 0 : perplexity.value();
}

/// What is measured.
struct Quality {
  ef::BleuScore bleu;
  double chrf = 0;
  ef::Accuracy exact;
  double perplexity = 0;  // of the references, 0: unknown
  std::optional<ef::AlignmentError> aligned{};

  void print() const {
    std::printf("%s\n%s\n", bleu.str().c_str(), bleu.signature().c_str());
    std::printf("chrF2 = %.2f\n%s\n", chrf, ef::chrf_signature().c_str());
    std::printf("exact match: %.1f %% (%lld of %lld)\n", 100 * exact.rate(),
                static_cast<long long>(exact.correct), static_cast<long long>(exact.total));
    if (perplexity > 0) std::printf("perplexity of the references: %.3f per token\n", perplexity);
    if (aligned) {
      std::printf("alignment of the references: error rate %.4f, precision %.4f, recall %.4f\n",
                  aligned->rate(), aligned->precision(), aligned->recall());
    }
  }

  /// Without rounding.
  nlohmann::json json() const {
    nlohmann::json object = {
        {"bleu",
         {{"score", bleu.score},
          {"precisions", bleu.precisions},
          {"brevity_penalty", bleu.brevity_penalty},
          {"hypothesis_length", bleu.hypothesis_length},
          {"reference_length", bleu.reference_length},
          {"signature", bleu.signature()}}},
        {"chrf", {{"score", chrf}, {"signature", ef::chrf_signature()}}},
        {"exact_match", {{"correct", exact.correct}, {"total", exact.total}, {"rate", exact.rate()}}}};
    if (perplexity > 0) object["perplexity"] = perplexity;
    if (aligned) {
      object["alignment"] = {{"error_rate", aligned->rate()},
                             {"precision", aligned->precision()},
                             {"recall", aligned->recall()}};
    }
    return object;
  }
};

/// The error rate of the model's alignments of the pairs. Throws IoError for a file that does not match them.
ef::AlignmentError alignment_error(const EvaluateCommand& command, const DecodingModels& models,
                                   const std::vector<std::string>& sources,
                                   const std::vector<std::string>& references) {
  const auto right = ef::read_right_alignments(command.alignment);
  if (right.size() != sources.size()) {
    throw ef::IoError("evaluate", {"'", command.alignment, "' has ", right.size(), " lines, expected ",
                                   sources.size(), ", one for each pair"});
  }
  ef::TextTranslatorOptions options = command.for_models(models);
  options.alignment = command.alignment_fields->applied("alignment", guided_alignment_options(models));
  const auto pairs = score_whole(sentence_translator(models, options), sources, references, "aligning");
  ef::AlignmentError error;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t source_words = ef::detail::word_spans(sources[i]).size(),
                      target_words = ef::detail::word_spans(references[i]).size();
    for (const auto* links : {&right[i].sure, &right[i].possible}) {
      for (const ef::AlignmentLink& link : *links) {
        if (static_cast<std::size_t>(link.source) < source_words &&
            static_cast<std::size_t>(link.target) < target_words)
          continue;
        throw ef::IoError(
            "evaluate",
            {"'", command.alignment, "', line ", i + 1, " has the link ", link.source, "-", link.target,
             ", expected word numbers, counted from 0, within ", counted(source_words, "source word"),
             " and ", counted(target_words, "target word")});
      }
    }
    const auto found = pairs[i].alignment == nullptr
                           ? std::vector<ef::AlignmentLink>{}
                           : ef::word_links(*pairs[i].alignment, sources[i], references[i]);
    error.add(found, right[i].sure, right[i].possible);
  }
  return error;
}

int evaluate(const EvaluateCommand& command) {
  command.set_threads();
  require_not_read("evaluate", "--output", command.output,
                   {{"--source", command.files.source},
                    {"--reference", command.files.reference},
                    {"--alignment", command.alignment},
                    {"--shortlist", command.shortlist_file()}});
  if (!command.output.empty()) check_writable_file(command.output);
  const DecodingModels models(command.folders, command.adapter, command.target_language);
  const SentenceTranslator translator = sentence_translator(models, command.for_models(models));
  const auto [sources, references] = command.files.read("evaluate");
  std::optional<ef::AlignmentError> aligned;
  if (!command.alignment.empty()) {
    aligned = alignment_error(command, models, sources, references);
  } else if (const auto given = command.alignment_fields->given(); !given.empty()) {
    throw ef::ValueError("evaluate",
                         {flag_of_field(given.begin().key()), " has no effect without --alignment"});
  }

  const auto begin = std::chrono::steady_clock::now();
  const WholeLines translated = translate_whole(translator, sources, "translating");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::vector<std::string> translations = translated.texts();
  if (!command.output.empty()) {
    std::string text;
    for (const std::string& line : translations) (text += ef::detail::one_line(line)) += '\n';
    ef::detail::write_file(command.output, text);
  }
  std::size_t num_cut = 0;
  const Quality quality{ef::corpus_bleu(translations, references), ef::corpus_chrf(translations, references),
                        ef::exact_match(translations, references),
                        reference_perplexity(translator, sources, references, num_cut), aligned};
  if (command.format == "json") {
    std::printf("%s\n", quality.json().dump().c_str());
  } else {
    quality.print();
  }
  const std::string remark = split_remark(translated.num_split, ef::max_source_tokens(models.description()));
  if (!remark.empty()) std::fprintf(stderr, "translator: %s\n", remark.c_str());
  if (num_cut > 0) {
    std::fprintf(
        stderr,
        "translator: %s with a side of more than %lld tokens; the perplexity is that of its beginning\n",
        counted(num_cut, "pair").c_str(),
        static_cast<long long>(ef::max_source_tokens(models.description())));
  }
  std::fprintf(stderr, "%s in %.1f s, %.1f sentences/s, beam %lld\n",
               counted(sources.size(), "sentence").c_str(), seconds,
               static_cast<double>(sources.size()) / seconds,
               static_cast<long long>(translator.options().search.beam_size));
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Run& run) {
  const auto [sub, command] =
      add_command(app, run, "evaluate",
                  "Translates a file and scores it against references: BLEU, chrF, exact match", evaluate);
  command->add_to(*sub);
  command->files.add_to(*sub);
  sub->add_option("--output", command->output, "file to write the translations to");
  sub->add_option("--output-format", command->format, "format of the scores: text, or a line of JSON")
      ->check(one_of({"text", "json"}))
      ->capture_default_str();
  sub->add_option("--alignment", command->alignment,
                  "file of reference alignments between the words of source and reference (0-0: sure link, "
                  "0p1: possible link), to compute the alignment error rate")
      ->group("Alignments");
  command->alignment_fields.emplace(*sub, ef::AlignmentOptions{}, "Alignments");
}

}  // namespace translator
