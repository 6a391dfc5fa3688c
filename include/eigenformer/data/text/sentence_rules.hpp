#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/text/byte_span.hpp"

namespace eigenformer::detail {

/// The implementation of SentenceSplitter with ICU: the function that splits, and whether ICU knows a
/// language. Throws ValueError as SentenceSplitter does.
EIGENFORMER_IO_FUNCTION std::function<std::vector<ByteSpan>(std::string_view)> make_sentence_rules(
    const std::string& language, const std::vector<std::string>& abbreviations);
EIGENFORMER_IO_FUNCTION bool knows_sentence_rules(const std::string& language);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS
#include <unicode/ubrk.h>
#include <unicode/uloc.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/abbreviations.hpp"
#include "eigenformer/data/text/icu_text.hpp"
#include "eigenformer/data/text/text_walk.hpp"

namespace eigenformer::detail {

/// The implementation of SentenceSplitter with ICU. Each break that ICU proposes is kept, moved behind a
/// closing quote, or dropped because of the text around it.
class SentenceRules {
 public:
  /// Throws ValueError as SentenceSplitter does.
  SentenceRules(const std::string& language, const std::vector<std::string>& abbreviations) {
    if (!language.empty() && !knows(language)) {
      throw ValueError("sentence_splitter",
                       {"unknown language '", language, "', expected a code such as en, de-AT or deu_Latn"});
    }
    const std::string code = code_of(language);
    for (std::string_view word : abbreviations) {
      if (word.ends_with('.')) word.remove_suffix(1);
      if (word.empty()) throw ValueError("sentence_splitter", "an abbreviation is empty, must have a letter");
      own_.push_back(without_spaces(word));
    }
    lists_ = abbreviations_of(code);
    // ICU's lists of abbreviations would also drop the breaks that `openers` keep.
    const std::string locale = lists_.openers.empty() ? code + "@ss=standard" : code;
    UErrorCode error = U_ZERO_ERROR;
    breaks_ = Breaks(ubrk_open(UBRK_SENTENCE, locale.c_str(), nullptr, 0, &error), &ubrk_close);
    require(error);
  }

  static bool knows(const std::string& language) {
    const std::string code = code_of(language);
    return !code.empty() && *uloc_getISO3Language(code.c_str()) != '\0';
  }

  std::vector<ByteSpan> split(std::string_view text) const {
    if (text.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      throw ValueError("sentence_splitter",
                       {"a text of ", text.size(), " bytes is too long, must have fewer than 2^31"});
    }
    if (const auto wrong = find_invalid_utf8(text)) {
      throw ValueError("sentence_splitter",
                       {"the text has invalid UTF-8 at byte ", *wrong, "; expected text in UTF-8"});
    }
    std::vector<ByteSpan> sentences;
    std::size_t begin = after_spaces(text, 0);
    Marks marks;
    for (std::size_t place : proposed(text)) {
      if (place <= begin || place >= text.size()) continue;
      place = before_opening_quotes(text, behind_closing_quotes(text, place, marks));
      const std::size_t end = before_spaces(text, place);
      if (place >= text.size() || end <= begin || !ends(text, {begin, end}, place)) continue;
      sentences.push_back({begin, end});
      begin = place;
    }
    if (begin < text.size()) sentences.push_back({begin, before_spaces(text, text.size())});
    return sentences;
  }

 private:
  using Breaks = std::unique_ptr<UBreakIterator, decltype(&ubrk_close)>;

  /// Quotes of the forms « and », counted up to a place.
  struct Marks {
    std::size_t counted = 0, left = 0, right = 0;
  };

  /// The two-letter code of a language, or its three-letter code if it has none; empty when it is too long.
  static std::string code_of(const std::string& language) {
    UErrorCode error = U_ZERO_ERROR;
    char code[ULOC_LANG_CAPACITY] = {};
    uloc_getLanguage(language.c_str(), code, ULOC_LANG_CAPACITY, &error);
    return U_FAILURE(error) ? std::string() : std::string(code);
  }

