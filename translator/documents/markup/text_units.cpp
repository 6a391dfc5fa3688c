#include "translator/documents/markup/text_units.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "translator/text/word_alignments.hpp"

namespace eigenformer::detail {

namespace {

// For each target unit the source unit at the same relative position.
std::vector<std::size_t> proportional_units(const std::vector<MarkupUnit>& source_units,
                                            const std::vector<MarkupUnit>& target_units) {
  std::vector<std::size_t> from, to, best(target_units.size(), no_unit);
  for (std::size_t i = 0; i < source_units.size(); ++i)
    if (source_units[i].kind != UnitKind::space) from.push_back(i);
  for (std::size_t j = 0; j < target_units.size(); ++j)
    if (target_units[j].kind != UnitKind::space) to.push_back(j);
  for (std::size_t k = 0; k < to.size() && !from.empty(); ++k)
    best[to[k]] = from[k * from.size() / to.size()];
  return best;
}

// Pairs equal punctuation marks in order, except those already linked to the same mark, if both sides have
// the same number of them: attention is unreliable for punctuation.
void pair_marks(std::string_view source, const std::vector<MarkupUnit>& source_units, std::string_view target,
                const std::vector<MarkupUnit>& target_units, std::vector<std::size_t>& best) {
  std::vector<bool> paired(source_units.size(), false);
  std::map<std::string_view, std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> marks;
  for (std::size_t j = 0; j < target_units.size(); ++j) {
    if (target_units[j].kind != UnitKind::mark) continue;
    const std::string_view mark = target_units[j].span.of(target);
    if (best[j] != no_unit && source_units[best[j]].span.of(source) == mark) {
      paired[best[j]] = true;
    } else {
      marks[mark].second.push_back(j);
    }
  }
  for (std::size_t i = 0; i < source_units.size(); ++i) {
    if (source_units[i].kind == UnitKind::mark && !paired[i])
      marks[source_units[i].span.of(source)].first.push_back(i);
  }
  for (const auto& [mark, units] : marks) {
    if (units.first.size() != units.second.size()) continue;
    for (std::size_t k = 0; k < units.first.size(); ++k) best[units.second[k]] = units.first[k];
  }
}

}  // namespace

std::vector<MarkupUnit> text_units(std::string_view text, std::span<const ByteSpan> pieces) {
  std::vector<MarkupUnit> units;
  char32_t last = 0;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size();) {
    while (next < pieces.size() && pieces[next].begin < at) ++next;
    if (next < pieces.size() && pieces[next].begin == at && !pieces[next].empty()) {
      units.push_back({pieces[next], UnitKind::piece});
      at = pieces[next++].end;
      continue;
    }
    const DecodedCodePoint c = decode_front(text.substr(at));
    const std::size_t end = at + std::max<std::size_t>(1, c.length);
    const UnitKind kind = is_space(c.value)         ? UnitKind::space
                          : is_punctuation(c.value) ? UnitKind::mark
                                                    : UnitKind::word;
    const bool joined =
        !units.empty() && units.back().kind == kind && (kind != UnitKind::mark || c.value == last) &&
        (kind != UnitKind::word || (!is_unspaced_script(c.value) && !is_unspaced_script(last)));
    if (joined) {
      units.back().span.end = end;
    } else {
      units.push_back({{at, end}, kind});
    }
    last = c.value;
    at = end;
  }
  return units;
}

std::vector<std::size_t> linked_units(std::string_view source, const std::vector<MarkupUnit>& source_units,
                                      std::string_view target, const std::vector<MarkupUnit>& target_units,
                                      const TextAlignment& alignment) {
  struct Link {
    int count = 0;
    std::size_t shift = 0;  // difference of the places in their tokens
  };
  std::vector<std::map<std::size_t, Link>> links(target_units.size());
  for (const auto& [s, t] : alignment.links) {
    if (s >= alignment.source.size() || t >= alignment.target.size()) continue;
    const SpanRange from = overlapped(source_units, alignment.source[s], &MarkupUnit::span),
                    to = overlapped(target_units, alignment.target[t], &MarkupUnit::span);
    for (std::size_t j = to.first; j < to.last; ++j) {
      // In a token with many units only those at about the same place, to keep the time linear.
      constexpr std::size_t around = 8;
      const std::size_t middle =
          from.first + (j - to.first) * (from.last - from.first) / (to.last - to.first);
      const std::size_t last = std::min(from.last, middle + around + 1);
      for (std::size_t i = std::max(from.first + around, middle) - around; i < last; ++i) {
        const std::size_t a = i - from.first, b = j - to.first;
        const auto found = links[j].emplace(i, Link{0, std::numeric_limits<std::size_t>::max()}).first;
        found->second.count += 1;
        found->second.shift = std::min(found->second.shift, a < b ? b - a : a - b);
      }
    }
  }
  std::vector<std::size_t> best(target_units.size(), no_unit);
  for (std::size_t j = 0; j < target_units.size(); ++j) {
    if (target_units[j].kind == UnitKind::space) continue;
    std::tuple<bool, int, bool, std::size_t> rank;
    for (const auto& [i, link] : links[j]) {
      if (source_units[i].kind == UnitKind::space) continue;
      const std::tuple<bool, int, bool, std::size_t> of_link{
          source_units[i].span.of(source) == target_units[j].span.of(target), link.count,
          source_units[i].kind == target_units[j].kind, std::numeric_limits<std::size_t>::max() - link.shift};
      if (best[j] != no_unit && of_link <= rank) continue;
      best[j] = i;
      rank = of_link;
    }
  }
  if (std::all_of(best.begin(), best.end(), [](std::size_t i) { return i == no_unit; }))
    best = proportional_units(source_units, target_units);
  pair_marks(source, source_units, target, target_units, best);
  return best;
}

}  // namespace eigenformer::detail
