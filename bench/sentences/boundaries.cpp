// How many boundaries between sentences are found in paragraphs that are made of sentences of a corpus, a
// line each: by the splitter, by ICU's rules alone, and with ICU's lists of abbreviations. See run.sh.
#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "eigenformer/data/text/sentences.hpp"
#include "eigenformer/data/text/text_walk.hpp"

namespace ef = eigenformer;

namespace {

using Places = std::set<std::size_t>;  // where sentences begin

Places by_icu(const std::string& text, const char* locale) {
  UErrorCode error = U_ZERO_ERROR;
  UBreakIterator* breaks = ubrk_open(UBRK_SENTENCE, locale, nullptr, 0, &error);
  UText* utf8 = utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &error);
  ubrk_setUText(breaks, utf8, &error);
  if (U_FAILURE(error)) throw ef::ValueError("boundaries", u_errorName(error));
  Places places;
  for (auto i = ubrk_first(breaks); i != UBRK_DONE; i = ubrk_next(breaks))
    places.insert(ef::detail::after_spaces(text, static_cast<std::size_t>(i)));
  ubrk_close(breaks);
  utext_close(utf8);
  places.erase(0);
  places.erase(text.size());
  return places;
}

/// What a line ends with, before quotes and brackets.
enum class End { stop, none, ellipsis, count };
const char* const end_names[] = {"after . ! ? or a full-width mark", "after no such mark",
                                 "after an ellipsis"};

End end_of(std::string line) {
  for (bool more = true; more && !line.empty();) {
    more = false;
    for (const std::string closing :
         {"\"", "'", ")", "]", "\u201C", "\u201D", "\u2019", "\u00AB", "\u00BB"}) {
      if (!line.ends_with(closing)) continue;
      line.resize(line.size() - closing.size());
      more = true;
    }
  }
  if (line.ends_with("...") || line.ends_with("\u2026")) return End::ellipsis;
  for (const std::string mark : {".", "!", "?", "。"}) {
    if (line.ends_with(mark)) return End::stop;
  }
  return End::none;
}

struct Counts {
  long found[3] = {}, all[3] = {}, inside = 0;
};

struct Paragraph {
  std::string text;
  std::vector<std::pair<std::size_t, End>> joints;
};

void count(const Paragraph& paragraph, const Places& places, Counts& counts, const char* shown) {
  Places rest = places;
  for (const auto& [place, end] : paragraph.joints) {
    ++counts.all[static_cast<int>(end)];
    const bool found = rest.erase(place) > 0;
    counts.found[static_cast<int>(end)] += found;
    if (shown != nullptr && !found && end != End::none)
      std::cout << "missed: "
                << paragraph.text.substr(place < 40 ? 0 : place - 40, std::min<std::size_t>(place, 40)) << "|"
                << paragraph.text.substr(place, 30) << '\n';
  }
  counts.inside += static_cast<long>(rest.size());
  for (const std::size_t place : rest) {
    if (shown != nullptr)
      std::cout << "inside: "
                << paragraph.text.substr(place < 40 ? 0 : place - 40, std::min<std::size_t>(place, 40)) << "|"
                << paragraph.text.substr(place, 30) << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s language number-of-sentences file [show]\n", argv[0]);
    return 2;
  }
  const std::string language = argv[1];
  std::vector<std::string> lines;
  std::ifstream in(argv[3]);
  for (std::string line; std::getline(in, line);) {
    if (!ef::trim(line).empty()) lines.push_back(ef::trim(line));
  }
  std::mt19937 rng(1);
  for (std::size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[rng() % i]);
  lines.resize(std::min(lines.size(), static_cast<std::size_t>(std::atol(argv[2]))));
  std::vector<Paragraph> paragraphs;
  for (std::size_t i = 0; i < lines.size();) {
    Paragraph& paragraph = paragraphs.emplace_back();
    const std::size_t size = 3 + rng() % 6;
    for (std::size_t k = 0; k < size && i < lines.size(); ++k, ++i) {
      if (k > 0) {
        paragraph.text += ' ';
        paragraph.joints.emplace_back(paragraph.text.size(), end_of(lines[i - 1]));
      }
      paragraph.text += lines[i];
    }
  }
  const ef::SentenceSplitter splitter({.language = language});
  Counts ours, icu, lists;
  bool whole = true;
  for (const Paragraph& paragraph : paragraphs) {
    Places places;
    std::size_t end = 0;
    for (const ef::ByteSpan s : splitter.split(paragraph.text)) {
      whole = whole && s.begin >= end && ef::trim(paragraph.text.substr(end, s.begin - end)).empty();
      end = s.end;
      places.insert(s.begin);
    }
    whole = whole && ef::trim(paragraph.text.substr(end)).empty();
    places.erase(ef::detail::after_spaces(paragraph.text, 0));
    count(paragraph, places, ours, argc > 4 ? "ours" : nullptr);
    count(paragraph, by_icu(paragraph.text, language.c_str()), icu, nullptr);
    count(paragraph, by_icu(paragraph.text, (language + "@ss=standard").c_str()), lists, nullptr);
  }
  std::printf("%s, %zu lines in %zu paragraphs; every word in one sentence: %s\n", argv[3], lines.size(),
              paragraphs.size(), whole ? "yes" : "NO");
  for (int end = 0; end < static_cast<int>(End::count); ++end) {
    const auto share = [&](const Counts& c) {
      return c.all[end] == 0 ? 0.0 : 100.0 * c.found[end] / c.all[end];
    };
    std::printf("  %-34s %5ld joints, found: %6.2f %%   ICU %6.2f %%   ICU with lists %6.2f %%\n",
                end_names[end], ours.all[end], share(ours), share(icu), share(lists));
  }
  std::printf("  boundaries inside of lines: %ld   ICU %ld   ICU with lists %ld\n", ours.inside, icu.inside,
              lists.inside);
  return whole ? 0 : 1;
}
