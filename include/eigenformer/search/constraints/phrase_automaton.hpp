#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "eigenformer/search/constraints/phrase_constraint.hpp"

namespace eigenformer::detail {

/// How far a text meets its constraints.
struct PhraseState {
  enum Met : std::uint8_t {
    no,
    just_now,  // by the last token; the next one must not continue its word
    yes,
  };

  std::size_t node = 0;
  std::size_t length = 0;   // tokens of the text
  std::int32_t last = -1;   // the last token
  std::uint64_t joins = 0;  // bit i: whether the token i places before the last one continued a word
  std::vector<Met> met{};   // by constraint
};

/// Matches the phrases of one input in a growing text (Aho & Corasick 1975). The state after a token tells
/// which constraints are met and which phrases have begun, also when phrases are abandoned or overlap.
class PhraseAutomaton {
 public:
  /// constraints: must outlive it. Forms that contain a forbidden id are ignored; a text may end without a
  /// constraint all of whose forms do.
  PhraseAutomaton(const PhraseConstraints& constraints, std::span<const std::int32_t> forbidden)
      : constraints_(&constraints) {
    nodes_.emplace_back();
    const auto allowed = [&](const std::vector<std::int32_t>& form) {
      return std::none_of(form.begin(), form.end(), [&](std::int32_t id) {
        return std::find(forbidden.begin(), forbidden.end(), id) != forbidden.end();
      });
    };
    for (std::size_t c = 0; c < constraints.size(); ++c) {
      // The length of the shortest form that can stand anywhere, or of any form if each needs text before it.
      std::size_t shortest = 0, anywhere = 0;
      const TokenEdges* const edges = constraints[c].edges.get();
      for (const auto& form : constraints[c].forms) {
        if (!allowed(form)) continue;
        insert(c, form, false);
        const bool free = edges == nullptr || !edges->begins_inside[static_cast<std::size_t>(form[0])];
        std::size_t& least = free ? anywhere : shortest;
        least = least == 0 ? form.size() : std::min(least, form.size());
      }
      for (const auto& form : constraints[c].initial_forms) {
        if (allowed(form)) insert(c, form, true);
      }
      tokens_.push_back(anywhere > 0 ? anywhere : shortest);
    }
    link();
  }

  /// The state after these tokens.
  PhraseState begin(std::span<const std::int32_t> prefix = {}) const {
    PhraseState state;
    state.met.assign(constraints_->size(), PhraseState::no);
    for (const std::int32_t id : prefix) advance(state, id);
    return state;
  }

  /// Appends a token to the text.
  void advance(PhraseState& state, std::int32_t id) const {
    for (std::size_t c = 0; c < state.met.size(); ++c) {
      if (state.met[c] == PhraseState::just_now)
        state.met[c] = joined(c, state.last, id) ? PhraseState::no : PhraseState::yes;
    }
    // All constraints have the edges of one vocabulary.
    const bool inside = std::any_of(constraints_->begin(), constraints_->end(), [&](const auto& constraint) {
      return constraint.edges != nullptr && state.last >= 0 && constraint.edges->joined(state.last, id);
    });
    state.joins = state.joins << 1 | (inside ? 1u : 0u);
    ++state.length;
    state.last = id;
    state.node = next(state.node, id);
    for (const End& end : nodes_[state.node].ends) {
      if (state.met[end.constraint] != PhraseState::no || !stands(state, end.constraint, end.length))
        continue;
      if (end.initial && state.length != end.length) continue;
      state.met[end.constraint] = edges(end.constraint) == nullptr ? PhraseState::yes : PhraseState::just_now;
    }
  }

  /// A number of tokens that certainly suffices to meet all unmet constraints; overlapping phrases may need
  /// fewer.
  std::size_t tokens_left(const PhraseState& state) const {
    std::size_t total = 0, saved = 0;
    for (std::size_t c = 0; c < tokens_.size(); ++c)
      total += state.met[c] == PhraseState::no ? tokens_[c] : 0;
    if (total == 0) return 0;
    for (const Partial& partial : nodes_[state.node].partials) {
      if (partial.matched > 0 && goes_on(state, partial) && partial.left < tokens_[partial.constraint])
        saved = std::max(saved, tokens_[partial.constraint] - partial.left);
    }
    return total - saved;
  }

