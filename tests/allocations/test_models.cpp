#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "failing_allocations.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqTransformer<float> tiny_model(std::uint64_t seed = 1, AttentionKind kind = AttentionKind::softmax) {
  RandomGenerator rng(seed);
  return {{.source_vocab_size = 12,
           .layer = {.d_model = 8, .num_heads = 2, .dim_feedforward = 16, .attention = {.kind = kind}},
           .encoder = {.num_layers = 1},
           .decoder = {.num_layers = 1}},
          rng};
}

std::string bytes_of(const Tensor<float>& x) {
  return {reinterpret_cast<const char*>(x.data()), sizeof(float) * static_cast<std::size_t>(x.numel())};
}

std::string bytes_of(const Seq2SeqTransformer<float>& model) {
  std::string bytes;
  for (const auto& e : state_dict(model)) bytes += bytes_of(e.value);
  return bytes;
}

// Runs `attempt` anew while its first, second, ... request for memory fails, until none does; after each
// failure calls `unchanged`. Returns the number of failures.
template <class Make, class Attempt, class Unchanged>
long fail_in_turn(Make&& make, Attempt&& attempt, Unchanged&& unchanged) {
  {
    auto warm = make();
    attempt(warm);
  }
  for (long before = 0, failures = 0;; before = next_failing(before), ++failures) {
    auto object = make();
    bool thrown = false, reached = false;
    {
      const FailingAllocation failing(before);
      try {
        attempt(object);
      } catch (const std::bad_alloc&) {
        thrown = true;
      } catch (const Error&) {
        thrown = true;
      }
      reached = FailingAllocation::reached();
    }
    CAPTURE(before);
    if (!reached) return failures;
    if (thrown) unchanged(object);
  }
}

}  // namespace

TEST_CASE("add_lora: without memory the model has no adapter, nothing is frozen, and no number was drawn") {
  struct Object {
    Seq2SeqTransformer<float> model = tiny_model();
    RandomGenerator rng{7};
  };
  const auto drawn = RandomGenerator(7).state();
  CHECK(fail_in_turn([] { return Object(); },
                     [](Object& o) { add_lora(o.model, {.rank = 2, .targets = "*"}, o.rng); },
                     [&](Object& o) {
                       CHECK(lora_parameters(o.model).empty());
                       for (const auto& p : parameters(o.model)) CHECK_FALSE(p->frozen);
                       CHECK(o.rng.state() == drawn);
                       add_lora(o.model, {.rank = 2, .targets = "*"}, o.rng);
                     }) > 30);
}

TEST_CASE("Gradients::add: without memory the parameter is not listed, and can be added again") {
  const auto model = tiny_model();
  struct Object {
    Gradients<float> gradients;
    std::size_t done = 0;
  };
  auto copy = model;
  const auto handles = parameters(copy);
  CHECK(fail_in_turn([] { return Object(); },
                     [&](Object& o) {
                       for (const auto& p : handles) {
                         o.gradients.add(p);
                         ++o.done;
                       }
                     },
                     [&](Object& o) {
                       REQUIRE(o.gradients.entries().size() == o.done);
                       CHECK(o.gradients.find(handles[o.done]->id) == nullptr);
                       for (const auto& p : handles) o.gradients.add(p);
                       for (const auto& p : handles) {
                         REQUIRE(o.gradients.find(p->id) != nullptr);
                         CHECK(o.gradients.find(p->id)->parameter == p);
                         CHECK(o.gradients.find(p->id)->value.shape() == p->value.shape());
                       }
                     }) > 20);
}

TEST_CASE("load_state_dict: without memory no value of the module changes") {
  const auto source = tiny_model(2);
  const auto entries = state_dict(source);
  const std::string before = bytes_of(tiny_model());
  CHECK(fail_in_turn([] { return tiny_model(); },
                     [&](Seq2SeqTransformer<float>& m) { (void)load_state_dict(m, entries); },
                     [&](Seq2SeqTransformer<float>& m) { CHECK(bytes_of(m) == before); }) > 20);
}

TEST_CASE("a decoder's state: reorder() without memory changes nothing, linear attention included") {
  const auto ctx = Context<float>::inference();
  const std::vector<std::vector<std::int32_t>> sources = {{7, 8, 9, 3}, {4, 5, 3}};
  const auto ids = Tensor<std::int32_t>::from({2}, {5, 6});
  const std::vector<std::int32_t> parents = {1, 0};
  for (const AttentionKind kind : {AttentionKind::softmax, AttentionKind::linear}) {
    const auto model = tiny_model(1, kind);
    auto expected = model.begin(ctx, sources);
    (void)expected.step(ids);
    const std::string next = bytes_of(expected.step(ids).value());
    const auto begun = [&] {
      auto state = model.begin(ctx, sources);
      (void)state.step(ids);
      return state;
    };
    CHECK(fail_in_turn(
              begun, [&](DecoderState<float>& s) { s.reorder(parents); },
              [&](DecoderState<float>& s) { CHECK(bytes_of(s.step(ids).value()) == next); }) > 3);
  }
}
