#include "translator/server/api/multipart.hpp"

#include <algorithm>
#include <utility>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

namespace {

// A header field's value with parameters, such as `form-data; name="q"` (RFC 9110, 5.6.6).
struct FieldValue {
  std::string value;                                              // in lower case
  std::vector<std::pair<std::string, std::string>> parameters{};  // names in lower case

  // The only parameter of a name; nothing when there is none. Throws HttpError 400 for two.
  std::optional<std::string> parameter(std::string_view name) const {
    std::optional<std::string> found;
    for (const auto& [key, text] : parameters) {
      if (key != name) continue;
      if (found) throw HttpError(400, "Invalid request: a header field has two parameters " + key);
      found = text;
    }
    return found;
  }
};

// Throws HttpError 400 for a parameter that is not name=value.
FieldValue parse_field_value(std::string_view text) {
  const HttpError invalid(400, "Invalid request: a parameter of a header field is not name=value");
  FieldValue field;
  std::size_t at = std::min(text.find(';'), text.size());
  field.value = ascii_lower(trim(text.substr(0, at)));
  while (at < text.size()) {
    const std::size_t begin = ++at, equals = text.find_first_of("=;", begin);
    const bool named = equals != std::string_view::npos && text[equals] == '=';
    const std::string name = trim(text.substr(begin, equals - begin));
    if (!named && !name.empty()) throw invalid;
    if (!named) {
      at = std::min(equals, text.size());
      continue;
    }
    std::string value;
    at = equals + 1;
    if (at < text.size() && text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        // Browsers escape a quote as %22; a backslash is only that of another client if it is before one.
        if (text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\')) ++at;
        value += text[at];
      }
      if (at == text.size()) throw invalid;
      const std::size_t end = std::min(text.find(';', ++at), text.size());
      if (!trim(text.substr(at, end - at)).empty()) throw invalid;
      at = end;
    } else {
      const std::size_t end = std::min(text.find(';', at), text.size());
      value = trim(text.substr(at, end - at));
      at = end;
    }
    field.parameters.emplace_back(ascii_lower(name), std::move(value));
  }
  return field;
}

// A part from its header fields, the last of them with its line end.
FormPart form_part(std::string_view header, std::string_view content) {
  FormPart part;
  bool named = false;
  while (!header.empty()) {
    const std::size_t end = header.find("\r\n"), colon = header.substr(0, end).find(':');
    if (colon == std::string_view::npos)
      throw HttpError(400, "Invalid request: a part of the form has a header without a colon");
    const std::string name = ascii_lower(header.substr(0, colon));
    const std::string_view text = header.substr(colon + 1, end - colon - 1);
    header.remove_prefix(end + 2);
    if (name == "content-transfer-encoding") {
      const std::string coding = ascii_lower(trim(text));
      if (coding != "7bit" && coding != "8bit" && coding != "binary")
        throw HttpError(400, "Invalid request: a part of the form has a transfer encoding, expected none");
    }
    if (name != "content-disposition") continue;
    const FieldValue field = parse_field_value(text);
    const std::optional<std::string> given = field.parameter("name");
    if (named || field.value != "form-data" || !given)
      throw HttpError(400, "Invalid request: a part of the form has no name, or more than one");
    named = true;
    part.name = *given;
    part.filename = field.parameter("filename");
    if (!part.filename) {
      // UTF-8''name (RFC 8187), as some clients write names that are not ASCII.
      if (const auto extended = field.parameter("filename*"))
        part.filename = extended->substr(extended->rfind('\'') + 1);  // npos + 1 is 0
    }
  }
  if (!named) throw HttpError(400, "Invalid request: a part of the form has no name, or more than one");
  part.content = content;
  return part;
}

}  // namespace

std::vector<FormPart> parse_multipart(std::string_view body, std::string_view content_type,
                                      std::size_t most) {
  constexpr std::size_t most_header = 4096, longest_boundary = 70, npos = std::string_view::npos;
  const auto boundary = parse_field_value(content_type).parameter("boundary");
  if (!boundary || boundary->empty() || boundary->size() > longest_boundary)
    throw HttpError(400, "Invalid request: the form's boundary must have 1 to 70 characters");
  const HttpError no_end(400, "Invalid request: the form does not end with its boundary");
  const std::string delimiter = "\r\n--" + *boundary;
  // The next line that is a delimiter from `from` on; `after`: what follows it, "--" or a line end.
  struct Delimiter {
    std::size_t begin = 0, end = 0;
    bool last = false;
  };
  const auto delimiter_at = [&](std::size_t from) {
    for (std::size_t at = from;; at += 2) {
      std::size_t end = 0;
      if (at == 0 && body.starts_with(std::string_view(delimiter).substr(2))) {
        end = delimiter.size() - 2;
      } else {
        at = body.find(delimiter, at);
        if (at == npos) throw no_end;
        end = at + delimiter.size();
      }
      if (body.substr(end, 2) == "--") return Delimiter{at, end, true};
      end = body.find_first_not_of(" \t", end);
      if (end != npos && body.substr(end, 2) == "\r\n") return Delimiter{at, end + 2, false};
    }
  };
  std::vector<FormPart> parts;
  for (Delimiter found = delimiter_at(0); !found.last;) {
    if (parts.size() == most)
      throw HttpError(400, "Invalid request: the form has more than " + std::to_string(most) + " fields");
    std::size_t header = found.end, content = header + 2;
    if (body.substr(header, 2) != "\r\n") {
      const std::size_t end =
          body.substr(0, std::min(body.size(), header + most_header)).find("\r\n\r\n", header);
      if (end == npos)
        throw HttpError(400, "Invalid request: a part of the form has no header that ends within 4096 bytes");
      content = end + 4;
    }
    // The line end after the header may be that of the delimiter of an empty part.
    found = delimiter_at(content - 2);
    if (found.begin < content) found.begin = content;
    const std::size_t fields = content - header == 2 ? 0 : content - 2 - header;
    parts.push_back(form_part(body.substr(header, fields), body.substr(content, found.begin - content)));
  }
  return parts;
}

}  // namespace eigenformer::detail
