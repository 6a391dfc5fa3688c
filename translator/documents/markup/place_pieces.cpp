#include "translator/documents/markup/place_pieces.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/search/constraints/glossary.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/documents/markup/placeholders.hpp"
#include "translator/text/word_alignments.hpp"

namespace eigenformer::detail {

namespace {

// Places the pieces of a segment; see place_pieces(). The arguments must outlive it.
class PiecePlacer {
 public:
  PiecePlacer(const MarkupSegment& segment, const std::vector<MarkupUnit>& source_units,
              const std::string& target, const TextAlignment& alignment)
      : segment_(segment), source_units_(source_units), target_(target), alignment_(alignment) {}

  std::vector<TargetPart> run() {
    number_pieces();
    claim_within_words();
    claim_verbatim();
    claim_similar();
    make_parts();
    std::size_t last = no_unit;  // the source unit of the last inserted piece
    for (std::size_t k = 0; k < spans_.size(); ++k) {
      if (spans_[k]) continue;
      const bool replaced = replace(k);
      drop_remains(k);
      if (replaced) continue;
      insert(k, last);
      last = unit_[k];
    }
    return edited();
  }

 private:
  std::string_view text_of(std::size_t k) const { return segment_.pieces[k].text.of(segment_.text); }

  void number_pieces() {
    for (std::size_t i = 0; i < source_units_.size(); ++i)
      if (source_units_[i].kind == UnitKind::piece) unit_.push_back(i);
    spans_.resize(unit_.size());
    linked_.resize(unit_.size());
    for (const auto& [s, t] : alignment_.links) {
      if (s >= alignment_.source.size() || t >= alignment_.target.size()) continue;
      const SpanRange range = overlapped(source_units_, alignment_.source[s], &MarkupUnit::span);
      const auto first = std::lower_bound(unit_.begin(), unit_.end(), range.first);
      for (auto it = first; it != unit_.end() && *it < range.last; ++it)
        linked_[static_cast<std::size_t>(it - unit_.begin())].push_back(alignment_.target[t]);
    }
  }

  static bool overlap(ByteSpan a, ByteSpan b) { return a.begin < b.end && b.begin < a.end; }

  std::size_t links(std::size_t k, ByteSpan span) const {
    return static_cast<std::size_t>(
        std::count_if(linked_[k].begin(), linked_[k].end(), [&](ByteSpan t) { return overlap(t, span); }));
  }

  bool is_free(ByteSpan span) const {
    const auto after = taken_.lower_bound(span.end);
    return after == taken_.begin() || std::prev(after)->second <= span.begin;
  }

  // Whether there is no word boundary at an offset.
  static bool is_inside_word(std::string_view text, std::size_t at) {
    return is_in_word(code_point_before(text, at).value) && is_in_word(code_point_at(text, at).value);
  }

  // Whether a span of the target is not part of a longer word.
  bool is_whole(ByteSpan span) const {
    return !is_inside_word(target_, span.begin) && !is_inside_word(target_, span.end);
  }

  // Claims the places of pieces that touch a word, by the word and the piece together.
  void claim_within_words() {
    constexpr std::size_t longest = 64, most = 1000;  // bytes of a word; distinct words to search for
    const std::string_view text = segment_.text;
    std::map<std::pair<std::string_view, std::size_t>, Places> found;  // by the word and the piece's offset
    for (std::size_t k = 0; k < spans_.size(); ++k) {
      const ByteSpan piece = segment_.pieces[k].text;
      ByteSpan word = piece;
      while (word.size() - piece.size() < longest && is_inside_word(text, word.begin))
        word.begin -= std::max<std::size_t>(1, code_point_before(text, word.begin).length);
      while (word.size() - piece.size() < longest && is_inside_word(text, word.end))
        word.end += std::max<std::size_t>(1, code_point_at(text, word.end).length);
      const std::pair key(word.of(text), piece.begin - word.begin);
      if (word == piece || segment_.pieces[k].placeholder || (found.size() == most && found.count(key) == 0))
        continue;
      const auto [places, added] = found.try_emplace(key);
      if (added) {
        for (const ByteSpan& span : whole(occurrences(target_, key.first)))
          places->second.all.push_back({span.begin + key.second, span.begin + key.second + piece.size()});
      }
      claim_best(k, places->second);
    }
  }

