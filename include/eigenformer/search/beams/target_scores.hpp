#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/kernels/reduction/top_k.hpp"
#include "eigenformer/search/beams/batches.hpp"
#include "eigenformer/search/processors/processors.hpp"

namespace eigenformer {

/// The score of a given target text under a model.
struct TargetScore {
  std::vector<double> token_log_probabilities;  ///< of each token and then the end symbol, in nats
  double log_probability = 0;                   ///< their sum, in nats
};

namespace detail {

// A row of the decoder's output that predicts a token of a target.
struct ScoredRow {
  index_t row;
  std::size_t input;
  index_t step;
  std::int32_t id;  // of the token
};

// The log-probability of each row's token.
template <class M>
std::vector<double> scores_of_rows(const M& model, const Context<ValueOf<M>>& ctx,
                                   const Tensor<ValueOf<M>>& decoded, const std::vector<ScoredRow>& rows) {
  using T = ValueOf<M>;
  // Blocks of rows, so that memory does not grow with rows x vocabulary.
  constexpr std::size_t block = 256;
  const index_t d = decoded.dim(1);
  std::vector<double> found;
  for (std::size_t begin = 0; begin < rows.size(); begin += block) {
    const std::size_t count = std::min(block, rows.size() - begin);
    Tensor<T> part(Shape{static_cast<index_t>(count), d});
    for (std::size_t r = 0; r < count; ++r)
      std::copy_n(decoded.data() + rows[begin + r].row * d, d, part.data() + static_cast<index_t>(r) * d);
    const Tensor<T> logits = Var<T>(model.logits(ctx, Var<T>(std::move(part)))).value();
    const auto vocabulary = static_cast<index_t>(model.vocabulary_size());
    require_logits("score", logits.shape(), static_cast<index_t>(count), vocabulary);
    std::vector<T> sums(count);
    kernels::log_sum_exp<T>(logits.data(), vocabulary, static_cast<index_t>(count), vocabulary, sums.data());
    for (std::size_t r = 0; r < count; ++r) {
      const std::span<const T> row(logits.data() + static_cast<index_t>(r) * vocabulary,
                                   static_cast<std::size_t>(vocabulary));
      const ScoredRow& of = rows[begin + r];
      if (std::isnan(sums[r])) require_numbers<T>("score", row, of.input, of.step, false);
      found.push_back(static_cast<double>(row[static_cast<std::size_t>(of.id)] - sums[r]));
    }
  }
  return found;
}

// Scores one batch. places: its pairs, as indices into the caller's lists.
template <class M>
void score_batch(const M& model, const Context<ValueOf<M>>& ctx, std::span<const typename M::Input> inputs,
                 std::span<const std::vector<std::int32_t>> targets, std::span<const std::size_t> places,
                 const SearchOptions& options, std::vector<TargetScore>& scores) {
  using T = ValueOf<M>;
  std::vector<typename M::Input> batch;
  for (const std::size_t i : places) batch.push_back(inputs[i]);
  const std::span<const typename M::Input> given(batch);
  const Prompts prompts = make_prompts("score", model, given, options, places);
  std::vector<std::int32_t> ids;
  std::vector<index_t> counts, prefix;
  std::vector<ScoredRow> rows;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const std::vector<std::int32_t>& target = targets[places[k]];
    const auto first = static_cast<index_t>(ids.size() + prompts[k].size()) - 1;
    ids.insert(ids.end(), prompts[k].begin(), prompts[k].end());
    ids.insert(ids.end(), target.begin(), target.end());
    counts.push_back(static_cast<index_t>(prompts[k].size() + target.size()));
    if (options.prefix_length > 0)
      prefix.push_back(std::min(options.prefix_length, static_cast<index_t>(prompts[k].size())));
    for (index_t t = 0; t <= static_cast<index_t>(target.size()); ++t)
      rows.push_back(
          {first + t, places[k], t,
           t < static_cast<index_t>(target.size()) ? target[static_cast<std::size_t>(t)] : options.end_id});
  }
  auto state = model.begin(ctx, given);
  const Tensor<T> decoded = Var<T>(state.step(id_row(ids), std::span<const index_t>(counts), prefix)).value();
  require_decoded("score", decoded.shape(), ids.size());
  const std::vector<double> found = scores_of_rows(model, ctx, decoded, rows);
  auto at = found.begin();
  for (const std::size_t i : places) {
    const auto end = at + static_cast<std::ptrdiff_t>(targets[i].size()) + 1;
    scores[i].token_log_probabilities.assign(at, end);
    scores[i].log_probability = std::accumulate(at, end, 0.0);
    at = end;
  }
}

}  // namespace detail

/// Scores given targets (forced decoding): the log-probability of each token given the input and the tokens
/// before it, and of the end symbol. Pairs of similar length share a batch; a pair's result does not depend
/// on the others.
///
/// - model: as in search/model.hpp.
/// - targets: ids without begin and end symbol, one list per input.
/// - options: only begin_id, end_id, prefix_ids, prefixes and prefix_length are used; forced tokens cost
/// nothing.
///
/// Throws ValueError for invalid options, unequal numbers of inputs and targets, and logits that are NaN or
/// +infinity; IndexError for an id outside the vocabulary; ShapeError for rows of a wrong shape.
template <class M>
std::vector<TargetScore> score_targets(const M& model, const Context<detail::ValueOf<M>>& ctx,
                                       std::span<const typename detail::InputOf<M>::type> inputs,
                                       std::span<const std::vector<std::int32_t>> targets,
                                       const SearchOptions& options = {},
                                       const BatchSearchOptions& batching = {}) {
  if (inputs.size() != targets.size()) {
    throw ValueError("score",
                     {inputs.size(), " inputs and ", targets.size(), " targets, expected equal numbers"});
  }
  options.validate();
  detail::require_one_prefix_each("score", options.prefixes.size(), inputs.size());
  const auto vocabulary = static_cast<index_t>(model.vocabulary_size());
  detail::require_id("score", "end_id", options.end_id, vocabulary, 0);
  std::vector<index_t> lengths;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const std::int32_t id : targets[i]) {
      if (id >= 0 && id < vocabulary) continue;
      throw IndexError("score", {"target ", i, " has the id ", id,
                                 ", must be at least 0 and below the vocabulary's size ", vocabulary});
    }
    lengths.push_back(detail::input_length(model, inputs[i]) + static_cast<index_t>(targets[i].size()));
  }
  std::vector<TargetScore> scores(inputs.size());
  detail::each_batch(lengths, batching, [&](std::span<const std::size_t> places) {
    detail::score_batch(model, ctx, inputs, targets, places, options, scores);
  });
  return scores;
}

}  // namespace eigenformer
