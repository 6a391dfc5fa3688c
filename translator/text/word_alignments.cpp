#include "translator/text/word_alignments.hpp"

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/search/alignment/token_spans.hpp"

namespace eigenformer {

namespace {

// Applies `parse` to each line of a file. Throws IoError that names the line for which `parse` throws.
template <class F>
auto read_alignment_lines(const std::filesystem::path& path, F&& parse) {
  std::vector<std::invoke_result_t<F, const std::string&>> all;
  for (const std::string& line : read_lines(path)) {
    try {
      all.push_back(parse(line));
    } catch (const ValueError& error) {
      throw IoError("alignment",
                    {"'", path.string(), "', line ", all.size() + 1, ": ", detail::message_of(error)});
    }
  }
  return all;
}

void sort_links(std::vector<AlignmentLink>& links) {
  const auto key = [](const AlignmentLink& link) { return std::tuple(link.source, link.target); };
  std::ranges::sort(links, {}, key);
  const auto same = [&](const auto& a, const auto& b) { return key(a) == key(b); };
  links.erase(std::unique(links.begin(), links.end(), same), links.end());
}

}  // namespace

std::string alignment_text(std::span<const AlignmentLink> links) {
  std::string text;
  for (const AlignmentLink& link : links) {
    if (!text.empty()) text += ' ';
    text += std::to_string(link.source) + '-' + std::to_string(link.target);
  }
  return text;
}

std::vector<AlignmentLink> parse_alignment(std::string_view line) {
  std::vector<AlignmentLink> links;
  const auto number = [](std::string_view digits) -> std::optional<index_t> {
    std::int32_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
    return value;
  };
  for (const std::string_view word : detail::parts_between(line, " \t\r")) {
    if (word.empty()) continue;
    const std::size_t dash = word.find('-');
    const auto source = number(word.substr(0, dash));
    const auto target = dash == std::string_view::npos ? std::nullopt : number(word.substr(dash + 1));
    if (!source || !target) {
      throw ValueError("alignment",
                       {"'", word, "' is not a link, expected links such as 0-0 1-2, counted from 0"});
    }
    links.push_back({*source, *target});
  }
  return links;
}

std::vector<std::vector<AlignmentLink>> read_alignments(const std::filesystem::path& path) {
  return read_alignment_lines(path, [](const std::string& line) { return parse_alignment(line); });
}

std::vector<RightAlignment> read_right_alignments(const std::filesystem::path& path) {
  return read_alignment_lines(path, [](const std::string& line) {
    std::string sure, possible;
    for (const std::string_view part : detail::parts_between(line, " \t\r")) {
      std::string word(part);
      const std::size_t mark = word.find('p');
      std::string& list = mark == std::string::npos ? sure : possible;
      if (mark != std::string::npos) word[mark] = '-';
      list += word + ' ';
    }
    return RightAlignment{parse_alignment(sure), parse_alignment(possible)};
  });
}

std::vector<AlignmentLink> word_links(const TextAlignment& alignment, std::string_view source,
                                      std::string_view target) {
  const std::vector<ByteSpan> sources = detail::word_spans(source), targets = detail::word_spans(target);
  std::vector<AlignmentLink> links;
  for (const auto& [s, t] : alignment.links) {
    if (s >= alignment.source.size() || t >= alignment.target.size()) {
      throw IndexError("alignment",
                       {"the link ", s, "-", t, " is outside the alignment, which has ",
                        alignment.source.size(), " source and ", alignment.target.size(), " target tokens"});
    }
    const detail::SpanRange from = detail::overlapped(sources, alignment.source[s]),
                            to = detail::overlapped(targets, alignment.target[t]);
    for (std::size_t i = from.first; i < from.last; ++i) {
      for (std::size_t j = to.first; j < to.last; ++j)
        links.push_back({static_cast<index_t>(i), static_cast<index_t>(j)});
    }
  }
  sort_links(links);
  return links;
}

namespace detail {

std::vector<AlignmentLink> token_links(std::span<const AlignmentLink> words, std::string_view source,
                                       std::span<const ByteSpan> source_tokens, std::string_view target,
                                       std::span<const ByteSpan> target_tokens) {
  const auto tokens_of_words = [](std::span<const ByteSpan> tokens, const std::vector<ByteSpan>& given) {
    std::vector<std::vector<index_t>> of_word(given.size());
    for (std::size_t k = 0; k < tokens.size(); ++k) {
      const SpanRange range = overlapped(given, tokens[k]);
      for (std::size_t w = range.first; w < range.last; ++w) of_word[w].push_back(static_cast<index_t>(k));
    }
    return of_word;
  };
  const auto of_source = tokens_of_words(source_tokens, word_spans(source)),
             of_target = tokens_of_words(target_tokens, word_spans(target));
  std::vector<AlignmentLink> links;
  for (const AlignmentLink& word : words) {
    const auto within = [](index_t i, std::size_t n) { return i >= 0 && static_cast<std::size_t>(i) < n; };
    if (!within(word.source, of_source.size()) || !within(word.target, of_target.size())) {
      throw IndexError(
          "alignment",
          {"link ", word.source, "-", word.target, " is outside the sentences, which have ", of_source.size(),
           " source and ", of_target.size(), " target words between white space; expected numbers from 0"});
    }
    for (const index_t s : of_source[static_cast<std::size_t>(word.source)]) {
      for (const index_t t : of_target[static_cast<std::size_t>(word.target)]) links.push_back({s, t});
    }
  }
  sort_links(links);
  return links;
}

}  // namespace detail

void align_corpus(EncodedCorpus& encoded, const ParallelCorpus& corpus,
                  const std::vector<std::vector<AlignmentLink>>& words, const Tokenizer& source,
                  const Tokenizer& target) {
  const bool read = !corpus.lines.empty();
  const index_t lines = read ? corpus.report.read : corpus.size();
  if (static_cast<index_t>(words.size()) != lines) {
    throw ValueError("alignment", {"the number of alignments is ", words.size(), ", must be ", lines,
                                   ", one for each line of the corpus"});
  }
  std::vector<std::vector<AlignmentLink>> alignment;
  for (index_t i = 0; i < encoded.size(); ++i) {
    const auto pair = static_cast<std::size_t>(encoded.pairs[static_cast<std::size_t>(i)]);
    const auto line = read ? static_cast<std::size_t>(corpus.lines[pair]) : pair;
    const std::string &s = corpus.source[pair], &t = corpus.target[pair];
    try {
      alignment.push_back(detail::token_links(words[line], s, token_spans(source, encoded.source[i], s), t,
                                              token_spans(target, encoded.target[i], t)));
    } catch (const IndexError& error) {
      throw IndexError("alignment", {"line ", line + 1, ": ", detail::message_of(error)});
    }
  }
  encoded.alignment = std::move(alignment);
}

void AlignmentError::add(std::span<const AlignmentLink> found, std::span<const AlignmentLink> sure,
                         std::span<const AlignmentLink> possible) {
  using Links = std::set<std::pair<index_t, index_t>>;
  const auto set_of = [](std::span<const AlignmentLink> links) {
    Links set;
    for (const AlignmentLink& link : links) set.emplace(link.source, link.target);
    return set;
  };
  const Links a = set_of(found), s = set_of(sure);
  Links p = set_of(possible);
  p.insert(s.begin(), s.end());
  found_ += static_cast<index_t>(a.size());
  sure_ += static_cast<index_t>(s.size());
  for (const auto& link : a) {
    found_sure_ += s.contains(link) ? 1 : 0;
    found_possible_ += p.contains(link) ? 1 : 0;
  }
}

double AlignmentError::share(index_t part, index_t all) {
  return all == 0 ? std::numeric_limits<double>::quiet_NaN()
                  : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace eigenformer
