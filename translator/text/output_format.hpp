#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/search/text/translation.hpp"

namespace eigenformer {

/// The format in which results are written.
enum class OutputFormat {
  text,   ///< one line per translation and nothing else
  tsv,    ///< tab-separated columns with a header line
  jsonl,  ///< one JSON object per input line
};
EIGENFORMER_ENUM_NAMES(OutputFormat, "text", "tsv", "jsonl")

/// Options for writing results.
struct OutputOptions {
  OutputFormat output_format = OutputFormat::text;  ///< the format
  bool scores = false;  ///< also write scores, log-probabilities (nats) and confidences

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"output_format", "format of the results"}, self.output_format);
    visit(OptionField{"scores",
                      "write scores and log-probabilities (nats) of sentences and tokens, and confidences"},
          self.scores);
  }

  /// Throws ValueError for scores in format text, which has no place for them.
  void validate() const;
};

namespace detail {

/// Escapes a field of a TSV line: tab, line feed, carriage return and backslash become `\t`, `\n`, `\r` and
/// `\\`; what is not UTF-8 becomes U+FFFD. space: also write a space as `\s`, as in the column of
/// tokens.
std::string tsv_field(std::string_view text, bool space = false);

/// A text as one line of a file: a line feed or carriage return, which a model with tokens of bytes can
/// write, becomes a space.
std::string one_line(std::string text);

/// The header line of translations, with its line feed; empty for formats without one.
std::string translations_header(const OutputOptions& options);

/// Formats the translations of one line, the best first; ends with a line feed.
///
/// number: the line's number, from 1. lines: in format text, the number of output lines per input line,
/// padded with empty lines, so that the first translation of line i is output line (i - 1) * lines + 1; see
/// one_line(). All formats but text are valid UTF-8 whatever the model writes.
std::string format_translations(const OutputOptions& options, std::size_t number, const std::string& source,
                                std::span<const Translation> translations, std::size_t lines = 1);

/// The header line of scored pairs, with its line feed; empty for formats without one.
std::string scored_pairs_header(const OutputOptions& options);

/// Formats the result of TextTranslator::score() for one pair of lines; ends with a line feed. Format text
/// has the log-probability only. A pair without tokens has "nan", in JSON null. options.scores adds tokens
/// and words.
std::string format_scored_pair(const OutputOptions& options, std::size_t number, const std::string& source,
                               const std::string& target, const Translation& t);

}  // namespace detail

}  // namespace eigenformer
