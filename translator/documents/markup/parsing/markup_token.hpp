#pragma once

#include <cstdint>
#include <string>

#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer {

/// The markup format of a document.
enum class MarkupFormat : std::uint8_t {
  text,  ///< no markup
  html,  ///< an HTML document or fragment
  xml    ///< a well-formed XML document or fragment
};

/// The kind of a markup token.
enum class MarkupKind : std::uint8_t {
  text,         ///< text, in which entities are decoded
  cdata_text,   ///< the text of a CDATA section of XML, without entities
  open,         ///< an opening tag
  close,        ///< a closing tag
  empty,        ///< a void element (`<br>`) or a self-closing one (`<x/>`)
  cdata_open,   ///< the begin of a CDATA section
  cdata_close,  ///< the end of a CDATA section
  verbatim      ///< a comment, doctype, processing instruction, or raw text element with its tags
};

/// A piece of a document; the tokens in order are the document, byte for byte.
struct MarkupToken {
  MarkupKind kind = MarkupKind::text;  ///< what the piece is
  ByteSpan span{};                     ///< its bytes in the document
  std::string name{};                  ///< of a tag or a raw text element; lower case in HTML
  bool untranslated = false;           ///< whether an opening tag excludes its element from translation
};

}  // namespace eigenformer
