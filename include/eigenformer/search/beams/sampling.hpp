#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"

namespace eigenformer::detail {

/// Draws options.num_hypotheses texts for each prompt, all together. A text depends on its prompt, its
/// input's number, its own number and the seed, but not on the others; its log-probability is the same to the
/// last bit. It ends where every next token is forbidden. inputs, limits: as in search_beams().
template <class T>
std::vector<std::vector<Hypothesis>> sample_texts(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options);

/// Draws one of the tokens whose score is above -infinity, of which there must be one: divides by the
/// temperature, truncates to top_k, then to top_p and min_p, and maps `uniform`, in [0, 1), to one of the
/// remaining tokens by their cumulative probabilities, the likeliest first and of equal ones the lower id.
template <class T>
std::int32_t draw_token(std::span<const T> scores, const Sampling& options, double uniform);

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/search/processors/processors.hpp"

namespace eigenformer::detail {

// A drawn token.
struct SampledToken {
  std::int32_t id = -1;        // -1: none was allowed
  double log_probability = 0;  // in nats, under the model's unmodified distribution
};

template <class T>
std::int32_t draw_token(std::span<const T> scores, const Sampling& options, double uniform) {
  const auto likeliest =
      static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  if (options.temperature == 0) return static_cast<std::int32_t>(likeliest);
  struct Token {
    T score;
    std::int32_t id;
  };
  std::vector<Token> tokens;  // the allowed ones
  tokens.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > -std::numeric_limits<T>::infinity())
      tokens.push_back({scores[i], static_cast<std::int32_t>(i)});
  }
  std::size_t sorted = 0;  // the first of them are the likeliest, in order
  const auto sort_to = [&](std::size_t n) {
    const auto likelier = [](const Token& a, const Token& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    };
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(sorted),
               end = tokens.begin() + static_cast<std::ptrdiff_t>(n);
    if (end != tokens.end()) std::nth_element(begin, end, tokens.end(), likelier);
    std::sort(begin, end, likelier);
    sorted = n;
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < tokens.size()) {
    sort_to(static_cast<std::size_t>(options.top_k));
    tokens.resize(sorted);
  }
  // The i-th likeliest. Asked in order, the first few cost one pass, all of them about one sort.
  const auto token = [&](std::size_t i) {
    if (i >= sorted) sort_to(std::max(i + 1, std::min(tokens.size(), std::max<std::size_t>(64, 8 * sorted))));
    return tokens[i];
  };
  const double best = static_cast<double>(scores[likeliest]);
  const auto weight = [&](T score) {
    return std::exp((static_cast<double>(score) - best) / options.temperature);
  };
  double total = 0;
  for (const Token& t : tokens) total += weight(t.score);
  // Sums the weights of the likeliest tokens until `enough`.
  std::vector<double> sums;
  const auto sum_to = [&](auto&& enough) {
    std::size_t i = 0;
    for (;; ++i) {
      if (i == sums.size()) sums.push_back((i == 0 ? 0 : sums.back()) + weight(token(i).score));
      if (i + 1 == tokens.size() || enough(sums[i])) return i;
    }
  };
  if (options.top_p < 1 || options.min_p > 0) {
    const double share = options.top_p < 1 ? options.top_p * total : std::numeric_limits<double>::infinity();
    std::size_t kept = sum_to([&](double sum) {
      // The likeliest token has weight 1.
      return sum >= share ||
             (sums.size() < tokens.size() && weight(token(sums.size()).score) < options.min_p);
    });
    const double drawn = uniform * sums[kept];
    const auto last = sums.begin() + static_cast<std::ptrdiff_t>(kept);
    return token(static_cast<std::size_t>(std::upper_bound(sums.begin(), last, drawn) - sums.begin())).id;
  }
  const double drawn = uniform * total;
  return token(sum_to([&](double sum) { return sum > drawn; })).id;
}

// The uniform number in [0, 1) for the token at `place` of sample `sample` of text `number`: a function of
// these and the seed, so that a text does not depend on its batch.
inline double sampling_uniform(std::uint64_t seed, std::uint64_t number, index_t sample, index_t place) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const Philox4x32::Counter words =
      Philox4x32::generate({low(number), low(number >> 32), low(static_cast<std::uint64_t>(place)),
                            low(static_cast<std::uint64_t>(sample) + 1)},
                           {low(seed), low(seed >> 32)});
  const std::uint64_t bits = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// Draws the next token of a text from its logits, which are overwritten; id -1 if none is allowed.
