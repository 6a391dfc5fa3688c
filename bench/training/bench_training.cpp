// Trains the same encoder-decoder Transformer as bench/peers/torch_train.py, on random batches of like
// length.
#include <algorithm>
#include <chrono>
#include <cstddef>

#include "../shared/bench_options.hpp"
#include "../shared/bench_profile.hpp"

namespace ef = eigenformer;
using ef::index_t;

namespace {

struct Flags {
  ef::bench::ModelFlags model;
  index_t tokens = 2048;
  index_t length = 16;
  index_t steps = 12;
  double dropout = 0.1;
  bool same_length = false;
  bool bf16 = false;
  bool profile = false;
};

struct TrainingBatch {
  ef::Tensor<std::int32_t> source, target_input, target_output;
  ef::SequenceLayout source_layout, target_layout;
};

// As in the peer: a bucket's length for the batch, and sentences at most three tokens shorter, so that there
// is little padding (and here none: rows are packed).
TrainingBatch make_batch(const Flags& f, ef::RandomGenerator& rng) {
  const index_t shortest_bucket = f.length / 2;
  const index_t bucket =
      f.same_length ? f.length
                    : std::max<index_t>(4, shortest_bucket + rng.uniform_int(2 * f.length - shortest_bucket));
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
  b.source = ef::bench::random_ids(b.source_layout.rows(), f.model.vocab, rng);
  b.target_input = ef::bench::random_ids(b.target_layout.rows(), f.model.vocab, rng);
  b.target_output = ef::bench::random_ids(b.target_layout.rows(), f.model.vocab, rng);
  return b;
}

class Training {
 public:
  explicit Training(const Flags& f)
      : model_(f.model.model(f.dropout, false), rng_),
        adam_(ef::parameters(model_), {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-9}),
        gradients_(ef::parameters(model_)),
        precision_(f.bf16 ? ef::detail::kernels::faster_precision(ef::GemmPrecision::bf16)
                          : ef::GemmPrecision::full) {
    for (index_t i = 0; i < f.steps + warm_up; ++i) batches_.push_back(make_batch(f, rng_));
    for (index_t i = 0; i < warm_up; ++i) step();
  }

  /// One update on the next batch. Returns its target tokens.
  index_t step() {
    const TrainingBatch& b = batches_[next_];
    next_ = next_ + 1 == batches_.size() ? static_cast<std::size_t>(warm_up) : next_ + 1;
    gradients_.zero();
    const auto ctx = ef::Context<float>::training(tape_, rng_).with_precision(precision_);
    const auto loss = model_.loss(ctx, b.source, b.source_layout, b.target_input, b.target_layout,
                                  b.target_output, {.label_smoothing = 0.1});
    loss_ = static_cast<double>(loss.item());
    kept_ = std::max(kept_, ef::Runtime::instance().pool().statistics().bytes_in_use);
    tape_.backward(loss, gradients_);
    ef::Profiler& profiler = ef::Runtime::instance().profiler();
    ef::ClipFactor clip;
    {
      const ef::OpScope scope(profiler, "clip_factor", true);
      clip = ef::clip_factor(gradients_, 1.0);
    }
    {
      const ef::OpScope scope(profiler, "adam", true);
      adam_.step(gradients_, 1e-4, clip.factor);
    }
    return b.target_output.numel();
  }

  double loss() const { return loss_; }
  /// The most bytes of tensors after a forward pass: weights, moments, and what the backward pass reads.
  std::size_t kept() const { return kept_; }

 private:
  static constexpr index_t warm_up = 3;

  ef::RandomGenerator rng_{1};
  ef::Seq2SeqTransformer<float> model_;
  ef::Adam<float> adam_;
  ef::Gradients<float> gradients_;
  ef::Tape<float> tape_;
  ef::GemmPrecision precision_;
  std::vector<TrainingBatch> batches_;
  std::size_t next_ = 0;
  double loss_ = 0;
  std::size_t kept_ = 0;
};

void train(benchmark::State& state, const Flags& f, std::FILE* profile_output) {
  Training training(f);
  ef::Profiler& profiler = ef::Runtime::instance().profiler();
  const auto allocations = ef::Runtime::instance().pool().statistics().system_allocations;
  if (f.profile) profiler.start();
  const auto start = std::chrono::steady_clock::now();
  index_t tokens = 0;
  for (auto _ : state) tokens += training.step();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  profiler.stop();
  const auto steps = static_cast<double>(state.iterations());
  state.counters["target tokens/s"] = static_cast<double>(tokens) / elapsed.count();
  state.counters["peak MiB"] = ef::bench::peak_mib();
  state.counters["kept MiB"] = static_cast<double>(training.kept()) / (1 << 20);
  state.counters["loss"] = training.loss();
  state.counters["allocations"] =
      static_cast<double>(ef::Runtime::instance().pool().statistics().system_allocations - allocations);
  if (f.profile) {
    // Of matrix products alone: what a GEMM's rate can be compared with.
    double flops = 0;
    for (const ef::OpProfile& p : profiler.report()) {
      if (p.op.find("attention") == std::string::npos) flops += p.flops;
    }
    state.counters["GFLOP/step"] = flops * 1e-9 / steps;
    ef::bench::print_profile(profile_output, profiler, elapsed.count(), steps);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Training speed of the encoder-decoder Transformer"};
  f.model.add_to(app);
  const auto positive = ef::bench::ModelFlags::minimum(1);
  app.add_option("--tokens", f.tokens, "target tokens per batch, including padding to the bucket's length")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--length", f.length, "mean length of the buckets")->check(positive)->capture_default_str();
  app.add_flag("--same_length", f.same_length, "every bucket has exactly this length");
  app.add_option("--steps", f.steps, "measured updates, after three warm-up updates")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--dropout", f.dropout, "dropout rate")->capture_default_str();
  app.add_flag("--bf16", f.bf16, "bfloat16 products where they are faster");
  app.add_flag("--profile", f.profile, "print time, FLOP/s and bytes of each op");
  // The profile must not end up inside the JSON.
  std::FILE* profile_output = stdout;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--benchmark_format=")) profile_output = stderr;
  }
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  return ef::bench::run("bench_training", [&] {
    ef::bench::use_threads(f.model.threads);
    benchmark::RegisterBenchmark("training", [&](benchmark::State& s) { train(s, f, profile_output); })
        ->Iterations(f.steps)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  });
}
