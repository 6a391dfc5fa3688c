#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/search/constraints/phrase_constraint.hpp"

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/text/icu_text.hpp"
#endif

namespace eigenformer::detail {

/// Case functions of ICU; without it only ASCII letters have cases.
struct CaseFunctions {
  char32_t (*fold)(char32_t);
  char32_t (*upper)(char32_t);
};

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline constexpr CaseFunctions icu_case_functions{&icu::fold_case, &icu::to_upper};
inline const bool icu_case_is_linked = link(icu_case_functions);
#endif

/// A code point with Unicode's simple case folding.
inline char32_t folded(char32_t c) {
  if (const auto* icu = find_linked<CaseFunctions>()) return icu->fold(c);
  return c >= U'A' && c <= U'Z' ? c + (U'a' - U'A') : c;
}

/// A text with its first letter in upper case.
EIGENFORMER_IO_FUNCTION std::string capitalized(std::string_view text);

/// Whether a character is part of words: neither white space nor punctuation, and not of a script without
/// spaces between words (Chinese, Japanese, Thai, Lao, Burmese, Khmer).
inline bool is_in_word(char32_t c) {
  if (c == 0 || is_space(c) || is_punctuation(c)) return false;
  const auto within = [&](char32_t first, char32_t last) { return c >= first && c <= last; };
  return !within(0x0E00, 0x0EFF) && !within(0x1000, 0x109F) && !within(0x1780, 0x17FF) &&
         !within(0x2E80, 0xA4CF) && !within(0xF900, 0xFAFF) && !within(0x20000, 0x3FFFF);
}

struct SpacedText;

/// Whether a text contains a phrase as whole words, or begins with it capitalized.
EIGENFORMER_IO_FUNCTION bool has_phrase(std::string_view text, std::string_view phrase);

}  // namespace eigenformer::detail

namespace eigenformer {

/// A glossary term found in a line of text.
struct GlossaryTerm {
  std::string source;                ///< as spelled in the line
  std::vector<std::string> targets;  ///< accepted translations, in no order of preference
  ByteSpan span{};                   ///< its first occurrence in the line
  /// Compares all fields.
  friend bool operator==(const GlossaryTerm&, const GlossaryTerm&) = default;
};

/// Whether a translation honours a glossary term.
struct TermOutcome {
  std::string source;                ///< as spelled in the line
  std::vector<std::string> targets;  ///< accepted translations
  /// Whether the translation contains one of them as whole words, or begins with one, capitalized.
  bool honoured = false;
};

/// Checks each term of a line in its translation; returns one outcome per term.
EIGENFORMER_IO_FUNCTION std::vector<TermOutcome> term_outcomes(std::span<const GlossaryTerm> terms,
                                                               std::string_view translation);

/// Terms with their required translations. Reading is thread-safe; add() is not.
///
///     const auto glossary = ef::Glossary::load("terms.tsv");
///     for (const ef::GlossaryTerm& term : glossary.find("A dog sees the brown dog.")) ...
///
/// The file is UTF-8, one term per line: `source<TAB>target`. A source without a target (with or without the
/// tab) is copied into the translation as it is. Several lines with one source give alternative translations.
/// Empty lines and lines that begin with `#` are ignored; a source that begins with `#` is written `\#`.
class Glossary {
 public:
  /// Creates an empty glossary. ignore_case: match sources in any case (with ICU; without it only ASCII
  /// letters).
  explicit Glossary(bool ignore_case = false) : ignore_case_(ignore_case), nodes_(1) {}

  /// Reads a file. Throws IoError when it cannot be read, is not UTF-8 or is malformed; the message names the
  /// line.
  static Glossary load(const std::filesystem::path& path, bool ignore_case = false) {
    return parse(detail::read_text_file(path), path.string(), ignore_case);
  }

  /// Parses the text of such a file. name: the file's name in messages. Throws as load().
  static Glossary parse(std::string_view text, const std::string& name, bool ignore_case = false);

  /// Adds a translation of a term. target: empty: copy the source as it is. Throws ValueError for an empty
  /// source.
  void add(std::string_view source, std::string_view target);

  /// The number of distinct sources.
  std::size_t size() const noexcept { return size_; }

  /// Finds the terms of a line as whole words, from left to right; of several that begin at one place, the
  /// longest. A term that occurs several times is returned once.
  std::vector<GlossaryTerm> find(std::string_view line) const;