template <class T>
SampledToken sample_row(std::span<T> logits, const LogitsStep& step, const ProcessorList& processors,
                        const Sampling& options, std::uint64_t number, index_t sample) {
  const auto highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const T x : logits) sum += std::exp(static_cast<double>(x) - highest);
  const double log_sum = std::log(sum);
  // The row has NaN or +infinity, or only -infinity, which is allowed.
  if (std::isnan(log_sum)) require_numbers<T>("search", logits, step.input, step.step, false);
  std::vector<T> given;
  if (processors.changes_values()) given.assign(logits.begin(), logits.end());
  processors(step, logits);
  if (processors.changes_values()) require_numbers<T>("search", logits, step.input, step.step, true);
  if (std::none_of(logits.begin(), logits.end(), [](T x) { return x > -std::numeric_limits<T>::infinity(); }))
    return {};
  const std::int32_t id =
      draw_token<T>(logits, options, sampling_uniform(options.seed, number, sample, step.step));
  const auto at = static_cast<std::size_t>(id);
  return {id, static_cast<double>(given.empty() ? logits[at] : given[at]) - highest - log_sum};
}

// A text that grows, and the token drawn for it.
struct GrowingText {
  std::size_t prompt, sample;
  SampledToken drawn{};
};

template <class T>
std::vector<std::vector<Hypothesis>> sample_texts(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options) {
  const ProcessorList processors(options);
  const Sampling& sampling = *options.sampling;
  const auto samples = static_cast<std::size_t>(options.num_hypotheses);
  std::vector<std::vector<Hypothesis>> texts(prompts.size(), std::vector<Hypothesis>(samples));
  const index_t most = max_steps(options);
  if (most == 0) return texts;  // prefix_ids leave no room for a text
  std::vector<GrowingText> growing, still;
  std::vector<std::int32_t> prompt_of;  // of each growing text
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::size_t k = 0; k < samples; ++k) growing.push_back({i, k});
    prompt_of.insert(prompt_of.end(), samples, static_cast<std::int32_t>(i));
  }
  Tensor<T> logits = model.begin(prompts, options.prefix_length);
  if (samples > 1) logits = index_select(logits, id_row(prompt_of)).value();
  for (index_t t = 0;; ++t) {
    const index_t vocabulary = logits.dim(1), grain = std::max<index_t>(1, 4096 / vocabulary);
    parallel_for(static_cast<index_t>(growing.size()), grain, [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        GrowingText& g = growing[static_cast<std::size_t>(row)];
        const std::size_t input = inputs[g.prompt];
        g.drawn = sample_row<T>(
            {logits.data() + row * vocabulary, static_cast<std::size_t>(vocabulary)},
            {input, t, prompts[g.prompt], texts[g.prompt][g.sample].ids, false}, processors, sampling,
            sampling.numbers.empty() ? input : sampling.numbers[input], static_cast<index_t>(g.sample));
      }
    });
    for (const GrowingText& g : growing) {
      Hypothesis& text = texts[g.prompt][g.sample];
      text.log_probability += g.drawn.log_probability;
      if (g.drawn.id < 0) continue;
      if (options.token_scores) text.token_log_probabilities.push_back(g.drawn.log_probability);
      text.finished = g.drawn.id == options.end_id;
      if (!text.finished) text.ids.push_back(g.drawn.id);
    }
    still.clear();
    std::vector<std::int32_t> parents, ids;
    bool goes_on = true;
    for (std::size_t row = 0; row < growing.size(); ++row) {
      const GrowingText& g = growing[row];
      if (options.observer != nullptr && (row == 0 || g.prompt != growing[row - 1].prompt))
        goes_on = (*options.observer)({inputs[g.prompt], t + 1, 0, texts[g.prompt], {}});
      if (!goes_on || texts[g.prompt][g.sample].finished || g.drawn.id < 0) continue;
      if (!limits.empty() && t + 1 == limits[g.prompt]) continue;
      still.push_back(g);
      parents.push_back(static_cast<std::int32_t>(t == 0 ? g.prompt : row));
      ids.push_back(g.drawn.id);
    }
    std::swap(growing, still);
    if (growing.empty() || t + 1 == most) break;
    logits = model.step(parents, ids);
  }
  for (std::vector<Hypothesis>& of_input : texts) {
    for (Hypothesis& text : of_input) text.score = text.log_probability;
  }
  return texts;
}

EIGENFORMER_INSTANCE(decltype(draw_token<float>) draw_token<float>)
EIGENFORMER_INSTANCE(decltype(draw_token<double>) draw_token<double>)
EIGENFORMER_INSTANCE(decltype(sample_texts<float>) sample_texts<float>)
EIGENFORMER_INSTANCE(decltype(sample_texts<double>) sample_texts<double>)

}  // namespace eigenformer::detail

#endif
