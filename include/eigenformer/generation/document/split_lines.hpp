#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/generation/document/document_parts.hpp"
#include "eigenformer/generation/document/document_translation.hpp"
#include "eigenformer/generation/text/text_translator.hpp"

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

  /// Splits each line as document_parts() splits a document. Without a splitter, a line that fits is kept
  /// unchanged, white space included. Throws as document_parts().
  SplitLines(std::span<const std::string> lines, const DocumentOptions& options, const SentenceFits& fits)
      : lines_(lines.begin(), lines.end()), keeps_space_(options.splitter != nullptr) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::vector<DocumentPart> parts = document_parts(lines_[i], options, fits);
      const bool whole = parts.size() == 1 && !keeps_space_;
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

}  // namespace eigenformer
