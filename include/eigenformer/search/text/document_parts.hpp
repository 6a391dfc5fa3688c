#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/sentences.hpp"

namespace eigenformer {

/// Which white space ends a paragraph of a document.
enum class DocumentLayout {
  paragraphs,  ///< line breaks, and tabs between words: each line or table cell is a paragraph
  wrapped,     ///< blank lines, and tabs between words of a line: for text wrapped to a line width
  flow,        ///< none, as in HTML: only the given boundaries do
};

/// How a document is split into sentences for a model.
struct DocumentOptions {
  DocumentLayout layout = DocumentLayout::paragraphs;  ///< which white space ends a paragraph
  /// Splits paragraphs into sentences; null: a paragraph is one sentence, unless the translator that is used
  /// splits its lines into sentences.
  std::shared_ptr<const SentenceSplitter> splitter{};
};

namespace detail {

/// A sentence of a document, or a part of a sentence that is too long for the model.
struct DocumentPart {
  ByteSpan source{};            ///< its bytes in the document, without white space around it
  bool continues = false;       ///< whether it continues the sentence of the part before
  bool after_boundary = false;  ///< whether it is the first part of a paragraph
};

/// Tells whether a model can read a sentence in one piece; an empty function: there is no limit.
using SentenceFits = std::function<bool(const std::string& sentence)>;

/// Splits a document into sentences, and sentences that do not fit into parts: without a splitter after the
/// end of a sentence, else after a semicolon, colon or dash, else after a comma, else at white space, else
/// between characters.
///
/// All text but white space is in exactly one part. Every part fits, except for a single character that does
/// not fit by itself. boundaries: ascending byte offsets that no sentence crosses. Throws ValueError for text
/// that is not UTF-8, and for boundaries that are out of order, outside the text or inside a character.
EIGENFORMER_IO_FUNCTION std::vector<DocumentPart> document_parts(
    std::string_view text, const DocumentOptions& options, const SentenceFits& fits = {},
    std::span<const std::size_t> boundaries = {});

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS
#include <algorithm>
#include <array>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer::detail {

/// Whether white space between two words ends a paragraph.
inline bool ends_paragraph(std::string_view spaces, DocumentLayout layout) {
  if (layout == DocumentLayout::flow) return false;
  std::size_t line_breaks = 0;
  bool tab = false;
  char32_t before = 0;
  for_each_code_point(spaces, [&](char32_t c, std::string_view) {
    const bool second_half = c == '\n' && before == '\r';
    if (c == '\f' || c == 0x2029) {
      line_breaks += 2;
    } else if (c == '\n' || c == '\v' || c == '\r' || c == 0x85 || c == 0x2028) {
      line_breaks += second_half ? 0 : 1;
    }
    tab = tab || c == '\t';
    before = c;
  });
  if (line_breaks == 0) return tab;
  return line_breaks > 1 || layout == DocumentLayout::paragraphs;
}

/// The paragraphs of a text, without the white space around them. boundaries: ascending.
inline std::vector<ByteSpan> paragraphs_of(std::string_view text, std::span<const std::size_t> boundaries,
                                           DocumentLayout layout) {
  std::vector<ByteSpan> paragraphs;
  const auto add = [&](std::size_t begin, std::size_t end) {
    const ByteSpan span = without_spaces(text, {begin, end});
    if (!span.empty()) paragraphs.push_back(span);
  };
  std::size_t begin = 0, spaces = 0;  // begin of the paragraph; begin of the white space before `at`
  auto boundary = boundaries.begin();
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCodePoint c = decode_front(text.substr(at));
    const bool space = is_space(c.value);
    const bool ends = !space && ends_paragraph(text.substr(spaces, at - spaces), layout);
    bool given = false;
    for (; boundary != boundaries.end() && *boundary <= at; ++boundary) given = true;
    if (ends || given) {
      add(begin, at);
      begin = at;
    }
    at += c.length;
    if (!space) spaces = at;
  }
  add(begin, text.size());
  return paragraphs;
}

/// The kinds of places to cut a sentence that is too long, the best first.
enum class CutRank { sentence, clause, comma, space };

inline CutRank cut_rank(char32_t mark) {
  const auto is_one_of = [mark](std::u32string_view marks) { return marks.find(mark) != marks.npos; };
  // Latin, Chinese and Japanese, Devanagari and Arabic marks.
  if (is_one_of(U".!?\u2026\u3002\uFF01\uFF1F\u0964\u061F")) return CutRank::sentence;
  if (is_one_of(U";:\u2013\u2014\uFF1A\uFF1B\u061B")) return CutRank::clause;
  if (is_one_of(U",\u3001\uFF0C\u060C")) return CutRank::comma;
  return CutRank::space;
}

/// Whether c is a quote or bracket that may stand between a punctuation mark and the white space after it.
inline bool is_closing(char32_t c) {
  return c == '"' || c == '\'' || c == ')' || c == ']' || c == '}' || c == 0xBB || c == 0xAB || c == 0x203A ||
         c == 0x2039 || (c >= 0x2018 && c <= 0x201F) || c == 0x300D || c == 0x300F || c == 0x3011 ||
         c == 0xFF09;
}

/// The end of the longest beginning of `sentence` that fits, at least one code point. Found by doubling and
/// bisection, so that a long text is not tokenized as a whole for each of its parts.
inline std::size_t longest_fitting_end(std::string_view text, ByteSpan sentence, const SentenceFits& fits) {
  const auto fits_to = [&](std::size_t end) {
    return fits(std::string(ByteSpan{sentence.begin, end}.of(text)));
  };
  // Most sentences fit, and are tokenized once.
  const bool short_one = sentence.size() <= 4096;
  if (short_one && fits_to(sentence.end)) return sentence.end;
  std::size_t good = sentence.begin, bad = sentence.begin;
  for (std::size_t size = 512;; size *= 2) {
    bad = std::min(sentence.begin + size, sentence.end);
    while (!is_code_point_boundary(text, bad)) ++bad;
    if ((short_one && bad == sentence.end) || !fits_to(bad)) break;
    good = bad;
    if (good == sentence.end) return good;
  }
  std::vector<std::size_t> ends;  // of the code points between
  for (const std::string_view c : split_code_points(ByteSpan{good, bad}.of(text)))
    ends.push_back(static_cast<std::size_t>(c.data() - text.data()) + c.size());
  const auto first_bad = std::partition_point(ends.begin(), ends.end() - 1, fits_to);
  if (first_bad != ends.begin()) return *(first_bad - 1);
  return good > sentence.begin ? good : ends.front();
}

/// Where to cut a sentence that does not fit: at the best place in the second half of what fits, else at the
/// last white space, else between two characters. whole_sentences: the text is one sentence, so its full
/// stops belong to abbreviations.
inline std::size_t best_cut(std::string_view text, ByteSpan sentence, const SentenceFits& fits,
                            bool whole_sentences) {
  const std::size_t longest = longest_fitting_end(text, sentence, fits);
  if (longest == sentence.end) return longest;
  std::array<std::size_t, 4> places{};  // by rank; 0: none
  const std::size_t half = sentence.begin + (longest - sentence.begin) / 2;
  CutRank rank = CutRank::space;
  bool wide = false;                 // the mark needs no space after it
  std::size_t end = sentence.begin;  // end of the word or mark before `at`
  for (std::size_t at = sentence.begin; at <= longest;) {
    const DecodedCodePoint c = decode_front(text.substr(at));
    const bool space = is_space(c.value), closing = is_closing(c.value);
    if (space || (wide && !closing && cut_rank(c.value) == CutRank::space)) {
      if (space) places[static_cast<std::size_t>(CutRank::space)] = end;
      if (end > half) places[static_cast<std::size_t>(rank)] = end;
      rank = CutRank::space;
      wide = false;
    }
    at += c.length;
    if (space) continue;
    end = at;
    if (closing) continue;
    rank = cut_rank(c.value);
    wide = c.value >= 0x3000 && rank != CutRank::space;
    if (whole_sentences && rank == CutRank::sentence) rank = CutRank::space;
  }
  for (const std::size_t place : places) {
    if (place > 0 && fits(std::string(ByteSpan{sentence.begin, place}.of(text)))) return place;
  }
  return longest;
}

EIGENFORMER_IO_FUNCTION std::vector<DocumentPart> document_parts(std::string_view text,
                                                                 const DocumentOptions& options,
                                                                 const SentenceFits& fits,
                                                                 std::span<const std::size_t> boundaries) {
  if (const auto wrong = find_invalid_utf8(text))
    throw ValueError("document", {"the text has invalid UTF-8 at byte ", *wrong, "; expected text in UTF-8"});
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    const std::size_t place = boundaries[i];
    if (!is_code_point_boundary(text, place) || (i > 0 && place < boundaries[i - 1])) {
      throw ValueError("document", {"boundary ", i, " is byte ", place,
                                    ", must be the beginning of a character or the end of the text of ",
                                    text.size(), " bytes, and not before the last boundary"});
    }
  }
  std::vector<DocumentPart> parts;
  for (const ByteSpan paragraph : paragraphs_of(text, boundaries, options.layout)) {
    std::vector<ByteSpan> sentences{{0, paragraph.size()}};
    if (options.splitter != nullptr) sentences = options.splitter->split(paragraph.of(text));
    bool first = true;
    for (const ByteSpan sentence : sentences) {
      ByteSpan rest{paragraph.begin + sentence.begin, paragraph.begin + sentence.end};
      for (bool continues = false; !rest.empty(); continues = true) {
        const std::size_t end = fits ? best_cut(text, rest, fits, options.splitter != nullptr) : rest.end;
        parts.push_back({without_spaces(text, {rest.begin, end}), continues, first});
        rest.begin = std::min(after_spaces(text, end), rest.end);
        first = false;
      }
    }
  }
  return parts;
}

}  // namespace eigenformer::detail

#endif
