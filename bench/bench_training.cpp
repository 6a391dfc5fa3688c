// Trains the same encoder-decoder Transformer as bench/peers/torch_train.py, on random batches of like length.
#include <chrono>

#include "bench_options.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/clip.hpp"

namespace ef = eigenformer;
using ef::index_t;

namespace {

struct Flags {
  ef::bench::ModelFlags model;
  index_t tokens = 2048;
  index_t length = 16;
  index_t steps = 12;
  double dropout = 0.1;
  bool bf16 = false;
  bool profile = false;
};

struct TrainingBatch {
  ef::Tensor<std::int32_t> source, target_input, target_output;
  ef::SequenceLayout source_layout, target_layout;
};

// Lengths as in the peer: L sentences' common bucket, each at most three tokens shorter, so that there is little padding.
TrainingBatch make_batch(const Flags& f, ef::RandomGenerator& rng) {
  const index_t bucket = std::max<index_t>(4, f.length / 2 + rng.uniform_int(2 * f.length - f.length / 2));
  const index_t sentences = std::max<index_t>(1, f.tokens / bucket);
  const auto lengths = [&](index_t less) {
    std::vector<index_t> n;
    const index_t shortest = std::max<index_t>(1, bucket - 3);
    for (index_t i = 0; i < sentences; ++i) {
      n.push_back(std::max<index_t>(1, shortest + rng.uniform_int(bucket - shortest + 1) - less));
    }
    return n;
  };
  TrainingBatch b;
  b.source_layout = ef::SequenceLayout::packed(lengths(0));
  b.target_layout = ef::SequenceLayout::packed(lengths(1));
  const auto tokens = [&](const ef::SequenceLayout& layout) {
    return ef::Tensor<std::int32_t>::from(ef::Shape{layout.rows()},
                                          ef::bench::random_tokens(rng, layout.rows(), f.model.vocab));
  };
  b.source = tokens(b.source_layout);
  b.target_input = tokens(b.target_layout);
  b.target_output = tokens(b.target_layout);
  return b;
}

void train(benchmark::State& state, const Flags& f) {
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model(f.model.model(f.dropout, false), rng);
  const auto parameters = ef::parameters(model);
  ef::Adam<float> adam(parameters, {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-9});
  ef::Gradients<float> gradients(parameters);
  ef::Tape<float> tape;
  float loss_value = 0;
  const auto step = [&](const TrainingBatch& b) {
    const auto ctx = ef::Context<float>::training(tape, rng).with_precision(f.bf16 ? ef::kernels::GemmPrecision::bf16
                                                                                   : ef::kernels::GemmPrecision::full);
    const auto loss = model.loss(ctx, b.source, b.source_layout, b.target_input, b.target_layout, b.target_output,
                                 {.label_smoothing = 0.1});
    loss_value = loss.item();
    gradients.zero();
    tape.backward(loss, gradients);
    const auto clip = ef::clip_global_norm(gradients, 1.0);
    adam.step(gradients, 1e-4, clip.factor);
  };
  std::vector<TrainingBatch> batches;
  for (index_t i = 0; i < f.steps + 3; ++i) batches.push_back(make_batch(f, rng));
  for (std::size_t i = 0; i < 3; ++i) step(batches[i]);

  ef::Profiler& profiler = ef::Runtime::instance().profiler();
  if (f.profile) profiler.start();
  const auto allocations = ef::Runtime::instance().pool().statistics().system_allocations;
  const auto start = std::chrono::steady_clock::now();
  std::size_t next = 3;
  index_t tokens = 0;
  for (auto _ : state) {
    const TrainingBatch& b = batches[next];
    next = next + 1 == batches.size() ? 3 : next + 1;
    step(b);
    tokens += b.target_output.numel();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  profiler.stop();
  state.counters["target tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["peak MiB"] = ef::bench::peak_mib();
  state.counters["loss"] = static_cast<double>(loss_value);
  state.counters["allocations"] =
      static_cast<double>(ef::Runtime::instance().pool().statistics().system_allocations - allocations);
  if (f.profile) ef::bench::print_profile(profiler, elapsed.count());
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Training speed of the encoder-decoder Transformer"};
  f.model.add_to(app);
  app.add_option("--tokens", f.tokens, "target tokens of a batch, with padding to the bucket's length")->capture_default_str();
  app.add_option("--length", f.length, "mean sentence length")->capture_default_str();
  app.add_option("--steps", f.steps, "updates measured, after three that are not")->capture_default_str();
  app.add_option("--dropout", f.dropout, "all dropout rates")->capture_default_str();
  app.add_flag("--bf16", f.bf16, "products with inputs rounded to bfloat16");
  app.add_flag("--profile", f.profile, "print time, FLOP/s and bytes of each op");
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  try {
    ef::Runtime::instance().set_threads(f.model.threads);
    benchmark::RegisterBenchmark("training", [&](benchmark::State& s) { train(s, f); })
        ->Iterations(f.steps)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const ef::Error& error) {
    std::fprintf(stderr, "bench_training: error: %s\n", error.what());
    return 1;
  }
  return 0;
}
