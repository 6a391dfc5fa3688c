#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/generation/alignment/text_alignment.hpp"
#include "translator/documents/markup/markup_document.hpp"
#include "translator/documents/markup/place_pieces.hpp"
#include "translator/documents/markup/read_markup.hpp"
#include "translator/documents/markup/restore_markup.hpp"
#include "translator/documents/markup/text_units.hpp"

namespace eigenformer {

/// A translation with its alignment.
struct AlignedText {
  std::string text{};         ///< the translation
  TextAlignment alignment{};  ///< between the given source and `text`; may be empty
};

/// A function that translates texts and returns one result per text. A text is a paragraph: it may have
/// several sentences and line breaks, and neither begins nor ends with white space.
using AlignedTranslator = std::function<std::vector<AlignedText>(const std::vector<std::string>&)>;

/// How a document with markup is read.
struct MarkupOptions {
  MarkupFormat format = MarkupFormat::html;  ///< the document's format
  bool protect = true;                       ///< copy placeholders unchanged; see find_placeholders()
};

namespace detail {

inline void move_spans(std::vector<ByteSpan>& spans, std::size_t by) {
  for (ByteSpan& span : spans) span = {span.begin + by, span.end + by};
}

}  // namespace detail

/// Writes the translation of a segment in the document's format: with the segment's tags, each protected
/// piece once, and references as in the source.
inline std::string restore_markup(const MarkupSegment& segment, MarkupFormat format,
                                  const AlignedText& translation) {
  std::vector<ByteSpan> pieces;
  for (const ProtectedPiece& piece : segment.pieces) pieces.push_back(piece.text);
  const std::vector<detail::MarkupUnit> units = detail::text_units(segment.text, pieces);
  const std::vector<detail::TargetPart> parts =
      detail::PiecePlacer(segment, units, translation.text, translation.alignment).run();
  return detail::MarkupRestorer(segment, format, units, parts).run();
}

/// Translates a document with markup: translates its text segment by segment and places tags by the alignment
/// (as bergamot-translator does).
///
/// No markup is lost, added or changed: comments, attributes and entities stay as they are, and well-formed
/// XML stays well-formed. A document without tags, references and placeholders gives exactly the translator's
/// output. Throws IoError for XML that is not well-formed, ValueError when the translator returns another
/// number of texts, and what the translator throws.
inline std::string translate_markup(std::string_view document, const MarkupOptions& options,
                                    const AlignedTranslator& translate) {
  MarkupDocument read = read_markup(document, options.format, options.protect);
  std::vector<std::string> texts;
  std::vector<std::size_t> leading;
  for (const MarkupSegment& segment : read.segments) {
    texts.push_back(trim(segment.text));
    leading.push_back(segment.text.find(texts.back()));
  }
  std::vector<AlignedText> translations = texts.empty() ? std::vector<AlignedText>() : translate(texts);
  if (translations.size() != texts.size()) {
    throw ValueError("translate_markup", "the translator returned " + std::to_string(translations.size()) +
                                             " translations of " + std::to_string(texts.size()) +
                                             " texts, expected one for each");
  }
  std::string out;
  for (std::size_t i = 0; i < read.segments.size(); ++i) {
    const MarkupSegment& segment = read.segments[i];
    AlignedText& translation = translations[i];
    const std::string& whole = segment.text;
    translation.text =
        whole.substr(0, leading[i]) + translation.text + whole.substr(leading[i] + texts[i].size());
    detail::move_spans(translation.alignment.source, leading[i]);
    detail::move_spans(translation.alignment.target, leading[i]);
    out += segment.before;
    out += restore_markup(segment, options.format, translation);
  }
  out += read.after;
  return out;
}

}  // namespace eigenformer
