#include <doctest/doctest.h>

#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/layers/residual.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/models/sequence_regressor.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/optim/sgd.hpp"

namespace ef = eigenformer;

TEST_CASE("the examples in the layers' documentation run as they stand there") {
  ef::RandomGenerator rng(1);
  const auto ctx = ef::Context<float>::inference();
  const auto x = ef::Tensor<float>::ones({2, 5, 12}), memory = ef::Tensor<float>::ones({2, 7, 12});
  const auto layout = ef::SequenceLayout::padded(2, 5);
  {
    ef::Linear<float> layer({.in_features = 5, .out_features = 10}, rng);
    auto y = layer(ef::Context<float>::inference(), ef::Tensor<float>::ones({2, 5}));
    CHECK(y.shape() == ef::Shape{2, 10});
  }
  {
    ef::Embedding<float> table({.num_embeddings = 23, .embedding_dim = 12}, rng);
    auto y = table(ctx, ef::Tensor<std::int32_t>::from({2, 2}, {4, 22, 0, 7}));
    CHECK(y.shape() == ef::Shape{2, 2, 12});
  }
  {
    ef::SinusoidalPositionalEncoding<float> positions(12);
    CHECK(positions(ctx, x, layout).shape() == x.shape());
    ef::LearnedPositionalEmbedding<float> learned({.max_length = 128, .d_model = 12}, rng);
    CHECK(learned(ctx, x, layout).shape() == x.shape());
  }
  {
    ef::FeedForward<float> network({.d_model = 12, .activation = ef::Activation::gelu}, rng);
    ef::Residual<float> around({.size = 12, .dropout = 0.1, .norm_first = true});
    auto y = around(ctx, x, [&](const auto& h) { return network(ctx, h); });
    CHECK(y.shape() == x.shape());
  }
  {
    ef::MultiHeadAttention<float> attention({.d_model = 12, .num_heads = 3}, rng);
    auto y = attention(ctx, x, x, x, ef::AttentionMask::causal());
    auto [z, weights] = attention.with_weights(ctx, x, memory, memory);
    CHECK(y.shape() == x.shape());
    CHECK(z.shape() == x.shape());
    CHECK(weights.shape() == ef::Shape{2, 5, 7});
  }
  {
    ef::Encoder<float> encoder({.num_layers = 2, .layer = {.d_model = 12, .num_heads = 3}}, rng);
    ef::Decoder<float> decoder({.num_layers = 2, .layer = {.d_model = 12, .num_heads = 3}}, rng);
    const auto padding = ef::Tensor<bool>::full({2, 7}, false);
    auto encoded = encoder(ctx, memory, ef::AttentionMask::key_padding(padding));
    auto y = decoder(ctx, x, ef::Memory<float>(encoded), {.target = ef::AttentionMask::causal()});
    CHECK(y.shape() == x.shape());
  }
  {
    ef::Transformer<float> model({.layer = {.d_model = 12, .num_heads = 3}, .encoder = {.num_layers = 2}},
                                 rng);
    auto y = model(ctx, memory, x, {.target = ef::AttentionMask::causal()});
    CHECK(y.shape() == x.shape());
  }
  {
    ef::RMSNorm<float> norm({.size = 12, .eps = 1e-6});
    ef::FeedForward<float> swiglu({.d_model = 12, .activation = ef::Activation::silu, .gated = true}, rng);
    auto y = swiglu(ctx, norm(ctx, x));
    CHECK(y.shape() == x.shape());
  }
  {
    const auto ids = ef::Tensor<std::int32_t>::full({2, 5}, 7);
    ef::LanguageModel<float> model({.vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
    auto logits = model(ctx, ids);
    auto loss = model.loss(ctx, ids, ids);
    CHECK(logits.shape() == ef::Shape{2, 5, 23});
    CHECK(loss.numel() == 1);
    ef::TextEncoder<float> encoder({.vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
    auto rows = encoder(ctx, ids);
    auto vectors = encoder.vectors(ctx, ids);
    CHECK(rows.shape() == ef::Shape{2, 5, 12});
    CHECK(vectors.shape() == ef::Shape{2, 12});
  }
  {
    ef::SequenceRegressor<float> model({.source_features = 3, .layer = {.d_model = 12, .num_heads = 3}}, rng);
    auto y = model(ctx, ef::Tensor<float>::ones({2, 7, 3}), ef::Tensor<float>::ones({2, 5, 1}));
    CHECK(y.shape() == ef::Shape{2, 5, 1});
  }
}

TEST_CASE("a model, a loss and an optimizer learn a sentence by heart") {
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model({.source_vocab_size = 23,
                                       .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                       .encoder = {.num_layers = 1},
                                       .decoder = {.num_layers = 1}},
                                      rng);
  const auto source = ef::Tensor<std::int32_t>::from({1, 3}, {5, 6, 7});
  const auto target_in = ef::Tensor<std::int32_t>::from({1, 4}, {2, 9, 8, 10});
  const auto target_out = ef::Tensor<std::int32_t>::from({1, 4}, {9, 8, 10, 3});
  ef::Gradients<float> gradients(ef::parameters(model));
  ef::Adam<float> optimizer(ef::parameters(model), {.beta2 = 0.98, .eps = 1e-9});
  for (ef::index_t step = 1; step <= 150; ++step) {
    ef::Tape<float> tape;
    gradients.zero();
    const auto loss = model.loss(ef::Context<float>::training(tape, rng), source, target_in, target_out);
    tape.backward(loss, gradients);
    ef::clip_global_norm(gradients, 1.0);
    optimizer.step(gradients, ef::schedule::inverse_square_root(step, 0.01, 20));
  }
  const auto loss = model.loss(ef::Context<float>::inference(), source, target_in, target_out);
  CHECK(loss.item() < 0.1F);
}
