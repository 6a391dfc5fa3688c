#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench_tools.hpp"
#include "eigenformer/eigenformer.hpp"

namespace eigenformer::bench {

/// The sizes that the programs share with bench/peers.
struct ModelFlags {
  index_t d_model = 256;
  index_t layers = 3;
  index_t ff = 1024;
  index_t heads = 8;
  index_t vocab = 8000;
  int threads = 2;

  void add_to(CLI::App& app) {
    app.add_option("--d_model", d_model, "model width")->capture_default_str();
    app.add_option("--layers", layers, "number of encoder layers and of decoder layers")
        ->capture_default_str();
    app.add_option("--vocab", vocab, "vocabulary size of source and target")
        ->check(minimum(5))
        ->capture_default_str();
    add_layer_to(app);
  }
  void add_layer_to(CLI::App& app) {
    app.add_option("--ff", ff, "feed-forward width")->capture_default_str();
    app.add_option("--heads", heads, "attention heads")->capture_default_str();
    app.add_option("--threads", threads, "threads")->capture_default_str();
  }

  Seq2SeqOptions model(double dropout, bool norm_first) const {
    return {.source_vocab_size = vocab,
            .target_vocab_size = vocab,
            .layer = {.d_model = d_model,
                      .num_heads = heads,
                      .dim_feedforward = ff,
                      .dropout = {dropout},
                      .norm_first = norm_first},
            .encoder = {.num_layers = layers},
            .decoder = {.num_layers = layers}};
  }
  LayerOptions layer(double dropout) const {
    return {.d_model = d_model, .num_heads = heads, .dim_feedforward = ff, .dropout = {dropout}};
  }

  static CLI::Range minimum(int least) { return CLI::Range(least, 1 << 30); }
};

/// Token ids above the special ones.
inline std::vector<std::int32_t> random_tokens(RandomGenerator& rng, index_t n, index_t vocab) {
  const auto ids = random_ids(n, vocab, rng);
  return {ids.span().begin(), ids.span().end()};
}

/// Adds --format.
inline void add_format(CLI::App& app, WeightFormat& format) {
  const std::map<std::string, WeightFormat> formats = {
      {"float32", WeightFormat::float32}, {"bf16", WeightFormat::bf16}, {"int8", WeightFormat::int8}};
  app.add_option("--format", format, "float32, bf16 or int8 weights")
      ->transform(CLI::CheckedTransformer(formats));
}

/// Parses our own flags and hands the rest (--benchmark_...) to Google Benchmark. Returns an exit code, or -1
/// to go on.
inline int parse(CLI::App& app, int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  return -1;
}

/// Runs what was registered; errors of the library end the program with a message and exit code 1.
template <class F>
int run(const char* program, F&& register_all) {
  try {
    register_all();
    benchmark::RunSpecifiedBenchmarks();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: error: %s\n", program, error.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}

/// Floating-point operations of all matrix products of one call of f.
template <class F>
double product_flops(F&& f) {
  Profiler& profiler = Runtime::instance().profiler();
  profiler.clear();
  profiler.start();
  f();
  profiler.stop();
  double flops = 0;
  for (const OpProfile& p : profiler.report()) flops += p.flops;
  profiler.clear();
  return flops;
}

}  // namespace eigenformer::bench
