#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer {

/// A token alignment between a source text and its translation.
struct TextAlignment {
  /// The bytes of each source token in the source text, in order. A token without text of its own, such as
  /// the end symbol, has an empty span. Spans do not overlap; white space may be in none.
  std::vector<ByteSpan> source,
      target;  ///< the same for the tokens of the translation
  /// (source token, target token) pairs, sorted by target, then source.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> links;
  /// The attention that the links were read from, (target tokens, source tokens): row t is the attention when
  /// target token t was chosen.
  Tensor<float> attention{};
};

}  // namespace eigenformer
