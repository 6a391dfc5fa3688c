#pragma once

#include <cstdint>

namespace eigenformer {

/// The special token ids of everything that this library trains: vocabularies, text conventions, search,
/// sampling and the models' padding_index take them from here. Imported models bring their own.
struct SpecialIds {
  static constexpr std::int32_t pad = 0;      ///< fills the rest of a row
  static constexpr std::int32_t unknown = 1;  ///< stands for what the vocabulary lacks
  static constexpr std::int32_t begin = 2;    ///< what a decoder reads first
  static constexpr std::int32_t end = 3;      ///< ends a sentence
};

}  // namespace eigenformer
