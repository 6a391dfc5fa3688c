#include "translator/text/output_format.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer {

namespace {

// Six decimals suffice for the precision of float weights.
double rounded(double x) { return std::round(x * 1e6) / 1e6; }
std::string rounded_text(double x) {
  // NaN: a pair that could not be scored.
  return std::isfinite(x) ? detail::number_text(rounded(x) + 0.0) : "nan";
}

nlohmann::ordered_json number_json(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(rounded(x) + 0.0) : nlohmann::ordered_json(nullptr);
}

double perplexity_of(const Translation& t) {
  return t.tokens.empty() ? std::nan("")
                          : std::exp(-t.log_probability / static_cast<double>(t.tokens.size()));
}

// A list of f(item).
template <class Items, class F>
nlohmann::ordered_json list_json(const Items& items, F&& f) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& item : items) list.push_back(f(item));
  return list;
}

// Adds the scores of tokens and words.
void add_token_fields(nlohmann::ordered_json& object, const Translation& t) {
  using json = nlohmann::ordered_json;
  object["tokens"] = list_json(t.tokens, [](const TokenScore& s) {
    return json{{"token", valid_utf8(s.token)}, {"log_probability", number_json(s.log_probability)}};
  });
  object["words"] = list_json(t.words, [](const WordConfidence& w) {
    return json{{"word", valid_utf8(w.word)}, {"confidence", number_json(w.confidence)}};
  });
}

nlohmann::ordered_json term_json(const TermOutcome& term) {
  return {{"source", valid_utf8(term.source)},
          {"targets", list_json(term.targets, [](const std::string& target) { return valid_utf8(target); })},
          {"honoured", term.honoured}};
}

template <class Items, class F>
std::string join_with_spaces(const Items& items, F&& text) {
  std::string joined;
  for (const auto& item : items) (joined += joined.empty() ? "" : " ") += text(item);
  return joined;
}

// The columns of token and word scores.
constexpr const char* token_columns = "\ttokens\ttoken_log_probabilities\tword_confidences";
std::string token_fields(const Translation& t) {
  return "\t" +
         join_with_spaces(t.tokens, [](const TokenScore& s) { return detail::tsv_field(s.token, true); }) +
         "\t" +
         join_with_spaces(t.tokens, [](const TokenScore& s) { return rounded_text(s.log_probability); }) +
         "\t" + join_with_spaces(t.words, [](const WordConfidence& w) { return rounded_text(w.confidence); });
}

}  // namespace

void OutputOptions::validate() const {
  validate_fields("output", *this);
  if (scores && output_format == OutputFormat::text)
    throw ValueError("output", "output_format is text, which cannot hold scores; expected tsv or jsonl");
}

std::string detail::tsv_field(std::string_view text, bool space) {
  static constexpr std::string_view escaped = "\t\n\r\\ ", letters = "tnr\\s";
  std::string field;
  for (const char c : valid_utf8(text)) {
    const std::size_t escape = c == ' ' && !space ? escaped.npos : escaped.find(c);
    if (escape == escaped.npos) {
      field += c;
    } else {
      (field += '\\') += letters[escape];
    }
  }
  return field;
}

std::string detail::one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string detail::translations_header(const OutputOptions& options) {
  if (options.output_format != OutputFormat::tsv) return {};
  std::string header = "line\trank\ttranslation";
  if (options.scores) (header += "\tscore\tlog_probability\tconfidence") += token_columns;
  return header + "\n";
}

std::string detail::format_translations(const OutputOptions& options, std::size_t number,
                                        const std::string& source, std::span<const Translation> translations,
                                        std::size_t lines) {
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
        out += "\t" + rounded_text(t.score) + "\t" + rounded_text(t.log_probability) + "\t" +
               rounded_text(t.confidence) + token_fields(t);
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
      entry["score"] = number_json(t.score);
      entry["log_probability"] = number_json(t.log_probability);
      entry["confidence"] = number_json(t.confidence);
      add_token_fields(entry, t);
    }
    if (!t.terms.empty()) entry["terms"] = list_json(t.terms, term_json);
    list.push_back(std::move(entry));
  }
  object["translations"] = std::move(list);
  return object.dump() + "\n";
}

std::string detail::scored_pairs_header(const OutputOptions& options) {
  if (options.output_format != OutputFormat::tsv) return {};
  std::string header = "line\tlog_probability\tnum_tokens\tperplexity\tconfidence";
  if (options.scores) header += token_columns;
  return header + "\n";
}

std::string detail::format_scored_pair(const OutputOptions& options, std::size_t number,
                                       const std::string& source, const std::string& target,
                                       const Translation& t) {
  const double log_probability = t.tokens.empty() ? std::nan("") : t.log_probability;
  const double confidence = t.tokens.empty() ? std::nan("") : t.confidence;
  if (options.output_format == OutputFormat::text) return rounded_text(log_probability) + "\n";
  if (options.output_format == OutputFormat::tsv) {
    return std::to_string(number) + "\t" + rounded_text(log_probability) + "\t" +
           std::to_string(t.tokens.size()) + "\t" + rounded_text(perplexity_of(t)) + "\t" +
           rounded_text(confidence) + (options.scores ? token_fields(t) : "") + "\n";
  }
  nlohmann::ordered_json object = {{"line", number},
                                   {"source", valid_utf8(source)},
                                   {"target", valid_utf8(target)},
                                   {"log_probability", number_json(log_probability)},
                                   {"num_tokens", t.tokens.size()},
                                   {"perplexity", number_json(perplexity_of(t))},
                                   {"confidence", number_json(confidence)}};
  if (t.cut) object["cut"] = true;
  if (options.scores) add_token_fields(object, t);
  return object.dump() + "\n";
}

}  // namespace eigenformer
