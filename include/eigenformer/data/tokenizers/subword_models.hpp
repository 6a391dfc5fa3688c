#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer::detail {

/// The mark that SentencePiece puts in place of a space: U+2581.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

/// A possible merge of two adjacent symbols and its rank; the smallest rank is merged first.
template <class Symbol>
struct PossibleMerge {
  double rank = 0;
  Symbol merged{};
};

/// Byte pair encoding (Sennrich et al. 2016): of all pairs of adjacent symbols, the one with the smallest
/// rank, leftmost, is merged, until no pair can be. n symbols take O(n log n) time.
///
/// symbols: those of one word, replaced by the result. find(left, right): an optional PossibleMerge of two
/// adjacent symbols.
template <class Symbol, class Find>
void merge_pairs(std::vector<Symbol>& symbols, Find&& find) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  struct Link {
    std::size_t previous, next;
    std::size_t merges = 0;  // that the symbol is made of: tells whether a candidate is out of date
    bool alive = true;
  };
  struct Candidate {
    double rank;
    std::size_t left, left_merges, right, right_merges;
    bool operator<(const Candidate& other) const {  // the top of the queue is the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Link> links;
  links.reserve(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i)
    links.push_back({i == 0 ? none : i - 1, i + 1 == symbols.size() ? none : i + 1});
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::size_t left) {
    if (left == none || links[left].next == none) return;
    const std::size_t right = links[left].next;
    if (const auto merge = find(symbols[left], symbols[right]))
      queue.push({merge->rank, left, links[left].merges, right, links[right].merges});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Link &left = links[best.left], &right = links[best.right];
    if (!left.alive || !right.alive || left.merges != best.left_merges || right.merges != best.right_merges)
      continue;
    symbols[best.left] = std::move(find(symbols[best.left], symbols[best.right])->merged);
    left.merges += right.merges + 1;
    left.next = right.next;
    right.alive = false;
    if (right.next != none) links[right.next].previous = best.left;
    offer(left.previous);
    offer(best.left);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (!links[i].alive) continue;
    if (kept != i) symbols[kept] = std::move(symbols[i]);
    ++kept;
  }
  symbols.resize(kept);
}

/// Byte pair encoding with dropout (Provilkov et al. 2020, algorithm 1): in each step every possible merge is
/// left out with probability `rate`, and of the others the one with the smallest rank, leftmost, is done; a
/// step without a merge is the last. Rate 0 is merge_pairs(), and takes no random numbers.
///
/// symbols: those of one word, replaced by the result. find(left, right): an optional PossibleMerge of two
/// adjacent symbols.
template <class Symbol, class Find>
void merge_with_dropout(std::vector<Symbol>& symbols, double rate, RandomGenerator& rng, Find&& find) {
  if (rate == 0) return merge_pairs(symbols, find);
  if (symbols.size() < 2) return;
  const auto limit = static_cast<std::uint64_t>(rate * 0x1.0p32);
  std::vector<std::optional<PossibleMerge<Symbol>>> merges(symbols.size() - 1);  // of i and i + 1
  for (std::size_t i = 0; i < merges.size(); ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  for (;;) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      if (!merges[i] || (limit > 0 && rng.next_u32() < limit)) continue;
      if (!best || merges[i]->rank < merges[*best]->rank) best = i;
    }
    if (!best) return;
    const std::size_t i = *best;
    symbols[i] = std::move(merges[i]->merged);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(i));
    if (i > 0) merges[i - 1] = find(symbols[i - 1], symbols[i]);
    if (i < merges.size()) merges[i] = find(symbols[i], symbols[i + 1]);
  }
}

/// A unigram language model of pieces (Kudo 2018): the best segmentation of a word has the largest sum of
/// scores.
class UnigramModel {
 public:
  UnigramModel() = default;
  /// scores: log probabilities by id, NaN for a token that is not a piece; missing ones are NaN. tokens:
  /// their texts in UTF-8. Throws ValueError for an infinite or huge score and when there are no pieces.
  UnigramModel(std::vector<double> scores, const std::vector<std::string>& tokens);

  /// The scores by id, NaN for a token that is not a piece.
  const std::vector<double>& scores() const noexcept { return scores_; }

