// Measures a training by several ranks: processes of MPI under mpirun, else threads. With --latency-us and
// --gbit messages take as long as on such a network. Prints one JSON object. bench/scaling/measure.sh runs
// it.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../shared/bench_options.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/train/distributed/thread_communicator.hpp"
#include "eigenformer/train/loop/loop.hpp"
#if EIGENFORMER_WITH_MPI
#include "eigenformer/train/distributed/mpi.hpp"
#endif

namespace ef = eigenformer;
using ef::index_t;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Flags {
  ef::bench::ModelFlags model;
  int ranks = 1;
  index_t tokens = 1024;  // of a batch
  index_t length = 16;
  index_t updates = 12;
  index_t accumulate = 0;  // 0: one batch for each rank
  std::string reduction = "fixed-order";
  bool bf16 = false;
  bool shard = false;
  bool serial = false;
  index_t bucket_kib = 4096;
  double latency_us = 0;
  double gbit = 0;
};

/// What one rank measured in an update.
struct Update {
  double seconds = 0, forward = 0, optimizer = 0;
  double communication = 0;  // in exchanges
  double bytes = 0;          // sent to other ranks
  int exchanges = 0;
  std::vector<std::pair<double, double>>
      large;  // since the end of the last forward: when, and how many bytes
};

/// Counts what is exchanged and makes it last as long as on a network: a latency, and what a rank sends or
/// receives, whichever is more, at a rate.
class Network final : public ef::Communicator {
 public:
  Network(std::shared_ptr<ef::Communicator> ranks, const Flags& f)
      : ranks_(std::move(ranks)), latency_(f.latency_us * 1e-6), rate_(f.gbit * 1e9 / 8) {}

  int rank() const noexcept override { return ranks_->rank(); }
  int size() const noexcept override { return ranks_->size(); }
  bool concurrent() const noexcept override { return ranks_->concurrent(); }
  void fail(const std::string& message) noexcept override { ranks_->fail(message); }

  void exchange(std::span<const std::span<const std::byte>> send,
                std::span<const std::span<std::byte>> receive) override {
    const auto start = Clock::now();
    const auto me = static_cast<std::size_t>(rank());
    double sent = 0, received = 0;
    for (std::size_t r = 0; r < send.size(); ++r) {
      if (r == me) continue;
      sent += static_cast<double>(send[r].size());
      received += static_cast<double>(receive[r].size());
    }
    ranks_->exchange(send, receive);
    if (size() > 1 && (latency_ > 0 || rate_ > 0)) {
      const double wanted = latency_ + (rate_ > 0 ? std::max(sent, received) / rate_ : 0);
      std::this_thread::sleep_until(
          start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wanted)));
    }
    const std::lock_guard lock(mutex_);
    update_.communication += seconds_since(start);
    update_.bytes += sent;
    ++update_.exchanges;
    if (sent + received > 4096)
      update_.large.emplace_back(std::chrono::duration<double>(start - forward_end_).count(), sent);
  }
  void sum(std::span<float> values) override { sum_of(values); }
  void sum(std::span<double> values) override { sum_of(values); }

  void forward_ended(double took) {
    const std::lock_guard lock(mutex_);
    forward_end_ = Clock::now();
    update_.forward += took;
  }
  Update take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(update_, Update{});
  }

 private:
  // On a network by exchanges, which last as long as there.
  template <class V>
  void sum_of(std::span<V> values) {
    if (latency_ > 0 || rate_ > 0) return Communicator::sum(values);
    const auto start = Clock::now();
    ranks_->sum(values);
    const std::lock_guard lock(mutex_);
    update_.communication += seconds_since(start);
    ++update_.exchanges;
  }

  std::shared_ptr<ef::Communicator> ranks_;
  double latency_, rate_;
  std::mutex mutex_;
  Update update_;
  Clock::time_point forward_end_{};
};

struct TimedAdam final : ef::Optimizer<float> {
  explicit TimedAdam(ef::Adam<float> made) : adam(std::move(made)) {}

  void step(const ef::Gradients<float>& gradients, double rate, double scale) override {
    const auto start = Clock::now();
    adam.step(gradients, rate, scale);
    seconds = seconds_since(start);
  }
  std::vector<ef::StateEntry<float>> state() const override { return adam.state(); }
  void load(const std::vector<ef::StateEntry<float>>& entries) override { adam.load(entries); }

  ef::Adam<float> adam;
  double seconds = 0;
};

struct TrainingBatch {
  ef::Tensor<std::int32_t> source, target_input, target_output;
  ef::SequenceLayout source_layout, target_layout;
};

TrainingBatch make_batch(const Flags& f, ef::RandomGenerator& rng) {
  const std::vector<index_t> lengths(static_cast<std::size_t>(std::max<index_t>(1, f.tokens / f.length)),
                                     f.length);
  TrainingBatch b;
  b.source_layout = b.target_layout = ef::SequenceLayout::packed(lengths);
  b.source = ef::bench::random_ids(b.source_layout.rows(), f.model.vocab, rng);
  b.target_input = ef::bench::random_ids(b.target_layout.rows(), f.model.vocab, rng);
  b.target_output = ef::bench::random_ids(b.target_layout.rows(), f.model.vocab, rng);
  return b;
}

/// Times updates: each report is one.
class Timer final : public ef::TrainingSink {
 public:
  Timer(Network& network, TimedAdam& adam) : network_(network), adam_(adam) {}
  void on_step(const ef::StepReport&) override {
    Update u = network_.take();
    u.seconds = seconds_since(last_);
    u.optimizer = adam_.seconds;
    last_ = Clock::now();
    updates.push_back(u);
  }
  std::vector<Update> updates;

