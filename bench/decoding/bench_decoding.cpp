// Decodes with a random encoder-decoder Transformer, as bench/peers/decode.py: every hypothesis has exactly
// --target tokens, and the rate is that of the fastest of --repeats passes over all sentences. With --latency
// each sentence is a request of its own: medians and 95th percentiles of the times to its first token (a
// request for one token) and to its last.
#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "../shared/bench_options.hpp"

namespace ef = eigenformer;
using ef::index_t;

namespace {

struct Flags {
  ef::bench::ModelFlags model;
  index_t sentences = 128;
  index_t source = 16;
  index_t target = 16;
  index_t beam = 4;
  index_t batch = 32;
  index_t repeats = 3;
  ef::WeightFormat format = ef::WeightFormat::float32;
  bool latency = false;
};

void decode(benchmark::State& state, const Flags& f) {
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model(f.model.model(0, true), rng);
  std::vector<std::vector<std::int32_t>> sources;
  for (index_t i = 0; i < f.sentences; ++i)
    sources.push_back(ef::bench::random_tokens(rng, f.source, f.model.vocab));
  ef::SearchOptions options{
      .beam_size = f.beam, .max_length = f.target, .min_length = f.target, .length_penalty = 0};
  const auto packed = ef::pack_weights_in_place(model, f.format);
  const auto ctx = ef::Context<float>::inference().with_packed_weights(packed);
  const auto run = [&] {
    index_t tokens = 0;
    for (const auto& hypotheses :
         ef::generate(model, ctx, std::span<const std::vector<std::int32_t>>(sources), options,
                      {.batch_size = f.batch})) {
      tokens += static_cast<index_t>(hypotheses.front().ids.size());
    }
    return static_cast<double>(tokens);
  };
  double tokens = run(), fastest = 0;
  if (f.latency) {
    std::vector<double> first, last;
    for (auto _ : state) {
      for (const auto& source : sources) {
        for (const index_t length : {index_t{1}, f.target}) {
          options.max_length = options.min_length = length;
          const auto start = std::chrono::steady_clock::now();
          benchmark::DoNotOptimize(
              ef::generate(model, ctx, std::span<const std::vector<std::int32_t>>(&source, 1), options));
          const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
          (length == 1 ? first : last).push_back(elapsed.count());
        }
      }
    }
    state.counters["first token ms p50"] = ef::bench::percentile(first, 0.5);
    state.counters["first token ms p95"] = ef::bench::percentile(first, 0.95);
    state.counters["last token ms p50"] = ef::bench::percentile(last, 0.5);
    state.counters["last token ms p95"] = ef::bench::percentile(last, 0.95);
    state.counters["peak MiB"] = ef::bench::peak_mib();
    return;
  }
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    tokens = run();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    fastest = std::max(fastest, tokens / elapsed.count());
  }
  state.counters["target tokens/s"] = fastest;
  state.counters["tokens"] = tokens;
  state.counters["peak MiB"] = ef::bench::peak_mib();
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Decoding speed of the encoder-decoder Transformer"};
  f.model.add_to(app);
  const auto add = [&](const char* name, index_t& value, const char* what) {
    app.add_option(name, value, what)->check(ef::bench::ModelFlags::minimum(1))->capture_default_str();
  };
  add("--sentences", f.sentences, "number of source sentences");
  add("--source", f.source, "source tokens per sentence");
  add("--target,--length", f.target, "target tokens per sentence");
  add("--beam", f.beam, "beam size; 1: greedy search");
  add("--batch", f.batch, "sentences decoded together");
  add("--repeats", f.repeats, "measured passes over all sentences, after one warm-up pass");
  ef::bench::add_format(app, f.format);
  app.add_flag("--latency", f.latency, "measure the latency of single sentences instead of throughput");
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  return ef::bench::run("bench_decoding", [&] {
    ef::bench::use_threads(f.model.threads);
    benchmark::RegisterBenchmark("decoding", [&](benchmark::State& s) { decode(s, f); })
        ->Iterations(f.repeats)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  });
}
