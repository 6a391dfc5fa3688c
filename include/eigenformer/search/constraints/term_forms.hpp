#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/search/constraints/glossary.hpp"
#include "eigenformer/search/constraints/phrase_constraint.hpp"
#include "eigenformer/search/constraints/word_text.hpp"

namespace eigenformer {

namespace detail {

inline bool ends_in_word(std::string_view text) {
  char32_t last = 0;
  for_each_code_point(text, [&](char32_t c, std::string_view) { last = c; });
  return is_in_word(last);
}

// Tokens of a text that ends in a word and survives encoding and decoding.
EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> some_word(const Tokenizer& tokenizer);

}  // namespace detail

/// Finds out which tokens of a vocabulary continue words, by decoding each one after a word. Takes one
/// decode() per id.
EIGENFORMER_IO_FUNCTION TokenEdges token_edges(const Tokenizer& tokenizer);

/// Converts terms to constraints: each term to the token sequences that it may have within a text.
/// Thread-safe.
class TermForms {
 public:
  /// tokenizer: of the target texts. Its TokenEdges are computed with the first constraint, once for all
  /// copies.
  explicit TermForms(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// A constraint that any one of these terms meets, as whole words: at the beginning of a text (also
  /// capitalized), after a word and after punctuation. Its `forms` are empty when the vocabulary cannot write
  /// the terms.
  PhraseConstraint constraint(const std::vector<std::string>& terms) const;

  /// The constraints of a line's terms, without terms that the vocabulary cannot write.
  PhraseConstraints constraints(std::span<const GlossaryTerm> terms) const;

 private:
  using Ids = std::vector<std::int32_t>;

  // Adds the tokens of a term after some text, unless they decode differently or are known already.
  void add(std::vector<Ids>& forms, std::string_view before, const std::string& term,
           const std::string& wanted) const;

  struct SharedEdges {
    std::once_flag made{};
    std::shared_ptr<const TokenEdges> edges{};
  };

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<SharedEdges> edges_ = std::make_shared<SharedEdges>();
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> some_word(const Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(tokenizer.vocabulary_size()); ++id) {
    const std::string text = tokenizer.decode(std::vector<std::int32_t>{id});
    if (find_invalid_utf8(text) || !ends_in_word(text)) continue;
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (!ids.empty() && tokenizer.decode(ids) == text) return ids;
  }
  return {};
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION TokenEdges token_edges(const Tokenizer& tokenizer) {
  const auto size = static_cast<std::size_t>(tokenizer.vocabulary_size());
  TokenEdges edges{std::vector<bool>(size), std::vector<bool>(size)};
  const std::vector<std::int32_t> word = detail::some_word(tokenizer);
  const std::string before = tokenizer.decode(word);
  std::vector<std::int32_t> ids = word;
  ids.push_back(0);
  for (std::size_t id = 0; id < size; ++id) {
    ids.back() = static_cast<std::int32_t>(id);
    const std::string text = tokenizer.decode(ids);
    const bool added = text.starts_with(before) && text.size() > before.size();
    edges.begins_inside[id] =
        added && detail::is_in_word(detail::decode_front(std::string_view(text).substr(before.size())).value);
    edges.ends_inside[id] = text != before && detail::ends_in_word(text);
  }
  return edges;
}

EIGENFORMER_IO_FUNCTION PhraseConstraint TermForms::constraint(const std::vector<std::string>& terms) const {
  std::call_once(edges_->made,
                 [&] { edges_->edges = std::make_shared<const TokenEdges>(token_edges(*tokenizer_)); });
  PhraseConstraint made{.edges = edges_->edges};
  for (const std::string& term : terms) {
    for (const char* before : {"", "a ", ", ", "(", "\""}) add(made.forms, before, term, term);
    const std::string initial = detail::capitalized(term);
    if (initial != term) add(made.initial_forms, "", initial, term);
  }
  return made;
}

EIGENFORMER_IO_FUNCTION PhraseConstraints TermForms::constraints(std::span<const GlossaryTerm> terms) const {
  PhraseConstraints all;
  for (const GlossaryTerm& term : terms) {
    PhraseConstraint made = constraint(term.targets);
    if (!made.forms.empty()) all.push_back(std::move(made));
  }
  return all;
}

EIGENFORMER_IO_FUNCTION void TermForms::add(std::vector<Ids>& forms, std::string_view before,
                                            const std::string& term, const std::string& wanted) const {
  const Ids context = tokenizer_->encode(before);
  Ids form = tokenizer_->encode(std::string(before) + term);
  if (form.size() <= context.size() || !std::equal(context.begin(), context.end(), form.begin())) return;
  form.erase(form.begin(), form.begin() + static_cast<std::ptrdiff_t>(context.size()));
  if (form.size() > detail::max_form_length || !detail::has_phrase(tokenizer_->decode(form), wanted)) return;
  if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(std::move(form));
}

}  // namespace eigenformer

#endif