 private:
  struct Node {
    std::map<char32_t, std::size_t> children{};
    std::vector<std::string> targets{};  // empty: no source ends here
  };

  std::pair<std::size_t, const std::vector<std::string>*> longest_at(const detail::SpacedText& text,
                                                                     std::size_t begin) const;

  bool ignore_case_;
  std::size_t size_ = 0;
  std::vector<Node> nodes_;  // a trie over the sources' characters
};

}  // namespace eigenformer

namespace eigenformer::detail {

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

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

namespace detail {

EIGENFORMER_IO_FUNCTION std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const DecodedCodePoint first = decode_front(text);
  if (first.length == 0) return std::string(text);
  char32_t c = first.value;
  if (const auto* icu = find_linked<CaseFunctions>()) {
    c = icu->upper(c);
  } else if (c >= U'a' && c <= U'z') {
    c -= U'a' - U'A';
  }
  return utf8_of(c) + std::string(text.substr(first.length));
}

/// The code points of a text with their bytes; a run of white space is one space.
struct SpacedText {
  std::u32string points;
  std::vector<ByteSpan> spans;

  /// ignore_case: whether to fold letters.
  explicit SpacedText(std::string_view text, bool ignore_case = false) {
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      const auto begin = static_cast<std::size_t>(bytes.data() - text.data());
      if (is_space(c)) {
        if (!points.empty() && points.back() == U' ') {
          spans.back().end = begin + bytes.size();
          return;
        }
        c = U' ';
      }
      points += ignore_case ? folded(c) : c;
      spans.push_back({begin, begin + bytes.size()});
    });
  }

  /// Whether there is a word boundary before the i-th code point.
  bool is_edge(std::size_t i) const {
    return i == 0 || i >= points.size() || !is_in_word(points[i - 1]) || !is_in_word(points[i]);
  }
};

EIGENFORMER_IO_FUNCTION bool has_phrase(std::string_view text, std::string_view phrase) {
  const SpacedText in(text);
  const std::u32string wanted = SpacedText(phrase).points;
  if (wanted.empty()) return false;
  for (std::size_t at = in.points.find(wanted); at != std::u32string::npos;
       at = in.points.find(wanted, at + 1)) {
    if (in.is_edge(at) && in.is_edge(at + wanted.size())) return true;
  }
  const std::u32string initial = SpacedText(capitalized(phrase)).points;
  return in.points.starts_with(initial) && in.is_edge(initial.size());
}

inline bool ends_in_word(std::string_view text) {
  char32_t last = 0;
  for_each_code_point(text, [&](char32_t c, std::string_view) { last = c; });
  return is_in_word(last);
}

// Tokens of a text that ends in a word and survives encoding and decoding.
inline std::vector<std::int32_t> some_word(const Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(tokenizer.vocabulary_size()); ++id) {
    const std::string text = tokenizer.decode(std::vector<std::int32_t>{id});
    if (find_invalid_utf8(text) || !ends_in_word(text)) continue;
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (!ids.empty() && tokenizer.decode(ids) == text) return ids;
  }
  return {};
}

/// Finds out which tokens of a vocabulary continue words, by decoding each one after a word. Takes one
/// decode() per id.
inline TokenEdges token_edges(const Tokenizer& tokenizer) {
  const auto size = static_cast<std::size_t>(tokenizer.vocabulary_size());
  TokenEdges edges{std::vector<bool>(size), std::vector<bool>(size)};
  const std::vector<std::int32_t> word = some_word(tokenizer);
  const std::string before = tokenizer.decode(word);
  std::vector<std::int32_t> ids = word;
  ids.push_back(0);
  for (std::size_t id = 0; id < size; ++id) {
    ids.back() = static_cast<std::int32_t>(id);
    const std::string text = tokenizer.decode(ids);
    const bool added = text.starts_with(before) && text.size() > before.size();
    edges.begins_inside[id] =
        added && is_in_word(decode_front(std::string_view(text).substr(before.size())).value);
    edges.ends_inside[id] = text != before && ends_in_word(text);
  }
  return edges;
}

