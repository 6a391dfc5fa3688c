#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace translator {

/// Columns that a text takes on a terminal, assuming one column per letter.
inline std::size_t columns(const std::string& text) { return eigenformer::split_code_points(text).size(); }

/// Draws attention weights (rows, columns), each from 0 to 1, as shades: one line per row with its word on
/// the left, and the words of the columns above.
inline std::string draw_attention(const eigenformer::Tensor<float>& weights,
                                  std::span<const std::string> row_words,
                                  std::span<const std::string> column_words) {
  static constexpr std::array shades = {" ", "░", "▒", "▓", "█"};
  std::size_t label = 0;
  for (const std::string& word : row_words) label = std::max(label, columns(word));
  const auto pad = [](std::size_t n) { return std::string(n, ' '); };
  std::string text = pad(label);
  for (const std::string& word : column_words) text += "  " + word;
  text += '\n';
  const float* weight = weights.data();
  for (const std::string& word : row_words) {
    text += pad(label - columns(word)) + word;
    for (const std::string& column : column_words) {
      // Shades from 5 % on, in visibly different steps.
      const float w = *weight++;
      const std::size_t shade = w < 0.05f ? 0 : w < 0.2f ? 1 : w < 0.45f ? 2 : w < 0.7f ? 3 : 4;
      text += "  ";
      for (std::size_t i = 0; i < columns(column); ++i) text += shades[shade];
    }
    text += '\n';
  }
  return text;
}

}  // namespace translator
