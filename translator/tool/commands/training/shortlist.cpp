#include <cstdio>
#include <string>
#include <vector>

#include "commands.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/corpus/shortlist.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "terminal/output_checks.hpp"
#include "translator/text/word_alignments.hpp"

namespace translator {

namespace {

struct ShortlistCommand {
  std::string folder, source, target, alignments, output;
  ef::index_t first = 100, best = 100;
};

int make_shortlist(const ShortlistCommand& command) {
  require_not_read(
      "shortlist", "--output", command.output,
      {{"--source", command.source}, {"--target", command.target}, {"--alignments", command.alignments}});
  check_writable_file(command.output);
  const ef::ModelDescription d = ef::read_model_description(command.folder);
  const ef::TokenizerPair tokenizers =
      ef::detail::load_folder_tokenizers(d.tokenizer, d.joint, command.folder);
  ef::detail::require_tokenizers(command.folder, tokenizers);
  // Line by line, so that alignments match their pairs.
  const std::vector<std::string> sources = ef::read_lines(command.source),
                                 targets = ef::read_lines(command.target);
  if (sources.size() != targets.size()) {
    throw ef::IoError("shortlist", {"'", command.source, "' has ", sources.size(), " lines and '",
                                    command.target, "' ", targets.size(), ", expected equal numbers"});
  }
  if (sources.empty()) {
    throw ef::IoError("shortlist", {"'", command.source, "' and '", command.target,
                                    "' are empty, expected at least one sentence pair"});
  }
  std::vector<std::vector<std::int32_t>> source_ids, target_ids;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    source_ids.push_back(tokenizers.source->encode(sources[i]));
    target_ids.push_back(tokenizers.target->encode(targets[i]));
  }
  const ef::index_t size = tokenizers.source->vocabulary_size();
  ef::Lexicon lexicon;
  if (command.alignments.empty()) {
    lexicon = ef::train_lexicon(source_ids, target_ids, size);
  } else {
    const auto alignments = ef::read_alignments(command.alignments);
    if (alignments.size() != sources.size()) {
      throw ef::IoError("shortlist", {"'", command.alignments, "' has ", alignments.size(),
                                      " lines, expected ", sources.size(), ", one for each pair"});
    }
    lexicon = ef::lexicon_of_alignments(source_ids, target_ids, alignments, size);
  }
  const ef::Shortlist shortlist = ef::Shortlist::from_lexicon(lexicon, command.first, command.best);
  shortlist.save(command.output);
  std::size_t listed = 0, entries = 0;
  for (ef::index_t id = 0; id < shortlist.source_size(); ++id) {
    const std::size_t n = shortlist.list(static_cast<std::int32_t>(id)).size();
    listed += n > 0 ? 1 : 0;
    entries += n;
  }
  std::printf(
      "%s: %zu of %lld source ids have translations (%zu in total), and the first %lld ids are always "
      "included\n",
      command.output.c_str(), listed, static_cast<long long>(size), entries,
      static_cast<long long>(command.first));
  return 0;
}

}  // namespace

void add_shortlist(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "shortlist", "Builds a lexical shortlist from sentence pairs, for translate --shortlist",
      make_shortlist);
  sub->add_option("--model", command->folder, "model folder whose tokenizers to use")->required();
  sub->add_option("--source", command->source, "source sentences, one per line")->required();
  sub->add_option("--target", command->target, "their translations, line by line")->required();
  sub->add_option("--alignments", command->alignments,
                  "file of alignments between the model's tokens, one line per pair, such as 0-0 1-2; not "
                  "given: computed with IBM Model 1");
  sub->add_option("--output", command->output, "file to write the shortlist to, in Marian's binary format")
      ->required();
  sub->add_option("--first", command->first,
                  "how many ids from the beginning of the vocabulary are always included")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--best", command->best, "maximum translations per source id")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

}  // namespace translator
