#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "commands.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/metrics/accuracy.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "model/decoding_model.hpp"
#include "options/decoding_options.hpp"
#include "options/sentence_pairs.hpp"
#include "translation/whole_lines.hpp"

namespace translator {

namespace {

struct CompareCommand : DecodingCommand {
  PairFiles files;
  std::string other;
};

/// The sentence pairs as ids. Throws ValueError if the two models' ids differ.
ef::EncodedCorpus encode_for_both(const CompareCommand& command, const DecodingModel& a,
                                  const DecodingModel& b, const std::vector<std::string>& sources,
                                  const std::vector<std::string>& references) {
  ef::EncodedCorpus corpus;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string line = a.loaded.description.text.source_text + sources[i];
    const auto s = a.loaded.tokenizers.source->encode(line);
    const auto t = a.loaded.tokenizers.target->encode(references[i]);
    if (s != b.loaded.tokenizers.source->encode(line) ||
        t != b.loaded.tokenizers.target->encode(references[i])) {
      throw ef::ValueError("compare", {"'", command.folders[0], "' and '", command.other,
                                       "' have different vocabularies, so their tokens cannot be "
                                       "compared; expected the same vocabulary"});
    }
    if (s.empty() || t.empty()) continue;
    corpus.source.push_back(s);
    corpus.target.push_back(t);
  }
  if (corpus.size() == 0)
    throw ef::IoError("compare", {"'", command.files.source,
                                  "' has no pair of sentences with words, expected at least one"});
  return corpus;
}

ef::Accuracy agreement(const DecodingModel& a, const DecodingModel& b, const ef::EncodedCorpus& corpus) {
  const ef::TextConventions& text = a.loaded.description.text;
  const std::vector<std::int32_t>& forbidden = text.forbidden_ids;
  ef::Batcher batcher(corpus, {.shuffle = false, .text = text});
  ef::Accuracy equal;
  LineProgress progress(static_cast<std::uint64_t>(corpus.size()), 0, true, "comparing next tokens");
  std::uint64_t done = 0;
  for (ef::index_t k = 0; k < batcher.num_batches(0); ++k) {
    const ef::Batch batch = batcher.batch(0, k);
    const ef::Accuracy part =
        ef::exact_match(ef::detail::forced_choices(a.loaded.model, a.ctx, batch, forbidden),
                        ef::detail::forced_choices(b.loaded.model, b.ctx, batch, forbidden));
    equal.correct += part.correct;
    equal.total += part.total;
    progress.add(done += static_cast<std::uint64_t>(batch.size()));
  }
  return equal;
}

int compare(const CompareCommand& command) {
  command.set_threads();
  const DecodingModels first(command.folders, command.adapter, command.target_language),
      second(std::vector<std::string>{command.other}, std::string(), command.target_language);
  const DecodingModel &a = first.first(), &b = second.first();
  const auto [sources, references] = command.files.read("compare");
  // Options that one of the models does not support are errors before any work is done.
  const SentenceTranslator of_first = sentence_translator(first, command.for_models(first)),
                           of_second = sentence_translator(second, command.for_models(second));
  const ef::Accuracy equal = agreement(a, b, encode_for_both(command, a, b, sources, references));
  std::printf("equal next tokens: %.2f %% (%lld of %lld)\n", 100 * equal.rate(),
              static_cast<long long>(equal.correct), static_cast<long long>(equal.total));
  std::string signature;
  for (const DecodingModels* models : {&first, &second}) {
    const SentenceTranslator& translator = models == &first ? of_first : of_second;
    const WholeLines translated =
        translate_whole(translator, sources, models == &first ? "translating with A" : "translating with B");
    const ef::BleuScore bleu = ef::corpus_bleu(translated.texts(), references);
    std::printf("%s %-8s %s\n", models == &first ? "A" : "B", ef::word_of(models->description().weights),
                bleu.str().c_str());
    signature = bleu.signature();
  }
  std::printf("%s\n", signature.c_str());
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "compare",
      "Compares two models, such as a model and its int8 copy: equal next tokens, BLEU of both", compare);
  command->add_to(*sub, false);
  sub->add_option("--with", command->other, "model folder to compare with; it needs the same vocabulary")
      ->required();
  command->files.add_to(*sub);
  sub->footer(
      "Next tokens are compared under forced decoding: for each token of the reference, including the end "
      "symbol, both models predict the token from the source and the tokens of the reference before it. A is "
      "--model, B is --with.");
}

}  // namespace translator
