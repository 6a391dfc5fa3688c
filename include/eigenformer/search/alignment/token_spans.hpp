#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

namespace eigenformer {

/// The bytes of each token in the text that was tokenized, or in the text that the tokens decode to.
///
/// Spans are in order, do not overlap, and begin and end at code points, never at white space. A token
/// without text of its own has an empty span: a control symbol, a space mark, all but the last of the tokens
/// that spell one character as bytes, all but the first of the tokens that one character was normalised to.
/// An unknown token has the text between its neighbours, within a word.
///
/// Works with any tokenizer: tokens are found in the decoded text, and the decoded text is matched to `text`
/// by the edits with the least cost. The text may continue after the last token. Throws IndexError for an id
/// outside the vocabulary.
EIGENFORMER_IO_FUNCTION std::vector<ByteSpan> token_spans(const Tokenizer& tokenizer,
                                                          std::span<const std::int32_t> ids,
                                                          std::string_view text);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS
#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer {

namespace detail {

// A code point of a text, or a run of white space as one space.
struct TextUnit {
  char32_t c = 0;
  ByteSpan bytes;
};

// The units of a text, without white space at its ends. Like normalize_text(), it treats NUL as white space.
inline std::vector<TextUnit> text_units(std::string_view text) {
  std::vector<TextUnit> units;
  std::size_t at = 0;
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    const std::size_t end = at + bytes.size();
    if (!is_space(c) && c != 0) {
      units.push_back({c >= U'A' && c <= U'Z' ? c + (U'a' - U'A') : c, {at, end}});
    } else if (!units.empty() && units.back().c == U' ') {
      units.back().bytes.end = end;
    } else if (!units.empty()) {
      units.push_back({U' ', {at, end}});
    }
    at = end;
  });
  if (!units.empty() && units.back().c == U' ') units.pop_back();
  return units;
}

// Maps each unit of a normalised text to its place in the original text. Equal units are matched one by one;
// where the texts differ, by the edits with the least total cost (a weighted Levenshtein distance) within a
// window that grows until both texts agree again. U+2047, to which unknown tokens decode, matches any part of
// a word.
class TextMatching {
 public:
  TextMatching(std::vector<TextUnit> normal, std::vector<TextUnit> text)
      : normal_(std::move(normal)), text_(std::move(text)), spans_(normal_.size()) {
    std::size_t i = 0, j = 0;
    while (i < normal_.size() && j < text_.size()) {
      if (normal_[i].c == text_[j].c) {
        spans_[i] = text_[j].bytes;
        ++i, ++j;
      } else {
        std::tie(i, j) = bridge(i, j);
      }
    }
  }

  // The place of each unit of the normalised text; empty for a unit without a counterpart.
  const std::vector<ByteSpan>& spans() const noexcept { return spans_; }

 private:
  enum Edit : std::uint8_t { match, remove, insert };
  static constexpr char32_t unknown = 0x2047;
  static constexpr std::size_t least_window = 32, most_window = 2048;
  static constexpr std::size_t enough_alike = 6;  // equal units in a row after which the texts agree again

  // An edit costs more than matching an unknown token; white space costs little.
  static constexpr std::int32_t edit_cost = 6, space_cost = 2;

  static std::int32_t substitution(char32_t a, char32_t b) {
    if (a == b) return 0;
    if (a == U' ' || b == U' ') return 3 * edit_cost;  // more than removing one and inserting the other
    return a == unknown ? 1 : edit_cost;
  }
  static std::int32_t removal(char32_t a) { return a == U' ' ? space_cost : edit_cost; }
  // before: the preceding unit of the normalised text.
  static std::int32_t insertion(char32_t before, char32_t b) {
    if (b == U' ') return space_cost;
    return before == unknown ? 0 : edit_cost;
  }

