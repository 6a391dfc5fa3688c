#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/nn/layers/embedding.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("embedding agrees with PyTorch, padding included", T, float, double) {
  const Fixture fixture("layers/embedding");
  RandomGenerator rng(1);
  Embedding<T> table({.num_embeddings = V, .embedding_dim = D, .padding_index = 0}, rng);
  const auto tokens = fixture.get<std::int32_t>("in.tokens");
  check_parity<T>(fixture, table, {}, {L, L},
                  [&](const Context<T>& ctx, const auto&) { return table(ctx, tokens); });
}

TEST_CASE("embedding starts normal(0, d^-1/2), its padding row zero and without gradient") {
  RandomGenerator rng(7);
  Embedding<double> table({.num_embeddings = 500, .embedding_dim = 16, .padding_index = 3}, rng);
  double square = 0;
  for (const double x : table.weight.value().span()) square += x * x;
  CHECK(square / (499 * 16) == doctest::Approx(1.0 / 16).epsilon(0.05));
  CHECK(values(table.weight.value().rows(3, 1)) == std::vector<double>(16, 0.0));

  Tape<double> tape;
  Gradients<double> gradients(parameters(table));
  const auto y = table(Context<double>::checking(tape), Tensor<std::int32_t>::from({3}, {3, 8, 8}), 4.0);
  CHECK(y.value().at({1, 5}) == 4.0 * table.weight.value().at({8, 5}));
  tape.backward(y, Tensor<double>::ones(y.shape()), gradients);
  const auto gradient = gradients.of(table.weight);
  CHECK(values(gradient.rows(3, 1)) == std::vector<double>(16, 0.0));
  CHECK(values(gradient.rows(8, 1)) == std::vector<double>(16, 8.0));
}

TEST_CASE("embedding refuses ids outside its table and impossible options") {
  RandomGenerator rng(1);
  const Embedding<float> table({.num_embeddings = V, .embedding_dim = D}, rng);
  const auto look_up = [&](std::int32_t id) {
    (void)table(Context<float>::inference(), Tensor<std::int32_t>::from({2}, {1, id}));
  };
  CHECK(contains(message_of<IndexError>([&] { look_up(23); }), "23"));
  CHECK(contains(message_of<IndexError>([&] { look_up(-1); }), "-1"));
  CHECK(message_of<ValueError>([&] {
          Embedding<float>({.num_embeddings = V, .embedding_dim = D, .padding_index = 23}, rng);
        }) == "[embedding] padding_index is 23, must be -1 or below num_embeddings, which is 23");
  CHECK(message_of<ValueError>([&] { Embedding<float>({.embedding_dim = D}, rng); }) ==
        "[embedding] num_embeddings is 0, must be positive");
}