  void claim_verbatim() {
    std::map<std::string_view, std::vector<ByteSpan>> found;
    for (const ByteSpan& span : find_placeholders(segment_.text)) ++in_source_[span.of(segment_.text)];
    for (const ByteSpan& span : find_placeholders(target_)) found[span.of(target_)].push_back(span);
    std::map<std::pair<std::string_view, bool>, std::vector<std::size_t>> wanted;
    for (std::size_t k = 0; k < spans_.size(); ++k)
      wanted[{text_of(k), segment_.pieces[k].placeholder}].push_back(k);
    for (const bool placeholder : {true, false}) {
      for (const auto& [what, pieces] : wanted) {
        if (what.second != placeholder) continue;
        Places places{placeholder ? found[what.first] : whole(occurrences(target_, what.first))};
        for (const std::size_t k : pieces)
          if (!spans_[k]) claim_best(k, places);
        if (placeholder) drop_surplus(what.first, places.all);
      }
    }
  }

  std::vector<ByteSpan> occurrences(std::string_view text, std::string_view what) const {
    std::vector<ByteSpan> places;
    for (std::size_t at = text.find(what); at != std::string_view::npos;
         at = text.find(what, at + what.size()))
      places.push_back({at, at + what.size()});
    return places;
  }

  std::vector<ByteSpan> whole(std::vector<ByteSpan> places) const {
    std::erase_if(places, [&](ByteSpan p) { return !is_whole(p); });
    return places;
  }

  // Candidate places of a piece; those before `first` are taken.
  struct Places {
    std::vector<ByteSpan> all{};
    std::size_t first = 0;
  };

  // Claims the place with the most links, the first of equal ones.
  void claim_best(std::size_t k, Places& places) {
    constexpr std::size_t most = 64;  // places to compare
    while (places.first < places.all.size() && !is_free(places.all[places.first])) ++places.first;
    std::size_t best = places.all.size(), best_links = 0, seen = 0;
    for (std::size_t i = places.first; i < places.all.size() && seen < most; ++i) {
      if (!is_free(places.all[i])) continue;
      ++seen;
      const std::size_t count = links(k, places.all[i]);
      if (best != places.all.size() && count <= best_links) continue;
      best = i;
      best_links = count;
    }
    if (best != places.all.size()) claim(k, places.all[best]);
  }

  void claim(std::size_t k, ByteSpan span) {
    spans_[k] = span;
    taken_[span.begin] = span.end;
    piece_at_[span.begin] = k;
  }

  void drop_surplus(std::string_view what, const std::vector<ByteSpan>& places) {
    const std::size_t allowed = in_source_[what];
    std::size_t total = places.size();
    for (std::size_t i = places.size(); i-- > 0 && total > allowed;) {
      if (!is_free(places[i])) continue;
      taken_[places[i].begin] = places[i].end;
      piece_at_[places[i].begin] = surplus;
      --total;
    }
  }

  void claim_similar() {
    if (std::all_of(spans_.begin(), spans_.end(), [](const auto& s) { return s.has_value(); })) return;
    std::string folded;
    std::vector<std::size_t> place;
    for (std::size_t i = 0; i < target_.size(); ++i) {
      if (is_markup_space(target_[i])) continue;
      folded += ascii_lower(target_[i]);
      place.push_back(i);
    }
    constexpr std::size_t most = 1000;  // distinct pieces to search for
    std::map<std::string, Places> places;
    for (std::size_t k = 0; k < spans_.size(); ++k) {
      if (spans_[k]) continue;
      std::string what = ascii_lower(text_of(k));
      what.erase(std::remove_if(what.begin(), what.end(), is_markup_space), what.end());
      if (places.count(what) == 0 && places.size() == most) continue;
      const auto [of_text, added] = places.try_emplace(what);
      if (added) {
        for (const ByteSpan& span : occurrences(folded, what))
          of_text->second.all.push_back({place[span.begin], place[span.end - 1] + 1});
        of_text->second.all = whole(std::move(of_text->second.all));
      }
      claim_best(k, of_text->second);
    }
  }

