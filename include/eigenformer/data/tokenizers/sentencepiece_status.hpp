#pragma once

#include <string>
#include <string_view>

namespace eigenformer::detail {

/// Why bytes that SentencePiece refused are no model, for "... is": its own words, which name its source
/// files, come in brackets.
inline std::string not_a_sentencepiece_model(std::string_view bytes, std::string_view message) {
  if (bytes.empty()) return "empty, expected a SentencePiece model";
  return "truncated or no SentencePiece model: " + std::to_string(bytes.size()) +
         " bytes (SentencePiece: " + std::string(message) + ")";
}

}  // namespace eigenformer::detail
