// Requests of --lines sentences each from --clients threads; each sends its next request after the answer to
// the last one: sentences/s and the latencies that clients see, with a Translator that translates the
// sentences of different requests together ("together") and one that translates each by itself ("alone");
// and the sentences/s of one call with all sentences ("offline").
// Model and sentences are random; every sentence has exactly --source tokens and every translation exactly
// --target, the end symbol included.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "../shared/bench_options.hpp"
#include "translator/serving/translator.hpp"

namespace ef = eigenformer;
using ef::index_t;

namespace {

struct Flags {
  ef::bench::ModelFlags model;
  index_t clients = 16;
  index_t sentences = 1000;
  index_t lines = 1;
  index_t source = 16;
  index_t target = 16;
  index_t beam = 1;
  index_t batch = 32;
  index_t repeats = 3;
  ef::WeightFormat format = ef::WeightFormat::float32;
  ef::TranslatorOptions serving;
};

using Model = ef::Seq2SeqTransformer<float>;

// A model of words "w0", "w1", ..., one token each.
ef::LoadedModel<Model> random_model(const Flags& f) {
  ef::TokenCounts counts;
  for (index_t i = 0; i < f.model.vocab - 4; ++i) counts["w" + std::to_string(i)] = 1;
  const auto words = std::make_shared<const ef::WordTokenizer>(ef::Vocabulary::from_counts(counts, {}));
  ef::RandomGenerator rng(1);
  ef::LoadedModel<Model> loaded{{}, {words, words}, Model(f.model.model(0, true), rng)};
  loaded.description.model = loaded.model.options;
  loaded.description.model.max_length = std::max(loaded.description.model.max_length, f.source);
  return loaded;
}

std::vector<std::string> random_lines(const Flags& f) {
  ef::RandomGenerator rng(2);
  std::vector<std::string> lines(static_cast<std::size_t>(f.sentences));
  for (std::string& line : lines) {
    for (index_t k = 0; k < f.source; ++k) line += " w" + std::to_string(rng.uniform_int(f.model.vocab - 4));
  }
  return lines;
}

// All sentences once. Returns the milliseconds that each request took.
std::vector<double> serve(const Flags& f, ef::Translator& translator, const std::vector<std::string>& lines) {
  const auto of_request = static_cast<std::size_t>(f.lines);
  std::atomic<std::size_t> next{0};
  std::vector<double> latencies((lines.size() + of_request - 1) / of_request);
  std::vector<std::thread> clients;
  for (index_t c = 0; c < f.clients; ++c) {
    clients.emplace_back([&] {
      for (std::size_t i = next++; i < latencies.size(); i = next++) {
        const auto request = std::span(lines).subspan(i * of_request);
        const auto start = std::chrono::steady_clock::now();
        benchmark::DoNotOptimize(translator.translate(request.first(std::min(of_request, request.size()))));
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        latencies[i] = elapsed.count();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  return latencies;
}

auto text_translator(const Flags& f, ef::LoadedModel<Model>& loaded, index_t batch) {
  const auto packed = ef::pack_weights_in_place(loaded.model, f.format);
  ef::TextTranslatorOptions options = ef::text_translator_options(loaded.description);
  options.search.beam_size = f.beam;
  options.search.max_length = options.search.min_length = f.target;
  options.search.length_penalty = 0;
  options.batching.batch_size = batch;
  return ef::TextTranslator(loaded, options, ef::Context<float>::inference().with_packed_weights(packed));
}

void offline(benchmark::State& state, const Flags& f) {
  auto loaded = random_model(f);
  const std::vector<std::string> lines = random_lines(f);
  const auto translator = text_translator(f, loaded, f.batch);
  (void)translator.translate(lines);
  double fastest = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(translator.translate(lines));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    fastest = std::max(fastest, static_cast<double>(lines.size()) / elapsed.count());
  }
  state.counters["sentences/s"] = fastest;
}

void serving(benchmark::State& state, const Flags& f, index_t batch) {
  auto loaded = random_model(f);
  const std::vector<std::string> lines = random_lines(f);
  ef::Translator translator(text_translator(f, loaded, batch), f.serving);
  (void)serve(f, translator, lines);
  const auto before = translator.statistics();
  double fastest = 0;
  std::vector<double> latencies;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const auto took = serve(f, translator, lines);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    fastest = std::max(fastest, static_cast<double>(lines.size()) / elapsed.count());
    latencies.insert(latencies.end(), took.begin(), took.end());
  }
  const auto after = translator.statistics();
  state.counters["sentences/s"] = fastest;
  for (const auto& [name, share] : std::map<const char*, double>{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}})
    state.counters[std::string("ms ") + name] = ef::bench::percentile(latencies, share);
  state.counters["sentences a batch"] =
      static_cast<double>(after.lines - before.lines) / static_cast<double>(after.batches - before.batches);
  state.counters["peak MiB"] = ef::bench::peak_mib();
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Speed of a Translator that many threads share"};
  f.model.add_to(app);
  const auto add = [&](const char* name, index_t& value, const char* what) {
    app.add_option(name, value, what)->check(ef::bench::ModelFlags::minimum(1))->capture_default_str();
  };
  add("--clients", f.clients, "threads that send requests");
  add("--sentences", f.sentences, "number of sentences");
  add("--lines", f.lines, "sentences of a request");
  add("--source", f.source, "source tokens per sentence");
  add("--target", f.target, "target tokens per sentence");
  add("--beam", f.beam, "beam size; 1: greedy search");
  add("--batch", f.batch, "maximum sentences translated together");
  add("--repeats", f.repeats, "measured passes over all sentences, after one warm-up pass");
  app.add_option("--workers", f.serving.workers,
                 "batches translated at the same time; 0: one for each of --threads")
      ->capture_default_str();
  app.add_option("--window", f.serving.window, "seconds that a request waits for others to join its batch")
      ->capture_default_str();
  ef::bench::add_format(app, f.format);
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  return ef::bench::run("bench_serving", [&] {
    ef::bench::use_threads(f.model.threads);
    for (const auto& [name, batch] : {std::pair("alone", index_t{1}), std::pair("together", f.batch)}) {
      benchmark::RegisterBenchmark(name, [&f, batch = batch](benchmark::State& s) { serving(s, f, batch); })
          ->Iterations(f.repeats)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark("offline", [&f](benchmark::State& s) { offline(s, f); })
        ->Iterations(f.repeats)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  });
}
