#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "translator/documents/markup/parsing/markup_token.hpp"
#include "translator/documents/markup/read_markup.hpp"

namespace eigenformer {

class DocumentTranslator;

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
  bool protect = true;                       ///< copy placeholders, such as {name}, %s and URLs, unchanged
};

namespace detail {

/// Writes the translation of a segment in the document's format: with the segment's tags, each protected
/// piece once, and references as in the source.
std::string restore_markup(const MarkupSegment& segment, MarkupFormat format, const AlignedText& translation);

}  // namespace detail

/// Translates a document with markup: translates its text segment by segment and places tags by the alignment
/// (as bergamot-translator does).
///
/// No markup is lost, added or changed: comments, attributes and entities stay as they are, and well-formed
/// XML stays well-formed. A document without tags, references and placeholders gives exactly the translator's
/// output. Throws IoError for XML that is not well-formed, ValueError when the translator returns another
/// number of texts, and what the translator throws.
std::string translate_markup(std::string_view document, const MarkupOptions& options,
                             const AlignedTranslator& translate);

/// An AlignedTranslator that uses a DocumentTranslator: it translates the sentences of all texts together; no
/// sentence spans two texts. Without alignments in the translations, words are aligned in proportion to their
/// positions. `documents` must outlive the result.
AlignedTranslator aligned_translator(const DocumentTranslator& documents);

/// Translates a document with markup by a DocumentTranslator. For HTML and XML, where line breaks are white
/// space, use DocumentLayout::flow, and a TextTranslator whose options have an alignment. Throws as the
/// overload with an AlignedTranslator.
std::string translate_markup(std::string_view document, const MarkupOptions& options,
                             const DocumentTranslator& documents);

}  // namespace eigenformer
