#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/version.hpp"

namespace eigenformer {

namespace detail {

/// The version field of a metric's signature.
inline std::string version_field() { return "version:eigenformer-" + version_string(); }

}  // namespace detail

/// A BLEU score (Papineni et al. 2002) with its n-gram counts, precisions and brevity penalty.
struct BleuScore {
  double score = 0;                    ///< 0 to 100
  std::array<double, 4> precisions{};  ///< of 1- to 4-grams, 0 to 100, smoothed
  std::array<index_t, 4> correct{};    ///< n-grams of the hypotheses that match the references, clipped
  std::array<index_t, 4> total{};      ///< n-grams of the hypotheses
  double brevity_penalty = 0;          ///< 0 to 1
  double ratio = 0;               ///< hypothesis_length / reference_length; 0 when the references are empty
  index_t hypothesis_length = 0;  ///< tokens
  index_t reference_length = 0;   ///< tokens
  bool characters = false;        ///< whether tokens are characters, not words

  /// The line that sacreBLEU prints: "BLEU = 30.52 62.1/38.4/26.0/17.9 (BP = 0.987 ratio = 0.987 hyp_len =
  /// 812 ref_len = 823)".
  std::string str() const;
  /// How corpus_bleu() computed it, in sacreBLEU's notation, with this library's version.
  std::string signature() const {
    return std::string("nrefs:1|case:mixed|eff:no|tok:") + (characters ? "char" : "13a") + "|smooth:exp|" +
           detail::version_field();
  }
};

namespace detail {

/// Splits a text into words by tokenization 13a (mteval-v13a.pl, as sacreBLEU defines it). Its patterns match
/// ASCII only, so they work on bytes; the text is UTF-8.
EIGENFORMER_FUNCTION std::vector<std::string> tokenize_13a(std::string_view text);

/// Whether most characters of the texts are of scripts without spaces between words: Thai, Lao, Burmese,
/// Khmer, Chinese, Japanese.
EIGENFORMER_FUNCTION bool mostly_without_spaces(std::span<const std::string> texts);

/// The size of the multiset intersection of two sorted sequences.
template <class T>
index_t common_count(const std::vector<T>& a, const std::vector<T>& b) {
  index_t count = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] < b[j]) {
      ++i;
    } else if (b[j] < a[i]) {
      ++j;
    } else {
      ++count, ++i, ++j;
    }
  }
  return count;
}

inline void require_pairs(const char* op, std::size_t hypotheses, std::size_t references) {
  if (hypotheses != references) {
    throw ValueError(op, {hypotheses, " hypotheses and ", references, " references, expected equal numbers"});
  }
  if (hypotheses == 0) throw ValueError(op, "no hypotheses, expected at least one");
}

/// Maps words, or characters, to consecutive numbers, in order of first use.
class WordNumbers {
 public:
  explicit WordNumbers(bool characters) : characters_(characters) {}
  std::vector<std::int32_t> operator()(std::string_view text);

 private:
  bool characters_;
  std::unordered_map<std::string, std::int32_t> numbers_;
};

/// Adds the counts of one sentence pair, given as word numbers.
EIGENFORMER_FUNCTION void add_bleu_counts(BleuScore& bleu, std::span<const std::int32_t> hypothesis,
                                          std::span<const std::int32_t> reference);

/// Computes the score from the counts. effective_order: skip orders that have no n-gram.
EIGENFORMER_FUNCTION void score_bleu_counts(BleuScore& bleu, bool effective_order);

}  // namespace detail

/// Corpus BLEU with one reference per hypothesis, equal to sacreBLEU's default: tokenization 13a, mixed case,
/// 4-grams, exponential smoothing, no effective order. References most of whose characters are Chinese,
/// Japanese, Thai, Lao, Burmese or Khmer, which have no spaces between words, are split into characters:
/// equal to sacreBLEU with tokenization char. See BleuScore::signature(). Throws ValueError when the two
/// spans differ in size or are empty.
EIGENFORMER_FUNCTION BleuScore corpus_bleu(std::span<const std::string> hypotheses,
                                           std::span<const std::string> references);

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION std::string BleuScore::str() const {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(),
                "BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)",
                score, precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty, ratio,
                static_cast<long long>(hypothesis_length), static_cast<long long>(reference_length));
  return line.data();
}

namespace detail {

// The ASCII marks that always stand alone: all but the apostrophe, the hyphen, the point and the comma.
inline bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

// Puts spaces around the first or the second byte of each matching pair of adjacent ones, from left to right
// and without overlap.
template <class Match>
std::string space_in_pairs(const std::string& line, bool first, Match match) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (i + 1 == line.size() || !match(line[i], line[i + 1])) {
      out += line[i];
    } else if (first) {
      ((out += ' ', out += line[i]) += ' ') += line[i + 1];
      ++i;
    } else {
      ((out += line[i], out += ' ') += line[i + 1]) += ' ';
      ++i;
    }
  }
  return out;
}

