#pragma once

#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer::detail {

/// Finds the pieces of a text that must not be translated: `{name}`, `{{ name }}`, `${name}`; `%s` and other
/// conversions of printf and Python, `%NAME%`; `<0>`, `</0>`; URLs and e-mail addresses. Spans are in order;
/// adjacent pieces are one span.
std::vector<ByteSpan> find_placeholders(std::string_view text);

}  // namespace eigenformer::detail
