#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <string>
#include <type_traits>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

namespace detail {

template <class T>
std::string format_element(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<T>) {
    char buffer[32];
    const double v = static_cast<double>(value);
    const double size = std::abs(v);
    std::snprintf(buffer, sizeof(buffer), size != 0 && (size < 1e-4 || size >= 1e6) ? "%.4e" : "%.4f", v);
    return buffer;
  } else {
    return std::to_string(value);
  }
}

// The number of elements printed at each end of a long dimension.
inline constexpr index_t print_edge = 4;

// The index after i that is printed, of n.
inline index_t next_shown(index_t i, index_t n) {
  return n > 2 * print_edge + 1 && i + 1 == print_edge ? n - print_edge : i + 1;
}

// The width of the widest element that is printed.
template <class T>
std::size_t shown_width(const Tensor<T>& t, index_t axis, index_t offset, index_t stride) {
  const index_t n = t.dim(axis);
  const index_t inner = n == 0 ? 1 : stride / n;
  std::size_t width = 0;
  for (index_t i = 0; i < n; i = next_shown(i, n)) {
    width = std::max(width, axis + 1 == t.rank() ? format_element(t.data()[offset + i]).size()
                                                 : shown_width(t, axis + 1, offset + i * inner, inner));
  }
  return width;
}

template <class T>
void print_dimension(std::ostream& out, const Tensor<T>& t, index_t axis, index_t offset, index_t stride,
                     std::size_t width) {
  const index_t n = t.dim(axis);
  const bool last = axis + 1 == t.rank();
  const index_t inner = last || n == 0 ? 1 : stride / n;
  out << '[';
  const std::string separator = last ? ", " : ",\n" + std::string(static_cast<std::size_t>(axis) + 1, ' ');
  for (index_t i = 0; i < n; i = next_shown(i, n)) {
    if (i > 0) out << separator;
    if (i == n - print_edge && n > 2 * print_edge + 1) out << "..." << separator;
    if (last) {
      const std::string s = format_element(t.data()[offset + i]);
      out << std::string(width > s.size() ? width - s.size() : 0, ' ') << s;
    } else {
      print_dimension(out, t, axis + 1, offset + i * inner, inner, width);
    }
  }
  out << ']';
}

template <class T>
const char* element_name() {
  if constexpr (std::is_same_v<T, float>)
    return "float";
  else if constexpr (std::is_same_v<T, double>)
    return "double";
  else if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return "int32";
  else
    return "element";
}

}  // namespace detail

/// Prints type, shape and aligned values; of a dimension of more than 9 elements the first and the last 4.
template <class T>
std::ostream& operator<<(std::ostream& out, const Tensor<T>& t) {
  out << "Tensor<" << detail::element_name<T>() << "> " << t.shape().str();
  if (!t.defined()) return out << " undefined";
  if (t.rank() == 0) return out << ' ' << detail::format_element(t.item());
  if (t.numel() == 0) return out << " []";
  out << '\n';
  detail::print_dimension(out, t, 0, 0, t.numel(), detail::shown_width(t, 0, 0, t.numel()));
  return out;
}

}  // namespace eigenformer
