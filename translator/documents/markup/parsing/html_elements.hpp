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

/// Whether an HTML element has neither content nor a closing tag (HTML standard, 13.1.2). name: in lower
/// case, also in the functions below.
inline bool is_void_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"area", "base", "br", "col", "embed", "hr", "img", "input", "link",
                                       "meta", "param", "source", "track", "wbr"});
  return detail::listed(names, name);
}

/// Whether an element's content up to its closing tag has no tags and entities and is not translated.
inline bool is_raw_text_element(std::string_view name) {
  static constexpr auto names = std::to_array<std::string_view>(
      {"iframe", "noembed", "noframes", "script", "style", "textarea", "xmp"});
  return detail::listed(names, name);
}

/// Whether an element's content is code or a formula, which is not translated.
inline bool is_code_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"code", "kbd", "math", "pre", "samp", "svg", "tt", "var"});
  return detail::listed(names, name);
}

/// Whether the tags of an element end a sentence: elements displayed as blocks, cells or items, form
/// controls, and line breaks.
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
