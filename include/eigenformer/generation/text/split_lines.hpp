#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/generation/text/document_parts.hpp"
#include "eigenformer/generation/text/document_translation.hpp"
#include "eigenformer/generation/text/prepared_sentences.hpp"
#include "eigenformer/generation/text/translation.hpp"

namespace eigenformer {

/// Splits lines into sentences that fit a model, for translation in one call, and joins the translations
/// again: one result per line, whatever the number of parts.
class SplitLines {
 public:
  /// A part of a line to translate.
  struct Part {
    std::string text;       ///< the text to translate
    std::size_t line = 0;   ///< index of its line
    std::size_t place = 0;  ///< index among the parts of its line
  };

  /// Splits each line as document_parts() splits a document. Without a splitter, or with
  /// DocumentLayout::flow, a line of one part is kept unchanged, white space included, and so is one that is
  /// not UTF-8. Throws as document_parts().
  SplitLines(std::span<const std::string> lines, const DocumentOptions& options, const SentenceFits& fits)
      : lines_(lines.begin(), lines.end()),
        keeps_space_(options.splitter != nullptr && options.layout != DocumentLayout::flow) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::vector<DocumentPart> parts;
      if (!keeps_space_ && find_invalid_utf8(lines_[i])) {
        parts.push_back({{0, lines_[i].size()}, false, true});
      } else {
        parts = document_parts(lines_[i], options, fits);
      }
      const bool whole = parts.size() == 1 && !keeps_space_ &&
                         (!fits || parts[0].source.size() == lines_[i].size() || fits(lines_[i]));
      bool too_long = false;
      for (std::size_t k = 0; k < parts.size(); ++k) {
        parts_.push_back({whole ? lines_[i] : std::string(parts[k].source.of(lines_[i])), i, k});
        too_long = too_long || parts[k].continues;
      }
      num_split_ += too_long;
      of_lines_.push_back(std::move(parts));
    }
  }

  /// The parts to translate, in the order of the lines.
  const std::vector<Part>& parts() const noexcept { return parts_; }

  /// The number of lines with a sentence that was too long.
  std::size_t num_split() const noexcept { return num_split_; }

  /// The beginning of a line's translation, from the texts of its first parts; at least one. Throws
  /// ValueError for more texts than parts.
  std::string beginning(std::size_t line, const std::vector<std::string>& texts) const {
    const std::vector<DocumentPart>& of_line = of_lines_[line];
    if (texts.empty() || texts.size() > of_line.size()) {
      throw ValueError("document", "there are texts of " + std::to_string(texts.size()) +
                                       " parts, must be at least one and at most " +
                                       std::to_string(of_line.size()));
    }
    if (of_line.size() == 1 && !keeps_space_) return texts.front();
    std::vector<Translation> translations(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) translations[i].text = texts[i];
    const std::span<const DocumentPart> parts = std::span(of_line).first(texts.size());
    return assemble_document(std::string_view(lines_[line]).substr(0, parts.back().source.end), parts,
                             std::move(translations))
        .text;
  }

  /// Joins the translations of the parts (one list per part, the best first) to one list per line: a line's
  /// i-th translation has the i-th translation of each part, or the last one of a part with fewer; see
  /// joined_translation(), also for `weights`. Throws ValueError for another number of parts and for a part
  /// without translations.
  std::vector<std::vector<Translation>> join(std::vector<std::vector<Translation>> of_parts,
                                             bool weights = true) const {
    if (of_parts.size() != parts_.size()) {
      throw ValueError("document", "there are translations of " + std::to_string(of_parts.size()) +
                                       " parts, must be " + std::to_string(parts_.size()));
    }
    for (std::size_t i = 0; i < of_parts.size(); ++i) {
      if (of_parts[i].empty())
        throw ValueError("document", "part " + std::to_string(i) + " has no translation, must have one");
    }
    std::vector<std::vector<Translation>> joined(lines_.size());
    auto next = of_parts.begin();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const auto end = next + static_cast<std::ptrdiff_t>(of_lines_[i].size());
      if (of_lines_[i].size() == 1 && !keeps_space_) {
        joined[i] = std::move(*next);
      } else if (of_lines_[i].empty() && !keeps_space_) {
        joined[i].emplace_back();
      } else {
        for (DocumentTranslation& line : assemble_documents(lines_[i], of_lines_[i], std::span(next, end)))
          joined[i].push_back(joined_translation(std::move(line), weights));
      }
      next = end;
    }
    return joined;
  }

 private:
  std::vector<std::string> lines_;
  std::vector<std::vector<DocumentPart>> of_lines_;
  std::vector<Part> parts_;
  bool keeps_space_;
  std::size_t num_split_ = 0;
};

/// Lines split into parts and tokenized, for TextTranslator::alternatives() and Translator.
class PreparedParts {
 public:
  /// Tokenizes a part of a line; see TextTranslator::prepare(). line: the index of its line.
  using Prepare = std::function<PreparedLine(const std::string& text, std::uint64_t number,
                                             const std::string& prefix, std::size_t line)>;

  /// Splits and tokenizes lines. splitting: how; not set: each line is one part. first and prefixes: as in
  /// TextTranslator::alternatives(); samples depend on the number of the line and of the part within it. A
  /// part without a prefix is tokenized once. Throws as SplitLines does, and what `prepare` throws.
  PreparedParts(std::span<const std::string> lines, const std::optional<DocumentOptions>& splitting,
                std::uint64_t first, std::span<const std::string> prefixes, const Prepare& prepare) {
    const auto prefix_of = [&](std::size_t line) {
      return prefixes.empty() ? std::string() : prefixes[line];
    };
    if (!splitting) {
      for (std::size_t i = 0; i < lines.size(); ++i)
        lines_.push_back(prepare(lines[i], first + i, prefix_of(i), i));
      return;
    }
    PreparedSentences sentences([&](const std::string& text) { return prepare(text, 0, {}, 0); });
    split_.emplace(lines, *splitting, [&](const std::string& text) { return sentences.fits(text); });
    for (const SplitLines::Part& part : split_->parts()) {
      const std::uint64_t number = first + part.line + (std::uint64_t{part.place} << 40);
      const std::string prefix = part.place == 0 ? prefix_of(part.line) : std::string();
      lines_.push_back(prefix.empty() ? sentences.prepared(part.text)
                                      : prepare(part.text, number, prefix, part.line));
      lines_.back().number = number;
    }
  }

  /// The tokenized parts, in the order of the lines.
  std::vector<PreparedLine>& lines() noexcept { return lines_; }
  /// The same.
  const std::vector<PreparedLine>& lines() const noexcept { return lines_; }
  /// The index of the line that a part belongs to.
  std::size_t line_of(std::size_t part) const { return split_ ? split_->parts()[part].line : part; }
  /// Whether a part is the first of its line.
  bool begins_line(std::size_t part) const { return !split_ || split_->parts()[part].place == 0; }

  /// The beginning of a line's translation; see SplitLines::beginning(). Throws as it does.
  std::string beginning(std::size_t line, const std::vector<std::string>& texts) const {
    return split_ ? split_->beginning(line, texts) : texts.front();
  }
  /// The translations of the lines, from those of the parts; see SplitLines::join(). Throws as it does.
  std::vector<std::vector<Translation>> join(std::vector<std::vector<Translation>> of_parts,
                                             bool weights = true) const {
    return split_ ? split_->join(std::move(of_parts), weights) : std::move(of_parts);
  }

 private:
  std::optional<SplitLines> split_;
  std::vector<PreparedLine> lines_;
};

}  // namespace eigenformer
