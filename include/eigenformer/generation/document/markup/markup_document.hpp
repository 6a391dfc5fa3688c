#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/generation/document/markup/parsing/markup_token.hpp"

namespace eigenformer {

/// An element within a segment, or something without text that has a place there.
struct InlineElement {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  ByteSpan text{};  ///< of the segment's text; empty for what has no text
  std::string_view
      open{};  ///< its tags as the document has them; empty for one that stands in another segment
  std::string_view close{};     ///< empty, too, for a comment, a void element or a tag without a partner
  std::size_t parent = none;    ///< the number of the element that it is in
  std::size_t subtree_end = 0;  ///< elements from its own number up to this one are in it
  bool begins_before = false;   ///< its opening tag stands in an earlier segment
  bool ends_after = false;      ///< its closing tag stands in a later segment
  bool cdata = false;           ///< a CDATA section of XML: text without entities
};

/// A piece of a segment's text that is not to be translated.
struct ProtectedPiece {
  ByteSpan text{};         ///< of the segment's text
  std::string_view raw{};  ///< how the document writes it, with its tags if it is an element
  bool placeholder =
      false;  ///< find_placeholders() finds it, so that a translation can be searched for copies
};

/// A character of a segment's text, and how the document writes it.
struct SpelledCharacter {
  ByteSpan text{};
  std::string_view raw{};
};

/// Text without a hard boundary inside, such as a paragraph.
struct MarkupSegment {
  std::string_view before{};              ///< the document's bytes between the segment before it and this one
  std::string text{};                     ///< decoded, without tags
  std::vector<InlineElement> elements{};  ///< by their opening tags
  std::vector<ProtectedPiece> pieces{};   ///< in order; they do not overlap
  std::vector<SpelledCharacter> spellings{};  ///< the characters written as references, in order
};

/// A document, cut at what ends a sentence.
struct MarkupDocument {
  MarkupFormat format = MarkupFormat::text;
  std::vector<MarkupSegment> segments{};
  std::string_view after{};  ///< what stands behind the last segment
};

}  // namespace eigenformer
