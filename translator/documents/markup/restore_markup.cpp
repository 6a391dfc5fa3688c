#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/documents/markup/place_pieces.hpp"
#include "translator/documents/markup/text_units.hpp"
#include "translator/documents/markup/translate_markup.hpp"

namespace eigenformer::detail {

namespace {

// Writes a segment's translation with the document's spelling of characters. For a character that the source
// writes as a reference anywhere, and for `&`, `<` and `>`, the k-th occurrence in the translation is
// written like the k-th in the source, further ones like the last, unless that would change the meaning.
class TextSpeller {
 public:
  TextSpeller(const MarkupSegment& segment, MarkupFormat format) : segment_(segment), format_(format) {
    if (format == MarkupFormat::text) return;
    for (const char c : {'&', '<', '>'}) spelled_[std::string(1, c)];
    for (const SpelledCharacter& s : segment.spellings) spelled_[std::string(s.text.of(segment.text))];
    for (const auto& [character, places] : spelled_)
      watched_[static_cast<unsigned char>(character[0])] = true;
    collect();
  }

  // Appends a piece of the translation to `out`. cdata: within a CDATA section, which has no references.
  void write(std::string_view translation, ByteSpan span, bool cdata, std::string& out) {
    for (std::size_t at = span.begin; at < span.end;) {
      const std::size_t length = std::max<std::size_t>(1, decode_front(translation.substr(at)).length);
      const std::string_view character = translation.substr(at, length);
      at += length;
      if (format_ == MarkupFormat::xml && character[0] >= 0 && character[0] < 0x20 &&
          !is_markup_space(character[0]))
        continue;  // not allowed in XML
      if (!cdata && watched_[static_cast<unsigned char>(character[0])]) {
        spell(character, translation.substr(at), out);
        continue;
      }
      if (cdata && character == ">" && out.ends_with("]]")) out += "]]><![CDATA[";
      out += character;
    }
  }

 private:
  struct Place {
    std::string_view raw, after;  // how it is written, and the text after it
  };
  struct Places {
    std::vector<Place> all{};
    std::size_t used = 0;
  };

  void collect() {
    const std::string_view text = segment_.text;
    std::size_t piece = 0, reference = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto& pieces = segment_.pieces;
      while (piece < pieces.size() && pieces[piece].text.end <= at) ++piece;
      if (piece < pieces.size() && pieces[piece].text.begin <= at) {
        at = pieces[piece].text.end;
        continue;
      }
      const std::size_t length = std::max<std::size_t>(1, decode_front(text.substr(at)).length);
      const std::string_view character = text.substr(at, length);
      if (watched_[static_cast<unsigned char>(character[0])]) {
        const auto& spellings = segment_.spellings;
        while (reference < spellings.size() && spellings[reference].text.begin < at) ++reference;
        // A reference may stand for two characters, which are then written as they are.
        const bool referred = reference < spellings.size() && spellings[reference].text.begin == at &&
                              spellings[reference].text.end == at + length;
        if (const auto found = spelled_.find(std::string(character)); found != spelled_.end()) {
          found->second.all.push_back(
              {referred ? spellings[reference].raw : character, text.substr(at + length)});
        }
      }
      at += length;
    }
  }

  void spell(std::string_view character, std::string_view after, std::string& out) {
    const auto found = spelled_.find(std::string(character));
    if (found == spelled_.end()) {
      out += character;
      return;
    }
    Places& places = found->second;
    if (!places.all.empty()) {
      const Place& place = places.all[std::min(places.used++, places.all.size() - 1)];
      if (place.raw != character || is_safe(character[0], place.after, after, out)) {
        out += place.raw;
        // An old name or a number without a semicolon could be read as another one with what follows.
        if (place.raw.size() > 1 && place.raw[0] == '&' && place.raw.back() != ';' &&
            character_reference(std::string(place.raw) + word(after), true).length != place.raw.size())
          out += ';';
        return;
      }
    }
    out += character == "&" ? "&amp;" : character == "<" ? "&lt;" : character == ">" ? "&gt;" : character;
  }

