#include "translator/documents/markup/parsing/html_elements.hpp"

#include <algorithm>
#include <array>

namespace eigenformer::detail {

bool is_void_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"area", "base", "br", "col", "embed", "hr", "img", "input", "link",
                                       "meta", "param", "source", "track", "wbr"});
  return std::ranges::binary_search(names, name);
}

bool is_raw_text_element(std::string_view name) {
  static constexpr auto names = std::to_array<std::string_view>(
      {"iframe", "noembed", "noframes", "script", "style", "textarea", "xmp"});
  return std::ranges::binary_search(names, name);
}

bool is_code_element(std::string_view name) {
  static constexpr auto names =
      std::to_array<std::string_view>({"code", "kbd", "math", "pre", "samp", "svg", "tt", "var"});
  return std::ranges::binary_search(names, name);
}

bool is_block_element(std::string_view name) {
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
  return std::ranges::binary_search(names, name);
}

}  // namespace eigenformer::detail
