#pragma once

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/text/sentences.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/search/text/conventions.hpp"
#include "options/corpus_options.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/status_line.hpp"
#include "training/corpora/corpus_list.hpp"
#include "translator/preparing/prepared_corpus.hpp"
#include "translator/text/word_alignments.hpp"

namespace translator {

/// Loads a prepared corpus. Throws ValueError if its tokenizers differ from those of the model that training
/// starts from, or if it is in the model's own folder.
inline ef::PreparedCorpus open_prepared(const std::string& data,
                                        const std::optional<ef::TranslationModel<float>>& start,
                                        const std::filesystem::path& folder, TerminalProgress& progress) {
  if (is_same_path(data, folder)) {
    throw ef::ValueError(
        "train",
        {"'", data, "' is both the model folder and the prepared corpus; give another folder as --model"});
  }
  ef::PreparedCorpus prepared = ef::load_prepared_corpus(data);
  const std::string source_text = start ? start->description.text.source_text : "";
  if (start && ef::detail::tokenizer_fingerprint(start->tokenizers) != prepared.pairs->tokenizers()) {
    throw ef::ValueError("train", {"the corpus in '", data,
                                   "' was prepared with other tokenizers than the model's; prepare it "
                                   "again with --init-from and that model"});
  }
  if (source_text != prepared.description.source_text) {
    throw ef::ValueError("train",
                         {"the corpus in '", data, "' was prepared with '", prepared.description.source_text,
                          "' before each source sentence, but the model has '", source_text, "'"});
  }
  progress.say(format("training on: %s, %lld source and %lld target tokens, as prepared in '%s'",
                      counted(prepared.pairs->size(), "pair").c_str(),
                      static_cast<long long>(prepared.pairs->source_tokens()),
                      static_cast<long long>(prepared.pairs->target_tokens()), data.c_str()));
  return prepared;
}

/// One corpus of a training, with its validation data.
struct TextCorpus {
  CorpusEntry entry;
  ef::ParallelCorpus train, validation;
  std::shared_ptr<const ef::PreparedCorpus> prepared{};  ///< instead of train
};

/// The tokens that the corpora place before source sentences, without repetition, in their order.
inline std::vector<std::string> all_tags(const std::vector<TextCorpus>& corpora) {
  std::vector<std::string> tags;
  for (const TextCorpus& corpus : corpora) {
    for (const std::string& tag : corpus.entry.tags()) {
      if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
    }
  }
  return tags;
}

inline ef::ParallelCorpus read_corpus(const CorpusEntry& entry) {
  return entry.tsv.empty() ? ef::read_parallel_files(entry.source, entry.target)
                           : ef::read_parallel_tsv(entry.tsv);
}

/// Moves evenly spaced pairs out of a corpus: 1 %, at most `most`; nothing if it has less than 1000 pairs.
inline ef::ParallelCorpus hold_out(ef::ParallelCorpus& corpus, ef::index_t most) {
  ef::ParallelCorpus held_out, rest;
  const ef::index_t n = corpus.size();
  const ef::index_t count = n < 1000 ? 0 : std::min(most, n / 100);
  for (ef::index_t i = 0, taken = 0; i < n; ++i) {
    const bool take = taken < count && i == taken * n / count + n / count / 2;
    ef::ParallelCorpus& side = take ? held_out : rest;
    side.source.push_back(std::move(corpus.source[static_cast<std::size_t>(i)]));
    side.target.push_back(std::move(corpus.target[static_cast<std::size_t>(i)]));
    side.lines.push_back(corpus.lines[static_cast<std::size_t>(i)]);
    taken += take ? 1 : 0;
  }
  rest.report = corpus.report;
  corpus = std::move(rest);
  return held_out;
}

/// Reads the corpora and the validation data, or holds pairs out. Nothing is held out of corpora with a tag,
/// such as <bt>, because they are rarely like the text to be translated.
inline std::vector<TextCorpus> read_corpora(const CorpusOptions& s,
                                            const std::optional<ef::TranslationModel<float>>& start,
                                            const std::filesystem::path& folder, TerminalProgress& progress) {
  std::vector<TextCorpus> corpora;
  const std::vector<CorpusEntry> entries = corpus_entries(s);
  bool validation_given = !s.valid_source.empty();
  ef::index_t untagged = 0;
  for (const CorpusEntry& entry : entries) {
    validation_given = validation_given || !entry.valid_source.empty();
    if (!entry.data.empty()) {
      corpora.push_back({entry, {}, {}});
      corpora.back().prepared =
          std::make_shared<const ef::PreparedCorpus>(open_prepared(entry.data, start, folder, progress));
      continue;
    }
    corpora.push_back({entry, read_corpus(entry), {}});
    progress.say("training data: " + (entries.size() > 1 ? entry.name() + ": " : std::string()) +
                 corpora.back().train.report.str());
    untagged += entry.tag.empty() ? 1 : 0;
  }
  // Validation data has the target language of its corpus, not its tag.
  const auto read = [&](const CorpusEntry& entry, const std::string& source, const std::string& target) {
    TextCorpus& own = corpora.emplace_back();
    own.entry.target_language = entry.target_language;
    own.validation = ef::read_parallel_files(source, target);
    progress.say("validation data: " + own.validation.report.str());
  };
  if (!s.valid_source.empty()) {
    read(entries[0], s.valid_source, s.valid_target);
    return corpora;
  }
  ef::index_t held_out = 0;
  for (std::size_t k = 0; k < entries.size(); ++k) {
    if (!entries[k].valid_source.empty()) {
      read(entries[k], entries[k].valid_source, entries[k].valid_target);
    } else if (!validation_given && entries[k].tag.empty()) {
      corpora[k].validation =
          corpora[k].prepared ? corpora[k].prepared->validation : hold_out(corpora[k].train, 1000 / untagged);
      held_out += corpora[k].validation.size();
    }
  }
  if (validation_given) return corpora;
  progress.say(held_out > 0 ? "validation data: none given; holding out " + std::to_string(held_out) +
                                  " pairs, evenly spread over the training data"
                            : "validation data: none given, and too few pairs to hold some out; the latest "
                              "weights are kept as the best");
  return corpora;
}

/// Whether the source lines of the training corpora are sentences (TextConventions); of a prepared corpus,
/// those of its validation pairs. known: the answer without such lines, and in a program built without ICU.
inline bool lines_are_sentences(const std::vector<TextCorpus>& corpora, bool known,
                                TerminalProgress& progress) {
  double several = 0, all = 0;
  for (const TextCorpus& corpus : corpora) {
    const auto& lines = corpus.prepared ? corpus.prepared->validation.source : corpus.train.source;
    const auto size =
        static_cast<double>(corpus.prepared ? corpus.prepared->pairs->size() : corpus.train.size());
    const auto share = ef::several_sentences(lines);
    if (!share) continue;
    several += size * *share;
    all += size;
  }
  if (all == 0) return known;
  const double share = several / all;
  if (share > ef::detail::most_several_sentences)
    progress.say(
        format("%.0f %% of the source lines have several sentences: the model's lines will not be "
               "split into sentences",
               100 * share));
  return share <= ef::detail::most_several_sentences;
}

/// The vocabulary of a new training: that of its prepared corpora, or a new one from the text of all, with
/// their tags. Throws ValueError if prepared corpora have different ones.
inline ef::TokenizerPair make_tokenizers(const CorpusOptions& s, const std::vector<TextCorpus>& corpora,
                                         TerminalProgress& progress) {
  const TextCorpus* first = nullptr;
  for (const TextCorpus& corpus : corpora) {
    if (!corpus.prepared) continue;
    if (first == nullptr) first = &corpus;
    if (corpus.prepared->pairs->tokenizers() == first->prepared->pairs->tokenizers()) continue;
    throw ef::ValueError("train", {corpus.entry.name(), " and ", first->entry.name(),
                                   " were prepared with different tokenizers, expected the same"});
  }
  if (first != nullptr) return first->prepared->tokenizers;
  ef::ParallelCorpus all;
  if (corpora.size() > 1) {
    for (const TextCorpus& corpus : corpora) {
      all.source.insert(all.source.end(), corpus.train.source.begin(), corpus.train.source.end());
      all.target.insert(all.target.end(), corpus.train.target.begin(), corpus.train.target.end());
    }
  }
  ef::TokenizerPair tokenizers = ef::train_tokenizers({.kind = s.tokenizer,
                                                       .vocabulary_size = s.vocab_size,
                                                       .joint = !s.separate_vocab,
                                                       .reserved = all_tags(corpora)},
                                                      corpora.size() == 1 ? corpora[0].train : all);
  const std::string source = std::to_string(tokenizers.source->vocabulary_size());
  progress.say("vocabulary: " + s.tokenizer + ", " +
               (tokenizers.joint()
                    ? source + " entries for both languages"
                    : source + " and " + std::to_string(tokenizers.target->vocabulary_size()) + " entries"));
  return tokenizers;
}

/// Adds the alignment in a file to the training corpus, and reports how many links it has. Throws IoError
/// that names a file that does not match.
inline std::string align(ef::EncodedCorpus& encoded, const ef::ParallelCorpus& corpus,
                         const ef::TokenizerPair& tokenizers, const std::string& path) {
  const auto words = ef::read_alignments(path);
  try {
    ef::align_corpus(encoded, corpus, words, *tokenizers.source, *tokenizers.target);
  } catch (const ef::Error& error) {
    throw ef::IoError("train", {"'", path, "': ", ef::detail::message_of(error)});
  }
  std::size_t links = 0;
  for (const auto& of_pair : encoded.alignment) links += of_pair.size();
  return "guided alignment: " + std::to_string(links) + " links between tokens";
}

/// Maximum tokens of a side: as requested, and no more than the model has positions for.
inline ef::index_t most_tokens(const CorpusOptions& corpus, const ef::ModelDescription& description) {
  const ef::index_t target =
      ef::detail::max_target_tokens(description, std::numeric_limits<ef::index_t>::max());
  return std::min({corpus.max_length, ef::max_source_tokens(description), target - 1});
}

}  // namespace translator
