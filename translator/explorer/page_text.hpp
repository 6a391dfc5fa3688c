#pragma once

namespace eigenformer::detail {

// The body of the explorer's page; the script fills it.
extern const char* const explorer_html;
// The style of the explorer's page, in light and in dark.
extern const char* const explorer_style;
// The explorer's script. It reads the element "data" and loads nothing else.
extern const char* const explorer_script;

}  // namespace eigenformer::detail
