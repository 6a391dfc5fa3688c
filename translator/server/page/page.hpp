#pragma once

namespace eigenformer::detail {

/// The web page at /, which translates while the user types. It loads page.css and page.js, and nothing from
/// other hosts.
extern const char* const page_html;

/// The style of the page, page.css, for light and dark color schemes.
extern const char* const page_style;

/// The script of the page, page.js: reads /languages and /frontend/settings, and requests a stream from
/// /translate whenever the text has changed.
extern const char* const page_script;

}  // namespace eigenformer::detail