  /// Calls emit(id) for each piece of the best segmentation of a UTF-8 word, and emit(-1) for each run of
  /// characters that are in no piece. find(text) returns the id of a token as an optional.
  template <class Find, class Emit>
  void segment(std::string_view word, Find&& find, Emit&& emit) const {
    struct Node {
      double score = 0;
      std::size_t begin = none;
      std::int32_t id = -1;
    };
    std::vector<Node> best(word.size() + 1);  // the best segmentation that ends at each byte
    const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
      const double sum = score + best[begin].score;
      if (best[end].begin == none || sum > best[end].score) best[end] = {sum, begin, id};
    };
    for_each_piece(word, find, offer);
    std::vector<std::int32_t> ids;  // from the end on
    for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
      if (best[end].id >= 0 || ids.empty() || ids.back() >= 0) ids.push_back(best[end].id);
    }
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) emit(*id);
  }

  /// One piece of a segmentation.
  struct Step {
    std::size_t begin,  ///< byte offset of its first byte in the word
        end;            ///< byte offset behind its last byte
    std::int32_t id;    ///< its id; -1: one character that is in no piece
  };

  /// Samples a segmentation of a UTF-8 word from all of them, in proportion to its probability to the power
  /// alpha (Kudo 2018, section 3.2), by forward filtering and backward sampling. alpha 0: the best one.
  template <class Find>
  std::vector<Step> sample(std::string_view word, double alpha, RandomGenerator& rng, Find&& find) const {
    struct Edge {
      Step step;
      double score;
      std::size_t next;  // another one with the same end
    };
    const double least = -std::numeric_limits<double>::infinity();
    std::vector<Edge> edges;
    std::vector<std::size_t> last(word.size() + 1, none);
    std::vector<double> sums(word.size() + 1, least);  // alpha 0: the best; else the logarithm of the sum
    sums[0] = 0;
    for_each_piece(word, find, [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
      const double weighted = alpha > 0 ? alpha * score : score;
      edges.push_back({{begin, end, id}, weighted, std::exchange(last[end], edges.size())});
      const double a = std::max(sums[end], sums[begin] + weighted),
                   b = std::min(sums[end], sums[begin] + weighted);
      sums[end] = alpha > 0 && b > least ? a + std::log1p(std::exp(b - a)) : a;
    });
    std::vector<Step> path;
    for (std::size_t end = word.size(); end > 0; end = path.back().begin) {
      std::size_t chosen = last[end];
      double rest = alpha > 0 ? rng.uniform() : 0;
      for (std::size_t i = last[end]; i != none; i = edges[i].next) {
        const double sum = sums[edges[i].step.begin] + edges[i].score;
        if (alpha > 0) {
          chosen = i;
          rest -= std::exp(sum - sums[end]);
          if (rest < 0) break;
        } else if (sum >= sums[end]) {
          chosen = i;  // of equally good ones the first that was found, as segment() has it
        }
      }
      path.push_back(edges[chosen].step);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  // Calls f(begin, end, score, id) for all pieces in a word, by their beginning and then by their end.
  template <class Find, class F>
  void for_each_piece(std::string_view word, Find&& find, F&& f) const {
    for (std::size_t begin = 0; begin < word.size();) {
      const std::size_t first = code_point_length(word, begin);
      bool known = false;  // the character alone
      for (std::size_t end = begin + first; end - begin <= longest_;) {
        const auto id = find(word.substr(begin, end - begin));
        if (id && !std::isnan(scores_[static_cast<std::size_t>(*id)])) {
          f(begin, end, scores_[static_cast<std::size_t>(*id)], *id);
          known = known || end == begin + first;
        }
        if (end == word.size()) break;
        end += code_point_length(word, end);
      }
      if (!known) f(begin, begin + first, unknown_score_, -1);
      begin += first;
    }
  }

  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  static std::size_t code_point_length(std::string_view text, std::size_t at) {
    return std::max<std::size_t>(1, decode_front(text.substr(at)).length);
  }

  std::vector<double> scores_;
  std::size_t longest_ = 0;  // in bytes
  double unknown_score_ = 0;
};

/// Byte pair encoding of characters (Sennrich et al. 2016): adjacent pairs are merged in the order of a list,
/// equal pairs from left to right.
class PairModel {
 public:
  PairModel() = default;
  /// merges: left and right tokens in turn, by descending priority. find(text) returns the id of a token as
  /// an optional. Throws ValueError for a merge of or into an unknown token, and for an odd number of tokens.
  template <class Find>
  PairModel(std::vector<std::string> merges, Find&& find) : merges_(std::move(merges)) {
    if (merges_.size() % 2 != 0) throw ValueError("tokenizer", "the last merge has no right token");
    const auto id = [&](const std::string& token) {
      if (const auto found = find(token)) return *found;
      throw ValueError("tokenizer", {"the merges have '", token, "', which is not in the vocabulary"});
    };
    for (std::size_t i = 0; i < merges_.size(); i += 2) {
      const std::string &left = merges_[i], &right = merges_[i + 1];
      const std::int32_t first = id(left), second = id(right);
      pairs_.insert_or_assign(key(first, second),
                              PossibleMerge<std::int32_t>{static_cast<double>(i), id(left + right)});
    }
  }

  /// The merges, as passed to the constructor.
  const std::vector<std::string>& merges() const noexcept { return merges_; }

  /// Calls emit(id) for each piece of a UTF-8 word, and emit(-1) for each run of characters that are not
  /// tokens. dropout: the probability with which a merge is left out, as in merge_with_dropout().
  template <class Find, class Emit>
  void segment(std::string_view word, double dropout, RandomGenerator& rng, Find&& find, Emit&& emit) const {
    std::vector<std::int32_t> ids;
    for_each_code_point(word, [&](char32_t, std::string_view c) {
      const std::int32_t id = find(c).value_or(-1);
      if (id >= 0 || ids.empty() || ids.back() >= 0) ids.push_back(id);
    });
    merge_with_dropout(
        ids, dropout, rng,
        [&](std::int32_t left, std::int32_t right) -> std::optional<PossibleMerge<std::int32_t>> {
          if (left < 0 || right < 0) return std::nullopt;
          const auto found = pairs_.find(key(left, right));
          if (found == pairs_.end()) return std::nullopt;
          return found->second;
        });
    for (const std::int32_t id : ids) emit(id);
  }

 private:
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  std::vector<std::string> merges_;
  std::unordered_map<std::uint64_t, PossibleMerge<std::int32_t>> pairs_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION UnigramModel::UnigramModel(std::vector<double> scores,
                                                   const std::vector<std::string>& tokens)
    : scores_(std::move(scores)) {
  scores_.resize(tokens.size(), std::numeric_limits<double>::quiet_NaN());
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (std::isnan(scores_[i])) continue;
    if (!(std::abs(scores_[i]) < 1e30)) {
      throw ValueError("tokenizer", {"the piece '", tokens[i], "' has the score ", scores_[i],
                                     ", expected a finite number"});
    }
    least = std::min(least, scores_[i]);
    longest_ = std::max(longest_, tokens[i].size());
  }
  if (longest_ == 0) throw ValueError("tokenizer", "the model has no pieces");
  unknown_score_ = least - 10;  // as in SentencePiece
}

}  // namespace eigenformer::detail

#endif
