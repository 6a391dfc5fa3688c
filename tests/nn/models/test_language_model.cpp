#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/nn/models/language_model.hpp"
#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

LanguageModelOptions small() {
  return {.vocab_size = V, .num_layers = 2, .layer = {.d_model = D, .num_heads = H, .dim_feedforward = F}};
}

/// As GPT-2, but for its size, with what else there is.
LanguageModelOptions other() {
  LanguageModelOptions o = small();
  o.layer.norm_first = true;
  o.layer.activation = Activation::gelu_tanh;
  o.embedding_norm = true;
  o.scale_embedding = false;
  o.logit_scale = 0.5;
  o.tied = true;
  o.projection_bias = false;
  o.positions = LearnedPositions{};
  o.max_length = S;
  return o;
}

template <class T>
LanguageModel<T> make(const LanguageModelOptions& options) {
  RandomGenerator rng(1);
  LanguageModel<T> model(options, rng);
  randomise(model, 2);
  return model;
}

const Tokens input = random_tokens({B, S}, V, 11), output = random_tokens({B, S}, V, 12);
const SequenceLayout layout = SequenceLayout::padded({7, 4}, S);

}  // namespace

TEST_CASE("a language model is embedding, causal layers and projection") {
  const auto model = make<double>(small());
  const auto ctx = Context<double>::inference();
  const Var<double> embedded =
      model.embedding.positions(ctx, model.embedding.embedding(ctx, input, std::sqrt(12.0)), layout);
  const Var<double> decoded = model.decoder(ctx, embedded, layout, AttentionMask::causal());
  const Var<double> expected = linear(ctx, decoded, model.own_projection, model.projection_bias);
  check_close(model(ctx, input, layout).value(), expected.value(), 1e-12);

  const auto gpt = make<double>(other());
  const Var<double> summed = gpt.embedding.embedding(ctx, input);
  const Var<double> placed =
      (*gpt.embedding.embedding_norm)(ctx, gpt.embedding.positions(ctx, summed, layout));
  const Var<double> last = gpt.decoder(ctx, placed, layout, AttentionMask::causal());
  const Var<double> logits =
      linear(ctx, multiply(last, 0.5), gpt.embedding.embedding.weight, Parameter<double>());
  check_close(gpt(ctx, input, layout).value(), logits.value(), 1e-12);
}

TEST_CASE("its loss is the mean of -log p of each next token, and its gradients are right") {
  for (const auto& options : {small(), other()}) {
    auto model = make<double>(options);
    const auto ctx = Context<double>::inference();
    const auto p = model.log_probabilities(ctx, model.decode(ctx, input, layout)).value();
    double sum = 0;
    for (index_t b = 0; b < B; ++b) {
      for (index_t t = 0; t < layout.length(b); ++t) sum -= p.at({b, t, output.at({b, t})});
    }
    CHECK(model.loss(ctx, input, layout, output).item() == doctest::Approx(sum / 11));
    check_backward(model, {}, [&](const Context<double>& c, const auto&) {
      return model.loss(c, input, layout, output);
    });
  }
}

TEST_CASE_TEMPLATE(
    "a text gives the same logits padded and packed, and a later token changes no earlier ones", T, float,
    double) {
  const auto model = make<T>(small());
  const auto ctx = Context<T>::inference();
  const auto padded = model(ctx, input, layout).value();
  const auto rows = detail::packed_layout(layout);
  const auto packed = model(ctx, detail::pack_tokens(input, layout), rows).value();
  for (index_t b = 0; b < B; ++b) {
    CHECK(values(sequence(packed, rows, b)) == values(sequence(padded, layout, b)));
  }
  auto changed = input.clone();
  changed.at({0, 3}) = (changed.at({0, 3}) + 1) % static_cast<std::int32_t>(V);
  const auto after = model(ctx, changed, layout).value();
  for (index_t t = 0; t < S; ++t) {
    const auto row = [&](const Tensor<T>& x) { return values(x.reshape({B * S, V}).rows(t, 1)); };
    CHECK((row(after) == row(padded)) == (t < 3));
  }
}

TEST_CASE("trailing padding ids are padding where no layout is given") {
  auto options = small();
  options.padding_index = 0;
  const auto model = make<double>(options);
  auto ids = input.clone();
  for (index_t t = 4; t < S; ++t) ids.at({1, t}) = 0;
  const auto ctx = Context<double>::inference();
  CHECK(model.loss(ctx, ids, output).item() == model.loss(ctx, ids, layout, output).item());
}

TEST_CASE("a language model's names, a tied matrix under both of its own, and what it refuses") {
  const auto names = names_of(make<float>(small()));
  CHECK(names.front() == "embedding.weight (23, 12)");
  CHECK(names[1] == "decoder.layers.0.self_attn.in_proj_weight (36, 12)");
  CHECK(names[names.size() - 3] == "decoder.norm.bias (12,)");
  CHECK(names[names.size() - 2] == "projection.weight (23, 12)");
  CHECK(names.back() == "projection.bias (23,)");
  const auto model = make<float>(other());
  const auto entries = state_dict(model);
  CHECK(entries[1].name == "positions.weight");
  CHECK(entries[2].name == "embedding_norm.weight");
  CHECK(entries.back().name == "projection.weight");
  CHECK(entries.back().alias_of == "embedding.weight");
  const auto refusal = [](auto&& change) {
    auto options = small();
    change(options);
    return message_of<ValueError>([&] { make<float>(options); });
  };
  CHECK(refusal([](auto& o) { o.vocab_size = 0; }) == "[language_model] vocab_size is 0, must be positive");
  CHECK(refusal([](auto& o) { o.num_layers = 0; }) == "[language_model] num_layers is 0, must be positive");
  CHECK(contains(refusal([](auto& o) { o.layer.num_heads = 5; }), "divisible by num_heads, which is 5"));
  CHECK(contains(refusal([](auto& o) { o.embedding_dropout = 1; }), "embedding_dropout is 1"));
  CHECK(contains(refusal([](auto& o) { o.padding_index = 23; }),
                 "must be -1 or below the vocabulary's size, which is 23"));
  CHECK(contains(refusal([](auto& o) { o.positions = LearnedPositions{}, o.max_length = 0; }),
                 "max_length is 0"));
  const auto ctx = Context<float>::inference();
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)make<float>(small())(ctx, random_tokens({2, 3, 4}, V, 1));
                 }),
                 "[language_model] token ids of shape (2, 3, 4)"));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)model(ctx, random_tokens({1, 8}, V, 1));
                 }),
                 "reaches position 7, but 'positions.weight' has 7 positions"));
}
