#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/autograd/ops/shape/gather.hpp"
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
  std::int32_t row;
  std::size_t input;
  index_t step;
  std::int32_t id;  // of the token
};

// Appends the log-probability of each row's token to the score of its input. decoded: (rows, D).
template <class M>
void score_rows(const M& model, const Context<ValueOf<M>>& ctx, const Var<ValueOf<M>>& decoded,
                std::span<const ScoredRow> rows, std::vector<TargetScore>& scores) {
  using T = ValueOf<M>;
  while (!rows.empty()) {
    // So that memory does not grow with rows x vocabulary.
    const auto block = rows.first(std::min<std::size_t>(256, rows.size()));
    rows = rows.subspan(block.size());
    std::vector<std::int32_t> places;
    for (const ScoredRow& of : block) places.push_back(of.row);
    const auto count = static_cast<index_t>(places.size());
    const auto vocabulary = static_cast<index_t>(model.vocabulary_size());
    const Tensor<T> logits = Var<T>(model.logits(ctx, index_select(decoded, id_row(places)))).value();
    require_logits("score", logits.shape(), count, vocabulary);
    std::vector<T> sums(places.size());
    kernels::log_sum_exp<T>(logits.data(), vocabulary, count, vocabulary, sums.data());
    for (std::size_t r = 0; r < places.size(); ++r) {
      const std::span<const T> row(logits.data() + static_cast<index_t>(r) * vocabulary,
                                   static_cast<std::size_t>(vocabulary));
      const ScoredRow& of = block[r];
      if (std::isnan(sums[r])) require_numbers<T>("score", row, of.input, of.step, false);
      const auto found = static_cast<double>(row[static_cast<std::size_t>(of.id)] - sums[r]);
      scores[of.input].token_log_probabilities.push_back(found);
      scores[of.input].log_probability += found;
    }
  }
}

// Scores one batch. places: its pairs, as indices into the caller's lists.
template <class M>
void score_batch(const M& model, const Context<ValueOf<M>>& ctx, std::span<const typename M::Input> inputs,
                 std::span<const std::vector<std::int32_t>> targets, std::span<const std::size_t> places,
                 const SearchOptions& options, std::vector<TargetScore>& scores) {
  std::vector<typename M::Input> batch;
  for (const std::size_t i : places) batch.push_back(inputs[i]);
  const std::span<const typename M::Input> given(batch);
  const Prompts prompts = make_prompts("score", model, given, options, places);
  std::vector<std::int32_t> ids;
  std::vector<index_t> counts, prefix;
  std::vector<ScoredRow> rows;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const std::vector<std::int32_t>& target = targets[places[k]];
    ids.insert(ids.end(), prompts[k].begin(), prompts[k].end());
    ids.insert(ids.end(), target.begin(), target.end());
    counts.push_back(static_cast<index_t>(prompts[k].size() + target.size()));
    if (options.prefix_length > 0)
      prefix.push_back(std::min(options.prefix_length, static_cast<index_t>(prompts[k].size())));
    const std::size_t first = ids.size() - target.size() - 1;
    for (std::size_t t = 0; t <= target.size(); ++t) {
      rows.push_back({static_cast<std::int32_t>(first + t), places[k], static_cast<index_t>(t),
                      t < target.size() ? target[t] : options.end_id});
    }
  }
  auto state = model.begin(ctx, given);
  const Var<ValueOf<M>> decoded = state.step(id_row(ids), std::span<const index_t>(counts), prefix);
  require_decoded("score", decoded.shape(), ids.size());
  score_rows(model, ctx, decoded, rows, scores);
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
  detail::require_one_each("score", "prefixes", options.prefixes.size(), inputs.size());
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
