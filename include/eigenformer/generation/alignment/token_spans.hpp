#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/generation/alignment/text_matching.hpp"

namespace eigenformer {

namespace detail {

// A span without the white space at its ends.
inline ByteSpan trimmed_span(std::string_view text, ByteSpan span) {
  ByteSpan inner{span.end, span.end};
  std::size_t at = span.begin;
  for_each_code_point(span.of(text), [&](char32_t c, std::string_view bytes) {
    if (!is_space(c)) {
      if (inner.begin == span.end) inner.begin = at;
      inner.end = at + bytes.size();
    }
    at += bytes.size();
  });
  return inner.begin == span.end ? ByteSpan{span.begin, span.begin} : inner;
}

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
    spans.push_back(trimmed_span(text, {from, end}));
    done = end;
    if (!next) continue;
    first = k + 1;
    begin = done;
  }
  return spans;
}

}  // namespace detail

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
inline std::vector<ByteSpan> token_spans(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
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
