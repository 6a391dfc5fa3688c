#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

namespace detail {

// As NumPy's print options: of more than `threshold` elements each dimension shows `edge` at each end.
struct PrintRules {
  static constexpr index_t threshold = 1000, edge = 3;
  static constexpr std::size_t line_width = 75;
  static constexpr int precision = 8;
};

// `value` with `digits` decimals, in scientific notation if asked for.
inline std::string with_digits(double value, int digits, bool scientific) {
  char buffer[352];
  std::snprintf(buffer, sizeof(buffer), scientific ? "%.*e" : "%.*f", digits, value);
  return buffer;
}

// The fewest decimals, at most PrintRules::precision, that tell the value from all others of its type;
// without zeros at the end.
inline int digits_of(double value, bool single, bool scientific) {
  for (int digits = 0; digits < PrintRules::precision; ++digits) {
    const std::string s = with_digits(value, digits, scientific);
    const double back =
        single ? static_cast<double>(std::strtof(s.c_str(), nullptr)) : std::strtod(s.c_str(), nullptr);
    if (back == value) return digits;
  }
  int digits = PrintRules::precision;
  std::string s = with_digits(value, digits, scientific);
  for (std::size_t i = s.find('e') == std::string::npos ? s.size() : s.find('e'); s[--i] == '0';) --digits;
  return digits;
}

// Numbers as NumPy's default format writes them: one format for all, dots under each other. single: they were
// floats.
EIGENFORMER_NOINLINE inline std::vector<std::string> format_numbers(const std::vector<double>& values,
                                                                    bool single) {
  double largest = 0, smallest = std::numeric_limits<double>::infinity();
  for (const double x : values) {
    if (!std::isfinite(x) || x == 0) continue;
    largest = std::max(largest, std::abs(x));
    smallest = std::min(smallest, std::abs(x));
  }
  const bool scientific = largest >= 1e8 || (largest > 0 && (smallest < 1e-4 || largest / smallest > 1000));
  std::vector<std::string> texts(values.size());
  std::size_t whole = 0, decimals = 0, exponent = 0, rest = 0;
  int digits = 0;
  for (const double x : values) {
    if (std::isfinite(x)) digits = std::max(digits, digits_of(x, single, scientific));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    std::string& s = texts[i];
    if (!std::isfinite(x)) {
      s = std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
      rest = std::max(rest, s.size());
      continue;
    }
    s = with_digits(x, scientific ? digits : digits_of(x, single, false), scientific);
    if (s.find('.') == std::string::npos) s.insert(std::min(s.size(), s.find('e')), ".");
    if (scientific) exponent = std::max(exponent, s.size() - s.find('e') - 2);
    const std::size_t dot = s.find('.');
    whole = std::max(whole, dot);
    if (!scientific) decimals = std::max(decimals, s.size() - dot - 1);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string& s = texts[i];
    if (!std::isfinite(values[i])) continue;
    if (scientific) {
      s.insert(s.find('e') + 2, exponent - (s.size() - s.find('e') - 2), '0');
    } else {
      s.append(decimals - (s.size() - s.find('.') - 1), ' ');
    }
    s.insert(0, whole - s.find('.'), ' ');
    rest = std::max(rest, s.size());
  }
  for (std::string& s : texts) s.insert(0, rest - s.size(), ' ');
  return texts;
}

// The entries of a dimension that are shown, when some are left out.
inline bool is_hidden(index_t i, index_t n, bool summary) {
  return summary && n > 2 * PrintRules::edge && i >= PrintRules::edge && i < n - PrintRules::edge;
}

// The positions of the elements that are shown, in row-major order.
EIGENFORMER_NOINLINE inline void shown_elements(const Shape& shape, index_t axis, index_t row,
                                                std::vector<index_t>& found) {
  if (axis == shape.rank()) {
    found.push_back(row);
    return;
  }
  const index_t n = shape[axis];
  for (index_t i = 0; i < n; ++i) {
    if (is_hidden(i, n, shape.numel() > PrintRules::threshold)) {
      i = n - PrintRules::edge - 1;
    } else {
      shown_elements(shape, axis + 1, row * n + i, found);
    }
  }
}

// Writes the next elements of `texts` (which is advanced) as the dimensions from `axis` on.
EIGENFORMER_NOINLINE inline void print_elements(std::string& out, const Shape& shape, index_t axis,
                                                const std::string*& texts) {
  const index_t n = shape[axis];
  const bool last = axis + 1 == shape.rank();
  const std::string indent(static_cast<std::size_t>(axis) + 1, ' ');
  // Room for the brackets and the comma behind the last element.
  const std::size_t width = PrintRules::line_width - static_cast<std::size_t>(axis) - 1;
  std::size_t line = indent.size();
  out += '[';
  const auto write = [&](const std::string& word) {
    if (line + word.size() > width && line > indent.size()) {
      out.resize(out.find_last_not_of(' ') + 1);
      out += '\n' + indent;
      line = indent.size();
    }
    out += word;
    line += word.size();
  };
  for (index_t i = 0; i < n; ++i) {
    const bool hidden = is_hidden(i, n, shape.numel() > PrintRules::threshold);
    if (last) {
      write(hidden ? std::string("...") : *texts++);
      if (i + 1 < n) out += ", ";
      line += 2;
    } else {
      if (i > 0) out += indent;
      if (hidden) {
        out += "...";
      } else {
        print_elements(out, shape, axis + 1, texts);
      }
      if (i + 1 < n) out += "," + std::string(static_cast<std::size_t>(shape.rank() - axis - 1), '\n');
    }
    if (hidden) i = n - PrintRules::edge - 1;
  }
  out += ']';
}

template <class T>
std::vector<std::string> format_elements(const Tensor<T>& t, const std::vector<index_t>& shown) {
  if constexpr (std::is_integral_v<T>) {
    std::vector<std::string> texts;
    std::size_t width = 0;
    for (const index_t i : shown) {
      if constexpr (std::is_same_v<T, bool>) {
        texts.push_back(t.data()[i] ? "True" : "False");
      } else {
        texts.push_back(std::to_string(t.data()[i]));
      }
      width = std::max(width, texts.back().size());
    }
    for (std::string& s : texts) s.insert(0, width - s.size(), ' ');
    return texts;
  } else {
    std::vector<double> values;
    for (const index_t i : shown) values.push_back(static_cast<double>(t.data()[i]));
    return format_numbers(values, !std::is_same_v<T, double>);
  }
}

template <class T>
std::string element_name() {
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_integral_v<T>) {
    return (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
  } else if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else {
    return "element";
  }
}

}  // namespace detail

/// Prints type and shape, and the values as NumPy does: aligned, with the digits that tell them from others,
/// at most 8, in lines of 75 characters; of more than 1,000 elements the first and last 3 of each dimension.
template <class T>
std::ostream& operator<<(std::ostream& out, const Tensor<T>& t) {
  out << "Tensor<" << detail::element_name<T>() << "> " << t.shape().str();
  if (!t.defined()) return out << " undefined";
  if (t.numel() == 0) return out << " []";
  std::vector<index_t> shown;
  detail::shown_elements(t.shape(), 0, 0, shown);
  const std::vector<std::string> texts = detail::format_elements(t, shown);
  if (t.rank() == 0) return out << ' ' << texts[0];
  std::string text = "\n";
  const std::string* next = texts.data();
  detail::print_elements(text, t.shape(), 0, next);
  return out << text;
}
/// The same for a part of a tensor.
template <class T>
std::ostream& operator<<(std::ostream& out, const TensorPart<T>& part) {
  return out << part.clone();
}

}  // namespace eigenformer
