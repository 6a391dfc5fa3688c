#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/generation/text/text_translator.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The format in which results are written.
enum class OutputFormat {
  text,   ///< one line per translation and nothing else
  tsv,    ///< tab-separated columns with a header line
  jsonl,  ///< one JSON object per input line
};
/// The names of OutputFormat in options.
template <>
struct EnumNames<OutputFormat> {
  /// In the order of the enumerators.
  static constexpr std::array names = {"text", "tsv", "jsonl"};
};

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
  void validate() const {
    validate_fields("output", *this);
    if (scores && output_format == OutputFormat::text)
      throw ValueError("output", "output_format is text, which cannot hold scores; expected tsv or jsonl");
  }
};

namespace detail {

// Six decimals suffice for the precision of float weights.
inline double rounded(double x) { return std::round(x * 1e6) / 1e6; }
inline std::string rounded_text(double x) {
  // NaN: a pair that could not be scored.
  return std::isfinite(x) ? number_text(rounded(x) + 0.0) : "nan";
}

inline nlohmann::ordered_json number_json(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(rounded(x) + 0.0) : nlohmann::ordered_json(nullptr);
}

inline double perplexity_of(const Translation& t) {
  return t.tokens.empty() ? std::nan("")
                          : std::exp(-t.log_probability / static_cast<double>(t.tokens.size()));
}

inline nlohmann::ordered_json tokens_json(const Translation& t) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (const TokenScore& token : t.tokens)
    tokens.push_back(
        {{"token", valid_utf8(token.token)}, {"log_probability", number_json(token.log_probability)}});
  return tokens;
}

inline nlohmann::ordered_json words_json(const Translation& t) {
  nlohmann::ordered_json words = nlohmann::ordered_json::array();
  for (const WordConfidence& word : t.words)
    words.push_back({{"word", valid_utf8(word.word)}, {"confidence", number_json(word.confidence)}});
  return words;
}

inline nlohmann::ordered_json terms_json(const Translation& t) {
  nlohmann::ordered_json terms = nlohmann::ordered_json::array();
  for (const TermOutcome& term : t.terms) {
    nlohmann::ordered_json targets = nlohmann::ordered_json::array();
    for (const std::string& target : term.targets) targets.push_back(valid_utf8(target));
    terms.push_back({{"source", valid_utf8(term.source)}, {"targets", targets}, {"honoured", term.honoured}});
  }
  return terms;
}

template <class Items, class F>
std::string join_with_spaces(const Items& items, F&& text) {
  std::string joined;
  for (const auto& item : items) (joined += joined.empty() ? "" : " ") += text(item);
  return joined;
}

}  // namespace detail

/// Escapes a field of a TSV line: tab, line feed, carriage return and backslash become `\t`, `\n`, `\r` and
/// `\\`; what is not UTF-8 becomes U+FFFD. space: also write a space as `\s`, as in the column of
/// tokens.
inline std::string tsv_field(std::string_view text, bool space = false) {
  std::string field;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '\t':
        field += "\\t";
        break;
      case '\n':
        field += "\\n";
        break;
      case '\r':
        field += "\\r";
        break;
      case '\\':
        field += "\\\\";
        break;
      case ' ':
        field += space ? "\\s" : " ";
        break;
      default:
        field += c;
    }
  }
  return field;
}

/// A text as one line of a file: a line feed or carriage return, which a model with tokens of bytes can
/// write, becomes a space.
inline std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

namespace detail {

// The columns of token and word scores.
inline constexpr const char* token_columns = "\ttokens\ttoken_log_probabilities\tword_confidences";
inline std::string token_fields(const Translation& t) {
  return "\t" + join_with_spaces(t.tokens, [](const TokenScore& s) { return tsv_field(s.token, true); }) +
         "\t" +
         join_with_spaces(t.tokens, [](const TokenScore& s) { return rounded_text(s.log_probability); }) +
         "\t" + join_with_spaces(t.words, [](const WordConfidence& w) { return rounded_text(w.confidence); });
}

}  // namespace detail

/// The header line of translations, with its line feed; empty for formats without one.
inline std::string translations_header(const OutputOptions& options) {
  if (options.output_format != OutputFormat::tsv) return {};
  std::string header = "line\trank\ttranslation";
  if (options.scores) (header += "\tscore\tlog_probability\tconfidence") += detail::token_columns;
  return header + "\n";
}

