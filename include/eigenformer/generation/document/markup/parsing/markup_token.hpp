#pragma once

#include <cstdint>
#include <string>

#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer {

/// What the text of a document is written in.
enum class MarkupFormat : std::uint8_t { text, html, xml };

/// What a piece of markup is. verbatim: a comment, a doctype, a processing instruction, an element of raw
/// text with its tags; empty: a void element (`<br>`) or one that closes itself (`<x/>`); cdata_open and
/// cdata_close: the two ends of a CDATA section of XML, whose text is without entities.
enum class MarkupKind : std::uint8_t {
  text,
  cdata_text,
  open,
  close,
  empty,
  cdata_open,
  cdata_close,
  verbatim
};

/// A piece of a document; the pieces in order are the document, byte for byte.
struct MarkupToken {
  MarkupKind kind = MarkupKind::text;
  ByteSpan span{};            ///< in the document
  std::string name{};         ///< of a tag or an element of raw text; lower case in HTML
  bool untranslated = false;  ///< an opening tag that asks for its element to stay as it is
};

}  // namespace eigenformer
