#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "translator/documents/markup/read_markup.hpp"
#include "translator/documents/markup/text_units.hpp"

namespace eigenformer::detail {

/// A unit of a translation after protected pieces were placed.
struct TargetPart {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  std::string text{};
  UnitKind kind = UnitKind::word;
  std::size_t source = no_unit;  ///< the source unit that it translates
  std::size_t piece = none;      ///< the index of the protected piece that it is
};

/// Makes sure that each protected piece of a segment occurs in the translation once. Models copy some pieces,
/// change some and drop some, so the first of these places is used for a piece:
/// 1. a verbatim occurrence (of several the one that the alignment prefers); if the piece touches a word, as
///    in `<code>int</code>s`, within the whole word,
/// 2. an occurrence with other case or white space,
/// 3. the words that are aligned to it alone, if they are not more than its own,
/// 4. after the word aligned to the word before it, or else before the word aligned to the next word.
///
/// Surplus copies of placeholders, and fragments of pieces that the model broke up, are removed.
///
/// source_units: the units of the segment's text, with its pieces.
std::vector<TargetPart> place_pieces(const MarkupSegment& segment,
                                     const std::vector<MarkupUnit>& source_units, const std::string& target,
                                     const TextAlignment& alignment);

}  // namespace eigenformer::detail
