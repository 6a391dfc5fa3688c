#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/search/model.hpp"

namespace eigenformer::detail {

/// The decoder's output (rows, D) for the target tokens of a packed batch.
template <class M, class T>
Var<T> decoded_rows(const M& model, const Context<T>& ctx, const Batch& batch) {
  const Memory<T> memory(model.encode(ctx, id_row(batch.source), batch.source_layout), batch.source_layout);
  return model.decode(ctx, id_row(batch.target_input), batch.target_layout, memory);
}

/// Forced decoding: for every target token of a batch, the id with the highest logit, given the source and
/// the batch's own tokens before it. Comparing the choices of two models shows, for example, what
/// quantization changes.
///
/// forbidden: ids that are never chosen. Of equal logits the lower id wins. Returns one id per element of
/// batch.target_output, -1 where every id is forbidden. Logits are not checked for NaN. Throws IndexError for
/// an id outside the vocabulary.
template <class T, class E, class D>
std::vector<std::int32_t> forced_choices(const Seq2SeqTransformer<T, E, D>& model, const Context<T>& ctx,
                                         const Batch& batch, std::span<const std::int32_t> forbidden = {}) {
  const Tensor<T> decoded = decoded_rows(model, ctx, batch).value();
  std::vector<std::int32_t> choices;
  // Blocks of rows, so that memory does not grow with rows x vocabulary.
  constexpr index_t block = 256;
  for (index_t row = 0; row < decoded.dim(0); row += block) {
    const index_t rows = std::min(block, decoded.dim(0) - row);
    const Tensor<T> logits = model.logits(ctx, decoded.rows(row, rows)).value();
    const index_t vocabulary = logits.dim(1);
    for (index_t i = 0; i < rows; ++i) {
      const T* x = logits.data() + i * vocabulary;
      std::int32_t best = -1;
      for (index_t id = 0; id < vocabulary; ++id) {
        const auto candidate = static_cast<std::int32_t>(id);
        if (best >= 0 && !(x[id] > x[best])) continue;
        if (std::find(forbidden.begin(), forbidden.end(), candidate) == forbidden.end()) best = candidate;
      }
      choices.push_back(best);
    }
  }
  return choices;
}

}  // namespace eigenformer::detail
