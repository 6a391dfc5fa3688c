#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "eigenformer/data/corpus/alignment_file.hpp"
#include "eigenformer/generation/alignment/aligned_corpus.hpp"
#include "eigenformer/generation/text/conventions.hpp"
#include "model/model_folder.hpp"
#include "options/corpus_options.hpp"
#include "terminal/terminal_progress.hpp"

namespace translator {

/// The text that a training reads.
struct Corpora {
  ef::ParallelCorpus train, validation;
};

inline ef::ParallelCorpus read_corpus(const CorpusOptions& s) {
  return s.tsv.empty() ? ef::read_parallel_files(s.source, s.target) : ef::read_parallel_tsv(s.tsv);
}

/// Takes every so manieth pair out of a corpus: 1 %, at most 1000, and nothing of less than 1000 pairs.
inline ef::ParallelCorpus hold_out(ef::ParallelCorpus& corpus) {
  ef::ParallelCorpus held_out, rest;
  const ef::index_t n = corpus.size();
  const ef::index_t count = n < 1000 ? 0 : std::min<ef::index_t>(1000, n / 100);
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

inline Corpora read_corpora(const CorpusOptions& s, TerminalProgress& progress) {
  Corpora corpora;
  corpora.train = read_corpus(s);
  progress.say("training data: " + corpora.train.report.str());
  if (!s.valid_source.empty()) {
    corpora.validation = ef::read_parallel_files(s.valid_source, s.valid_target);
    progress.say("validation data: " + corpora.validation.report.str());
    return corpora;
  }
  corpora.validation = hold_out(corpora.train);
  progress.say(corpora.validation.size() > 0
                   ? "validation data: none given, so " + std::to_string(corpora.validation.size()) +
                         " pairs spread evenly over the training data are held out"
                   : "validation data: none given, and too few pairs to hold any out: the latest weights "
                     "count as the best");
  return corpora;
}

/// The vocabulary of a new training.
inline ef::TokenizerPair make_tokenizers(const CorpusOptions& s, const ef::ParallelCorpus& corpus,
                                         TerminalProgress& progress) {
  ef::TokenizerPair tokenizers = ef::train_tokenizers(
      {.kind = s.tokenizer, .vocabulary_size = s.vocab_size, .joint = !s.separate_vocab}, corpus);
  const std::string source = std::to_string(tokenizers.source->vocabulary_size());
  progress.say("vocabulary: " + s.tokenizer + ", " +
               (tokenizers.joint()
                    ? source + " entries for both languages"
                    : source + " and " + std::to_string(tokenizers.target->vocabulary_size()) + " entries"));
  return tokenizers;
}

/// Gives the training corpus the alignment of a file, and says what it has. Throws IoError that names the
/// file for one that does not fit.
inline std::string align(ef::EncodedCorpus& encoded, const ef::ParallelCorpus& corpus,
                         const ef::TokenizerPair& tokenizers, const std::string& path) {
  const auto words = ef::read_alignments(path);
  try {
    ef::align_corpus(encoded, corpus, words, *tokenizers.source, *tokenizers.target);
  } catch (const ef::Error& error) {
    throw ef::IoError("train", "'" + path + "': " + ef::detail::message_of(error));
  }
  std::size_t links = 0;
  for (const auto& of_pair : encoded.alignment) links += of_pair.size();
  return "guided alignment: " + std::to_string(links) + " links between tokens";
}

/// Tokens of a side at most: as many as was asked for, and as the model has room for.
inline ef::index_t most_tokens(const CorpusOptions& corpus, const ef::ModelDescription& description) {
  const ef::index_t target = ef::max_target_tokens(description, std::numeric_limits<ef::index_t>::max());
  return std::min({corpus.max_length, ef::max_source_tokens(description), target - 1});
}

}  // namespace translator