  // Whether a character may be written literally.
  bool is_safe(char character, std::string_view after_source, std::string_view after,
               std::string_view out) const {
    const bool html = format_ == MarkupFormat::html;
    switch (character) {
      case '>':
        return html || !out.ends_with("]]");
      case '<':
        return html && (after.empty() || (!is_ascii_letter(after[0]) && after[0] != '/' && after[0] != '!' &&
                                          after[0] != '?'));
      case '&':
        return html && word(after) == word(after_source) &&
               character_reference("&" + word(after), true).length == 0;
      default:
        return true;
    }
  }

  // The longest beginning that could be the name of a reference.
  static std::string word(std::string_view text) {
    std::size_t end = 0;
    while (end < text.size() && end < 32 && (is_ascii_alphanumeric(text[end]) || text[end] == '#')) ++end;
    if (end < text.size() && text[end] == ';') ++end;
    return std::string(text.substr(0, end));
  }

  const MarkupSegment& segment_;
  MarkupFormat format_;
  std::map<std::string, Places> spelled_;
  std::array<bool, 256> watched_{};
};

// The smallest part of a translation that no tag cuts.
struct TargetAtom {
  ByteSpan target{};
  ByteSpan source{};     // what it translates; empty if unknown
  std::size_t leaf = 0;  // the innermost element that it belongs to
  std::size_t piece = TargetPart::none;
  bool space = false, belongs = false;  // to leaf; a space between words that moved belongs to nothing
};

// Splits a translation into atoms and assigns each to an element of the source.
class TargetAtoms {
 public:
  TargetAtoms(const MarkupSegment& segment, const std::vector<MarkupUnit>& source_units,
              const std::vector<TargetPart>& parts)
      : segment_(segment), elements_(segment.elements), source_units_(source_units), parts_(parts) {
    find_leaves();
    make_atoms();
  }

  // The text of the translation.
  const std::string& text() const { return text_; }
  const std::vector<TargetAtom>& atoms() const { return atoms_; }
  // The innermost element around a byte of the source, or InlineElement::none.
  std::size_t leaf(std::size_t source) const { return leaf_[source]; }

 private:
  static constexpr std::size_t none = InlineElement::none;

  void find_leaves() {
    leaf_.assign(segment_.text.size(), none);
    depth_.assign(elements_.size(), 1);
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const InlineElement& e = elements_[i];
      if (e.parent != none) depth_[i] = depth_[e.parent] + 1;
      std::fill(leaf_.begin() + static_cast<std::ptrdiff_t>(e.text.begin),
                leaf_.begin() + static_cast<std::ptrdiff_t>(e.text.end), i);
      cuts_.insert(cuts_.end(), {e.text.begin, e.text.end});
    }
    std::sort(cuts_.begin(), cuts_.end());
  }

  std::size_t innermost(ByteSpan source) const {
    std::size_t best = leaf_[source.begin];
    for (std::size_t i = source.begin; i < source.end; ++i)
      if (leaf_[i] != none && (best == none || depth_[leaf_[i]] > depth_[best])) best = leaf_[i];
    return best;
  }

  bool is_one_leaf(ByteSpan source) const {
    return std::all_of(leaf_.begin() + static_cast<std::ptrdiff_t>(source.begin),
                       leaf_.begin() + static_cast<std::ptrdiff_t>(source.end),
                       [&](std::size_t l) { return l == leaf_[source.begin]; });
  }

  // The source's white space that corresponds to one of the translation: between the same words, or at the
  // same end.
  std::size_t source_of_space(std::size_t j) const {
    const auto is_space = [&](std::size_t i) {
      return i < source_units_.size() && source_units_[i].kind == UnitKind::space;
    };
    if (j == 0) return is_space(0) ? 0 : no_unit;
    if (j + 1 == parts_.size())
      return is_space(source_units_.size() - 1) ? source_units_.size() - 1 : no_unit;
    const std::size_t left = parts_[j - 1].source, right = parts_[j + 1].source;
    if (left == no_unit || right == no_unit || left + 2 != right || !is_space(left + 1)) return no_unit;
    return left + 1;
  }

  void make_atoms() {
    for (std::size_t j = 0; j < parts_.size(); ++j) {
      const TargetPart& part = parts_[j];
      const std::size_t begin = text_.size();
      text_ += part.text;
      const bool space = part.kind == UnitKind::space;
      const std::size_t unit = space ? source_of_space(j) : part.source;
      TargetAtom atom{{begin, text_.size()}, {}, none, part.piece, space, false};
      if (unit != no_unit) {
        atom.source = source_units_[unit].span;
        atom.belongs = true;
        if (atom.source.of(segment_.text) == part.text) {
          add_exact(atom);
          continue;
        }
        atom.leaf = innermost(atom.source);
        if (space && !is_one_leaf(atom.source)) {
          atom.source = {};
          atom.belongs = false;
        }
      }
      atoms_.push_back(atom);
    }
    inherit();
  }

