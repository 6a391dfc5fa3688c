#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

namespace detail {

/// Which tokens of a vocabulary continue words, by id: used to require that a phrase is made of whole words.
/// token_edges() computes it.
struct TokenEdges {
  std::vector<bool> begins_inside{};  ///< whether a token continues a word, without a space before it
  std::vector<bool> ends_inside{};    ///< whether a token's last character is part of a word

  /// Whether `id` continues the word that `before` ends in. Both must be within the vocabulary.
  bool joined(std::int32_t before, std::int32_t id) const {
    return ends_inside[static_cast<std::size_t>(before)] && begins_inside[static_cast<std::size_t>(id)];
  }
};

}  // namespace detail

/// A phrase that a text must contain in one of its forms (a disjunctive constraint).
struct PhraseConstraint {
  /// Sequences of 1 to 64 ids, allowed anywhere; at least one.
  std::vector<std::vector<std::int32_t>> forms{};
  std::vector<std::vector<std::int32_t>>
      initial_forms{};  ///< sequences allowed as the first ids of the text only
  /// If not null, the phrase must be whole words: no token before or after it may continue them.
  std::shared_ptr<const detail::TokenEdges> edges{};

  /// Compares the forms, and the edges by address.
  friend bool operator==(const PhraseConstraint&, const PhraseConstraint&) = default;
};

/// The constraints of one input: its text must meet all of them, in any order. Phrases may overlap.
using PhraseConstraints = std::vector<PhraseConstraint>;

namespace detail {

/// The maximum length of a form: PhraseState::joins has 64 bits.
inline constexpr std::size_t max_form_length = 64;

/// Throws ValueError for a constraint without forms, and for forms that no text can contain.
EIGENFORMER_FUNCTION void require_possible(const char* op, const PhraseConstraints& constraints,
                                           index_t vocabulary, std::int32_t end_id);

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void require_possible(const char* op, const PhraseConstraints& constraints,
                                           index_t vocabulary, std::int32_t end_id) {
  for (std::size_t c = 0; c < constraints.size(); ++c) {
    const auto refuse = [&](const std::string& what) {
      return ValueError(op, "constraint " + std::to_string(c) + " " + what);
    };
    const PhraseConstraint& constraint = constraints[c];
    if (constraint.forms.empty()) throw refuse("has no forms, must have at least one");
    for (const auto* forms : {&constraint.forms, &constraint.initial_forms}) {
      for (const auto& form : *forms) {
        if (form.empty() || form.size() > max_form_length) {
          throw refuse("has a form of " + std::to_string(form.size()) + " ids, must have 1 to " +
                       std::to_string(max_form_length));
        }
        for (const std::int32_t id : form) {
          if (id < 0 || id >= vocabulary) {
            throw refuse("has the id " + std::to_string(id) +
                         ", must be at least 0 and below the vocabulary's size " +
                         std::to_string(vocabulary));
          }
          if (id == end_id)
            throw refuse("has the end symbol " + std::to_string(id) + " in a form, must not have it");
        }
      }
    }
    if (constraint.edges == nullptr) continue;
    const auto size = static_cast<std::size_t>(vocabulary);
    if (constraint.edges->begins_inside.size() != size || constraint.edges->ends_inside.size() != size) {
      throw refuse("has edges of " + std::to_string(constraint.edges->begins_inside.size()) + " and " +
                   std::to_string(constraint.edges->ends_inside.size()) + " ids, must be of " +
                   std::to_string(size) + ", the vocabulary's size");
    }
  }
}

#endif

}  // namespace detail

}  // namespace eigenformer
