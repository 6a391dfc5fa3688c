#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/search/decoding/attention_maps.hpp"

namespace eigenformer {

/// A sentence, its translation and their attention, as the attention explorer shows them.
struct ExploredSentence {
  std::size_t line = 1;                      ///< its line number in the input, from 1
  std::string source{},                      ///< the sentence
      target{};                              ///< its translation
  std::vector<std::string> source_tokens{};  ///< as the encoder reads them, with the end symbol
  /// The tokens that the decoder chose, with forced ones and the end symbol; one row of attention each.
  std::vector<std::string> target_tokens{};
  std::string begin_token = "<s>";  ///< the first token that the decoder reads
  AttentionMaps maps{};             ///< shapes match the tokens above
};

/// Returns the attention explorer, an HTML page with every layer and head of encoder self-attention, decoder
/// self-attention and cross-attention, as heat maps and as lines between tokens. The page loads nothing else.
/// Weights are rounded to thousandths; bytes that are not UTF-8 become U+FFFD. Throws ShapeError for maps
/// that do not match the tokens, ValueError for a sentence without maps and for weights outside 0 to 1.
std::string explorer_page(std::span<const ExploredSentence> sentences,
                          const std::string& title = "Attention");

}  // namespace eigenformer
