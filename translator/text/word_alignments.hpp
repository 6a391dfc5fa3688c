#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"

namespace eigenformer {

/// Returns links in the text form of Moses, fast_align and Marian, such as "0-0 1-2"; no links give an empty
/// text.
std::string alignment_text(std::span<const AlignmentLink> links);

/// Parses a line such as "0-0 1-2": links source-target, counted from 0, separated by spaces or tabs. Throws
/// ValueError that quotes the first word that is not a link.
std::vector<AlignmentLink> parse_alignment(std::string_view line);

/// Reads one alignment per line from a file; an empty line is an alignment without links. Throws IoError for
/// a file that cannot be read and for a line that is not an alignment, naming the line.
std::vector<std::vector<AlignmentLink>> read_alignments(const std::filesystem::path& path);

/// A gold alignment with sure and possible links (Och and Ney 2003).
struct RightAlignment {
  std::vector<AlignmentLink> sure,  ///< links that every correct alignment has
      possible;                     ///< links that a correct alignment may have; sure ones are not repeated
};

/// Reads one gold alignment per line from a file, with sure links written 0-0 and possible ones 0p0. Throws
/// as read_alignments() does.
std::vector<RightAlignment> read_right_alignments(const std::filesystem::path& path);

/// The links between the words of a source and its translation: two words are linked when any of their tokens
/// are. Tokens without text, such as the end symbol, link nothing. Sorted by source, then target, without
/// duplicates. Throws IndexError for a link of a token that alignment.source or alignment.target lacks.
std::vector<AlignmentLink> word_links(const TextAlignment& alignment, std::string_view source,
                                      std::string_view target);

namespace detail {

/// A range [first, last) of a list.
struct SpanRange {
  std::size_t first = 0, last = 0;
};

/// The spans that a token overlaps; none of an empty token. units: in order; span_of: the span of one.
template <class Unit, class SpanOf = std::identity>
SpanRange overlapped(const std::vector<Unit>& units, ByteSpan token, SpanOf span_of = {}) {
  if (token.empty()) return {};
  const auto begin_of = [&](const Unit& u) { return std::invoke(span_of, u).begin; };
  const auto end_of = [&](const Unit& u) { return std::invoke(span_of, u).end; };
  const auto first = std::ranges::upper_bound(units, token.begin, {}, end_of);
  const auto last = std::ranges::lower_bound(first, units.end(), token.end, {}, begin_of);
  return {static_cast<std::size_t>(first - units.begin()), static_cast<std::size_t>(last - units.begin())};
}

/// The reverse of word_links(): links all tokens of linked words. source_tokens, target_tokens: from
/// token_spans(). Sorted by source, then target, without duplicates. Throws IndexError for a word number
/// outside its sentence.
std::vector<AlignmentLink> token_links(std::span<const AlignmentLink> words, std::string_view source,
                                       std::span<const ByteSpan> source_tokens, std::string_view target,
                                       std::span<const ByteSpan> target_tokens);

}  // namespace detail

/// Sets encoded.alignment from word links, converted to token links.
///
/// encoded: the result of encode_corpus() for `corpus` with these tokenizers. words: one list of links
/// between white-space separated words (from 0) for each line that the corpus was read from; a list may be
/// empty, and those of dropped pairs are ignored. Throws ValueError when the number of lists differs from the
/// number of lines, and IndexError that names the line (from 1) for a word number outside its line; `encoded`
/// is then unchanged.
void align_corpus(EncodedCorpus& encoded, const ParallelCorpus& corpus,
                  const std::vector<std::vector<AlignmentLink>>& words, const Tokenizer& source,
                  const Tokenizer& target);

/// Compares word alignments with reference alignments, whose links are sure or possible, and sums over
/// sentences (Och & Ney 2003, section 5.1).
///
/// With A the links found, S the sure links and P the sure and possible links:
///
///     precision = |A & P| / |A|
///     recall    = |A & S| / |S|
///     AER       = 1 - (|A & S| + |A & P|) / (|A| + |S|)
class AlignmentError {
 public:
  /// Adds one sentence pair. Repeated links count once; `possible` need not repeat the sure links.
  void add(std::span<const AlignmentLink> found, std::span<const AlignmentLink> sure,
           std::span<const AlignmentLink> possible = {});

  /// The alignment error rate, in [0, 1], lower is better; NaN when no link was found and none is sure.
  double rate() const { return 1 - share(found_sure_ + found_possible_, found_ + sure_); }
  /// The share of the links found that are sure or possible, in [0, 1]; NaN when none was found.
  double precision() const { return share(found_possible_, found_); }
  /// The share of the sure links that were found, in [0, 1]; NaN when no link is sure.
  double recall() const { return share(found_sure_, sure_); }

  /// |A|, summed over the sentences.
  index_t found() const noexcept { return found_; }
  /// |S|, summed over the sentences.
  index_t sure() const noexcept { return sure_; }

 private:
  static double share(index_t part, index_t all);

  index_t found_ = 0, sure_ = 0, found_sure_ = 0, found_possible_ = 0;
};

}  // namespace eigenformer
