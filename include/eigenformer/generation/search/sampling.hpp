#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/generation/decoding/incremental_decoder.hpp"
#include "eigenformer/generation/decoding/language_decoder.hpp"
#include "eigenformer/generation/search/options.hpp"

namespace eigenformer {

/// How tokens are drawn from a model's distribution.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: the likeliest token (greedy)
  index_t top_k = 0;       ///< draws from so many likeliest tokens only (Fan et al. 2018); 0: from all
  double top_p =
      1;  ///< and of those from the likeliest that together reach this share (Holtzman et al. 2020)
  std::uint64_t seed = 0;     ///< with the text's number and the token's place, fixes what is drawn
  index_t max_length = 256;   ///< new tokens at most, the end symbol included
  index_t min_length = 0;     ///< new tokens at least before the end symbol may come
  std::int32_t begin_id = 2;  ///< of a target sentence; of encoder-decoder models
  std::vector<std::int32_t> prefix_ids{};  ///< forced after begin_id, at no cost; not in the results
  std::int32_t end_id = 3;                 ///< ends a text; -1: none does
  std::vector<std::int32_t> forbidden_ids = {0, 2};  ///< never drawn: padding and begin
  /// The first tokens of each prompt (of an encoder-decoder, begin_id and prefix_ids) that see one another in
  /// both directions, for a model that was trained as a prefix language model; more than there are means all
  /// of them.
  index_t prefix_length = 0;
  /// The texts' numbers, which decide with the seed what is drawn, so that parts of a list can be sampled on
  /// their own; empty: 0, 1, ...
  std::vector<std::uint64_t> numbers{};

  /// Throws ValueError that names an impossible field.
  void validate() const {
    const auto require = [](bool good, const char* name, const std::string& value, const char* rule) {
      if (!good) throw ValueError("sampling", std::string(name) + " is " + value + ", " + rule);
    };
    require(temperature >= 0 && std::isfinite(temperature), "temperature", std::to_string(temperature),
            std::isfinite(temperature) ? "must not be negative" : "must be finite");
    require(top_k >= 0, "top_k", std::to_string(top_k), "must not be negative");
    require(top_p > 0 && top_p <= 1, "top_p", std::to_string(top_p), "must be in (0, 1]");
    require(max_length >= 1, "max_length", std::to_string(max_length), "must be at least 1");
    require(min_length >= 0 && min_length <= max_length, "min_length", std::to_string(min_length),
            "must be from 0 to max_length");
    require(prefix_length >= 0, "prefix_length", std::to_string(prefix_length), "must not be negative");
  }
};

/// A token drawn, and its log probability under the model's own distribution, in nats.
struct SampledToken {
  std::int32_t id = -1;
  double log_probability = 0;
};

/// Draws a token: the logits of allowed ones, divided by the temperature, cut to top_k and then to top_p, and
/// of what is left the one that `uniform`, in [0, 1), falls on, the likeliest first and of equals the lower
/// id. may_end: whether end_id is allowed. Throws ValueError when no token is.
template <class T>
SampledToken sample_token(std::span<const T> logits, const SamplingOptions& options, double uniform,
                          bool may_end = true) {
  std::vector<std::int32_t> ids;
  ids.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const bool forbidden = std::find(options.forbidden_ids.begin(), options.forbidden_ids.end(), id) !=
                           options.forbidden_ids.end();
    if (!forbidden && (may_end || id != options.end_id)) ids.push_back(id);
  }
  if (ids.empty())
    throw ValueError("sampling", "every one of the " + std::to_string(logits.size()) + " ids is forbidden");
  const auto logit = [&](std::int32_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]);
  };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const bool greedy = options.temperature == 0;
  const std::size_t k = greedy ? 1 : options.top_k > 0 ? static_cast<std::size_t>(options.top_k) : ids.size();
  if (k < ids.size()) {
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), likelier);
    ids.resize(k);
  } else {
    std::sort(ids.begin(), ids.end(), likelier);
  }

  std::size_t chosen = 0;
  if (!greedy) {
    std::vector<double> sums;  // of the probabilities up to each token, times a constant
    double total = 0;
    for (const std::int32_t id : ids) {
      total += std::exp((logit(id) - logit(ids.front())) / options.temperature);
      sums.push_back(total);
    }
    // The fewest of the likeliest that reach the share; rounding must not leave out the last one.
    const auto enough = std::lower_bound(sums.begin(), sums.end(), options.top_p * total);
    const std::size_t kept = std::min(sums.size() - 1, static_cast<std::size_t>(enough - sums.begin()));
    const auto at = std::upper_bound(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(kept),
                                     uniform * sums[kept]);
    chosen = static_cast<std::size_t>(at - sums.begin());
  }
  double highest = static_cast<double>(logits[0]), sum = 0;
  for (const T x : logits) highest = std::max(highest, static_cast<double>(x));
  for (const T x : logits) sum += std::exp(static_cast<double>(x) - highest);
  return {ids[chosen], logit(ids[chosen]) - highest - std::log(sum)};
}