  // Adds a word that equals its source word: tags inside it keep their places.
  void add_exact(TargetAtom atom) {
    const ByteSpan source = atom.source, target = atom.target;
    std::size_t begin = source.begin;
    for (auto cut = std::upper_bound(cuts_.begin(), cuts_.end(), begin); begin < source.end; ++cut) {
      const std::size_t end = cut == cuts_.end() ? source.end : std::min(*cut, source.end);
      if (end == begin) continue;
      atom.source = {begin, end};
      atom.target = {target.begin + begin - source.begin, target.begin + end - source.begin};
      atom.leaf = leaf_[begin];
      atoms_.push_back(atom);
      begin = end;
      if (cut == cuts_.end()) break;
    }
  }

  // Assigns unaligned atoms to the element of the word before.
  void inherit() {
    const auto first =
        std::find_if(atoms_.begin(), atoms_.end(), [](const TargetAtom& a) { return a.belongs && !a.space; });
    std::size_t leaf = first == atoms_.end() ? none : first->leaf;
    for (TargetAtom& atom : atoms_) {
      if (atom.space) continue;
      if (!atom.belongs) atom.leaf = leaf;
      atom.belongs = true;
      leaf = atom.leaf;
    }
  }

  const MarkupSegment& segment_;
  const std::vector<InlineElement>& elements_;
  const std::vector<MarkupUnit>& source_units_;
  const std::vector<TargetPart>& parts_;
  std::vector<std::size_t> leaf_;   // the innermost element of each byte of the source
  std::vector<std::size_t> depth_;  // of each element
  std::vector<std::size_t> cuts_;   // begins and ends of elements in the source
  std::string text_;
  std::vector<TargetAtom> atoms_;
};

// Puts the tags of a segment into its translation. A word belongs to the elements of the source word that it
// is aligned to (the innermost ones, if tags cut that word), a word without a link to those of the word
// before it, and a punctuation mark to those of the same mark. An element is never split: it spans the run
// of words that maximises its own words minus the foreign words included, without words of a sibling
// element; of equal runs the longest, then the first. An element without words is placed, empty, next to the
// translations of its neighbours. Nesting does not change.
class MarkupRestorer {
 public:
  MarkupRestorer(const MarkupSegment& segment, MarkupFormat format,
                 const std::vector<MarkupUnit>& source_units, const std::vector<TargetPart>& parts)
      : segment_(segment),
        elements_(segment.elements),
        target_(segment, source_units, parts),
        atoms_(target_.atoms()),
        speller_(segment, format) {}

  std::string run() {
    index_atoms();
    children_.resize(elements_.size() + 1);
    for (std::size_t i = 0; i < elements_.size(); ++i) children_[slot(elements_[i].parent)].push_back(i);
    write(none, {0, atoms_.size()}, false);
    return std::move(out_);
  }

 private:
  static constexpr std::size_t none = InlineElement::none;

  // A range of atoms.
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  struct Item {
    Range range;
    std::size_t element;
  };

  std::size_t slot(std::size_t element) const { return element == none ? elements_.size() : element; }

  void index_atoms() {
    for (std::size_t i = 0; i < atoms_.size(); ++i) {
      if (atoms_[i].source.empty()) continue;
      by_begin_.emplace_back(atoms_[i].source.begin, i);
      by_end_.emplace_back(atoms_[i].source.end, i);
    }
    std::sort(by_begin_.begin(), by_begin_.end());
    std::sort(by_end_.begin(), by_end_.end());
  }

  // The child that an atom belongs to, as an index into `children`, or none.
  std::size_t owner(const std::vector<std::size_t>& children, const TargetAtom& atom) const {
    if (!atom.belongs || atom.leaf == none) return none;
    const auto after = std::upper_bound(children.begin(), children.end(), atom.leaf);
    if (after == children.begin() || atom.leaf >= elements_[*(after - 1)].subtree_end) return none;
    return static_cast<std::size_t>(after - children.begin()) - 1;
  }

