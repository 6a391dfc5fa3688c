#pragma once

#include <cstdint>
#include <vector>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "module_test_tools.hpp"

namespace eigenformer::testing {

using Tokens = Tensor<std::int32_t>;

inline Seq2SeqOptions small_seq2seq(bool norm_first = false) {
  return {.source_vocab_size = V,
          .target_vocab_size = 19,
          .layer = {.d_model = D, .num_heads = H, .dim_feedforward = F, .norm_first = norm_first},
          .encoder = {.num_layers = 2},
          .decoder = {.num_layers = 2}};
}

template <class T>
Seq2SeqTransformer<T> make_seq2seq(const Seq2SeqOptions& options) {
  RandomGenerator rng(1);
  Seq2SeqTransformer<T> model(options, rng);
  randomise(model, 2);
  return model;
}

/// Ids 1 .. vocabulary - 1; 0 is padding.
inline Tokens random_tokens(const Shape& shape, index_t vocabulary, std::uint64_t seed) {
  RandomGenerator rng(seed);
  Tokens ids(shape);
  for (auto& id : ids.span()) id = static_cast<std::int32_t>(1 + rng.uniform_int(vocabulary - 1));
  return ids;
}

/// A padded batch: sources of 7 and 4 tokens, targets of 3 and 5.
struct TokenBatch {
  Tokens source = random_tokens({B, S}, V, 11);
  Tokens target_in = random_tokens({B, L}, 19, 12);
  Tokens target_out = random_tokens({B, L}, 19, 13);
  SequenceLayout source_layout = SequenceLayout::padded({7, 4}, S);
  SequenceLayout target_layout = SequenceLayout::padded({3, 5}, L);
};

// The model's loss of a batch, padded or packed.
template <class T>
Var<T> token_batch_loss(const Seq2SeqTransformer<T>& model, const Context<T>& ctx, const TokenBatch& batch,
                        bool packed) {
  if (!packed) {
    return model.loss(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                      batch.target_out);
  }
  return model.loss(
      ctx, detail::pack_tokens(batch.source, batch.source_layout), detail::packed_layout(batch.source_layout),
      detail::pack_tokens(batch.target_in, batch.target_layout), detail::packed_layout(batch.target_layout),
      detail::pack_tokens(batch.target_out, batch.target_layout));
}

}  // namespace eigenformer::testing
