#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer {

/// Which tokens of a translation stand for which tokens of its source.
struct TextAlignment {
  /// Where each token stands in its text, in order; empty for a token without text of its own, such as the
  /// end symbol. Spans do not overlap; white space before a word may belong to none.
  std::vector<ByteSpan> source, target;
  /// (source token, target token), by target token, then source token.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> links;
  /// What the links were made of, (target tokens, source tokens): the attention of each target token when it
  /// was chosen.
  Tensor<float> attention{};
};

}  // namespace eigenformer
