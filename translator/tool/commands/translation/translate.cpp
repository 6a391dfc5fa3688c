#include <unistd.h>

#include <cstdio>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "model/decoding_model.hpp"
#include "terminal/interrupt.hpp"
#include "translation/input_lines.hpp"
#include "translation/line_progress.hpp"
#include "translation/line_translation.hpp"
#include "translation/markup_translation.hpp"
#include "translation/translation_output.hpp"

namespace translator {

namespace {

/// Translates lines until the input ends or a stop is requested. done: lines of this run's part that an
/// earlier run has translated.
void translate_lines(InputLines& input, LineTranslation& translation, TranslationOutput& output,
                     LineProgress& progress, std::uint64_t done, const std::stop_token& stop,
                     bool replaces_invalid) {
  LineReader& reader = input.reader();
  std::size_t replaced = 0;
  while (!stop.stop_requested()) {
    std::vector<std::string> lines = reader.chunk(translation.lines_at_once());
    if (lines.empty()) break;
    const std::uint64_t before = input.before() + done;
    if (before == 0) drop_byte_order_mark(lines[0]);
    done += lines.size();
    if (replaces_invalid) replaced += replace_invalid_utf8(lines);
    const std::string problem = cut_at_invalid_utf8(lines, before, reader);
    // What is saved for another run ends at the end of a chunk.
    if (!problem.empty() && output.appears_at_the_end()) throw ef::IoError("translate", problem);
    const LineTranslation::Results results = translation(std::move(lines), before);
    output.write(results.text);
    for (const std::string& warning : results.warnings) progress.say("translator: " + warning);
    if (!problem.empty()) throw ef::IoError("translate", {problem, "; the lines before it were translated"});
    output.reached({.lines = done, .offset = reader.offset(), .hash = reader.hash()});
    progress.add(done, results.tokens);
  }
  if (replaced > 0)
    progress.say("translator: " + counted(replaced, "line") +
                 " with invalid UTF-8, which was read as U+FFFD");
}

int translate(const TranslateOptions& options) {
  options.check_markup();
  options.check_files();
  if (options.markup() != ef::MarkupFormat::text) {
    translate_markup_document(options);
    return 0;
  }
  // If the run could not be resumed, an interrupt ends the program at once.
  std::optional<InterruptWatcher> interrupts;
  if (options.resumable() && is_regular_file_if_any(options.output)) interrupts.emplace("these lines");
  const std::stop_token stop = interrupts ? interrupts->token() : std::stop_token();
  options.set_threads();
  const std::optional<Shard> shard = options.shard();
  const DecodingModels models(options.folders, options.adapter, options.target_language);
  LineTranslation translation(options, models);
  InputLines input(options.input, shard, stop);
  TranslationOutput output(options.output, translation.alignments(),
                           interrupts ? options.identity(input.size()) : RunIdentity{}, options.go_on);
  std::uint64_t done = 0;
  if (const auto& begin = output.begin()) {
    input.skip_to(*begin);
    done = begin->lines;
    std::fprintf(stderr, "translator: resuming after %s\n", counted(done, "line").c_str());
  } else if (!shard || shard->first()) {
    output.write(translation.header());
  }
  const bool shown = LineProgress::may_show(options.output);
  if (shown) translation.count_tokens();
  LineProgress progress(shown ? input.count() : std::nullopt, done, shown);
  const auto keep = [&] {
    const bool kept = output.keep();
    if (kept)
      progress.say("translator: the lines translated so far are in '" + output.part() +
                   "'; to resume, repeat the command with --continue");
    return kept;
  };
  try {
    translate_lines(input, translation, output, progress, done, stop, options.replaces_invalid);
  } catch (...) {
    if (!keep() && output.appears_at_the_end())
      progress.say("translator: nothing was written to '" + options.output + "'");
    throw;
  }
  if (stop.stop_requested()) {
    if (!keep()) progress.say("translator: interrupted before anything was translated");
    return interrupted_exit_code;
  }
  output.finish();
  translation.finish();
  if (const std::string remark = translation.remark(); !remark.empty()) progress.say("translator: " + remark);
  return 0;
}

}  // namespace

void add_translate(CLI::App& app, Run& run) {
  const auto [sub, options] = add_command(
      app, run, "translate", "Translates lines of text: one output line for each input line", translate);
  options->add_flags(*sub);
}

}  // namespace translator
