#pragma once

#include <cstdint>

namespace eigenformer {

/// The default special token ids: vocabularies, text conventions, search, sampling and the models'
/// padding_index use them. Imported models have their own.
struct SpecialIds {
  static constexpr std::int32_t pad = 0;      ///< pads short rows
  static constexpr std::int32_t unknown = 1;  ///< stands for a token that is not in the vocabulary
  static constexpr std::int32_t begin = 2;    ///< the first input of a decoder
  static constexpr std::int32_t end = 3;      ///< ends a sentence
};

}  // namespace eigenformer
