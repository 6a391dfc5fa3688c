#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"

namespace eigenformer::detail {

enum class UnitKind : std::uint8_t { space, word, mark, piece };

/// The unit by which tags move: a word, a run of one punctuation mark, a run of white space, or a protected
/// piece.
struct MarkupUnit {
  ByteSpan span{};
  UnitKind kind = UnitKind::word;
};

/// Splits a text into units. pieces: in order, without overlap, one unit each.
std::vector<MarkupUnit> text_units(std::string_view text, std::span<const ByteSpan> pieces);

constexpr std::size_t no_unit = std::numeric_limits<std::size_t>::max();

/// For each target unit the source unit that it is aligned to, or no_unit. Of several the one with the same
/// text is preferred, then the one with more links, of the same kind, at the same place in its token, and the
/// first. Without any links, units are paired by relative position. Then equal punctuation marks are paired
/// in order.
std::vector<std::size_t> linked_units(std::string_view source, const std::vector<MarkupUnit>& source_units,
                                      std::string_view target, const std::vector<MarkupUnit>& target_units,
                                      const TextAlignment& alignment);

}  // namespace eigenformer::detail