  static void require(UErrorCode error) {
    if (U_FAILURE(error)) {
      throw ValueError("sentence_splitter", {"ICU cannot split text into sentences: ", u_errorName(error)});
    }
  }

  /// Quotes and brackets, opening and closing.
  static bool is_quote_or_bracket(char32_t c) {
    return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_SENTENCE_BREAK) == U_SB_CLOSE;
  }
  static bool is_dash(char32_t c) { return c == 0x2013 || c == 0x2014; }
  static bool is_lower(char32_t c) { return u_islower(static_cast<UChar32>(c)) != 0; }
  static bool is_upper(char32_t c) { return u_isupper(static_cast<UChar32>(c)) != 0; }
  static bool is_wide(char32_t c) { return c >= 0x3000; }
  static bool is_digit(char32_t c) { return u_isdigit(static_cast<UChar32>(c)) != 0; }

  /// Offsets at which a sentence may begin: those that ICU proposes, after white space, and two that it never
  /// proposes: after the ellipsis U+2026, and a number after a word with a full stop.
  std::vector<std::size_t> proposed(std::string_view text) const {
    std::string line(text);  // one paragraph for ICU: line breaks are spaces
    std::vector<std::size_t> places;
    std::size_t at = 0;
    for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
      if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0x2028 || c == 0x2029)
        std::fill_n(line.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), ' ');
      at += bytes.size();
      if (c != 0x2026 && !(c == '.' && ends_word(text, at - 1))) return;
      const std::size_t place = after_run(text, at, is_quote_or_bracket);
      const std::size_t word = after_spaces(text, place);
      const char32_t first = code_point_at(text, after_marks(text, word)).value;
      if (word > place && (c == '.' ? is_digit(first) : is_upper(first))) places.push_back(word);
    });
    UErrorCode error = U_ZERO_ERROR;
    const Breaks breaks(ubrk_clone(breaks_.get(), &error), &ubrk_close);
    require(error);
    const std::unique_ptr<UText, decltype(&utext_close)> utf8(
        utext_openUTF8(nullptr, line.data(), static_cast<std::int64_t>(line.size()), &error), &utext_close);
    require(error);
    ubrk_setUText(breaks.get(), utf8.get(), &error);
    require(error);
    for (std::int32_t i = ubrk_first(breaks.get()); i != UBRK_DONE; i = ubrk_next(breaks.get()))
      places.push_back(after_spaces(text, static_cast<std::size_t>(i)));
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    return places;
  }

  /// Whether at least four lower-case letters precede the offset; shorter words are often abbreviations
  /// before numbers.
  static bool ends_word(std::string_view text, std::size_t end) {
    for (int i = 0; i < 4; ++i) {
      const auto c = code_point_before(text, end);
      if (!is_lower(c.value)) return false;
      end -= c.length;
    }
    return true;
  }

  /// The offset after quotes, brackets and dashes, where the first letter of a sentence may be.
  static std::size_t after_marks(std::string_view text, std::size_t at) {
    return after_run(text, at, [](char32_t c) {
      return is_quote_or_bracket(c) || c == 0xBF || c == 0xA1 || c == '-' || is_dash(c) || is_space(c);
    });
  }

  /// Moves the place behind a » or « that follows a space and closes a quotation opened earlier: "« Bonjour !
  /// » Il partit."
  static std::size_t behind_closing_quotes(std::string_view text, std::size_t place, Marks& marks) {
    for (;;) {
      for (auto c = code_point_at(text, marks.counted); marks.counted < place;
           c = code_point_at(text, marks.counted)) {
        marks.left += c.value == 0xAB;
        marks.right += c.value == 0xBB;
        marks.counted += c.length;
      }
      const auto c = code_point_at(text, place);
      const bool closes =
          (c.value == 0xBB && marks.left > marks.right) || (c.value == 0xAB && marks.right > marks.left);
      if (!closes) return place;
      place = after_spaces(text, place + c.length);
    }
  }

  /// Moves the place before quotes and brackets that open after a full-width mark; ICU counts them as part of
  /// the sentence before.
  static std::size_t before_opening_quotes(std::string_view text, std::size_t place) {
    std::size_t at = place, opening = place;
    for (auto c = code_point_before(text, at); is_quote_or_bracket(c.value);
         c = code_point_before(text, at)) {
      at -= c.length;
      const int category = u_charType(static_cast<UChar32>(c.value));
      if (category == U_START_PUNCTUATION || category == U_INITIAL_PUNCTUATION) opening = at;
    }
    return is_wide(code_point_before(text, at).value) ? opening : place;
  }

  /// Whether this is the end of a sentence, so that the next one begins at `place`.
  bool ends(std::string_view text, ByteSpan sentence, std::size_t place) const {
    const bool space = place > sentence.end;
    const auto quote_or_space = [](char32_t c) { return is_quote_or_bracket(c) || is_space(c); };
    // Behind the mark that ends the sentence.
    const std::size_t stop = sentence.begin + before_run(sentence.of(text), sentence.size(), quote_or_space);
    const bool quoted = stop < sentence.end;
    const char32_t mark = code_point_before(text, stop).value;
    const std::size_t word = after_marks(text, place);
    const char32_t first = code_point_at(text, word).value;
    if (!space) {
      // Full-width marks need no space. In Japanese, what follows a quotation's end in kana belongs to it.
      return is_wide(mark) && !(quoted && first >= 0x3040 && first <= 0x309F);
    }
    if (quoted && is_lower(first)) return false;  // "Really?" he asked.
    if (mark != '.') return true;
    const std::size_t token_end = stop - 1;
    const auto in_token = [&](char32_t c) { return !quote_or_space(c) && !is_dash(c) && c != '/'; };
    const std::size_t token =
        sentence.begin + before_run(sentence.of(text), token_end - sentence.begin, in_token);
    if (token == token_end || text[token_end - 1] == '.') return true;  // an ellipsis
    return !goes_on(text, sentence, {token, token_end}, word);
  }

  /// The run of letters and digits at an offset.
  static ByteSpan next_word(std::string_view text, std::size_t begin) {
    return {begin, after_run(text, begin, [](char32_t c) { return icu::is_letter(c) || is_digit(c); })};
  }

  bool is_opener(std::string_view text, ByteSpan word) const {
    const char32_t c = code_point_at(text, word.end).value;
    if ((c == '\'' || c == 0x2019) && Abbreviations::has(lists_.openers, std::string(word.of(text)) + '\''))
      return true;
    return Abbreviations::has(lists_.openers, word.of(text));
  }

  /// Whether the full stop after the token belongs to the token, and the sentence continues at `place`.
  bool goes_on(std::string_view text, ByteSpan sentence, ByteSpan token, std::size_t place) const {
    const ByteSpan following = next_word(text, place);
    const std::string_view word = following.of(text);
    const bool opens = is_opener(text, following);
    std::string_view written = token.of(text);
    if (std::all_of(written.begin(), written.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      if (written.size() > 3) return false;
      const bool date = !word.empty() && is_digit(decode_front(word).value);  // 5. 6. 2020
      return date || token.begin == sentence.begin || is_ordinal(text, token, word, opens);
    }
    const std::string spaced = with_letters_before(text, sentence, token);  // "z. B" is "z.B"
    const std::size_t hyphen = written.rfind('-');
    const std::string_view last = hyphen == std::string_view::npos ? written : written.substr(hyphen + 1);
    const auto listed = [&](const auto& list) {
      return is_in(list, written) || is_in(list, spaced) || (last != written && is_in(list, last));
    };
    if (is_letter(written) && code_point_at(text, following.end).value == '.') {
      const std::string both = spaced + '.' + std::string(word);
      if (is_letter(word) || is_in(lists_.inside, both) || is_in(lists_.anywhere, both) || is_in(own_, both))
        return true;  // z. B., n. Chr.
    }
    if (listed(own_) || listed(lists_.inside)) return true;
    if (listed(lists_.before_numbers) && is_number(word)) return true;
    if (opens) return false;
    if (listed(lists_.anywhere) || is_initial(last)) return true;
    return !lists_.before_ordinals.empty() && is_roman(written);  // "Friedrich II. von Preußen"
  }

  /// "am 3. Mai", "der 2. Weltkrieg": where the language writes ordinals so.
  bool is_ordinal(std::string_view text, ByteSpan token, std::string_view word, bool opens) const {
    if (lists_.before_ordinals.empty()) return false;
    if (Abbreviations::has(lists_.after_ordinals, word)) return true;
    if (opens || word.empty()) return false;
    const std::size_t end = before_spaces(text, token.begin), begin = before_run(text, end, icu::is_letter);
    return is_in(lists_.before_ordinals, text.substr(begin, end - begin));
  }

  /// The token together with up to six abbreviated letters before it, without the spaces between them.
  static std::string with_letters_before(std::string_view text, ByteSpan sentence, ByteSpan token) {
    std::string joined(token.of(text));
    std::size_t begin = token.begin;
    for (int i = 0; i < 6; ++i) {
      const std::size_t end = before_spaces(text, begin);
      if (end == begin || end <= sentence.begin + 1 || text[end - 1] != '.') return joined;
      const auto letter = code_point_before(text, end - 1);
      if (!icu::is_letter(letter.value) || letter.length + 1 > end - sentence.begin) return joined;
      const std::size_t at = end - 1 - letter.length;
      if (at > sentence.begin && icu::is_letter(code_point_before(text, at).value)) return joined;
      joined.insert(0, text.substr(at, end - at));
      begin = at;
    }
    return joined;
  }

  /// "J", "J.R.R", "U.S.A": single capitals.
  static bool is_initial(std::string_view token) {
    bool letter = false, any = false;
    for (std::size_t at = 0; at < token.size();) {
      const auto c = code_point_at(token, at);
      at += c.length;
      if (c.value == '.' && letter) {
        letter = false;
      } else if (is_upper(c.value) && !letter) {
        letter = any = true;
      } else {
        return false;
      }
    }
    return any;
  }
  static bool is_letter(std::string_view word) {
    return !word.empty() && decode_front(word).length == word.size() &&
           icu::is_letter(decode_front(word).value);
  }
  static bool is_number(std::string_view word) {
    return !word.empty() && (is_digit(code_point_at(word, 0).value) || (word.size() > 1 && is_roman(word)));
  }
  static bool is_roman(std::string_view word) {
    return !word.empty() && word.find_first_not_of("IVXLC") == std::string_view::npos;
  }

  template <class List>
  static bool is_in(const List& list, std::string_view word) {
    if (word.empty()) return false;
    if (std::find(list.begin(), list.end(), word) != list.end()) return true;
    const auto first = decode_front(word);
    const std::string lower = utf8_of(icu::to_lower(first.value)) + std::string(word.substr(first.length));
    return std::find(list.begin(), list.end(), lower) != list.end();
  }
  static std::string without_spaces(std::string_view word) {
    std::string out;
    for_each_code_point(word, [&](char32_t c, std::string_view bytes) {
      if (!is_space(c)) out += bytes;
    });
    return out;
  }

  Abbreviations lists_;
  std::vector<std::string> own_;
  Breaks breaks_{nullptr, &ubrk_close};
};

EIGENFORMER_IO_FUNCTION std::function<std::vector<ByteSpan>(std::string_view)> make_sentence_rules(
    const std::string& language, const std::vector<std::string>& abbreviations) {
  const auto rules = std::make_shared<const SentenceRules>(language, abbreviations);
  return [rules](std::string_view text) { return rules->split(text); };
}

EIGENFORMER_IO_FUNCTION bool knows_sentence_rules(const std::string& language) {
  return SentenceRules::knows(language);
}

}  // namespace eigenformer::detail

#endif