  /// The ids that continue or begin a phrase of an unmet constraint, sorted, without duplicates.
  std::vector<std::int32_t> next_ids(const PhraseState& state) const {
    std::vector<std::int32_t> ids;
    for (const Partial& partial : nodes_[state.node].partials) {
      if (goes_on(state, partial)) ids.push_back(partial.id);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  /// The edges of a phrase whose last word the next token must not continue; null: no such phrase.
  const TokenEdges* edges_after(const PhraseState& state) const {
    for (std::size_t c = 0; c < state.met.size(); ++c) {
      if (state.met[c] == PhraseState::just_now &&
          edges(c)->ends_inside[static_cast<std::size_t>(state.last)])
        return edges(c);
    }
    return nullptr;
  }

  /// Whether the text ends inside a phrase of an unmet constraint.
  bool within_phrase(const PhraseState& state) const {
    return std::any_of(
        nodes_[state.node].partials.begin(), nodes_[state.node].partials.end(),
        [&](const Partial& partial) { return partial.matched > 0 && goes_on(state, partial); });
  }

  /// The indices of the unmet constraints.
  std::vector<std::size_t> unmet(const PhraseState& state) const {
    std::vector<std::size_t> places;
    for (std::size_t c = 0; c < state.met.size(); ++c) {
      if (state.met[c] == PhraseState::no) places.push_back(c);
    }
    return places;
  }

 private:
  // A form that ends at a node.
  struct End {
    std::size_t constraint, length;
    bool initial;
  };
  // A form whose first `matched` tokens lead to a node; its next token is id.
  struct Partial {
    std::size_t constraint, matched, left;
    std::int32_t id;
    bool initial;
  };
  struct Node {
    std::map<std::int32_t, std::size_t> children{};
    std::size_t fail = 0;
    std::vector<End> ends{};
    std::vector<Partial> partials{};
  };

  const TokenEdges* edges(std::size_t constraint) const { return (*constraints_)[constraint].edges.get(); }
  bool joined(std::size_t constraint, std::int32_t before, std::int32_t id) const {
    const TokenEdges* const found = edges(constraint);
    return found != nullptr && before >= 0 && found->joined(before, id);
  }

  // Whether the last `length` tokens of the text begin at a word boundary, if the constraint needs one.
  bool stands(const PhraseState& state, std::size_t constraint, std::size_t length) const {
    return length == 0 || edges(constraint) == nullptr || (state.joins >> (length - 1) & 1u) == 0;
  }

  // Whether the text can continue with a phrase of an unmet constraint.
  bool goes_on(const PhraseState& state, const Partial& partial) const {
    if (state.met[partial.constraint] != PhraseState::no) return false;
    if (partial.initial && state.length != partial.matched) return false;
    if (!stands(state, partial.constraint, partial.matched)) return false;
    if (partial.matched == 0 && joined(partial.constraint, state.last, partial.id)) return false;
    // A token that continues the last word of another phrase would undo that phrase.
    for (std::size_t c = 0; c < state.met.size(); ++c) {
      if (state.met[c] == PhraseState::just_now && joined(c, state.last, partial.id)) return false;
    }
    return true;
  }

  void insert(std::size_t constraint, const std::vector<std::int32_t>& form, bool initial) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < form.size(); ++i) {
      nodes_[at].partials.push_back({constraint, i, form.size() - i, form[i], initial});
      const auto [child, added] = nodes_[at].children.try_emplace(form[i], nodes_.size());
      at = child->second;
      if (added) nodes_.emplace_back();
    }
    nodes_[at].ends.push_back({constraint, form.size(), initial});
  }

  // Links each node, level by level, to the node of its longest proper suffix.
  void link() {
    std::vector<std::size_t> order = {0};
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t at = order[i];
      for (const auto& [id, child] : nodes_[at].children) {
        nodes_[child].fail = at == 0 ? 0 : next(nodes_[at].fail, id);
        order.push_back(child);
      }
      if (at == 0) continue;
      const Node& shorter = nodes_[nodes_[at].fail];
      Node& node = nodes_[at];
      node.ends.insert(node.ends.end(), shorter.ends.begin(), shorter.ends.end());
      node.partials.insert(node.partials.end(), shorter.partials.begin(), shorter.partials.end());
    }
  }

  std::size_t next(std::size_t at, std::int32_t id) const {
    while (true) {
      const auto child = nodes_[at].children.find(id);
      if (child != nodes_[at].children.end()) return child->second;
      if (at == 0) return 0;
      at = nodes_[at].fail;
    }
  }

  const PhraseConstraints* constraints_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> tokens_;  // that meet each constraint; 0: not required
};

}  // namespace eigenformer::detail