namespace detail {

// The number in [0, 1) that decides the token at `place` of text `number`: a function of these and the seed
// alone, so that a text does not depend on what it is sampled with.
inline double sampling_uniform(std::uint64_t seed, std::uint64_t number, index_t place) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const Philox4x32::Counter words =
      Philox4x32::generate({low(number), low(number >> 32), low(static_cast<std::uint64_t>(place)), 1},
                           {low(seed), low(seed >> 32)});
  const std::uint64_t bits = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

inline void require_id(const char* field, std::int32_t id, index_t vocabulary, std::int32_t least) {
  if (id >= least && id < vocabulary) return;
  throw ValueError("sampling", std::string(field) + " is " + std::to_string(id) +
                                   ", must be below the vocabulary's size " + std::to_string(vocabulary));
}

// Draws `count` texts at once. logits: of their first tokens, (count, V). next(live, ids): the logits after
// each of `ids` has been appended to the text that stood at its place in `live`, which lists those that go
// on.
template <class T, class Next>
std::vector<Hypothesis> sample_texts(index_t count, Var<T> logits, const SamplingOptions& options,
                                     Next&& next) {
  if (!options.numbers.empty() && static_cast<index_t>(options.numbers.size()) != count) {
    throw ValueError("sampling", std::to_string(options.numbers.size()) + " numbers must be " +
                                     std::to_string(count) + ", one for each text");
  }
  std::vector<Hypothesis> texts(static_cast<std::size_t>(count));
  std::vector<std::size_t> growing(texts.size());
  for (std::size_t i = 0; i < growing.size(); ++i) growing[i] = i;
  for (index_t t = 0; !growing.empty(); ++t) {
    const index_t vocabulary = logits.dim(1);
    std::vector<std::size_t> still;
    std::vector<std::int32_t> live, ids;
    for (std::size_t row = 0; row < growing.size(); ++row) {
      Hypothesis& text = texts[growing[row]];
      const std::span<const T> scores(logits.value().data() + static_cast<index_t>(row) * vocabulary,
                                      static_cast<std::size_t>(vocabulary));
      const std::uint64_t number = options.numbers.empty() ? growing[row] : options.numbers[growing[row]];
      const SampledToken token =
          sample_token(scores, options, sampling_uniform(options.seed, number, t), t >= options.min_length);
      text.log_probability += token.log_probability;
      text.finished = token.id == options.end_id;
      if (text.finished) continue;
      text.ids.push_back(token.id);
      still.push_back(growing[row]);
      live.push_back(static_cast<std::int32_t>(row));
      ids.push_back(token.id);
    }
    growing = std::move(still);
    if (growing.empty() || t + 1 == options.max_length) break;
    logits = next(live, Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids));
  }
  for (Hypothesis& text : texts) text.score = text.log_probability;
  return texts;
}

}  // namespace detail

