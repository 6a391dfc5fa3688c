#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace eigenformer::detail {

/// A part of a form in multipart/form-data.
struct FormPart {
  std::string name;                       ///< name of the field
  std::string content;                    ///< bytes of the part, not decoded
  std::optional<std::string> filename{};  ///< name of a file as the client gives it; none: a field
};

/// Parses a form in multipart/form-data (RFC 7578) with the boundary of its content type. Parts in their
/// order; a part that has parts itself is one part. UTF-8 is not checked. Throws HttpError 400 for an invalid
/// form, for more than `most` parts, and for a part with more than 4 KiB of header.
std::vector<FormPart> parse_multipart(std::string_view body, std::string_view content_type, std::size_t most);

}  // namespace eigenformer::detail
