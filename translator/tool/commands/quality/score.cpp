#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "eigenformer/metrics/perplexity.hpp"
#include "options/decoding_options.hpp"
#include "terminal/line_reader.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/result_output.hpp"
#include "translation/line_progress.hpp"
#include "translator/text/output_format.hpp"

namespace translator {

namespace {

struct ScoreCommand {
  std::vector<std::string> folders;
  std::string source, target, output, adapter, target_language;
  ef::index_t threads = 0;
  std::optional<OptionFlags<ef::BatchSearchOptions>> batching;
  std::optional<OptionFlags<ef::OutputOptions>> format;
};

/// Appends lines until `lines` has `count`, if there are so many.
void fill(LineReader& reader, std::vector<std::string>& lines, std::size_t count) {
  while (lines.size() < count) {
    std::vector<std::string> more = reader.chunk(count - lines.size());
    if (more.empty()) return;
    lines.insert(lines.end(), more.begin(), more.end());
  }
}

// Reads up to `most` lines of both files, which must end together. before: the lines read earlier.
void read_pairs(LineReader& sources, LineReader& targets, std::size_t most, std::size_t before,
                std::vector<std::string>& source, std::vector<std::string>& target) {
  source.clear();
  target.clear();
  fill(sources, source, most);
  fill(targets, target, most);
  if (source.size() != target.size()) {
    const bool fewer = source.size() < target.size();
    throw ef::IoError("score", {"'", (fewer ? sources : targets).name(), "' ends after ",
                                before + std::min(source.size(), target.size()), " lines, but '",
                                (fewer ? targets : sources).name(), "' has more, expected equal numbers"});
  }
  if (before == 0 && !source.empty()) {
    drop_byte_order_mark(source[0]);
    drop_byte_order_mark(target[0]);
  }
  for (auto* side : {&source, &target}) {
    const std::string problem = cut_at_invalid_utf8(*side, before, side == &source ? sources : targets);
    if (!problem.empty()) throw ef::IoError("score", problem);
  }
}

int score(const ScoreCommand& command) {
  set_threads(command.threads);
  const auto format = command.format->applied("score");
  format.validate();
  require_not_read("score", "--output", command.output,
                   {{"--source", command.source}, {"--target", command.target}});
  if (!command.output.empty() && is_regular_file_if_any(command.output)) check_writable_file(command.output);
  const DecodingModels models(command.folders, command.adapter, command.target_language);
  ef::TextTranslatorOptions options = ef::text_translator_options(models.description());
  options.confidence = models.confidence();
  options.batching = command.batching->applied("search");
  const SentenceTranslator translator = sentence_translator(models, options);
  LineReader sources(command.source), targets(command.target);
  ResultOutput output(command.output);
  output.write(ef::detail::scored_pairs_header(format));
  LineProgress progress({}, 0, LineProgress::may_show(command.output));
  const auto most = static_cast<std::size_t>(options.batching.batch_size) * 32;
  ef::Perplexity total;
  std::size_t before = 0, scored = 0;
  std::vector<std::string> source, target;
  for (;; before += source.size()) {
    read_pairs(sources, targets, most, before, source, target);
    if (source.empty()) break;
    const std::vector<ef::Translation> pairs = translator.score(source, target);
    std::string text;
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      tokens += pairs[i].tokens.size();
      text += ef::detail::format_scored_pair(format, before + i + 1, source[i], target[i], pairs[i]);
      total.add(-pairs[i].log_probability, static_cast<ef::index_t>(pairs[i].tokens.size()));
      scored += pairs[i].tokens.empty() ? 0 : 1;
      if (!pairs[i].cut) continue;
      progress.say("translator: line " + std::to_string(before + i + 1) +
                   " has more tokens than the model can read; the rest was not scored");
    }
    output.write(text);
    progress.add(before + pairs.size(), tokens);
  }
  progress.clear();
  output.finish();
  if (scored > 0) {
    std::fprintf(stderr, "%zu of %zu pairs scored, %lld target tokens, perplexity %.3f\n", scored, before,
                 static_cast<long long>(total.tokens()), total.value());
  }
  return 0;
}

}  // namespace

void add_score(CLI::App& app, Run& run) {
  const auto [sub, command] =
      add_command(app, run, "score",
                  "Prints the log-probability of given translations, to filter a corpus or to rerank", score);
  add_models(*sub, command->folders, command->adapter, true);
  add_target_language(*sub, command->target_language);
  sub->add_option("--source", command->source, "source sentences, one per line; plain text, gzip or zstd")
      ->required();
  sub->add_option("--target", command->target, "their translations, line by line")->required();
  sub->add_option(
      "--output", command->output,
      "file to write the results to, compressed if its name ends in .gz or .zst; not given: standard output");
  command->format.emplace(*sub, ef::OutputOptions{}, "Results");
  command->batching.emplace(*sub, ef::BatchSearchOptions{}, "Batches");
  add_threads(*sub, command->threads);
  sub->footer(
      "Text output has one number per pair: log p(target | source) in nats, including the end of the "
      "sentence; \"nan\" if a side has no words. Of a side with more tokens than the model can read, only "
      "its "
      "beginning is scored, with a warning. tsv and jsonl also have the number of tokens, exp(-log p / "
      "tokens) and a confidence, and with --scores each token.");
}

}  // namespace translator
