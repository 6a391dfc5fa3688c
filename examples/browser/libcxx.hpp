#pragma once

// Debian's emscripten 3.1.6 has the C++ library libc++ 13, which lacks parts of C++20: std::bit_cast, and
// numbers with a fraction in std::from_chars and std::to_chars. The build includes this file before all
// others.
#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 14000

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace std {

template <class To, class From>
requires(sizeof(To) == sizeof(From) && is_trivially_copyable_v<To> &&
         is_trivially_copyable_v<From>) constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

// The texts that the library reads are whole items, without space before them.
inline from_chars_result from_chars(const char* first, const char* last, double& value) {
  const string text(first, last);
  char* end = nullptr;
  const double read = strtod(text.c_str(), &end);
  if (end == text.c_str()) return {first, errc::invalid_argument};
  value = read;
  return {first + (end - text.c_str()), errc()};
}

// The shortest text that reads back as the value.
inline to_chars_result to_chars(char* first, char* last, double value,
                                chars_format format = chars_format::general) {
  const auto room = static_cast<size_t>(last - first);
  for (int digits = 1;; ++digits) {
    int length = 0;
    if (format == chars_format::scientific) length = snprintf(first, room, "%.*e", digits - 1, value);
    if (format == chars_format::fixed) length = snprintf(first, room, "%.*f", digits - 1, value);
    if (format == chars_format::general) length = snprintf(first, room, "%.*g", digits, value);
    if (length < 0 || static_cast<size_t>(length) >= room) return {last, errc::value_too_large};
    // A value that is no number reads back as none.
    if (value != value || strtod(first, nullptr) == value) return {first + length, errc()};
  }
}

}  // namespace std

#endif
