#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <vector>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/search/beams/hypothesis.hpp"

namespace eigenformer {

/// The attention weights of all layers for a source and a target sentence (forced decoding); decoding token
/// by token gives the same weights.
///
/// source, target: token ids, the target without begin and end symbol. prefix: the number of first target
/// tokens, begin included, with bidirectional attention. Throws IndexError for an id outside its vocabulary,
/// and ValueError for a recording context, a negative prefix, and linear attention, which has no weights.
template <class T, class E, class D>
[[nodiscard]] AttentionMaps attention_maps(const Seq2SeqTransformer<T, E, D>& model, const Context<T>& ctx,
                                           const std::vector<std::int32_t>& source,
                                           const std::vector<std::int32_t>& target, std::int32_t begin_id,
                                           index_t prefix = 0) {
  if (ctx.records())
    throw ValueError("attention_maps", "the context records a tape, must be an inference context");
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

namespace detail {

template <class M>
concept HasAttentionMaps = requires(const M& model, const Context<typename M::value_type>& ctx,
                                    const typename M::Input& input, const std::vector<std::int32_t>& target) {
  {
    attention_maps(model, ctx, input, target, std::int32_t{}, index_t{})
    } -> std::convertible_to<AttentionMaps>;
};

}  // namespace detail

/// The coverage of a source sentence by its translation (Wu et al. 2016, section 7, without beta): the sum
/// over source tokens of log(min(a, 1)), where a is the attention that the token receives from all target
/// tokens, averaged over the heads of the decoder's last layer. 0 when every token receives at least 1, else
/// negative and finite: a is taken as at least the smallest normal float. ended: whether the row of the end
/// symbol counts. Throws ValueError for maps without a layer in `memory`.
inline double coverage_log(const AttentionMaps& maps, bool ended) {
  if (maps.memory.empty())
    throw ValueError("coverage", "the maps have no attention to the source, expected at least one layer");
  const Tensor<float>& memory = maps.memory.back();
  const index_t heads = memory.dim(0), rows = memory.dim(1) - (ended ? 0 : 1), sources = memory.dim(2);
  std::vector<double> attention(static_cast<std::size_t>(sources));
  for (index_t h = 0; h < heads; ++h) {
    for (index_t t = 0; t < rows; ++t) {
      const float* row = memory.data() + (h * memory.dim(1) + t) * sources;
      for (index_t s = 0; s < sources; ++s)
        attention[static_cast<std::size_t>(s)] += static_cast<double>(row[s]) / static_cast<double>(heads);
    }
  }
  double sum = 0;
  for (const double a : attention)
    sum += std::log(std::clamp<double>(a, std::numeric_limits<float>::min(), 1));
  return sum;
}

}  // namespace eigenformer
