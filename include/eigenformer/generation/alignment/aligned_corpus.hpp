#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/alignment_file.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/generation/alignment/token_spans.hpp"
#include "eigenformer/generation/alignment/word_alignment.hpp"

namespace eigenformer {

/// Sets encoded.alignment from word links, converted to token links.
///
/// encoded: the result of encode_corpus() for `corpus` with these tokenizers. words: one list of links
/// between white-space separated words (from 0) for each line that the corpus was read from; a list may be
/// empty, and those of dropped pairs are ignored. Throws ValueError when the number of lists differs from the
/// number of lines, and IndexError that names the line (from 1) for a word number outside its line; `encoded`
/// is then unchanged.
inline void align_corpus(EncodedCorpus& encoded, const ParallelCorpus& corpus,
                         const std::vector<std::vector<AlignmentLink>>& words, const Tokenizer& source,
                         const Tokenizer& target) {
  const bool read = !corpus.lines.empty();
  const index_t lines = read ? corpus.report.read : corpus.size();
  if (static_cast<index_t>(words.size()) != lines) {
    throw ValueError("alignment", "the number of alignments is " + std::to_string(words.size()) +
                                      ", must be " + std::to_string(lines) +
                                      ", one for each line of the corpus");
  }
  std::vector<std::vector<AlignmentLink>> alignment;
  for (index_t i = 0; i < encoded.size(); ++i) {
    const auto pair = static_cast<std::size_t>(encoded.pairs[static_cast<std::size_t>(i)]);
    const auto line = read ? static_cast<std::size_t>(corpus.lines[pair]) : pair;
    const std::string &s = corpus.source[pair], &t = corpus.target[pair];
    try {
      alignment.push_back(token_links(words[line], s, token_spans(source, encoded.source[i], s), t,
                                      token_spans(target, encoded.target[i], t)));
    } catch (const IndexError& error) {
      throw IndexError("alignment", "line " + std::to_string(line + 1) + ": " + detail::message_of(error));
    }
  }
  encoded.alignment = std::move(alignment);
}

}  // namespace eigenformer
