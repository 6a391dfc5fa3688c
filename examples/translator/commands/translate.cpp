#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "eigenformer/generation/text/output_format.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/metrics/pairwise.hpp"
#include "model/decoding_model.hpp"
#include "options/decoding_options.hpp"
#include "terminal/line_reader.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/result_output.hpp"

namespace translator {

namespace {

struct TranslateCommand : DecodingCommand {
  std::string input, output, attention, utility, glossary;
  bool prefixes = false, glossary_ignores_case = false;
  std::optional<OptionFlags<ef::OutputOptions>> format;
};

/// Collects attention weights as tensors named "<line>.<source, target or memory>.<layer>", (heads, queries,
/// keys).
class AttentionFile {
 public:
  /// Throws IoError where the file cannot be written.
  explicit AttentionFile(std::string path) : path_(std::move(path)) {
    if (wanted()) check_writable_file(path_);
  }

  bool wanted() const { return !path_.empty(); }

  void add(std::size_t line, const ef::AttentionMaps& maps) {
    const auto add_layers = [&](const char* kind, const std::vector<ef::Tensor<float>>& layers) {
      for (std::size_t i = 0; i < layers.size(); ++i)
        tensors_.emplace_back(std::to_string(line) + "." + kind + "." + std::to_string(i), layers[i]);
    };
    add_layers("source", maps.source);
    add_layers("target", maps.target);
    add_layers("memory", maps.memory);
  }

  void finish() const {
    if (wanted()) ef::save_safetensors(path_, tensors_);
  }

