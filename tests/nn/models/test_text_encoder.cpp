#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

TextEncoderOptions small() {
  return {.vocab_size = V, .num_layers = 2, .layer = {.d_model = D, .num_heads = H, .dim_feedforward = F}};
}

TextEncoderOptions bert() {
  TextEncoderOptions o = small();
  o.layer.activation = Activation::gelu;
  o.final_norm = false;
  o.num_token_types = 2;
  o.embedding_norm = true;
  o.scale_embedding = false;
  o.positions = LearnedPositions{};
  o.max_length = S;
  o.pooling = Pooling::first;
  return o;
}

template <class T>
TextEncoder<T> make(const TextEncoderOptions& options) {
  RandomGenerator rng(1);
  TextEncoder<T> encoder(options, rng);
  randomise(encoder, 2);
  return encoder;
}

const Tokens ids = random_tokens({B, S}, V, 11);
const Tokens types = Tokens::from({B, S}, {0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0});
const SequenceLayout layout = SequenceLayout::padded({7, 4}, S);

}  // namespace

TEST_CASE("a text encoder is norm(token + position + type) and layers that see all of the text") {
  const auto ctx = Context<double>::inference();
  const auto plain = make<double>(small());
  const Var<double> placed =
      plain.embedding.positions(ctx, plain.embedding.embedding(ctx, ids, std::sqrt(12.0)), layout);
  check_close(plain(ctx, ids, layout).value(), plain.encoder(ctx, placed, layout).value(), 1e-12);

  const auto model = make<double>(bert());
  Tensor<double> sum(Shape{B, S, D});
  for (index_t b = 0; b < B; ++b) {
    for (index_t t = 0; t < S; ++t) {
      for (index_t i = 0; i < D; ++i) {
        sum.at({b, t, i}) = model.embedding.embedding.weight.value().at({ids.at({b, t}), i}) +
                            model.embedding.positions.learned->weight.value().at({t, i}) +
                            model.embedding.token_types->weight.value().at({types.at({b, t}), i});
      }
    }
  }
  const Var<double> expected = model.encoder(ctx, (*model.embedding.embedding_norm)(ctx, sum), layout);
  check_close(model(ctx, ids, layout, types).value(), expected.value(), 1e-12);
  CHECK(values(model(ctx, ids, layout).value()) ==
        values(model(ctx, ids, layout, Tokens::zeros({B, S})).value()));
}

TEST_CASE_TEMPLATE("a text's vector is the mean or the first of its rows, the same padded and packed", T,
                   float, double) {
  const auto ctx = Context<T>::inference();
  for (const auto pooling : {Pooling::mean, Pooling::first}) {
    auto options = bert();
    options.pooling = pooling;
    const auto model = make<T>(options);
    const auto rows = model(ctx, ids, layout, types).value();
    const auto vectors = model.vectors(ctx, ids, layout, types).value();
    CHECK(vectors.shape() == Shape{B, D});
    for (index_t b = 0; b < B; ++b) {
      for (index_t i = 0; i < D; ++i) {
        T mean = 0;
        for (index_t t = 0; t < layout.length(b); ++t)
          mean += rows.at({b, t, i}) / static_cast<T>(layout.length(b));
        const T expected = pooling == Pooling::mean ? mean : rows.at({b, 0, i});
        CHECK(static_cast<double>(vectors.at({b, i})) ==
              doctest::Approx(static_cast<double>(expected)).epsilon(1e-5));
      }
    }
    const auto packed = model.vectors(ctx, detail::pack_tokens(ids, layout), detail::packed_layout(layout),
                                      detail::pack_tokens(types, layout));
    CHECK(values(packed.value()) == values(vectors));
  }
}

TEST_CASE("a text encoder's gradients are right") {
  for (const auto& options : {small(), bert()}) {
    auto model = make<double>(options);
    check_backward(model, {}, [&](const Context<double>& c, const auto&) {
      return model.vectors(c, ids, layout, options.num_token_types > 0 ? types : Tokens());
    });
  }
}

TEST_CASE("a text encoder's names, trailing padding, and what it refuses") {
  const auto names = names_of(make<float>(bert()));
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 6) ==
        std::vector<std::string>{"embedding.weight (23, 12)", "positions.weight (7, 12)",
                                 "token_types.weight (2, 12)", "embedding_norm.weight (12,)",
                                 "embedding_norm.bias (12,)",
                                 "encoder.layers.0.self_attn.in_proj_weight (36, 12)"});
  auto padded = small();
  padded.padding_index = 0;
  const auto model = make<double>(padded);
  auto cut = ids.clone();
  for (index_t t = 4; t < S; ++t) cut.at({1, t}) = 0;
  const auto ctx = Context<double>::inference();
  CHECK(values(model.vectors(ctx, cut).value()) == values(model.vectors(ctx, cut, layout).value()));
  CHECK(message_of<ValueError>([&] { (void)model(ctx, ids, layout, types); }) ==
        "[text_encoder] token types were given, but the model has none");
  const auto typed = make<double>(bert());
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)typed(ctx, ids, layout, Tokens::zeros({B, 3}));
                 }),
                 "token types of shape"));
  CHECK_THROWS_AS((void)typed(ctx, ids, layout, Tokens::full({B, S}, 2)), IndexError);
  auto wrong = small();
  wrong.num_token_types = -1;
  CHECK(message_of<ValueError>([&] { make<float>(wrong); }) ==
        "[text_encoder] num_token_types is -1, must not be negative");
}