EIGENFORMER_IO_FUNCTION PhraseConstraint TermForms::constraint(const std::vector<std::string>& terms) const {
  std::call_once(edges_->made,
                 [&] { edges_->edges = std::make_shared<const TokenEdges>(token_edges(*tokenizer_)); });
  PhraseConstraint made{.edges = edges_->edges};
  for (const std::string& term : terms) {
    for (const char* before : {"", "a ", ", ", "(", "\""}) add(made.forms, before, term, term);
    const std::string initial = capitalized(term);
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
  if (form.size() > max_form_length || !has_phrase(tokenizer_->decode(form), wanted)) return;
  if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(std::move(form));
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION std::vector<TermOutcome> term_outcomes(std::span<const GlossaryTerm> terms,
                                                               std::string_view translation) {
  std::vector<TermOutcome> outcomes;
  for (const GlossaryTerm& term : terms) {
    const bool honoured =
        std::any_of(term.targets.begin(), term.targets.end(),
                    [&](const std::string& target) { return detail::has_phrase(translation, target); });
    outcomes.push_back({term.source, term.targets, honoured});
  }
  return outcomes;
}

EIGENFORMER_IO_FUNCTION Glossary Glossary::parse(std::string_view text, const std::string& name,
                                                 bool ignore_case) {
  Glossary glossary(ignore_case);
  const std::vector<std::string> lines = split_lines(text, name);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with('#') || trim(line).empty()) continue;
    const auto refuse = [&](const std::string& what) {
      return IoError("glossary", "'" + name + "', line " + std::to_string(i + 1) + " " + what +
                                     ", expected source<TAB>target, or a source alone");
    };
    const std::size_t tab = line.find('\t');
    const std::string target = tab == std::string::npos ? std::string() : line.substr(tab + 1);
    if (target.find('\t') != std::string::npos) throw refuse("has more than one tab");
    const std::string source = trim(std::string_view(line).substr(0, tab));
    if (source.empty()) throw refuse("has no source");
    glossary.add(source.starts_with("\\#") ? std::string_view(source).substr(1) : source, trim(target));
  }
  return glossary;
}

EIGENFORMER_IO_FUNCTION void Glossary::add(std::string_view source, std::string_view target) {
  std::u32string points = detail::SpacedText(trim(source), ignore_case_).points;
  if (points.empty())
    throw ValueError("glossary",
                     "the source of a term is empty, must have a character other than white space");
  std::size_t at = 0;
  for (const char32_t c : points) {
    // The node comes before its number, so that no number lacks its node if memory runs out.
    nodes_.emplace_back();
    const auto [child, added] = nodes_[at].children.try_emplace(c, nodes_.size() - 1);
    if (!added) nodes_.pop_back();
    at = child->second;
  }
  std::vector<std::string>& targets = nodes_[at].targets;
  if (targets.empty()) ++size_;
  if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.emplace_back(target);
}

EIGENFORMER_IO_FUNCTION std::vector<GlossaryTerm> Glossary::find(std::string_view line) const {
  std::vector<GlossaryTerm> found;
  std::vector<const std::vector<std::string>*> entries;  // of the terms found
  const detail::SpacedText text(line, ignore_case_);
  for (std::size_t i = 0; i < text.points.size();) {
    const auto [length, targets] = longest_at(text, i);
    if (length == 0) {
      ++i;
      continue;
    }
    const ByteSpan span{text.spans[i].begin, text.spans[i + length - 1].end};
    GlossaryTerm term{std::string(span.of(line)), *targets, span};
    for (std::string& target : term.targets) {
      if (target.empty()) target = term.source;
    }
    i += length;
    bool known = false;
    for (std::size_t k = 0; k < found.size(); ++k)
      known = known || (entries[k] == targets && found[k].targets == term.targets);
    if (known) continue;
    found.push_back(std::move(term));
    entries.push_back(targets);
  }
  return found;
}

EIGENFORMER_IO_FUNCTION std::pair<std::size_t, const std::vector<std::string>*> Glossary::longest_at(
    const detail::SpacedText& text, std::size_t begin) const {
  std::pair<std::size_t, const std::vector<std::string>*> longest{0, nullptr};
  if (!text.is_edge(begin)) return longest;
  std::size_t at = 0;
  for (std::size_t i = begin; i < text.points.size(); ++i) {
    const auto child = nodes_[at].children.find(text.points[i]);
    if (child == nodes_[at].children.end()) break;
    at = child->second;
    if (!nodes_[at].targets.empty() && text.is_edge(i + 1)) longest = {i + 1 - begin, &nodes_[at].targets};
  }
  return longest;
}

}  // namespace eigenformer

#endif