/// Formats the translations of one line, the best first; ends with a line feed.
///
/// number: the line's number, from 1. lines: in format text, the number of output lines per input line,
/// padded with empty lines, so that the first translation of line i is output line (i - 1) * lines + 1; see
/// one_line(). All formats but text are valid UTF-8 whatever the model writes.
inline std::string format_translations(const OutputOptions& options, std::size_t number,
                                       const std::string& source, std::span<const Translation> translations,
                                       std::size_t lines = 1) {
  std::string out;
  if (options.output_format == OutputFormat::text) {
    for (std::size_t i = 0; i < lines; ++i)
      (out += i < translations.size() ? one_line(translations[i].text) : std::string()) += '\n';
    return out;
  }
  if (options.output_format == OutputFormat::tsv) {
    for (std::size_t i = 0; i < translations.size(); ++i) {
      const Translation& t = translations[i];
      out += std::to_string(number) + "\t" + std::to_string(i + 1) + "\t" + tsv_field(t.text);
      if (options.scores) {
        out += "\t" + detail::rounded_text(t.score) + "\t" + detail::rounded_text(t.log_probability) + "\t" +
               detail::rounded_text(t.confidence) + detail::token_fields(t);
      }
      out += '\n';
    }
    return out;
  }
  nlohmann::ordered_json object = {{"line", number}, {"source", valid_utf8(source)}};
  if (!translations.empty() && translations.front().cut) object["cut"] = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Translation& t : translations) {
    nlohmann::ordered_json entry = {{"text", valid_utf8(t.text)}};
    if (options.scores) {
      entry["score"] = detail::number_json(t.score);
      entry["log_probability"] = detail::number_json(t.log_probability);
      entry["confidence"] = detail::number_json(t.confidence);
      entry["tokens"] = detail::tokens_json(t);
      entry["words"] = detail::words_json(t);
    }
    if (!t.terms.empty()) entry["terms"] = detail::terms_json(t);
    list.push_back(std::move(entry));
  }
  object["translations"] = std::move(list);
  return object.dump() + "\n";
}

/// The header line of scored pairs, with its line feed; empty for formats without one.
inline std::string scored_pairs_header(const OutputOptions& options) {
  if (options.output_format != OutputFormat::tsv) return {};
  std::string header = "line\tlog_probability\tnum_tokens\tperplexity\tconfidence";
  if (options.scores) header += detail::token_columns;
  return header + "\n";
}

/// Formats the result of TextTranslator::score() for one pair of lines; ends with a line feed. Format text
/// has the log-probability only. A pair without tokens has "nan", in JSON null. options.scores adds tokens
/// and words.
inline std::string format_scored_pair(const OutputOptions& options, std::size_t number,
                                      const std::string& source, const std::string& target,
                                      const Translation& t) {
  const double log_probability = t.tokens.empty() ? std::nan("") : t.log_probability;
  const double confidence = t.tokens.empty() ? std::nan("") : t.confidence;
  if (options.output_format == OutputFormat::text) return detail::rounded_text(log_probability) + "\n";
  if (options.output_format == OutputFormat::tsv) {
    return std::to_string(number) + "\t" + detail::rounded_text(log_probability) + "\t" +
           std::to_string(t.tokens.size()) + "\t" + detail::rounded_text(detail::perplexity_of(t)) + "\t" +
           detail::rounded_text(confidence) + (options.scores ? detail::token_fields(t) : "") + "\n";
  }
  nlohmann::ordered_json object = {{"line", number},
                                   {"source", valid_utf8(source)},
                                   {"target", valid_utf8(target)},
                                   {"log_probability", detail::number_json(log_probability)},
                                   {"num_tokens", t.tokens.size()},
                                   {"perplexity", detail::number_json(detail::perplexity_of(t))},
                                   {"confidence", detail::number_json(confidence)}};
  if (t.cut) object["cut"] = true;
  if (options.scores) {
    object["tokens"] = detail::tokens_json(t);
    object["words"] = detail::words_json(t);
  }
  return object.dump() + "\n";
}

}  // namespace eigenformer
