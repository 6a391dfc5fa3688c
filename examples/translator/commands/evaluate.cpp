#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

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
#include "terminal/terminal_progress.hpp"

namespace translator {

namespace {

struct EvaluateCommand : DecodingCommand {
  PairFiles files;
  std::string output;
};

/// Of the references, for the pairs that have words on both sides; 0 when there is none.
double reference_perplexity(const SentenceTranslator& translator, const std::vector<std::string>& sources,
                            const std::vector<std::string>& references) {
  ef::Perplexity perplexity;
  for (const ef::Translation& pair : translator.score(sources, references))
    perplexity.add(-pair.log_probability, static_cast<ef::index_t>(pair.tokens.size()));
  return perplexity.tokens() == 0 ? 0 : perplexity.value();
}

int evaluate(const EvaluateCommand& command) {
  command.set_threads();
  if (!command.output.empty()) check_writable_file(command.output);
  const DecodingModels models(command.folders);
  const SentenceTranslator translator = sentence_translator(models, command.for_models(models));
  const auto [sources, references] = command.files.read("evaluate");

  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> translations = texts(translator.translate(sources));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!command.output.empty()) {
    std::string text;
    for (const std::string& line : translations) (text += line) += '\n';
    ef::write_file(command.output, text);
  }
  const ef::BleuScore bleu = ef::corpus_bleu(translations, references);
  const ef::Accuracy exact = ef::exact_match(translations, references);
  std::printf("%s\n%s\n", bleu.str().c_str(), ef::bleu_signature().c_str());
  std::printf("chrF2 = %.2f\n%s\n", ef::corpus_chrf(translations, references), ef::chrf_signature().c_str());
  std::printf("exact match: %.1f %% (%lld of %lld)\n", 100 * exact.rate(),
              static_cast<long long>(exact.correct), static_cast<long long>(exact.total));
  if (const double perplexity = reference_perplexity(translator, sources, references); perplexity > 0) {
    std::printf("perplexity of the references: %.3f a token\n", perplexity);
  }
  std::fprintf(stderr, "%s in %.1f s, %.1f sentences/s, beam %lld\n",
               counted(static_cast<long long>(sources.size()), "sentence").c_str(), seconds,
               static_cast<double>(sources.size()) / seconds,
               static_cast<long long>(translator.options().search.beam_size));
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand(
      "evaluate", "Translates a file and scores it against a reference: BLEU, chrF, exact match");
  auto command = std::make_shared<EvaluateCommand>();
  command->add_to(*sub);
  command->files.add_to(*sub);
  sub->add_option("--output", command->output, "file for the translations");
  sub->callback([&run, command] { run = [command] { return evaluate(*command); }; });
}

}  // namespace translator