  void make_parts() {
    std::vector<ByteSpan> spans;
    for (const auto& [begin, end] : taken_) spans.push_back({begin, end});
    const std::vector<MarkupUnit> units = text_units(target_, spans);
    const std::vector<std::size_t> sources =
        linked_units(segment_.text, source_units_, target_, units, alignment_);
    targets_.resize(source_units_.size());
    for (std::size_t j = 0; j < units.size(); ++j) {
      TargetPart part{std::string(units[j].span.of(target_)), units[j].kind, sources[j], TargetPart::none};
      if (part.kind == UnitKind::piece) {
        const std::size_t k = piece_at_.at(units[j].span.begin);
        part.piece = k;
        part.source = k == surplus ? no_unit : unit_[k];
        exact_.push_back(k != surplus && part.text == text_of(k));
        if (k != surplus) part.text = text_of(k);
      } else {
        exact_.push_back(true);
      }
      if (part.source != no_unit) targets_[part.source].push_back(j);
      parts_.push_back(std::move(part));
    }
    removed_.assign(parts_.size(), false);
    before_.resize(parts_.size() + 1);
    // For each source unit the last translated unit up to it, and the first from it on.
    earlier_.assign(source_units_.size(), no_unit);
    later_.assign(source_units_.size(), no_unit);
    for (std::size_t i = 0; i < source_units_.size(); ++i)
      earlier_[i] = !targets_[i].empty() ? i : i > 0 ? earlier_[i - 1] : no_unit;
    for (std::size_t i = source_units_.size(); i-- > 0;)
      later_[i] = !targets_[i].empty() ? i : i + 1 < source_units_.size() ? later_[i + 1] : no_unit;
  }

  // Replaces the words that are aligned to a piece by the piece.
  bool replace(std::size_t k) {
    const std::vector<MarkupUnit> own = text_units(text_of(k), {});
    const auto most = static_cast<std::size_t>(
        std::count_if(own.begin(), own.end(), [](const MarkupUnit& u) { return u.kind != UnitKind::space; }));
    const std::vector<std::size_t>& words = targets_[unit_[k]];
    std::size_t first = 0, count = 0;
    for (std::size_t i = 0; i < words.size();) {
      std::size_t end = i + 1;
      while (end < words.size() && adjacent(words[end - 1], words[end])) ++end;
      if (end - i > count && end - i <= most) {
        first = i;
        count = end - i;
      }
      i = end;
    }
    if (count == 0) return false;
    const std::size_t from = words[first], to = words[first + count - 1];
    parts_[from] = {std::string(text_of(k)), UnitKind::piece, unit_[k], k};
    exact_[from] = false;
    for (std::size_t j = from + 1; j <= to; ++j) removed_[j] = true;
    return true;
  }

  // Removes fragments of a piece that was not found, such as a brace aligned to it.
  void drop_remains(std::size_t k) {
    for (const std::size_t j : targets_[unit_[k]]) {
      const bool other = !removed_[j] && parts_[j].piece == TargetPart::none;
      if (other && text_of(k).find(parts_[j].text) != std::string_view::npos) parts_[j].piece = surplus;
    }
  }

  bool adjacent(std::size_t a, std::size_t b) const {
    return a + 1 == b || (a + 2 == b && parts_[a + 1].kind == UnitKind::space);
  }

  // Inserts a piece without any aligned word. last: the source unit of the piece inserted before it.
  void insert(std::size_t k, std::size_t last) {
    const std::size_t unit = unit_[k];
    const std::size_t left = unit > 0 ? earlier_[unit - 1] : no_unit;
    if (last != no_unit && (left == no_unit || last > left)) {
      before_[inserted_at_].push_back(k);
      return;
    }
    if (left != no_unit) {
      inserted_at_ = targets_[left].back() + 1;
    } else if (later_[unit] != no_unit) {
      inserted_at_ = targets_[later_[unit]].front();
    } else {
      inserted_at_ = parts_.size();
    }
    before_[inserted_at_].push_back(k);
  }

