#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/text/utf8.hpp"
#include "translator/documents/markup/translate_markup.hpp"

namespace eigenformer::markup_test {

/// The words of a text and, apart, the punctuation at their ends.
inline std::vector<ByteSpan> words_of(const std::string& text) {
  std::vector<ByteSpan> words;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\n') {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && text[end] != ' ' && text[end] != '\n') ++end;
    const bool mark = end - at > 1 && (text[end - 1] == '.' || text[end - 1] == ',');
    words.push_back({at, mark ? end - 1 : end});
    if (mark) words.push_back({end - 1, end});
    at = end;
  }
  return words;
}

/// Gives texts back.
inline std::vector<AlignedText> identity(const std::vector<std::string>& texts) {
  std::vector<AlignedText> out;
  for (const std::string& text : texts) {
    AlignedText& one = out.emplace_back();
    one.text = text;
    one.alignment.source = one.alignment.target = words_of(text);
    for (std::uint32_t i = 0; i < one.alignment.source.size(); ++i) one.alignment.links.emplace_back(i, i);
  }
  return out;
}

/// Writes the words of each text in another order, changed by a function of the word.
inline AlignedTranslator reordering(std::function<std::vector<std::size_t>(std::size_t)> order,
                                    std::function<std::string(const std::string&)> word) {
  return [=](const std::vector<std::string>& texts) {
    std::vector<AlignedText> out;
    for (const std::string& text : texts) {
      AlignedText& one = out.emplace_back();
      one.alignment.source = words_of(text);
      for (const std::size_t i : order(one.alignment.source.size())) {
        if (!one.text.empty()) one.text += ' ';
        const std::string changed = word(std::string(one.alignment.source[i].of(text)));
        one.alignment.links.emplace_back(static_cast<std::uint32_t>(i),
                                         static_cast<std::uint32_t>(one.alignment.target.size()));
        one.alignment.target.push_back({one.text.size(), one.text.size() + changed.size()});
        one.text += changed;
      }
    }
    return out;
  };
}

inline std::vector<std::size_t> forward(std::size_t n) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}
inline std::vector<std::size_t> backward(std::size_t n) {
  std::vector<std::size_t> order = forward(n);
  std::reverse(order.begin(), order.end());
  return order;
}

/// Upper case letters, so that no word stays as it was.
inline std::string shouted(const std::string& word) {
  std::string out = word;
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

/// Permutes words, drops some of them and some links, and changes the rest.
inline AlignedTranslator careless(std::uint32_t seed) {
  return [seed](const std::vector<std::string>& texts) {
    std::mt19937 random(seed);
    const auto order = [&](std::size_t n) {
      std::vector<std::size_t> all = forward(n);
      std::shuffle(all.begin(), all.end(), random);
      all.resize(n - std::min<std::size_t>(n, random() % (n / 3 + 1)));
      return all;
    };
    const auto word = [&](const std::string& w) { return random() % 3 == 0 ? w : shouted(w) + "x"; };
    std::vector<AlignedText> out = reordering(order, word)(texts);
    for (AlignedText& one : out) {
      auto& links = one.alignment.links;
      links.erase(std::remove_if(links.begin(), links.end(), [&](const auto&) { return random() % 5 == 0; }),
                  links.end());
    }
    return out;
  };
}

}  // namespace eigenformer::markup_test
