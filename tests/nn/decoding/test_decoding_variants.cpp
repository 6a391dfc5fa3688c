#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "fixtures.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqOptions small() {
  return {.source_vocab_size = 23,
          .target_vocab_size = 19,
          .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
          .encoder = {.num_layers = 2},
          .decoder = {.num_layers = 2}};
}

std::vector<std::pair<std::string, Seq2SeqOptions>> variants() {
  std::vector<std::pair<std::string, Seq2SeqOptions>> all;
  const auto add = [&](const char* name, auto&& change) {
    all.emplace_back(name, small());
    change(all.back().second);
  };
  add("rms, pre-norm, swiglu", [](auto& o) {
    o.layer.norm.kind = NormKind::rms_norm, o.layer.norm_first = true, o.layer.gated = true,
    o.layer.activation = Activation::silu;
  });
  add("sandwich, relu squared",
      [](auto& o) { o.layer.sandwich_norm = true, o.layer.activation = Activation::relu_squared; });
  add("ssru", [](auto& o) {
    o.decoder.layer = o.layer;
    o.decoder.layer->self_mixing = SelfMixing::ssru;
  });
  add("linear attention", [](auto& o) { o.layer.attention.kind = AttentionKind::linear; });
  add("embedding norm, scaled logits, glu", [](auto& o) {
    o.embedding_norm = true, o.logit_scale = 0.5, o.layer.gated = true,
    o.layer.activation = Activation::sigmoid;
  });
  return all;
}

}  // namespace

TEST_CASE("every variant decodes token by token as at once") {
  for (const auto& variant : variants()) {
    const auto& name = variant.first;
    const auto& options = variant.second;
    CAPTURE(name);
    RandomGenerator rng(1);
    const Seq2SeqTransformer<double> model(options, rng);
    const auto memory = encode(model, {{5, 6, 7, 3}, {8, 3}});
    const Ids targets[] = {{2, 7, 8, 9, 10, 11, 4}, {2, 12, 12, 4, 18, 5, 6}};
    DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
    for (std::size_t t = 0; t < 7; ++t) {
      const auto y =
          model.logits(Context<double>::inference(), decoder.step(id_tensor({targets[0][t], targets[1][t]})));
      for (std::int32_t b = 0; b < 2; ++b) {
        const Memory<double> one(memory.rows, memory.layout, {b});
        const auto ctx = Context<double>::inference();
        const auto all =
            model.logits(ctx, model.decode(ctx, id_tensor(targets[b]), SequenceLayout::packed({7}), one))
                .value();
        check_close(y.value().rows(b, 1), all.rows(static_cast<index_t>(t), 1), 1e-12);
      }
    }
    // Two hypotheses of the second sentence, and none of the first.
    decoder.reorder(std::vector<std::int32_t>{1, 1});
    const auto both =
        model.logits(Context<double>::inference(), decoder.step(id_tensor({targets[1][6], targets[0][6]})));
    for (const std::size_t h : {0, 1}) {
      const auto ctx = Context<double>::inference();
      std::vector<std::int32_t> text = targets[1];
      text.resize(7);
      text.push_back(targets[1 - h][6]);
      const Memory<double> one(memory.rows, memory.layout, {1});
      const auto all =
          model.logits(ctx, model.decode(ctx, id_tensor(text), SequenceLayout::packed({8}), one)).value();
      check_close(both.value().rows(static_cast<index_t>(h), 1), all.rows(7, 1), 1e-12);
    }
  }
}
