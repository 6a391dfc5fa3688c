#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

template <class T>
Transformer<T> make() {
  RandomGenerator rng(1);
  return Transformer<T>({.layer = {.d_model = D, .num_heads = H, .dim_feedforward = F},
                         .encoder = {.num_layers = 1},
                         .decoder = {.num_layers = 1}},
                        rng);
}

// CHECKs a model under masks against a fixture, on (B, L, D) without layouts.
template <class T>
void check_masks(const Fixture& fixture, const TransformerMasks& masks) {
  auto model = make<T>();
  check_parity<T>(fixture, model, {"src", "tgt"}, fixture.lengths("in.tgt_lengths"),
                  [&](const Context<T>& ctx, const auto& x) { return model(ctx, x[0], x[1], masks); });
}

}  // namespace

TEST_CASE_TEMPLATE("PyTorch's six masks of floats", T, float, double) {
  const Fixture fixture("models/transformer_masks_float");
  const auto mask = [&](const char* name) { return fixture.get<float>(name); };
  check_masks<T>(
      fixture,
      PyTorchMasks{
          .src_mask = AttentionMask::additive(mask("in.src_mask")),
          .tgt_mask = AttentionMask::additive(mask("in.tgt_mask")),
          .memory_mask = AttentionMask::additive(mask("in.memory_mask")),
          .src_key_padding_mask = AttentionMask::key_padding(mask("in.src_key_padding_mask")),
          .tgt_key_padding_mask = AttentionMask::key_padding(mask("in.tgt_key_padding_mask")),
          .memory_key_padding_mask = AttentionMask::key_padding(mask("in.memory_key_padding_mask"))});
}

TEST_CASE_TEMPLATE("PyTorch's boolean masks of each sequence and head, with padding on the left", T, float,
                   double) {
  const Fixture fixture("models/transformer_masks_left");
  const auto mask = [&](const char* name) { return fixture.get<bool>(name); };
  const auto inverted = [](Tensor<bool> m) {
    m = m.clone();
    for (bool& x : m.span()) x = !x;
    return m;
  };
  const auto source = mask("in.src_mask").reshape({B, H, S, S}),
             target = mask("in.tgt_mask").reshape({B, H, L, L}),
             memory = mask("in.memory_mask").reshape({B, H, L, S});
  PyTorchMasks masks{
      .src_mask = AttentionMask::block(source),
      .tgt_mask = AttentionMask::block(target),
      .memory_mask = AttentionMask::block(memory),
      .src_key_padding_mask = AttentionMask::key_padding(mask("in.src_key_padding_mask")),
      .tgt_key_padding_mask = AttentionMask::key_padding(mask("in.tgt_key_padding_mask")),
      .memory_key_padding_mask = AttentionMask::key_padding(mask("in.memory_key_padding_mask"))};
  check_masks<T>(fixture, masks);
  // The other polarity.
  masks.src_mask = AttentionMask::allow(inverted(source));
  masks.memory_mask = AttentionMask::allow(inverted(memory));
  check_masks<T>(fixture, masks);
  // The same padding said by layouts.
  const auto sources = SequenceLayout::padded_left(fixture.lengths("in.src_lengths"), S);
  const auto targets = SequenceLayout::padded(fixture.lengths("in.tgt_lengths"), L);
  auto model = make<T>();
  check_parity<T>(fixture, model, {"src", "tgt"}, fixture.lengths("in.tgt_lengths"),
                  [&](const Context<T>& ctx, const auto& x) {
                    return model(ctx, x[0], sources, x[1], targets,
                                 {AttentionMask::block(source), AttentionMask::block(target),
                                  AttentionMask::block(memory)});
                  });
}

TEST_CASE_TEMPLATE("rules for documents, prefixes and windows are PyTorch's masks of that form", T, float,
                   double) {
  const Fixture fixture("models/transformer_masks_rules");
  const auto mask = [&](const char* name) { return fixture.get<bool>(name); };
  const auto target_padding = AttentionMask::key_padding(mask("in.tgt_key_padding_mask")),
             memory_padding = AttentionMask::key_padding(mask("in.memory_key_padding_mask"));
  // As PyTorch takes them.
  check_masks<T>(fixture,
                 PyTorchMasks{.src_mask = AttentionMask::block(mask("in.src_mask").reshape({B, H, S, S})),
                              .tgt_mask = AttentionMask::block(mask("in.tgt_mask").reshape({B, H, L, L})),
                              .memory_mask = AttentionMask::block(mask("in.memory_mask")),
                              .tgt_key_padding_mask = target_padding,
                              .memory_key_padding_mask = memory_padding});
  // As rules.
  const auto documents = Tensor<std::int32_t>::from({B, S}, {0, 0, 0, 1, 1, 2, 2, 4, 4, 3, 3, 3, 4, 4});
  check_masks<T>(fixture, PyTorchMasks{.src_mask = AttentionMask::documents(documents),
                                       .tgt_mask = AttentionMask::prefix({2, 4}),
                                       .memory_mask = AttentionMask::window(2, 3),
                                       .tgt_key_padding_mask = target_padding,
                                       .memory_key_padding_mask = memory_padding});
}

TEST_CASE("queries that all masks together leave nothing give zeros, and finite gradients") {
  RandomGenerator rng(1);
  MultiHeadAttention<double> attention({.d_model = D, .num_heads = H, .bias = false}, rng);
  const auto documents = Tensor<std::int32_t>::from({1, L}, {0, 0, 1, 1, 1});
  Tensor<bool> padding = Tensor<bool>::zeros({1, L});
  padding.at({0, 0}) = padding.at({0, 1}) = true;
  // The first document is all padding, and the first query of the second sees itself.
  const auto mask =
      AttentionMask::causal() & AttentionMask::documents(documents) & AttentionMask::key_padding(padding);
  const auto x = random_tensor<double>({1, L, D}, 2);
  Tape<double> tape;
  Gradients<double> gradients(parameters(attention));
  const Var<double> in = tape.variable(x);
  const Var<double> y = attention(Context<double>::checking(tape), in, in, in, mask);
  for (index_t i = 0; i < 2 * D; ++i) CHECK(y.value().data()[i] == 0);
  for (index_t i = 2 * D; i < L * D; ++i) CHECK(y.value().data()[i] != 0);
  tape.backward(sum(square(y + 1)), gradients);
  for (const double g : tape.gradient(in).span()) CHECK(std::isfinite(g));
  // Neither their queries nor their keys have any effect.
  for (index_t i = 0; i < 2 * D; ++i) CHECK(tape.gradient(in).data()[i] == 0);
  check_backward(attention, {x}, [&](const Context<double>& ctx, const auto& v) {
    return attention(ctx, v[0], v[0], v[0], mask);
  });
}