  // White space counts little.
  static std::int64_t own_weight(const TargetAtom& a) { return a.space ? 1 : 1000; }
  static std::int64_t foreign_weight(const TargetAtom& a) { return a.space || !a.belongs ? 0 : 1000; }

  // The atoms at one end of a range for an element that extends beyond the segment.
  std::size_t end_of_pinned(const std::vector<std::size_t>& children, std::size_t child, Range range,
                            bool from_left) {
    std::int64_t sum = 0, best_sum = 0;
    std::size_t best = from_left ? range.begin : range.end;
    for (std::size_t k = 0; k < range.end - range.begin; ++k) {
      const std::size_t i = from_left ? range.begin + k : range.end - 1 - k;
      const bool own = owner(children, atoms_[i]) == child;
      sum += own ? own_weight(atoms_[i]) : -foreign_weight(atoms_[i]);
      if (!own || sum < best_sum) continue;
      best_sum = sum;
      best = from_left ? i + 1 : i;
    }
    return best;
  }

  // The best run of each child within a range; empty without one.
  std::vector<Range> best_runs(const std::vector<std::size_t>& children, Range range) const {
    std::vector<Range> best(children.size());
    std::vector<std::int64_t> best_sum(children.size(), 0);
    std::size_t current = none, begin = 0;
    std::int64_t sum = 0, foreign = 0;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const TargetAtom& atom = atoms_[i];
      const std::size_t child = owner(children, atom);
      if (child == none) {
        foreign += foreign_weight(atom);
        // A protected element cannot stand in a CDATA section.
        if (current != none && elements_[children[current]].cdata && atom.piece != TargetPart::none)
          current = none;
        continue;
      }
      if (child != current || sum < foreign) {
        begin = i;
        sum = 0;
        foreign = 0;
      }
      current = child;
      sum += own_weight(atom) - foreign;
      foreign = 0;
      const std::size_t length = best[child].end - best[child].begin;
      if (sum < best_sum[child] || (sum == best_sum[child] && i + 1 - begin <= length)) continue;
      best_sum[child] = sum;
      best[child] = {begin, i + 1};
    }
    return best;
  }

  // The place of an element without words among the atoms of a range.
  std::size_t place_of(std::size_t source, std::size_t parent, Range range) const {
    constexpr int most = 32;  // candidates to examine
    const auto in_range = [&](std::size_t k) { return range.begin <= k && k <= range.end; };
    const auto begins =
        std::lower_bound(by_begin_.begin(), by_begin_.end(), std::pair(source, std::size_t{0}));
    const auto ends = std::lower_bound(by_end_.begin(), by_end_.end(), std::pair(source + 1, std::size_t{0}));
    int seen = 0;
    for (auto it = begins; it != by_begin_.end() && it->first == source && seen < most; ++it, ++seen) {
      const std::size_t k = it->second;
      if (k > 0 && atoms_[k - 1].source.end == source && !atoms_[k - 1].source.empty() && in_range(k))
        return k;
    }
    if (const auto edge = at_edge(source, parent, range); edge != none) return edge;
    // The first place in range at the candidates from `it` on. after: 1 for places after an atom, else 0.
    const auto nearest = [&](auto it, const auto end, bool same, std::size_t after) {
      for (int i = 0; it != end && (!same || it->first == source) && i < most; ++it, ++i)
        if (in_range(it->second + after)) return it->second + after;
      return none;
    };
    for (const bool same : {true, false}) {
      if (const std::size_t k = nearest(begins, by_begin_.end(), same, 0); k != none) return k;
      const auto before = std::make_reverse_iterator(ends);
      if (const std::size_t k = nearest(before, by_end_.rend(), same, 1); k != none) return k;
    }
    return range.begin;
  }

  // An element before or after all words of its parent stays there.
  std::size_t at_edge(std::size_t source, std::size_t parent, Range range) const {
    ByteSpan whole = parent == none ? ByteSpan{0, segment_.text.size()} : elements_[parent].text;
    const auto word = [&](std::size_t i) { return !is_markup_space(segment_.text[i]); };
    while (whole.begin < whole.end && !word(whole.begin)) ++whole.begin;
    while (whole.begin < whole.end && !word(whole.end - 1)) --whole.end;
    if (source <= whole.begin) {
      std::size_t k = range.begin;
      while (k < range.end && atoms_[k].space && !atoms_[k].source.empty() && atoms_[k].source.end <= source)
        ++k;
      return k;
    }
    if (source < whole.end) return none;
    std::size_t k = range.end;
    while (k > range.begin && atoms_[k - 1].space && atoms_[k - 1].source.begin >= source) --k;
    return k;
  }

  // The children of an element within its atoms, in the order of the translation.
  std::vector<Item> items(std::size_t parent, Range range) {
    const std::vector<std::size_t>& children = children_[slot(parent)];
    if (children.empty()) return {};
    const bool left = elements_[children.front()].begins_before;
    const bool right = elements_[children.back()].ends_after;
    Range rest = range;
    if (left) rest.begin = end_of_pinned(children, 0, range, true);
    if (right) rest.end = end_of_pinned(children, children.size() - 1, rest, false);
    const std::vector<Range> runs = best_runs(children, rest);
    std::vector<Item> inner;
    for (std::size_t c = left ? 1 : 0; c < children.size() - (right ? 1 : 0); ++c)
      if (runs[c].begin < runs[c].end) inner.push_back({runs[c], children[c]});
    std::ranges::sort(inner, {}, [](const Item& i) { return i.range.begin; });
    const std::size_t with_words = inner.size();
    for (std::size_t c = left ? 1 : 0; c < children.size() - (right ? 1 : 0); ++c) {
      if (runs[c].begin < runs[c].end) continue;
      std::size_t k = place_of(elements_[children[c]].text.begin, parent, rest);
      const auto beyond =
          std::upper_bound(inner.begin(), inner.begin() + static_cast<std::ptrdiff_t>(with_words), k,
                           [](std::size_t at, const Item& i) { return at < i.range.begin; });
      if (beyond != inner.begin() && k > (beyond - 1)->range.begin && k < (beyond - 1)->range.end)
        k = children[c] < (beyond - 1)->element ? (beyond - 1)->range.begin : (beyond - 1)->range.end;
      inner.push_back({{k, k}, children[c]});
    }
    std::ranges::sort(inner, {},
                      [](const Item& i) { return std::tuple(i.range.begin, i.range.end, i.element); });
    if (left) inner.insert(inner.begin(), {{range.begin, rest.begin}, children.front()});
    if (right) inner.push_back({{rest.end, range.end}, children.back()});
    return inner;
  }

  void write(std::size_t element, Range range, bool cdata) {
    std::size_t at = range.begin;
    for (const Item& item : items(element, range)) {
      write_atoms({at, item.range.begin}, cdata);
      const InlineElement& inner = elements_[item.element];
      out_ += inner.open;
      write(item.element, item.range, cdata || inner.cdata);
      out_ += inner.close;
      at = item.range.end;
    }
    write_atoms({at, range.end}, cdata);
  }

  void write_atoms(Range range, bool cdata) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const TargetAtom& atom = atoms_[i];
      if (atom.piece == TargetPart::none) {
        speller_.write(target_.text(), atom.target, cdata, out_);
        continue;
      }
      const ProtectedPiece& piece = segment_.pieces[atom.piece];
      const std::size_t leaf = target_.leaf(piece.text.begin);
      if ((leaf != none && elements_[leaf].cdata) == cdata) {
        out_ += piece.raw;
      } else {
        speller_.write(target_.text(), atom.target, cdata, out_);
      }
    }
  }

  const MarkupSegment& segment_;
  const std::vector<InlineElement>& elements_;
  TargetAtoms target_;
  const std::vector<TargetAtom>& atoms_;
  TextSpeller speller_;
  std::vector<std::pair<std::size_t, std::size_t>> by_begin_, by_end_;  // place in the source, atom
  std::vector<std::vector<std::size_t>> children_;
  std::string out_;
};

}  // namespace

std::string restore_markup(const MarkupSegment& segment, MarkupFormat format,
                           const AlignedText& translation) {
  std::vector<ByteSpan> pieces;
  for (const ProtectedPiece& piece : segment.pieces) pieces.push_back(piece.text);
  const std::vector<MarkupUnit> units = text_units(segment.text, pieces);
  const std::vector<TargetPart> parts = place_pieces(segment, units, translation.text, translation.alignment);
  return MarkupRestorer(segment, format, units, parts).run();
}

}  // namespace eigenformer::detail