 private:
  std::string path_;
  std::vector<std::pair<std::string, ef::Tensor<float>>> tensors_;
};

/// Takes what stands behind the first tab of each line, which its translation is to begin with, off it.
std::vector<std::string> split_prefixes(std::vector<std::string>& lines) {
  std::vector<std::string> prefixes;
  for (std::string& line : lines) {
    const std::size_t tab = line.find('\t');
    prefixes.push_back(tab == std::string::npos ? "" : line.substr(tab + 1));
    if (tab != std::string::npos) line.resize(tab);
  }
  return prefixes;
}

/// Says which terms of the glossary a translation does not have.
void report_terms(std::size_t line, const ef::Translation& translation) {
  for (const ef::TermOutcome& term : translation.terms) {
    if (term.honoured) continue;
    std::string wanted;
    for (const std::string& target : term.targets) wanted += (wanted.empty() ? "'" : " or '") + target + "'";
    std::fprintf(stderr, "translator: line %zu has the term '%s', and its translation does not have %s\n",
                 line, term.source.c_str(), wanted.c_str());
  }
}

/// What the command line asks for that the search's own options do not say.
ef::TextTranslatorOptions with_results(const TranslateCommand& command, ef::TextTranslatorOptions options,
                                       const ef::OutputOptions& format) {
  options.search.attention = !command.attention.empty();
  options.search.token_scores = format.scores;
  if (options.sampling) options.sampling->token_scores = format.scores;
  if (options.search.attention && options.search.num_hypotheses > 1)
    throw ef::ValueError("translate", "--attention is of one translation a line, --n-best must be 1");
  if (!command.glossary.empty()) {
    options.glossary = std::make_shared<const ef::Glossary>(
        ef::Glossary::load(command.glossary, command.glossary_ignores_case));
  }
  if (command.utility.empty()) return options;
  if ((options.sampling ? options.sampling->num_samples : options.search.num_hypotheses) == 1) {
    throw ef::ValueError("translate",
                         "--mbr has nothing to choose from: give --sample with --num-samples, or --n-best");
  }
  if (command.utility == "chrf") {
    options.utility = ef::pairwise_chrf;
  } else if (command.utility == "bleu") {
    options.utility = ef::pairwise_bleu;
  } else {
    throw ef::ValueError("translate", "--mbr is '" + command.utility + "', expected chrf or bleu");
  }
  return options;
}

int translate(const TranslateCommand& command) {
  command.set_threads();
  if (!command.attention.empty() && command.attention == command.output)
    throw ef::ValueError("translate",
                         "--attention and --output are both '" + command.output + "', expected two files");
  const auto format = command.format->applied("translate");
  format.validate();
  const DecodingModels models(command.folders);
  const ef::index_t max_source = ef::max_source_tokens(models.description());
  AttentionFile attention(command.attention);
  const ef::TextTranslatorOptions options = with_results(command, command.for_models(models), format);
  const SentenceTranslator translator = sentence_translator(models, options);
  LineReader reader(command.input);
  ResultOutput output(command.output);
  output.write(ef::translations_header(format));
  const std::size_t shown =  // of each line
      options.utility    ? 1
      : options.sampling ? static_cast<std::size_t>(options.sampling->num_samples)
                         : static_cast<std::size_t>(options.search.num_hypotheses);
  const auto most = static_cast<std::size_t>(options.batching.batch_size) * 32;
  std::size_t before = 0;  // lines of earlier chunks
  for (std::vector<std::string> lines; !(lines = reader.chunk(most)).empty(); before += lines.size()) {
    if (before == 0) drop_byte_order_mark(lines[0]);
    const std::string problem = cut_at_invalid_utf8(lines, before, reader);
    std::vector<std::string> prefixes;
    if (command.prefixes) prefixes = split_prefixes(lines);
    auto translations = translator.alternatives(lines, before, prefixes);
    std::string text;
    for (std::size_t i = 0; i < translations.size(); ++i) {
      std::vector<ef::Translation>& of_line = translations[i];
      if (of_line.size() > shown) of_line.resize(shown);
      text += ef::format_translations(format, before + i + 1, lines[i], of_line, shown);
    }
    output.write(text);
    for (std::size_t i = 0; i < translations.size(); ++i) {
      const ef::Translation& best = translations[i].front();
      if (best.attention != nullptr) attention.add(before + i + 1, *best.attention);
      report_terms(before + i + 1, best);
      if (!best.cut) continue;
      std::fprintf(stderr, "translator: line %zu has more than %lld tokens; the rest of it was left out\n",
                   before + i + 1, static_cast<long long>(max_source));
    }
    if (!problem.empty()) {
      throw ef::IoError("translate", problem + (output.appears_at_the_end()
                                                    ? "; nothing was written to '" + command.output + "'"
                                                    : "; the lines before it were translated"));
    }
  }
  output.finish();
  attention.finish();
  return 0;
}

}  // namespace

void add_translate(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("translate", "Translates lines of text: one output line for each input line");
  auto command = std::make_shared<TranslateCommand>();
  command->add_to(*sub, true, true);
  sub->add_option("--input", command->input, "file to translate; else standard input");
  sub->add_option("--output", command->output, "file for the translations; else standard output");
  CLI::Option* const attention =
      sub->add_option("--attention", command->attention,
                      "file for the attention weights of every line, layer and head, as safetensors");
  command->add_sampling_to(*sub, attention);
  sub->add_flag("--with-prefix", command->prefixes,
                "lines are \"source<TAB>prefix\", and each translation begins with its line's prefix");
  CLI::Option* const glossary = sub->add_option(
      "--glossary", command->glossary,
      "file of terms, \"source<TAB>target\" a line: translations of lines with the source have the target; a "
      "source alone is not translated");
  sub->add_flag("--glossary-ignore-case", command->glossary_ignores_case,
                "sources of the glossary match whatever their case")
      ->needs(glossary);
  glossary->excludes("--sample");
  sub->add_option("--mbr", command->utility,
                  "minimum Bayes risk: of the texts that were drawn, or of the n best, the one most like the "
                  "others, by chrf or bleu");
  command->format.emplace(*sub, ef::OutputOptions{}, "Results");
  sub->callback([&run, command] { run = [command] { return translate(*command); }; });
}

}  // namespace translator
