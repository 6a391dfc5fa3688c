#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/search/beams/hypothesis.hpp"
#include "eigenformer/search/beams/sampling_options.hpp"
#include "eigenformer/search/decoding/length_limits.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"

namespace eigenformer {

namespace detail {

/// Draws the texts of all prompts together. limits: maximum tokens of each prompt's texts after prefix_ids;
/// empty: as max_length has it.
template <class T>
std::vector<Hypothesis> sample_texts(NextTokens<T>& model, const Prompts& prompts,
                                     std::span<const index_t> limits, const SamplingOptions& options);

}  // namespace detail

/// Samples options.num_samples texts for each input, all in one batch, with the model's key/value cache:
/// translations of source sentences (with the end symbol that the model was trained with) or continuations of
/// prompts.
///
/// model: as in search/model.hpp. Returns inputs.size() * num_samples texts, those of an input next to
/// each other, without begin and end symbol and forced prefix. A text depends on its input, the input's
/// number (SamplingOptions::numbers), its own number among the input's samples and the seed, but not on the
/// other texts, their number or the batch; its log-probability is the same to the last bit. A text ends where
/// every next token is forbidden. Throws ValueError for invalid options, an empty prompt, and logits that are
/// NaN or +infinity; ShapeError for logits of another shape than (sequences, vocabulary_size()); and what the
/// model throws, such as IndexError for an id outside the vocabulary.
template <class M>
std::vector<Hypothesis> sample(const M& model, const Context<detail::ValueOf<M>>& ctx,
                               std::span<const typename detail::InputOf<M>::type> inputs,
                               const SamplingOptions& options = {}) {
  options.validate();
  detail::require_id("sampling", "end_id", options.end_id, static_cast<index_t>(model.vocabulary_size()), -1);
  if (!options.numbers.empty() && options.numbers.size() != inputs.size()) {
    throw ValueError("sampling", "there are " + std::to_string(options.numbers.size()) +
                                     " numbers, must be " + std::to_string(inputs.size()) +
                                     ", one for each input");
  }
  detail::require_one_prefix_each("sampling", options.prefixes.size(), inputs.size());
  if (inputs.empty()) return {};
  std::vector<std::size_t> places(inputs.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const std::vector<index_t> limits = detail::length_limits(model, inputs, options);
  const Prompts prompts = detail::make_prompts("sampling", model, inputs, options, places);
  detail::ModelNextTokens<M> next("sampling", model, ctx, inputs);
  next.keep_apart();
  return detail::sample_texts<detail::ValueOf<M>>(next, prompts, limits, options);
}

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

#include <algorithm>
#include <limits>
#include <utility>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/search/beams/sample_token.hpp"

namespace eigenformer::detail {

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
                        const SamplingOptions& options, std::uint64_t number, index_t sample) {
  const LogNormaliser<T> normaliser(logits);
  if (normaliser.bad()) require_numbers<T>("sampling", logits, step.input, step.step, false);
  std::vector<T> given;
  if (processors.changes_values()) given.assign(logits.begin(), logits.end());
  processors(step, logits);
  if (processors.changes_values()) require_numbers<T>("sampling", logits, step.input, step.step, true);
  if (std::none_of(logits.begin(), logits.end(), [](T x) { return x > -std::numeric_limits<T>::infinity(); }))
    return {};
  const std::int32_t id =
      draw_token<T>(logits, options, sampling_uniform(options.seed, number, sample, step.step));
  const auto at = static_cast<std::size_t>(id);
  return {id, normaliser(given.empty() ? logits[at] : given[at])};
}

// Repeats each row n times.
template <class T>
Tensor<T> repeated_rows(const Tensor<T>& x, index_t n) {
  Tensor<T> y(Shape{x.dim(0) * n, x.dim(1)});
  for (index_t row = 0; row < y.dim(0); ++row)
    std::copy_n(x.data() + row / n * x.dim(1), x.dim(1), y.data() + row * x.dim(1));
  return y;
}

template <class T>
std::vector<Hypothesis> sample_texts(NextTokens<T>& model, const Prompts& prompts,
                                     std::span<const index_t> limits, const SamplingOptions& options) {
  const ProcessorList processors("sampling", options);
  const auto samples = static_cast<std::size_t>(options.num_samples);
  std::vector<Hypothesis> texts(prompts.size() * samples);
  const index_t most = max_steps(options);
  if (most == 0) return texts;  // prefix_ids leave no room for a text
  std::vector<std::size_t> growing(texts.size());
  for (std::size_t i = 0; i < growing.size(); ++i) growing[i] = i;
  Tensor<T> logits = model.begin(prompts, options.prefix_length);
  if (samples > 1) logits = repeated_rows(logits, options.num_samples);
  std::vector<SampledToken> drawn;
  for (index_t t = 0;; ++t) {
    const index_t vocabulary = logits.dim(1);
    drawn.resize(growing.size());
    parallel_for(static_cast<index_t>(growing.size()), std::max<index_t>(1, 4096 / vocabulary),
                 [&](index_t begin, index_t end) {
                   for (index_t row = begin; row < end; ++row) {
                     const std::size_t text = growing[static_cast<std::size_t>(row)], i = text / samples;
                     drawn[static_cast<std::size_t>(row)] = sample_row<T>(
                         {logits.data() + row * vocabulary, static_cast<std::size_t>(vocabulary)},
                         {i, t, prompts[i], texts[text].ids, false}, processors, options,
                         options.numbers.empty() ? i : options.numbers[i],
                         static_cast<index_t>(text % samples));
                   }
                 });
    for (std::size_t row = 0; row < growing.size(); ++row) {
      Hypothesis& text = texts[growing[row]];
      const SampledToken token = drawn[row];
      text.log_probability += token.log_probability;
      if (options.token_scores && token.id >= 0)
        text.token_log_probabilities.push_back(token.log_probability);
      text.finished = token.id >= 0 && token.id == options.end_id;
      if (!text.finished && token.id >= 0) text.ids.push_back(token.id);
    }
    std::vector<std::size_t> still;
    std::vector<std::int32_t> live, ids;
    bool goes_on = true;
    for (std::size_t row = 0; row < growing.size(); ++row) {
      const std::size_t i = growing[row] / samples;
      if (options.observer != nullptr && (row == 0 || i != growing[row - 1] / samples)) {
        goes_on = (*options.observer)(
            {i, t + 1, 0, std::span<const Hypothesis>(texts).subspan(i * samples, samples), {}});
      }
      if (!goes_on || texts[growing[row]].finished || drawn[row].id < 0) continue;
      if (!limits.empty() && t + 1 == limits[i]) continue;
      still.push_back(growing[row]);
      live.push_back(static_cast<std::int32_t>(t == 0 ? row / samples : row));
      ids.push_back(drawn[row].id);
    }
    growing = std::move(still);
    if (growing.empty() || t + 1 == most) break;
    logits = model.step(live, ids);
  }
  for (Hypothesis& text : texts) text.score = text.log_probability;
  return texts;
}

EIGENFORMER_INSTANCE(std::vector<Hypothesis> sample_texts(NextTokens<float>&, const Prompts&,
                                                          std::span<const index_t>, const SamplingOptions&))
EIGENFORMER_INSTANCE(std::vector<Hypothesis> sample_texts(NextTokens<double>&, const Prompts&,
                                                          std::span<const index_t>, const SamplingOptions&))

}  // namespace eigenformer::detail

#endif
