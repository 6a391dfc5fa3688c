#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/alignment_file.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/alignment/token_spans.hpp"

namespace eigenformer {

namespace detail {

// The words that each token overlaps, as a range [first, last); both lists are in order.
struct WordRange {
  std::size_t first = 0, last = 0;
};
EIGENFORMER_IO_FUNCTION std::vector<WordRange> words_of_tokens(std::span<const ByteSpan> tokens,
                                                               std::span<const ByteSpan> words);

inline void sort_links(std::vector<AlignmentLink>& links) {
  const auto key = [](const AlignmentLink& link) { return std::tuple(link.source, link.target); };
  std::sort(links.begin(), links.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  links.erase(
      std::unique(links.begin(), links.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); }),
      links.end());
}

}  // namespace detail

/// The links between the words of a source and its translation: two words are linked when any of their tokens
/// are. Tokens without text, such as the end symbol, link nothing. Sorted by source, then target, without
/// duplicates. Throws IndexError for a link of a token that alignment.source or alignment.target lacks.
EIGENFORMER_IO_FUNCTION std::vector<AlignmentLink> word_links(const TextAlignment& alignment,
                                                              std::string_view source,
                                                              std::string_view target);

namespace detail {

/// The reverse of word_links(): links all tokens of linked words. source_tokens, target_tokens: from
/// token_spans(). Sorted by source, then target, without duplicates. Throws IndexError for a word number
/// outside its sentence.
EIGENFORMER_IO_FUNCTION std::vector<AlignmentLink> token_links(std::span<const AlignmentLink> words,
                                                               std::string_view source,
                                                               std::span<const ByteSpan> source_tokens,
                                                               std::string_view target,
                                                               std::span<const ByteSpan> target_tokens);

}  // namespace detail

/// Sets encoded.alignment from word links, converted to token links.
///
/// encoded: the result of encode_corpus() for `corpus` with these tokenizers. words: one list of links
/// between white-space separated words (from 0) for each line that the corpus was read from; a list may be
/// empty, and those of dropped pairs are ignored. Throws ValueError when the number of lists differs from the
/// number of lines, and IndexError that names the line (from 1) for a word number outside its line; `encoded`
/// is then unchanged.
EIGENFORMER_IO_FUNCTION void align_corpus(EncodedCorpus& encoded, const ParallelCorpus& corpus,
                                          const std::vector<std::vector<AlignmentLink>>& words,
                                          const Tokenizer& source, const Tokenizer& target);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

namespace detail {

EIGENFORMER_IO_FUNCTION std::vector<WordRange> words_of_tokens(std::span<const ByteSpan> tokens,
                                                               std::span<const ByteSpan> words) {
  std::vector<WordRange> ranges;
  std::size_t first = 0;
  for (const ByteSpan& token : tokens) {
    WordRange range;
    if (!token.empty()) {
      while (first < words.size() && words[first].end <= token.begin) ++first;
      range = {first, first};
      while (range.last < words.size() && words[range.last].begin < token.end) ++range.last;
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION std::vector<AlignmentLink> word_links(const TextAlignment& alignment,
                                                              std::string_view source,
                                                              std::string_view target) {
  const auto sources = detail::words_of_tokens(alignment.source, detail::word_spans(source));
  const auto targets = detail::words_of_tokens(alignment.target, detail::word_spans(target));
  std::vector<AlignmentLink> links;
  for (const auto& [s, t] : alignment.links) {
    if (s >= sources.size() || t >= targets.size()) {
      throw IndexError("alignment", {"the link ", s, "-", t, " is outside the alignment, which has ",
                                     sources.size(), " source and ", targets.size(), " target tokens"});
    }
    for (std::size_t i = sources[s].first; i < sources[s].last; ++i) {
      for (std::size_t j = targets[t].first; j < targets[t].last; ++j)
        links.push_back({static_cast<index_t>(i), static_cast<index_t>(j)});
    }
  }
  detail::sort_links(links);
  return links;
}

namespace detail {

EIGENFORMER_IO_FUNCTION std::vector<AlignmentLink> token_links(std::span<const AlignmentLink> words,
                                                               std::string_view source,
                                                               std::span<const ByteSpan> source_tokens,
                                                               std::string_view target,
                                                               std::span<const ByteSpan> target_tokens) {
  const std::vector<ByteSpan> source_words = word_spans(source), target_words = word_spans(target);
  // The tokens of each word.
  const auto tokens_of = [](std::span<const ByteSpan> tokens, std::span<const ByteSpan> given) {
    std::vector<std::vector<index_t>> of_word(given.size());
    const auto ranges = detail::words_of_tokens(tokens, given);
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      for (std::size_t w = ranges[k].first; w < ranges[k].last; ++w)
        of_word[w].push_back(static_cast<index_t>(k));
    }
    return of_word;
  };
  const auto of_source = tokens_of(source_tokens, source_words),
             of_target = tokens_of(target_tokens, target_words);
  std::vector<AlignmentLink> links;
  for (const AlignmentLink& word : words) {
    const auto within = [](index_t i, std::size_t n) { return i >= 0 && static_cast<std::size_t>(i) < n; };
    if (!within(word.source, of_source.size()) || !within(word.target, of_target.size())) {
      throw IndexError(
          "alignment",
          {"link ", word.source, "-", word.target, " is outside the sentences, which have ", of_source.size(),
           " source and ", of_target.size(), " target words between white space; expected numbers from 0"});
    }
    for (const index_t s : of_source[static_cast<std::size_t>(word.source)]) {
      for (const index_t t : of_target[static_cast<std::size_t>(word.target)]) links.push_back({s, t});
    }
  }
  detail::sort_links(links);
  return links;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION void align_corpus(EncodedCorpus& encoded, const ParallelCorpus& corpus,
                                          const std::vector<std::vector<AlignmentLink>>& words,
                                          const Tokenizer& source, const Tokenizer& target) {
  const bool read = !corpus.lines.empty();
  const index_t lines = read ? corpus.report.read : corpus.size();
  if (static_cast<index_t>(words.size()) != lines) {
    throw ValueError("alignment", {"the number of alignments is ", words.size(), ", must be ", lines,
                                   ", one for each line of the corpus"});
  }
  std::vector<std::vector<AlignmentLink>> alignment;
  for (index_t i = 0; i < encoded.size(); ++i) {
    const auto pair = static_cast<std::size_t>(encoded.pairs[static_cast<std::size_t>(i)]);
    const auto line = read ? static_cast<std::size_t>(corpus.lines[pair]) : pair;
    const std::string &s = corpus.source[pair], &t = corpus.target[pair];
    try {
      alignment.push_back(detail::token_links(words[line], s, token_spans(source, encoded.source[i], s), t,
                                              token_spans(target, encoded.target[i], t)));
    } catch (const IndexError& error) {
      throw IndexError("alignment", {"line ", line + 1, ": ", detail::message_of(error)});
    }
  }
  encoded.alignment = std::move(alignment);
}

}  // namespace eigenformer

#endif
