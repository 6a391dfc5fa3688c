#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "translator/server/http/message.hpp"

namespace eigenformer {

namespace detail {

// The value of a hexadecimal digit; -1 for another character.
inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

inline std::string form_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        throw HttpError(400, "Invalid request: the form has a % without two hexadecimal digits");
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace detail

/// Parses a form (application/x-www-form-urlencoded): the decoded values of each name, in their order. UTF-8
/// is not checked. Throws HttpError 400 for an invalid percent encoding and for more than `most` values.
inline std::map<std::string, std::vector<std::string>> parse_form(std::string_view body,
                                                                  std::size_t most = 1000) {
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t begin = 0; begin < body.size();) {
    const std::size_t end = std::min(body.find('&', begin), body.size());
    const std::string_view pair = body.substr(begin, end - begin);
    begin = end + 1;
    if (pair.empty()) continue;
    if (most-- == 0) throw HttpError(400, "Invalid request: the form has too many fields");
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view value = equals < pair.size() ? pair.substr(equals + 1) : std::string_view();
    values[detail::form_decoded(pair.substr(0, equals))].push_back(detail::form_decoded(value));
  }
  return values;
}

}  // namespace eigenformer
