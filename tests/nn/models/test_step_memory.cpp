#include <doctest/doctest.h>

#include <vector>

#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/clip.hpp"

using namespace eigenformer;

namespace {

struct TrainingBatch {
  Tensor<std::int32_t> source, target_input, target_output;
  SequenceLayout source_layout, target_layout;
};

TrainingBatch make_batch(index_t tokens, RandomGenerator& rng) {
  const auto layout = [&] {
    std::vector<index_t> lengths;
    for (index_t rest = tokens; rest > 0;) {
      const index_t n = std::min(rest, 1 + rng.uniform_int(19));
      lengths.push_back(n);
      rest -= n;
    }
    // Both sides need the same number of sentences, whatever their lengths.
    lengths.resize(static_cast<std::size_t>(tokens / 8), 3);
    return SequenceLayout::packed(lengths);
  };
  const auto ids = [&](index_t n) {
    Tensor<std::int32_t> t(Shape{n});
    for (auto& id : t.span()) id = static_cast<std::int32_t>(4 + rng.uniform_int(19));
    return t;
  };
  TrainingBatch b;
  b.source_layout = layout();
  b.target_layout = layout();
  b.source = ids(b.source_layout.rows());
  b.target_input = ids(b.target_layout.rows());
  b.target_output = ids(b.target_layout.rows());
  return b;
}

}  // namespace

TEST_CASE("training steps on shapes that were seen before take no storage from the system") {
  Runtime::instance().pool().trim();  // of what other tests left
  // With more threads, which of them need scratch memory at the same time is up to the system: on a busy
  // machine a thread may get its first piece of work, and its scratch memory, long after the first epochs.
  const int threads = Runtime::instance().threads();
  Runtime::instance().set_threads(1);
  RandomGenerator rng(1);
  Seq2SeqTransformer<float> model({.source_vocab_size = 23,
                                   .layer = {.d_model = 24, .num_heads = 3, .dim_feedforward = 40},
                                   .encoder = {.num_layers = 2},
                                   .decoder = {.num_layers = 2}},
                                  rng);
  const auto handles = parameters(model);
  Adam<float> adam(handles);
  Gradients<float> gradients(handles);
  Tape<float> tape;
  const auto step = [&](const TrainingBatch& b) {
    const auto ctx = Context<float>::training(tape, rng);
    const auto loss = model.loss(ctx, b.source, b.source_layout, b.target_input, b.target_layout,
                                 b.target_output, {.label_smoothing = 0.1});
    gradients.zero();
    tape.backward(loss, gradients);
    adam.step(gradients, 1e-3, clip_factor(gradients, 1.0).factor);
  };
  std::vector<TrainingBatch> batches;
  for (const index_t tokens : {160, 400, 96, 256, 310, 80, 200, 333})
    batches.push_back(make_batch(tokens, rng));
  MemoryPool& pool = Runtime::instance().pool();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& b : batches) step(b);
  }
  const PoolStatistics before = pool.statistics();
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& b : batches) step(b);
  }
  const PoolStatistics after = pool.statistics();
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.reuses > before.reuses);
  CHECK(after.peak_bytes == before.peak_bytes);
  CHECK(after.bytes_in_use == before.bytes_in_use);
  Runtime::instance().set_threads(threads);
}

TEST_CASE("large gradients take the memory of the activations that backward has passed") {
  constexpr index_t layers = 6, rows = 700, d = 600;
  RandomGenerator rng(3);
  std::vector<Linear<float>> stack;
  std::vector<ParameterHandle<float>> handles;
  for (index_t i = 0; i < layers; ++i) {
    stack.emplace_back(LinearOptions{d, d, false}, rng);
    handles.push_back(stack.back().weight.handle());
  }
  Gradients<float> gradients(handles);
  Tensor<float> x(Shape{rows, d});
  rng.fill_uniform(x.data(), x.numel(), -1, 1);
  MemoryPool& pool = Runtime::instance().pool();
  const std::size_t without = pool.statistics().bytes_in_use;
  const auto step = [&] {
    gradients.zero();
    Tape<float> tape;
    const auto ctx = Context<float>::checking(tape);
    Var<float> h(x);
    for (const auto& layer : stack) h = linear(ctx, h, layer.weight, Parameter<float>(), Activation::relu);
    tape.backward(mean(h), gradients);
  };
  step();
  pool.trim();
  gradients.zero();
  pool.trim();
  pool.reset_peak();
  step();
  constexpr std::size_t activation = rows * d * sizeof(float), weight = d * d * sizeof(float);
  const std::size_t peak = pool.statistics().peak_bytes - without;
  CHECK(peak > layers * activation);
  // Backward holds dy, dy before the activation and dx beside them, and the gradients of two layers; slack.
  CHECK(peak < layers * activation + 3 * activation + 3 * weight);
  CHECK(pool.statistics().bytes_in_use - without >= layers * weight);
}

TEST_CASE("a byte limit bounds what varying lengths leave in the pool") {
  MemoryPool& pool = Runtime::instance().pool();
  pool.trim();
  const std::size_t limit = std::size_t{1} << 20;
  pool.set_byte_limit(limit);
  RandomGenerator rng(2);
  for (int i = 0; i < 200; ++i) {
    const Tensor<float> a(Shape{1 + rng.uniform_int(100000)}), b(Shape{1 + rng.uniform_int(100000)});
    CHECK(pool.statistics().bytes_cached <= limit);
  }
  pool.set_byte_limit(static_cast<std::size_t>(-1));
}
