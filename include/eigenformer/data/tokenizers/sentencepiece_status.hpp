#pragma once

#include <string>
#include <string_view>

namespace eigenformer::detail {

/// Describes bytes that SentencePiece did not accept as a model, to complete "... is". SentencePiece's own
/// message, which names its source files, follows in brackets.
inline std::string not_a_sentencepiece_model(std::string_view bytes, std::string_view message) {
  if (bytes.empty()) return "empty, expected a SentencePiece model";
  return "truncated or no SentencePiece model: " + std::to_string(bytes.size()) +
         " bytes (SentencePiece: " + std::string(message) + ")";
}

}  // namespace eigenformer::detail