 private:
  Network& network_;
  TimedAdam& adam_;
  Clock::time_point last_ = Clock::now();
};

template <class F>
double median(const std::vector<Update>& updates, F&& of) {
  std::vector<double> values;
  for (const Update& u : updates) values.push_back(of(u));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void train(const Flags& f, const std::shared_ptr<ef::Communicator>& ranks, const char* kind) {
  const auto network = std::make_shared<Network>(ranks, f);
  ef::RandomGenerator rng(7);
  const ef::Seq2SeqTransformer<float> model(f.model.model(0, false), rng);
  std::vector<TrainingBatch> batches;
  const index_t accumulate = f.accumulate > 0 ? f.accumulate : ranks->size();
  for (index_t k = 0; k < accumulate; ++k) batches.push_back(make_batch(f, rng));
  const auto parameters = ef::parameters(model);
  TimedAdam adam{ef::Adam<float>(
      f.shard ? ef::detail::parameters_of_rank(
                    parameters, {.communicator = network, .distributed = {.shard_optimizer = true}})
              : parameters)};
  const auto loss = [&](const ef::Context<float>& ctx, const TrainingBatch& b) {
    const auto start = Clock::now();
    auto result =
        model.loss(ctx, b.source, b.source_layout, b.target_input, b.target_layout, b.target_output);
    network->forward_ended(seconds_since(start));
    return result;
  };
  Timer timer(*network, adam);
  ef::LoopOptions options{.max_steps = f.updates + 3, .accumulate = accumulate, .validate_every = 1 << 30};
  options.report_every = 1;
  options.communicator = network;
  options.distributed.reduction =
      ef::options_from_json<ef::DistributedOptions>({{"reduction", f.reduction}}).reduction;
  options.distributed.precision = f.bf16 ? ef::ReductionPrecision::bf16 : ef::ReductionPrecision::full;
  options.distributed.bucket_kib = f.bucket_kib;
  options.distributed.overlap = !f.serial;
  options.distributed.shard_optimizer = f.shard;
  ef::train(
      parameters, loss, batches, adam, [](index_t) { return 1e-4; }, options, timer);
  if (ranks->rank() != 0) return;

  // The first updates order the buckets and warm the memory up.
  const std::vector<Update> measured(timer.updates.begin() + 3, timer.updates.end());
  nlohmann::json json = {{"kind", kind},
                         {"ranks", ranks->size()},
                         {"threads", ef::Runtime::instance().threads()},
                         {"parameters", ef::count_parameters(model)},
                         {"tokens", f.tokens},
                         {"accumulate", accumulate},
                         {"reduction", f.reduction},
                         {"bf16", f.bf16},
                         {"shard", f.shard},
                         {"overlap", !f.serial},
                         {"bucket_kib", f.bucket_kib},
                         {"latency_us", f.latency_us},
                         {"gbit", f.gbit}};
  json["update_ms"] = median(measured, [](const Update& u) { return u.seconds * 1e3; });
  json["forward_ms"] = median(measured, [](const Update& u) { return u.forward * 1e3; });
  json["optimizer_ms"] = median(measured, [](const Update& u) { return u.optimizer * 1e3; });
  json["communication_ms"] = median(measured, [](const Update& u) { return u.communication * 1e3; });
  json["bytes"] = median(measured, [](const Update& u) { return u.bytes; });
  json["exchanges"] = measured.back().exchanges;
  json["large"] = nlohmann::json::array();
  for (const auto& [when, bytes] : measured.back().large) json["large"].push_back({when * 1e3, bytes});
  std::printf("%s\n", json.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Training with several ranks: times, messages, and the effect of a slower network");
  Flags f;
  f.model.threads = 1;
  f.model.add_to(app);
  app.add_option("--ranks", f.ranks, "ranks, as threads; ignored under mpirun")
      ->check(ef::bench::ModelFlags::minimum(1));
  app.add_option("--tokens", f.tokens, "target tokens per batch")->check(ef::bench::ModelFlags::minimum(1));
  app.add_option("--length", f.length, "tokens per sentence")->check(ef::bench::ModelFlags::minimum(1));
  app.add_option("--updates", f.updates, "updates to measure")->check(ef::bench::ModelFlags::minimum(1));
  app.add_option("--accumulate", f.accumulate, "batches per update; 0: one per rank");
  app.add_option("--reduction", f.reduction, "fixed-order, local-first or native");
  app.add_option("--bucket_kib", f.bucket_kib, "KiB of gradients per bucket")
      ->check(ef::bench::ModelFlags::minimum(1));
  app.add_option("--latency_us", f.latency_us, "added latency of each exchange in microseconds");
  app.add_option("--gbit", f.gbit, "bandwidth of each rank's link in Gbit/s, each way; 0: no limit");
  app.add_flag("--bf16", f.bf16, "send gradients in bf16");
  app.add_flag("--shard", f.shard, "shard the optimizer's state");
  app.add_flag("--serial", f.serial, "communicate after backward, not during it");
  CLI11_PARSE(app, argc, argv);
  ef::Runtime::instance().set_threads(f.model.threads);
  try {
#if EIGENFORMER_WITH_MPI
    if (ef::processes_of_mpirun() > 1) {
      train(f, std::make_shared<ef::MpiCommunicator>(), "mpi");
      return 0;
    }
#endif
    ef::run_ranks(f.ranks, [&](const auto& communicator) { train(f, communicator, "threads"); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_scaling: error: %s\n", error.what());
    return 1;
  }
  return 0;
}
