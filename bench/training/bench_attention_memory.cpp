// Memory and time of self-attention, forward and backward, against the length of one sequence; the same in
// PyTorch is bench/peers/attention_memory.py. "attention" is the op on a given projection (q, k, v), "module"
// the whole MultiHeadAttention. "peak MiB" is the tensors' pool: inputs, gradients and what is saved between
// the two passes. "grown MiB" is the memory that the process took from the system, without its code and
// parameters, with scratch memory: run one length per process.
#include <chrono>

#include "../shared/bench_options.hpp"

namespace ef = eigenformer;
using ef::index_t;
using Var = ef::Var<float>;

namespace {

struct Flags {
  index_t d_model = 256;
  index_t heads = 8;
  int threads = 2;
  index_t repeats = 3;
  bool causal = false;
  std::vector<index_t> lengths = {512, 1024, 2048, 4096, 8192};
  std::vector<std::string> parts = {"attention", "module"};
};

// Times forward (an output of d_model features) and backward of f(ctx, x), which has inputs of `width`
// features.
template <class F>
void measure(benchmark::State& state, const Flags& flags, index_t length, index_t width,
             ef::Gradients<float>& gradients, F&& f) {
  using Clock = std::chrono::steady_clock;
  auto& pool = ef::Runtime::instance().pool();
  pool.trim();
  const double before = ef::bench::resident_mib();
  const auto x = ef::bench::random_tensor({length, width}, 2);
  const auto dy = ef::bench::random_tensor({length, flags.d_model}, 3);
  ef::Tape<float> tape;
  const auto ctx = ef::Context<float>::checking(tape);
  double forward = 0, backward = 0;
  pool.reset_peak();
  for (auto _ : state) {
    const auto start = Clock::now();
    const Var y = f(ctx, tape.variable(x));
    const auto middle = Clock::now();
    gradients.zero();
    tape.backward(y, dy, gradients);
    const auto end = Clock::now();
    // The fastest pass, as in the peer.
    const auto shorter = [](double best, double seconds) {
      return best == 0 ? seconds : std::min(best, seconds);
    };
    forward = shorter(forward, std::chrono::duration<double>(middle - start).count());
    backward = shorter(backward, std::chrono::duration<double>(end - middle).count());
  }
  constexpr double mib = 1024.0 * 1024.0;
  state.counters["forward ms"] = forward * 1e3;
  state.counters["backward ms"] = backward * 1e3;
  state.counters["peak MiB"] = static_cast<double>(pool.statistics().peak_bytes) / mib;
  state.counters["grown MiB"] = ef::bench::peak_mib() - before;
}

void measure_attention(benchmark::State& state, const Flags& flags, index_t length) {
  const auto layout = ef::SequenceLayout::packed({length});
  const auto mask = flags.causal ? ef::AttentionMask::causal() : ef::AttentionMask::none();
  ef::Gradients<float> none;
  measure(state, flags, length, 3 * flags.d_model, none, [&](const ef::Context<float>& ctx, const Var& qkv) {
    return ef::self_attention(ctx, qkv, layout, mask, {.heads = flags.heads});
  });
}

void measure_module(benchmark::State& state, const Flags& flags, index_t length) {
  const auto layout = ef::SequenceLayout::packed({length});
  const auto mask = flags.causal ? ef::AttentionMask::causal() : ef::AttentionMask::none();
  ef::RandomGenerator rng(1);
  const ef::MultiHeadAttention<float> module({.d_model = flags.d_model, .num_heads = flags.heads}, rng);
  ef::Gradients<float> gradients(ef::parameters(module));
  measure(state, flags, length, flags.d_model, gradients, [&](const ef::Context<float>& ctx, const Var& x) {
    return module(ctx, x, layout, x, x, layout, mask);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Memory and time of attention against length"};
  const auto positive = ef::bench::ModelFlags::minimum(1);
  app.add_option("--d_model", f.d_model, "width of query, key and value each")->capture_default_str();
  app.add_option("--heads", f.heads, "attention heads")->capture_default_str();
  app.add_option("--threads", f.threads, "threads")->capture_default_str();
  app.add_option("--lengths", f.lengths, "tokens of the sequence")->check(positive)->delimiter(',');
  app.add_option("--parts", f.parts, "attention, module or both")
      ->check(CLI::IsMember({"attention", "module"}))
      ->delimiter(',');
  app.add_option("--repeats", f.repeats, "number of passes; the fastest is reported")
      ->check(positive)
      ->capture_default_str();
  app.add_flag("--causal", f.causal, "causal attention");
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  return ef::bench::run("bench_attention_memory", [&] {
    ef::bench::use_threads(f.threads);
    for (const std::string& part : f.parts) {
      for (const index_t length : f.lengths) {
        benchmark::RegisterBenchmark((part + "/" + std::to_string(length)).c_str(),
                                     [&f, part, length](benchmark::State& s) {
                                       part == "module" ? measure_module(s, f, length)
                                                        : measure_attention(s, f, length);
                                     })
            ->Iterations(f.repeats)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  });
}
