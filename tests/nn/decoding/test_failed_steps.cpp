#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "eigenformer/nn/decoding/decoder_state.hpp"
#include "nn/attention_variants.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr const char* refusal =
    "[decoder_state] an earlier step or reorder threw after it had changed the state; start again with a new "
    "state";

using State = DecoderState<double>;

/// A state of two sequences of a model whose decoder throws at its end while `broken`.
State breakable(const Seq2SeqTransformer<double>& model, const bool& broken) {
  return State(Context<double>::inference(), 2, {encode(model, {{5, 6, 7, 3}, {8, 3}})},
               [&](const Context<double>& ctx, const Tensor<std::int32_t>& ids, LayerPass<double>& pass) {
                 Var<double> y = model.run_decoder(ctx, ids, pass);
                 if (broken) throw std::runtime_error("broken");
                 return y;
               });
}

/// Ids of step t.
Tensor<std::int32_t> ids_of(int t) { return id_tensor({4 + t % 15, 4 + (7 * t) % 15}); }

Seq2SeqTransformer<double> model_of(const Seq2SeqOptions& options) {
  RandomGenerator rng(1);
  return Seq2SeqTransformer<double>(options, rng);
}

Seq2SeqOptions linear_options() {
  return {.source_vocab_size = 23,
          .target_vocab_size = 19,
          .layer = {.d_model = 12,
                    .num_heads = 3,
                    .dim_feedforward = 20,
                    .attention = {.kind = AttentionKind::linear}},
          .encoder = {.num_layers = 1},
          .decoder = {.num_layers = 2}};
}

/// The last three rows of a sequence, side by side: windows alone.
State windows(const bool& broken) {
  return State(Context<double>::inference(), 2, {},
               [&](const Context<double>& ctx, const Tensor<std::int32_t>& ids, LayerPass<double>& pass) {
                 Tensor<double> x({ids.numel(), 1});
                 for (index_t i = 0; i < ids.numel(); ++i) x.data()[i] = ids.data()[i];
                 const Var<double> y = pass.window(ctx, x, 3);
                 if (broken) throw std::runtime_error("broken");
                 return Var<double>(y.value().reshape(Shape{ids.numel(), 3}));
               });
}

}  // namespace

TEST_CASE("a step that throws leaves softmax attention as it was: each step fails once before it succeeds") {
  for (const auto& variant : attention_variants()) {
    CAPTURE(variant.first);
    const auto model = model_of(variant.second);
    bool broken = false;
    const bool never = false;
    State state = breakable(model, broken), undisturbed = breakable(model, never);
    for (int t = 0; t < 20; ++t) {
      CAPTURE(t);
      broken = true;
      CHECK_THROWS_AS((void)state.step(ids_of(t + 3)), std::runtime_error);
      CHECK(state.lengths()[0] == t);
      broken = false;
      REQUIRE(values(state.step(ids_of(t)).value()) == values(undisturbed.step(ids_of(t)).value()));
      const std::vector<std::int32_t> bad = {0, 2}, parents = {t % 2, 1};
      CHECK_THROWS_AS(state.reorder(bad), IndexError);
      state.reorder(parents);
      undisturbed.reorder(parents);
    }
  }
}

TEST_CASE("a state whose linear attention went on in a step that threw refuses what comes later") {
  const auto model = model_of(linear_options());
  bool broken = false;
  State state = breakable(model, broken);
  (void)state.step(ids_of(0));
  broken = true;
  CHECK_THROWS_AS((void)state.step(ids_of(1)), std::runtime_error);
  broken = false;
  CHECK(message_of<ValueError>([&] { (void)state.step(ids_of(1)); }) == refusal);
  const std::vector<std::int32_t> parents = {1, 0};
  CHECK(message_of<ValueError>([&] { state.reorder(parents); }) == refusal);
  CHECK(message_of<ValueError>([&] { (void)state.step(ids_of(1)); }) == refusal);
}

TEST_CASE("a state whose windows went on in a step that threw refuses what comes later") {
  bool broken = false;
  State state = windows(broken);
  CHECK(values(state.step(ids_of(0)).value()) == std::vector<double>{0, 0, 4, 0, 0, 4});
  broken = true;
  CHECK_THROWS_AS((void)state.step(ids_of(1)), std::runtime_error);
  broken = false;
  CHECK(message_of<ValueError>([&] { (void)state.step(ids_of(1)); }) == refusal);
}

TEST_CASE("a first step that throws leaves nothing behind, whatever the state holds") {
  const auto model = model_of(linear_options());
  bool broken = true;
  const bool never = false;
  State state = breakable(model, broken), undisturbed = breakable(model, never);
  State window = windows(broken);
  CHECK_THROWS_AS((void)state.step(ids_of(3)), std::runtime_error);
  CHECK_THROWS_AS((void)window.step(ids_of(3)), std::runtime_error);
  broken = false;
  for (int t = 0; t < 3; ++t)
    REQUIRE(values(state.step(ids_of(t)).value()) == values(undisturbed.step(ids_of(t)).value()));
  CHECK(values(window.step(ids_of(0)).value()) == std::vector<double>{0, 0, 4, 0, 0, 4});
}

TEST_CASE("ids that the model does not have, or that do not fit, leave every state as it was") {
  const auto model = model_of(linear_options());
  const bool never = false;
  State state = breakable(model, never), undisturbed = breakable(model, never);
  for (int t = 0; t < 3; ++t) {
    CHECK_THROWS_AS((void)state.step(id_tensor({2, 19})), IndexError);
    CHECK_THROWS_AS((void)state.step(id_tensor({2, 3, 4})), ShapeError);
    REQUIRE(values(state.step(ids_of(t)).value()) == values(undisturbed.step(ids_of(t)).value()));
  }
}