  // Matches from units (i, j), which differ, to where the texts agree again; returns that place.
  std::pair<std::size_t, std::size_t> bridge(std::size_t i, std::size_t j) {
    for (std::size_t window = least_window;; window *= 4) {
      const std::size_t n = std::min(window, normal_.size() - i), m = std::min(window, text_.size() - j);
      const std::vector<Edit> edits = least_edits(i, n, j, m);
      std::size_t taken = edits.size();
      if (n < normal_.size() - i) {
        if (const std::size_t alike = alike_from(edits, i, j); alike < edits.size()) {
          taken = alike;
        } else if (window < most_window) {
          continue;
        }
      }
      return apply(edits, taken, i, j);
    }
  }

  // The cheapest edits that turn n units from i into at most m units from j.
  std::vector<Edit> least_edits(std::size_t i, std::size_t n, std::size_t j, std::size_t m) const {
    std::vector<Edit> choice((n + 1) * (m + 1), insert);
    std::vector<std::int32_t> row(m + 1), above(m + 1);
    const bool ends = i + n == normal_.size();
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    std::size_t end_a = n, end_b = m;
    for (std::size_t a = 0; a <= n; ++a) {
      std::swap(row, above);
      for (std::size_t b = 0; b <= m; ++b) {
        if (a == 0 && b == 0) {
          row[0] = 0;
          continue;
        }
        std::int32_t best = std::numeric_limits<std::int32_t>::max();
        const auto offer = [&](std::int32_t cost, Edit edit) {
          if (cost >= best) return;
          best = cost;
          choice[a * (m + 1) + b] = edit;
        };
        if (a > 0 && b > 0)
          offer(above[b - 1] + substitution(normal_[i + a - 1].c, text_[j + b - 1].c), match);
        if (a > 0) offer(above[b] + removal(normal_[i + a - 1].c), remove);
        if (b > 0) {
          const char32_t before = i + a > 0 ? normal_[i + a - 1].c : U' ';
          offer(row[b - 1] + insertion(before, text_[j + b - 1].c), insert);
        }
        row[b] = best;
      }
      // The path may end at the end of the window. If tokens were cut off, the normalised text ends first,
      // preferably at the end of a word.
      for (std::size_t b = 0; b <= m; ++b) {
        if (a < n && (ends || b < m)) continue;
        const bool inside = ends && j + b < text_.size() && text_[j + b].c != U' ';
        const std::int32_t cost = row[b] + (inside ? space_cost : 0);
        if (cost > least) continue;
        least = cost;
        end_a = a;
        end_b = b;
      }
    }
    std::vector<Edit> edits;
    while (end_a > 0 || end_b > 0) {
      const Edit edit = choice[end_a * (m + 1) + end_b];
      edits.push_back(edit);
      if (edit != insert) --end_a;
      if (edit != remove) --end_b;
    }
    std::reverse(edits.begin(), edits.end());
    return edits;
  }

  // The number of edits before the first run of equal units.
  std::size_t alike_from(const std::vector<Edit>& edits, std::size_t i, std::size_t j) const {
    std::size_t run = 0;
    for (std::size_t k = 0; k < edits.size(); ++k) {
      const bool equal = edits[k] == match && normal_[i].c == text_[j].c;
      run = equal ? run + 1 : 0;
      if (run == enough_alike) return k + 1 - run;
      if (edits[k] != insert) ++i;
      if (edits[k] != remove) ++j;
    }
    return edits.size();
  }

  std::pair<std::size_t, std::size_t> apply(const std::vector<Edit>& edits, std::size_t count, std::size_t i,
                                            std::size_t j) {
    for (std::size_t k = 0; k < count; ++k) {
      if (edits[k] == match) {
        spans_[i] = text_[j].bytes;
      } else if (edits[k] == insert && i > 0 && text_[j].c != U' ' && normal_[i - 1].c != U' ' && j > 0 &&
                 spans_[i - 1].end == text_[j].bytes.begin) {
        spans_[i - 1].end = text_[j].bytes.end;  // such as the second dot of what became an ellipsis
      }
      if (edits[k] != insert) ++i;
      if (edits[k] != remove) ++j;
    }
    return {i, j};
  }

