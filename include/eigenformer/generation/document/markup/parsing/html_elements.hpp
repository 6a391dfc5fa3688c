#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace eigenformer {

namespace detail {

template <std::size_t N>
bool listed(const std::array<std::string_view, N>& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

}  // namespace detail

/// Whether an HTML element has neither content nor a closing tag (HTML standard, 13.1.2); names are in lower
/// case, here and below.
inline bool is_void_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"area", "base", "br", "col", "embed", "hr", "img", "input", "link",
                                       "meta", "param", "source", "track", "wbr"});
  return detail::listed(names, name);
}

/// Whether all up to the closing tag is text without tags and entities, and nothing that is to be translated.
inline bool is_raw_text_element(std::string_view name) {
  static constexpr auto names = std::to_array<std::string_view>(
      {"iframe", "noembed", "noframes", "script", "style", "textarea", "xmp"});
  return detail::listed(names, name);
}

/// Whether an element's content is code or a formula, which stays as it is.
inline bool is_code_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"code", "kbd", "math", "pre", "samp", "svg", "tt", "var"});
  return detail::listed(names, name);
}

/// Whether the tags of an element end a sentence: those that browsers display as blocks, cells and items, the
/// controls of forms, and a line break.
inline bool is_block_element(std::string_view name) {
  static constexpr auto names = std::to_array<std::string_view>(
      {"address",  "article",  "aside",  "base",     "blockquote", "body",     "br",       "button",
       "caption",  "center",   "col",    "colgroup", "dd",         "details",  "dialog",   "dir",
       "div",      "dl",       "dt",     "fieldset", "figcaption", "figure",   "footer",   "form",
       "frame",    "frameset", "h1",     "h2",       "h3",         "h4",       "h5",       "h6",
       "head",     "header",   "hgroup", "hr",       "html",       "iframe",   "legend",   "li",
       "link",     "main",     "menu",   "meta",     "nav",        "noframes", "noscript", "ol",
       "optgroup", "option",   "p",      "pre",      "search",     "section",  "select",   "source",
       "summary",  "table",    "tbody",  "td",       "template",   "textarea", "tfoot",    "th",
       "thead",    "title",    "tr",     "track",    "ul",         "video",    "xmp"});
  return detail::listed(names, name);
}

}  // namespace eigenformer