EIGENFORMER_FUNCTION std::vector<std::string> tokenize_13a(std::string_view text) {
  std::string line(text.substr(0, before_spaces(text, text.size())));
  for (const auto& [from, to] : std::initializer_list<std::array<std::string_view, 2>>{{"<skipped>", ""},
                                                                                       {"-\n", ""},
                                                                                       {"\n", " "},
                                                                                       {"&quot;", "\""},
                                                                                       {"&amp;", "&"},
                                                                                       {"&lt;", "<"},
                                                                                       {"&gt;", ">"}})
    replace_all(line, from, to);
  std::string spaced;
  for (const char c : " " + line + " ") {
    if (stands_alone(c)) {
      (spaced += ' ', spaced += c) += ' ';
    } else {
      spaced += c;
    }
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_point = [](char c) { return c == '.' || c == ','; };
  // Points and commas stand alone, except between digits.
  line = space_in_pairs(spaced, false, [&](char a, char b) { return !is_digit(a) && is_point(b); });
  line = space_in_pairs(line, true, [&](char a, char b) { return is_point(a) && !is_digit(b); });
  // A hyphen stands alone behind a digit.
  line = space_in_pairs(line, false, [&](char a, char b) { return is_digit(a) && b == '-'; });
  std::vector<std::string> words;
  for (const ByteSpan& word : word_spans(line)) words.emplace_back(word.of(line));
  return words;
}

using Ngram = std::array<std::int32_t, 4>;

// All n-grams of one order, sorted; elements beyond n are -1.
inline std::vector<Ngram> sorted_ngrams(std::span<const std::int32_t> tokens, std::size_t n) {
  std::vector<Ngram> ngrams;
  for (std::size_t i = 0; i + n <= tokens.size(); ++i) {
    Ngram ngram = {-1, -1, -1, -1};
    std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(i), n, ngram.begin());
    ngrams.push_back(ngram);
  }
  std::sort(ngrams.begin(), ngrams.end());
  return ngrams;
}

EIGENFORMER_FUNCTION std::vector<std::int32_t> WordNumbers::operator()(std::string_view text) {
  std::vector<std::int32_t> tokens;
  const auto add = [&](std::string word) {
    tokens.push_back(
        numbers_.try_emplace(std::move(word), static_cast<std::int32_t>(numbers_.size())).first->second);
  };
  if (characters_) {
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      if (!is_space(c)) add(std::string(bytes));
    });
  } else {
    for (std::string& word : tokenize_13a(text)) add(std::move(word));
  }
  return tokens;
}

EIGENFORMER_FUNCTION bool mostly_without_spaces(std::span<const std::string> texts) {
  std::int64_t without = 0, all = 0;
  for (const std::string& text : texts) {
    for_each_code_point(text, [&](char32_t c, std::string_view) {
      if (is_space(c)) return;
      ++all;
      without += is_unspaced_script(c);
    });
  }
  return 2 * without > all;
}

EIGENFORMER_FUNCTION void add_bleu_counts(BleuScore& bleu, std::span<const std::int32_t> hypothesis,
                                          std::span<const std::int32_t> reference) {
  bleu.hypothesis_length += static_cast<index_t>(hypothesis.size());
  bleu.reference_length += static_cast<index_t>(reference.size());
  for (std::size_t n = 1; n <= 4; ++n) {
    const std::vector<Ngram> h = sorted_ngrams(hypothesis, n);
    bleu.total[n - 1] += static_cast<index_t>(h.size());
    bleu.correct[n - 1] += common_count(h, sorted_ngrams(reference, n));
  }
}

EIGENFORMER_FUNCTION void score_bleu_counts(BleuScore& bleu, bool effective_order) {
  const auto h = static_cast<double>(bleu.hypothesis_length);
  const auto r = static_cast<double>(bleu.reference_length);
  bleu.ratio = r > 0 ? h / r : 0;
  bleu.brevity_penalty = h >= r ? 1 : h > 0 ? std::exp(1 - r / h) : 0;
  if (bleu.correct == std::array<index_t, 4>{}) return;
  // NIST's smoothing: the k-th order without a match counts 1 / 2^k matches.
  double smooth = 1, log_sum = 0;
  std::size_t orders = 0;
  for (; orders < 4; ++orders) {
    const std::size_t n = orders;
    const auto total = static_cast<double>(bleu.total[n]);
    if (bleu.total[n] == 0) {
      if (effective_order) break;
      return;  // no n-gram of this order: undefined, and 0 by convention
    }
    if (bleu.correct[n] == 0) smooth *= 2;
    bleu.precisions[n] =
        bleu.correct[n] == 0 ? 100 / (smooth * total) : 100 * static_cast<double>(bleu.correct[n]) / total;
    log_sum += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / static_cast<double>(orders));
}

}  // namespace detail

EIGENFORMER_FUNCTION BleuScore corpus_bleu(std::span<const std::string> hypotheses,
                                           std::span<const std::string> references) {
  detail::require_pairs("corpus_bleu", hypotheses.size(), references.size());
  BleuScore bleu{.characters = detail::mostly_without_spaces(references)};
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    detail::WordNumbers numbers(bleu.characters);
    const std::vector<std::int32_t> hypothesis = numbers(hypotheses[i]), reference = numbers(references[i]);
    detail::add_bleu_counts(bleu, hypothesis, reference);
  }
  detail::score_bleu_counts(bleu, false);
  return bleu;
}

}  // namespace eigenformer

#endif
