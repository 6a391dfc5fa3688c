#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer {

/// The markup format of a document.
enum class MarkupFormat : std::uint8_t {
  text,  ///< no markup
  html,  ///< an HTML document or fragment
  xml    ///< a well-formed XML document or fragment
};

namespace detail {

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

/// Splits an HTML document or fragment into tokens, with names in lower case. Accepts any input: what is not
/// a tag is text, and an unclosed comment or raw text element extends to the end.
std::vector<MarkupToken> html_tokens(std::string_view document);

/// Splits an XML document or fragment (text and any number of elements) into tokens. Throws IoError that
/// names line and column when it is not well-formed: unmatched tags or quotes, a repeated attribute, a lone
/// `&` or `<`. Doctypes are not interpreted, so the entities they define are left as they are.
std::vector<MarkupToken> xml_tokens(std::string_view document);

}  // namespace detail

}  // namespace eigenformer
