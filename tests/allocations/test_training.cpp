#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/optim/adafactor.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/sgd.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "failing_allocations.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqTransformer<float> tiny_model() {
  RandomGenerator rng(1);
  return {{.source_vocab_size = 12,
           .layer = {.d_model = 8, .num_heads = 2, .dim_feedforward = 16, .dropout = {0.1}},
           .encoder = {.num_layers = 1},
           .decoder = {.num_layers = 1}},
          rng};
}

template <class Entries>
std::string bytes_of(const Entries& entries) {
  std::string bytes;
  for (const auto& e : entries)
    bytes.append(reinterpret_cast<const char*>(e.value.data()),
                 sizeof(float) * static_cast<std::size_t>(e.value.numel()));
  return bytes;
}

template <class Optimizer, class... Options>
void check_training_step(int threads, const Options&... options) {
  Runtime::instance().set_threads(threads);
  auto model = tiny_model();
  auto reference = tiny_model();
  const auto source = Tensor<std::int32_t>::from({2, 5}, {7, 8, 9, 10, 3, 11, 10, 9, 8, 3});
  const auto target = Tensor<std::int32_t>::from({2, 5}, {2, 7, 8, 9, 10, 2, 11, 10, 9, 8});
  const auto step = [&](auto& m, auto& optimizer) {
    RandomGenerator rng(3);
    Gradients<float> gradients(parameters(m));
    Tape<float> tape;
    gradients.zero();
    const auto loss = m.loss(Context<float>::training(tape, rng), source, target, source);
    tape.backward(loss, gradients);
    optimizer.step(gradients, 1e-2F);
  };
  Optimizer expected(parameters(reference), options...);
  std::vector<std::string> states = {bytes_of(state_dict(reference))};
  std::vector<std::string> moments = {bytes_of(expected.state())};
  for (int i = 0; i < 2; ++i) {
    step(reference, expected);
    states.push_back(bytes_of(state_dict(reference)));
    moments.push_back(bytes_of(expected.state()));
  }

  // From a new optimizer, which takes memory for its state, and from one that has it.
  for (const std::size_t done : {0U, 1U}) {
    CAPTURE(done);
    AllocationFailures seen;
    for (long before = 0;; before = next_failing(before)) {
      auto trained = tiny_model();
      Optimizer optimizer(parameters(trained), options...);
      for (std::size_t i = 0; i < done; ++i) step(trained, optimizer);
      const long live = live_blocks();
      bool thrown = false, reached = false;
      {
        const FailingAllocation failing(before);
        try {
          step(trained, optimizer);
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        reached = FailingAllocation::reached();
      }
      const long kept = live_blocks() - live;
      if (!reached) break;
      ++seen.failures;
      CAPTURE(before);
      const std::string where = FailingAllocation::where();
      CAPTURE(where);
      if (!thrown) {
        ++seen.survived;
      } else {
        CHECK(bytes_of(state_dict(trained)) == states[done]);
        CHECK(bytes_of(optimizer.state()) == moments[done]);
        if (done > 0) CHECK(kept == 0);
        step(trained, optimizer);
      }
      CHECK(bytes_of(state_dict(trained)) == states[done + 1]);
      CHECK(bytes_of(optimizer.state()) == moments[done + 1]);
    }
    CHECK(seen.failures > 50);
  }
  Runtime::instance().set_threads(1);
}

}  // namespace

TEST_CASE("Adam: a training step without memory throws and changes neither model nor optimizer") {
  check_training_step<Adam<float>>(1);
}

TEST_CASE("Adam with moments in bf16, SGD with momentum and Adafactor: as Adam") {
  check_training_step<Adam<float>>(1, AdamOptions{.state = StatePrecision::bf16});
  check_training_step<Sgd<float>>(1, SgdOptions{.momentum = 0.9});
  check_training_step<Adafactor<float>>(1);
}

TEST_CASE("two threads: a training step without memory throws and changes neither model nor optimizer") {
  check_training_step<Adam<float>>(2);
}

TEST_CASE("generate: without memory, beam search throws, leaks nothing and works the next time") {
  Runtime::instance().set_threads(1);
  const auto model = tiny_model();
  const std::vector<std::vector<std::int32_t>> sources = {{7, 8, 9, 3}, {4, 5, 3}};
  const auto search = [&] {
    return generate(model, Context<float>::inference(), sources, {.beam_size = 2, .max_length = 6});
  };
  const auto expected = search();
  const AllocationFailures seen = fail_each_allocation([&] { (void)search(); },
                                                       [&] {
                                                         const auto found = search();
                                                         REQUIRE(found.size() == expected.size());
                                                         for (std::size_t i = 0; i < found.size(); ++i)
                                                           CHECK(found[i][0].ids == expected[i][0].ids);
                                                       });
  CHECK(seen.failures > 50);
  CHECK_MESSAGE(seen.survived <= 1, seen.places);  // std::stable_sort() does without a buffer
  CHECK_MESSAGE(seen.leaked == 0, seen.places);
}
