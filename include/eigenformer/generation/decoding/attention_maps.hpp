#pragma once

#include <cstdint>
#include <vector>

#include "eigenformer/generation/search/hypothesis.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"

namespace eigenformer {

/// What a model looks at when it reads a source sentence and is made to write a target sentence: ids of both,
/// the target without begin and end. prefix: the first target tokens, begin included, that see one another in
/// both directions. Decoding token by token gives the same weights. Throws IndexError for an id outside its
/// vocabulary, ValueError for a context that records.
template <class T, class E, class D>
[[nodiscard]] AttentionMaps attention_maps(const Seq2SeqTransformer<T, E, D>& model, const Context<T>& ctx,
                                           const std::vector<std::int32_t>& source,
                                           const std::vector<std::int32_t>& target, std::int32_t begin_id,
                                           index_t prefix = 0) {
  if (ctx.records()) throw ValueError("attention_maps", "maps of a sentence need an inference context");
  std::vector<std::int32_t> input{begin_id};
  input.insert(input.end(), target.begin(), target.end());
  const auto tokens = [](const std::vector<std::int32_t>& ids) {
    return Tensor<std::int32_t>::from(Shape{1, static_cast<index_t>(ids.size())}, ids);
  };
  const auto layout = [](const std::vector<std::int32_t>& ids) {
    return SequenceLayout::padded(1, static_cast<index_t>(ids.size()));
  };
  Seq2SeqMaps<T> maps;
  const Memory<T> memory(model.encode(ctx, tokens(source), layout(source), {}, &maps.source), layout(source));
  const AttentionMask mask = prefix == 0 ? AttentionMask::none() : AttentionMask::prefix({prefix});
  (void)model.decode(ctx, tokens(input), layout(input), memory, {.target = mask}, &maps.decoder);
  const auto heads = [](const std::vector<Var<T>>& layers) {
    std::vector<Tensor<float>> all;
    for (const Var<T>& layer : layers) {
      const Tensor<T>& w = layer.value();
      all.push_back(w.reshape(Shape{w.dim(1), w.dim(2), w.dim(3)}).template to<float>());
    }
    return all;
  };
  return {heads(maps.source), heads(maps.decoder.target), heads(maps.decoder.memory)};
}

}  // namespace eigenformer