/// Continues prompts of token ids by drawing token after token, all at once, with a key/value cache.
///
/// Returns the new tokens of each prompt, without the end symbol. A prompt's text depends on the prompt, its
/// number in the list and the seed, and not on the others. Throws ValueError for impossible options and an
/// empty prompt, IndexError for an id outside the vocabulary.
template <class T>
std::vector<Hypothesis> sample(const LanguageModel<T>& model, const Context<T>& ctx,
                               std::span<const std::vector<std::int32_t>> prompts,
                               const SamplingOptions& options = {}) {
  options.validate();
  detail::require_id("end_id", options.end_id, model.options.vocab_size, -1);
  if (prompts.empty()) return {};
  std::vector<std::int32_t> ids, last;
  std::vector<index_t> counts, prefix;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) {
      throw ValueError("sampling", "prompt " + std::to_string(i) + " is empty, must have at least one token");
    }
    ids.insert(ids.end(), prompts[i].begin(), prompts[i].end());
    counts.push_back(static_cast<index_t>(prompts[i].size()));
    if (options.prefix_length > 0) prefix.push_back(std::min(options.prefix_length, counts.back()));
    last.push_back(static_cast<std::int32_t>(ids.size()) - 1);
  }
  const auto tensor = [](const std::vector<std::int32_t>& v) {
    return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(v.size())}, v);
  };
  LanguageModelDecoder<T> decoder(model, ctx, static_cast<index_t>(prompts.size()));
  const Var<T> read = index_select(decoder.step(tensor(ids), counts, prefix), tensor(last));
  return detail::sample_texts<T>(decoder.sequences(), model.logits(ctx, read), options,
                                 [&](std::span<const std::int32_t> live, const Tensor<std::int32_t>& drawn) {
                                   decoder.reorder(live);
                                   return model.logits(ctx, decoder.step(drawn));
                                 });
}

/// Draws a target sentence for each encoded source, one for each sequence of memory or as memory.key_sequence
/// says.
///
/// Returns them without begin and end symbol and forced prefix. What is drawn for a source depends on its
/// number and the seed, and not on the others. Throws ValueError for impossible options.
template <class T>
std::vector<Hypothesis> sample(const Seq2SeqTransformer<T>& model, const Context<T>& ctx,
                               const Memory<T>& memory, const SamplingOptions& options = {}) {
  options.validate();
  detail::require_id("begin_id", options.begin_id, model.options.target_size(), 0);
  for (const std::int32_t id : options.prefix_ids)
    detail::require_id("one of prefix_ids", id, model.options.target_size(), 0);
  detail::require_id("end_id", options.end_id, model.options.target_size(), -1);
  IncrementalDecoder<T> decoder(model, ctx, memory);
  const index_t count = decoder.hypotheses();
  if (count == 0) return {};
  const auto given = static_cast<index_t>(options.prefix_ids.size()) + 1;
  Tensor<std::int32_t> begin = Tensor<std::int32_t>::full(Shape{count, given}, options.begin_id);
  Tensor<std::int32_t> last(Shape{count});
  for (index_t i = 0; i < count; ++i) {
    std::copy(options.prefix_ids.begin(), options.prefix_ids.end(), begin.data() + i * given + 1);
    last.data()[i] = static_cast<std::int32_t>((i + 1) * given - 1);
  }
  const Var<T> read = decoder.step(begin, nullptr, std::min(options.prefix_length, given));
  const Var<T> first = model.logits(ctx, index_select(read, last));
  return detail::sample_texts<T>(count, first, options,
                                 [&](std::span<const std::int32_t> live, const Tensor<std::int32_t>& drawn) {
                                   decoder.reorder(live);
                                   return model.logits(ctx, decoder.step(drawn));
                                 });
}

/// The same for source sentences of token ids (with their end symbol, as the model was trained), encoded
/// here. Throws IndexError for an id outside the vocabulary, too.
template <class T>
std::vector<Hypothesis> sample(const Seq2SeqTransformer<T>& model, const Context<T>& ctx,
                               std::span<const std::vector<std::int32_t>> sources,
                               const SamplingOptions& options = {}) {
  options.validate();
  if (sources.empty()) return {};
  std::vector<std::int32_t> ids;
  std::vector<index_t> lengths;
  for (const auto& source : sources) {
    ids.insert(ids.end(), source.begin(), source.end());
    lengths.push_back(static_cast<index_t>(source.size()));
  }
  const SequenceLayout layout = SequenceLayout::packed(lengths);
  const auto tokens = Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
  return sample(model, ctx, Memory<T>(model.encode(ctx, tokens, layout), layout), options);
}

}  // namespace eigenformer
