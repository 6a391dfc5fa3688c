#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/search/constraints/word_text.hpp"

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
    return parse(read_text_file(path), path.string(), ignore_case);
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

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

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
