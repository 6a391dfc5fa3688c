#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "eigenformer/generation/decoding/packed_model.hpp"
#include "fixtures.hpp"
#include "generation/generation_tools.hpp"
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
    o.norm = NormKind::rms_norm, o.norm_first = true, o.gated = true, o.activation = Activation::silu;
  });
  add("sandwich, relu squared",
      [](auto& o) { o.sandwich_norm = true, o.activation = Activation::relu_squared; });
  add("linear attention", [](auto& o) { o.attention = AttentionKind::linear; });
  add("embedding norm, scaled logits, glu", [](auto& o) {
    o.embedding_norm = true, o.logit_scale = 0.5, o.gated = true, o.activation = Activation::sigmoid;
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
    IncrementalDecoder<double> decoder(model, Context<double>::inference(), memory);
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
  }
}

TEST_CASE("packed weights, the gate's too, decode what the parameters do") {
  Seq2SeqOptions options = small();
  options.gated = true;
  options.activation = Activation::silu;
  RandomGenerator rng(1);
  const Seq2SeqTransformer<float> model(options, rng);
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};
  const auto plain = generate<float>(model, Context<float>::inference(), sources, {.max_length = 8});
  const auto packed = pack_weights(model);
  const auto& layer = model.transformer.decoder.layers[1];
  CHECK(packed->contains(layer.feed_forward.linear3->weight.id()));
  const auto found = generate<float>(model, Context<float>::inference().with_packed_weights(packed), sources,
                                     {.max_length = 8});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(found[i][0].ids == plain[i][0].ids);
    CHECK(found[i][0].log_probability == doctest::Approx(plain[i][0].log_probability).epsilon(1e-5));
  }
}