  std::vector<TargetPart> edited() {
    std::vector<TargetPart> out;
    bool separate = false;  // whether a space must follow the last part
    const auto add = [&](TargetPart part, bool exact) {
      const bool spaced =
          part.kind == UnitKind::space || out.empty() || out.back().kind == UnitKind::space ||
          is_unspaced_script(code_point_before(out.back().text, out.back().text.size()).value) ||
          is_unspaced_script(code_point_at(part.text, 0).value);
      if (!spaced && ((!exact && !opens(out.back().text)) || separate)) out.push_back({" ", UnitKind::space});
      out.push_back(std::move(part));
      separate = false;
    };
    for (std::size_t j = 0; j <= parts_.size(); ++j) {
      for (const std::size_t k : before_[j]) {
        add({std::string(text_of(k)), UnitKind::piece, unit_[k], k}, false);
        separate = !closes(j);
      }
      if (j == parts_.size()) break;
      if (removed_[j]) continue;
      if (parts_[j].piece == surplus) {
        if (!out.empty() && out.back().kind == UnitKind::space)
          out.pop_back();
        else if (out.empty() && j + 1 < parts_.size())
          removed_[j + 1] = parts_[j + 1].kind == UnitKind::space;
        continue;
      }
      const bool exact = exact_[j];
      add(std::move(parts_[j]), exact);
      separate = !exact && !closes(next_part(j + 1));
    }
    return out;
  }

  std::size_t next_part(std::size_t j) const {
    while (j < parts_.size() && removed_[j]) ++j;
    return j;
  }

  static bool is_one_of(std::string_view text, std::u32string_view marks) {
    const DecodedCodePoint c = code_point_at(text, 0);
    return c.length > 0 && c.length == text.size() && marks.find(c.value) != marks.npos;
  }

  // Whether a part is punctuation that a piece may directly follow.
  static bool opens(std::string_view text) { return is_one_of(text, U"([\"'\u201E\u201A\u00BF\u00A1"); }

  // Whether a part is punctuation, before white space or the end, that may directly follow a piece.
  bool closes(std::size_t j) const {
    const auto closing = [](std::string_view text) {
      return is_one_of(text, U")],.;:!?\"'\u2018\u2019\u201C\u201D\u2026\u00AB\u00BB\u2039\u203A");
    };
    if (j < parts_.size() && !closing(parts_[j].text)) return false;
    while (j < parts_.size() && closing(parts_[j].text)) j = next_part(j + 1);
    return j >= parts_.size() || parts_[j].kind == UnitKind::space;
  }

  static constexpr std::size_t surplus = TargetPart::none - 1;  // instead of a piece's index

  const MarkupSegment& segment_;
  const std::vector<MarkupUnit>& source_units_;
  const std::string& target_;
  const TextAlignment& alignment_;
  std::vector<std::size_t> unit_;                      // the source unit of each piece
  std::vector<std::vector<ByteSpan>> linked_;          // the target's tokens linked to each piece
  std::vector<std::optional<ByteSpan>> spans_;         // where each piece was found
  std::map<std::string_view, std::size_t> in_source_;  // occurrences of each placeholder in the source
  std::map<std::size_t, std::size_t> taken_;           // begin and end of claimed spans
  std::map<std::size_t, std::size_t> piece_at_;        // the piece at each claimed span
  std::vector<TargetPart> parts_;
  std::vector<bool> exact_, removed_;
  std::vector<std::vector<std::size_t>> targets_;  // the parts that translate each source unit
  std::vector<std::size_t> earlier_, later_;
  std::vector<std::vector<std::size_t>> before_;  // the pieces to insert before each part
  std::size_t inserted_at_ = 0;
};

}  // namespace

std::vector<TargetPart> place_pieces(const MarkupSegment& segment,
                                     const std::vector<MarkupUnit>& source_units, const std::string& target,
                                     const TextAlignment& alignment) {
  return PiecePlacer(segment, source_units, target, alignment).run();
}

}  // namespace eigenformer::detail
