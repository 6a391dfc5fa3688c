#pragma once

#include <array>
#include <cstdint>

namespace eigenformer {

/// The ids of the special tokens of every vocabulary that this library makes. Vocabulary, TextConventions,
/// the search and the models take their defaults from here; a checkpoint of another library brings its own.
struct SpecialIds {
  static constexpr std::int32_t pad = 0;      ///< fills up a batch; not attended to, not trained on
  static constexpr std::int32_t unknown = 1;  ///< a token that the vocabulary does not have
  static constexpr std::int32_t begin = 2;    ///< what a decoder reads first
  static constexpr std::int32_t end = 3;      ///< ends a sentence
  static constexpr std::int64_t count = 4;    ///< ordinary tokens begin with this id
  static constexpr std::array<const char*, 4> names = {"<pad>", "<unk>", "<s>", "</s>"};  ///< by id
};

}  // namespace eigenformer