  std::vector<TextUnit> normal_, text_;
  std::vector<ByteSpan> spans_;
};

// How far `part` matches the text from `at`, the end of the white space from `begin` on: the end of the match
// in the text, begin without one, and whether it covers all of `part`.
struct PartMatch {
  std::size_t end = 0;
  bool whole = false;
};
inline PartMatch match_part(std::string_view text, std::size_t begin, std::size_t at, std::string_view part) {
  std::size_t done = 0;
  bool same = true;
  for_each_code_point(part, [&](char32_t, std::string_view bytes) {
    same = same && text.substr(at + done, bytes.size()) == bytes;
    if (same) done += bytes.size();
  });
  return {done == 0 ? begin : at + done, done == part.size()};
}

// Stands for an incomplete character in decoded text.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

inline std::size_t replacement_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(replacement_character, at)) != std::string_view::npos; ++count)
    at += replacement_character.size();
  return count;
}

// The span of each token in the text that all of them decode to. Tokens are decoded one by one, or together
// when only together they give text, such as the bytes of a character, complete or not.
inline std::vector<ByteSpan> decoded_spans(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                           std::string_view text) {
  constexpr std::size_t most_together = 8, farthest = 256;
  std::vector<ByteSpan> spans;
  std::size_t first = 0, begin = 0, done = 0;  // of the tokens decoded together
  std::size_t word = 0;                        // behind the white space from `begin` on
  for (std::size_t k = 0; k < ids.size(); ++k) {
    word = after_spaces(text, std::max(word, begin));
    const std::string part = trim(tokenizer.decode(ids.subspan(first, k + 1 - first)));
    const PartMatch found = match_part(text, begin, word, part);
    std::size_t from = done, end = std::max(done, found.end);
    bool next = found.whole;
    if (next && part.ends_with(replacement_character) && k + 1 < ids.size() &&
        k + 1 - first < most_together) {
      // The next token may hold more bytes of the same incomplete character, which is then that token's.
      const std::size_t apart =
          replacement_characters(part) + replacement_characters(tokenizer.decode(ids.subspan(k + 1, 1)));
      next = replacement_characters(tokenizer.decode(ids.subspan(first, k + 2 - first))) == apart;
      if (!next) end = std::max(done, found.end - replacement_character.size());
    }
    if (!next && k + 1 - first == most_together) {
      // These tokens decode differently on their own: continue from where the newest one is found.
      const std::string alone = trim(tokenizer.decode(ids.subspan(k, 1)));
      const std::size_t at = text.substr(0, done + farthest).find(alone, done);
      if (!alone.empty() && at != std::string_view::npos) {
        from = at;
        end = at + alone.size();
      }
      next = true;
    }
    const ByteSpan place = without_spaces(text, {from, end});
    spans.push_back(place.empty() ? ByteSpan{from, from} : place);
    done = end;
    if (!next) continue;
    first = k + 1;
    begin = done;
  }
  return spans;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION std::vector<ByteSpan> token_spans(const Tokenizer& tokenizer,
                                                          std::span<const std::int32_t> ids,
                                                          std::string_view text) {
  const std::string normal = tokenizer.decode(ids);
  std::vector<ByteSpan> spans = detail::decoded_spans(tokenizer, ids, normal);
  if (normal == text) return spans;
  const std::vector<detail::TextUnit> units = detail::text_units(normal);
  const detail::TextMatching matching(units, detail::text_units(text));
  std::size_t at = 0, done = 0;
  for (ByteSpan& span : spans) {
    ByteSpan found{done, done};
    while (at < units.size() && units[at].bytes.begin < span.begin) ++at;
    for (; at < units.size() && units[at].bytes.end <= span.end; ++at) {
      const ByteSpan& place = matching.spans()[at];
      if (place.empty() || units[at].c == U' ') continue;
      if (found.empty()) found.begin = place.begin;
      found.end = place.end;
    }
    span = found;
    done = found.end;
  }
  return spans;
}

}  // namespace eigenformer
#endif
