#pragma once

#include <string_view>

namespace eigenformer::detail {

/// Whether an HTML element has neither content nor a closing tag (HTML standard, 13.1.2). name: in lower
/// case, also in the functions below.
bool is_void_element(std::string_view name);

/// Whether an element's content up to its closing tag has no tags and entities and is not translated.
bool is_raw_text_element(std::string_view name);

/// Whether an element's content is code or a formula, which is not translated.
bool is_code_element(std::string_view name);

/// Whether the tags of an element end a sentence: elements displayed as blocks, cells or items, form
/// controls, and line breaks.
bool is_block_element(std::string_view name);

}  // namespace eigenformer::detail
