#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "translator/documents/markup/parsing/markup_token.hpp"

namespace eigenformer::detail {

/// An inline element of a segment, or markup without text, such as a comment.
struct InlineElement {
  /// The value of `parent` for an element outside all others.
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  ByteSpan text{};          ///< its bytes in the segment's text; empty for markup without text
  std::string_view open{};  ///< its opening tag as written; empty if it is in another segment
  /// Its closing tag; empty also for a comment, a void element or an unmatched tag.
  std::string_view close{};
  std::size_t parent = none;    ///< index of the enclosing element
  std::size_t subtree_end = 0;  ///< elements with indices from its own up to this one are inside it
  bool begins_before = false;   ///< whether its opening tag is in an earlier segment
  bool ends_after = false;      ///< whether its closing tag is in a later segment
  bool cdata = false;           ///< whether it is a CDATA section of XML, whose text has no entities
};

/// A piece of a segment's text that is copied rather than translated.
struct ProtectedPiece {
  ByteSpan text{};           ///< its bytes in the segment's text
  std::string_view raw{};    ///< as written in the document, with the tags of an element
  bool placeholder = false;  ///< whether find_placeholders() finds it, also in a translation
};

/// A character of a segment's text that the document writes as a reference.
struct SpelledCharacter {
  ByteSpan text{};         ///< its bytes in the segment's text
  std::string_view raw{};  ///< as written in the document, such as `&amp;`
};

/// A stretch of text without a block boundary inside, such as a paragraph.
struct MarkupSegment {
  std::string_view before{};              ///< the document's bytes between the previous segment and this one
  std::string text{};                     ///< decoded, without tags
  std::vector<InlineElement> elements{};  ///< in the order of their opening tags
  std::vector<ProtectedPiece> pieces{};   ///< in order; they do not overlap
  std::vector<SpelledCharacter> spellings{};  ///< the characters written as references, in order
};

/// A document split into segments. Its views point into the document's text, which must outlive it.
struct MarkupDocument {
  std::vector<MarkupSegment> segments{};  ///< in order
  std::string_view after{};               ///< the document's bytes after the last segment
};

/// Splits a document into segments: in HTML at block elements, in XML at elements that never have text beside
/// them. Code elements, and elements with translate="no" or the class notranslate, are not translated: a
/// block is part of no segment, an inline element is a protected piece. protect: also protect placeholders.
/// The document must outlive the result. Throws IoError for XML that is not well-formed.
MarkupDocument read_markup(std::string_view document, MarkupFormat format, bool protect = true);

}  // namespace eigenformer::detail
