#include "translator/documents/markup/segment_builder.hpp"

#include <algorithm>
#include <utility>

#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/documents/markup/placeholders.hpp"

namespace eigenformer::detail {

void SegmentBuilder::text(ByteSpan span, bool decode) {
  const std::string_view raw = span.of(all_);
  std::size_t literal = 0;
  for (std::size_t at = decode ? raw.find('&') : raw.npos; at != raw.npos; at = raw.find('&', at)) {
    const CharacterReference reference = character_reference(raw.substr(at), html_);
    if (reference.length == 0) {
      ++at;
      continue;
    }
    append(raw.substr(literal, at - literal), span.begin + literal);
    const std::string_view spelled = raw.substr(at, reference.length);
    if (reference.character.empty()) {
      piece(spelled, spelled);
    } else {
      const std::size_t begin = segment_.text.size();
      append(reference.character, span.begin + at);
      segment_.spellings.push_back({{begin, segment_.text.size()}, spelled});
    }
    at += reference.length;
    literal = at;
  }
  append(raw.substr(std::min(literal, raw.size())), span.begin + literal);
}

void SegmentBuilder::close(std::string_view tag, const std::string& name) {
  const auto found = std::find(names_.rbegin(), names_.rend(), name);
  if (found != names_.rend()) {
    // Unclosed elements inside overlap it; their tags stay where they are, as markup without text.
    for (; names_.back() != name; pop()) end_here(open_.back(), false);
    end_here(open_.back(), true);
    segment_.elements[open_.back()].close = tag;
    pop();
  } else if (open_.empty()) {
    // It closes an element of an earlier segment, which contains all of this segment so far.
    InlineElement whole;
    whole.close = tag;
    whole.begins_before = true;
    whole.text = {0, segment_.text.size()};
    for (InlineElement& e : segment_.elements) e.parent = e.parent == InlineElement::none ? 0 : e.parent + 1;
    segment_.elements.insert(segment_.elements.begin(), whole);
    ++begun_before_;
  } else {
    alone(tag);
  }
}

MarkupSegment SegmentBuilder::finish(bool protect) {
  for (const std::size_t i : open_) {
    end_here(i, true);
    segment_.elements[i].ends_after = true;
  }
  number_subtrees();
  if (protect) add_placeholders();
  return std::move(segment_);
}

std::size_t SegmentBuilder::add(std::string_view tag) {
  const std::size_t here = segment_.text.size();
  InlineElement element;
  element.text = {here, here};
  element.open = tag;
  if (!open_.empty()) element.parent = open_.back();
  segment_.elements.push_back(element);
  return segment_.elements.size() - 1;
}

// Ends an element. whole: false for one without a closing tag, whose children move to its parent.
void SegmentBuilder::end_here(std::size_t i, bool whole) {
  InlineElement& element = segment_.elements[i];
  if (whole) {
    element.text.end = segment_.text.size();
    return;
  }
  for (std::size_t k = i + 1; k < segment_.elements.size(); ++k)
    if (segment_.elements[k].parent == i) segment_.elements[k].parent = element.parent;
}

void SegmentBuilder::number_subtrees() {
  auto& elements = segment_.elements;
  for (std::size_t i = elements.size(); i-- > 0;) {
    elements[i].subtree_end = std::max(elements[i].subtree_end, i + 1);
    if (elements[i].parent == InlineElement::none) continue;
    InlineElement& parent = elements[elements[i].parent];
    parent.subtree_end = std::max(parent.subtree_end, elements[i].subtree_end);
  }
}

// The position in the document of a byte of the segment's text.
std::size_t SegmentBuilder::raw_position(std::size_t text) const {
  const auto run = std::ranges::upper_bound(runs_, text, {}, &Run::text) - 1;
  return run->raw + (text - run->text);
}

// Adds placeholders that no tag and no other piece cuts.
void SegmentBuilder::add_placeholders() {
  const std::vector<ProtectedPiece> given = segment_.pieces;
  std::vector<std::size_t> cuts;
  for (const InlineElement& e : segment_.elements) {
    cuts.push_back(e.text.begin);
    cuts.push_back(e.text.end);
  }
  for (const ProtectedPiece& p : given) {
    cuts.push_back(p.text.begin);
    cuts.push_back(p.text.end);
  }
  std::sort(cuts.begin(), cuts.end());
  for (const ByteSpan& span : find_placeholders(segment_.text)) {
    const auto cut = std::upper_bound(cuts.begin(), cuts.end(), span.begin);
    if ((cut != cuts.end() && *cut < span.end) || in_piece(given, span.begin)) continue;
    segment_.pieces.push_back({span, raw_of(span), true});
  }
  std::ranges::sort(segment_.pieces, {}, [](const ProtectedPiece& p) { return p.text.begin; });
}

bool SegmentBuilder::in_piece(const std::vector<ProtectedPiece>& pieces, std::size_t at) {
  const auto after =
      std::ranges::upper_bound(pieces, at, {}, [](const ProtectedPiece& p) { return p.text.begin; });
  return after != pieces.begin() && at < (after - 1)->text.end;
}

std::string_view SegmentBuilder::raw_of(ByteSpan span) const {
  const std::size_t begin = raw_position(span.begin);
  // The last character may be written as a reference.
  const auto& spellings = segment_.spellings;
  const auto last =
      std::ranges::lower_bound(spellings, span.end, {}, [](const SpelledCharacter& s) { return s.text.end; });
  const std::size_t end = last != spellings.end() && last->text.end == span.end
                              ? position(last->raw) + last->raw.size()
                              : raw_position(span.end - 1) + 1;
  return all_.substr(begin, end - begin);
}

}  // namespace eigenformer::detail
