#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "translator/documents/markup/markup_document.hpp"
#include "translator/documents/markup/place_pieces.hpp"
#include "translator/documents/markup/text_units.hpp"

namespace eigenformer::detail {

/// The smallest part of a translation that no tag cuts.
struct TargetAtom {
  ByteSpan target{};
  ByteSpan source{};     // what it translates; empty if unknown
  std::size_t leaf = 0;  // the innermost element that it belongs to
  std::size_t piece = TargetPart::none;
  bool space = false, belongs = false;  // to leaf; a space between words that moved belongs to nothing
};

/// Splits a translation into atoms and assigns each to an element of the source.
class TargetAtoms {
 public:
  TargetAtoms(const MarkupSegment& segment, const std::vector<MarkupUnit>& source_units,
              const std::vector<TargetPart>& parts)
      : segment_(segment), elements_(segment.elements), source_units_(source_units), parts_(parts) {
    find_leaves();
    make_atoms();
  }

  /// The text of the translation.
  const std::string& text() const { return text_; }
  const std::vector<TargetAtom>& atoms() const { return atoms_; }
  /// The innermost element around a byte of the source, or InlineElement::none.
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
      cuts_.push_back(e.text.begin);
      cuts_.push_back(e.text.end);
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

}  // namespace eigenformer::detail
