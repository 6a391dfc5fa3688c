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

nlohmann::ordered_json tokens_json(const Translation& t) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (const TokenScore& token : t.tokens)
    tokens.push_back(
        {{"token", valid_utf8(token.token)}, {"log_probability", number_json(token.log_probability)}});
  return tokens;
}

nlohmann::ordered_json words_json(const Translation& t) {
  nlohmann::ordered_json words = nlohmann::ordered_json::array();
  for (const WordConfidence& word : t.words)
    words.push_back({{"word", valid_utf8(word.word)}, {"confidence", number_json(word.confidence)}});
  return words;
}

nlohmann::ordered_json terms_json(const Translation& t) {
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

// The columns of token and word scores.
constexpr const char* token_columns = "\ttokens\ttoken_log_probabilities\tword_confidences";
std::string token_fields(const Translation& t) {
  return "\t" + join_with_spaces(t.tokens, [](const TokenScore& s) { return tsv_field(s.token, true); }) +
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

std::string tsv_field(std::string_view text, bool space) {
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

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string translations_header(const OutputOptions& options) {
  if (options.output_format != OutputFormat::tsv) return {};
  std::string header = "line\trank\ttranslation";
  if (options.scores) (header += "\tscore\tlog_probability\tconfidence") += token_columns;
  return header + "\n";
}

std::string format_translations(const OutputOptions& options, std::size_t number, const std::string& source,
                                std::span<const Translation> translations, std::size_t lines) {
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
      entry["tokens"] = tokens_json(t);
      entry["words"] = words_json(t);
    }
    if (!t.terms.empty()) entry["terms"] = terms_json(t);
    list.push_back(std::move(entry));
  }
  object["translations"] = std::move(list);
  return object.dump() + "\n";
}

std::string scored_pairs_header(const OutputOptions& options) {
  if (options.output_format != OutputFormat::tsv) return {};
  std::string header = "line\tlog_probability\tnum_tokens\tperplexity\tconfidence";
  if (options.scores) header += token_columns;
  return header + "\n";
}

std::string format_scored_pair(const OutputOptions& options, std::size_t number, const std::string& source,
                               const std::string& target, const Translation& t) {
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
  if (options.scores) {
    object["tokens"] = tokens_json(t);
    object["words"] = words_json(t);
  }
  return object.dump() + "\n";
}

}  // namespace eigenformer
