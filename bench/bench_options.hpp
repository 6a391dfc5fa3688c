#pragma once

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "eigenformer/eigenformer.hpp"

namespace eigenformer::bench {

/// The sizes that bench_training and bench_decoding share with bench/peers.
struct ModelFlags {
  index_t d_model = 256;
  index_t layers = 3;
  index_t ff = 1024;
  index_t heads = 8;
  index_t vocab = 8000;
  int threads = 2;

  void add_to(CLI::App& app) {
    app.add_option("--d_model", d_model, "model width")->capture_default_str();
    app.add_option("--layers", layers, "encoder layers, and as many decoder layers")->capture_default_str();
    app.add_option("--ff", ff, "feed-forward width")->capture_default_str();
    app.add_option("--heads", heads, "attention heads")->capture_default_str();
    app.add_option("--vocab", vocab, "vocabulary size of either side")->capture_default_str();
    app.add_option("--threads", threads, "threads")->capture_default_str();
  }

  Seq2SeqOptions model(double dropout, bool norm_first) const {
    return {.source_vocab_size = vocab,
            .target_vocab_size = vocab,
            .d_model = d_model,
            .num_heads = heads,
            .num_encoder_layers = layers,
            .num_decoder_layers = layers,
            .dim_feedforward = ff,
            .dropout = dropout,
            .norm_first = norm_first};
  }
};

/// Peak resident memory of this process, in MiB.
inline double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

/// Random token ids above the special ones.
inline std::vector<std::int32_t> random_tokens(RandomGenerator& rng, index_t n, index_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (auto& id : ids) id = static_cast<std::int32_t>(4 + rng.uniform_int(vocab - 4));
  return ids;
}

/// Parses our own flags and hands the rest (--benchmark_...) to Google Benchmark. Returns an exit code, or -1 to go on.
inline int parse(CLI::App& app, int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  return -1;
}

/// Prints what the profiler saw: time, share, rate and bytes of each op, forward and backward apart.
inline void print_profile(const Profiler& profiler, double wall_seconds) {
  std::printf("%-24s %-8s %8s %10s %7s %10s %10s\n", "op", "pass", "calls", "ms", "share", "GFLOP/s", "MB");
  double covered = 0;
  for (const OpProfile& p : profiler.report()) {
    covered += p.seconds;
    std::printf("%-24s %-8s %8lld %10.2f %6.1f%% %10.1f %10.1f\n", p.op.c_str(), p.backward ? "backward" : "forward",
                static_cast<long long>(p.calls), p.seconds * 1e3, 100 * p.seconds / wall_seconds,
                p.flops / p.seconds * 1e-9, p.bytes * 1e-6);
  }
  std::printf("%-24s %-8s %8s %10.2f %6.1f%%\n", "(everything else)", "", "", (wall_seconds - covered) * 1e3,
              100 * (wall_seconds - covered) / wall_seconds);
}

}  // namespace eigenformer::bench
