#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/train/distributed/thread_communicator.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses, norms;
  std::vector<double> validations;
  TrainingState<float> state;
  TrainingEnd end{};
  bool operator==(const Outcome& other) const {
    return weights == other.weights && losses == other.losses && norms == other.norms &&
           validations == other.validations;
  }
};

TrainingOptions options_of(index_t accumulate) {
  return {.loop = {.epochs = 3,
                   .max_steps = 12,
                   .accumulate = accumulate,
                   .clip_norm = 0.5,
                   .validate_every = 5,
                   .report_every = 1,
                   .distributed = {.bucket_kib = 1}},
          .batch_tokens = 60,
          .warmup = 4};
}

const EncodedCorpus& corpus() {
  static const EncodedCorpus pairs = reversal_corpus(300, 5);
  return pairs;
}
const EncodedCorpus& held_out() {
  static const EncodedCorpus pairs = reversal_corpus(10, 6);
  return pairs;
}

/// A training of one rank, which begins with weights of its own.
Outcome trained(const TrainingOptions& options, int rank = 0, const TrainingState<float>* from = nullptr) {
  auto model = small_model(0.1, 3 + static_cast<std::uint64_t>(rank));
  Recorder sink;
  Outcome outcome;
  Trainer trainer(model, corpus(), &held_out(), options, sink);
  if (from != nullptr) trainer.load(*from);
  sink.at_checkpoint = [&] {
    if (rank == 0) outcome.state = trainer.state();
  };
  outcome.end = trainer.run();
  outcome.weights = weights_of(model);
  for (const StepReport& r : sink.steps) {
    outcome.losses.push_back(r.loss);
    outcome.norms.push_back(r.gradient_norm);
  }
  for (const ValidationReport& r : sink.validations) outcome.validations.push_back(r.value);
  return outcome;
}

std::vector<Outcome> trained_by(int ranks, const TrainingOptions& options,
                                const TrainingState<float>* from = nullptr) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
    TrainingOptions own = options;
    own.loop.communicator = communicator;
    outcomes[static_cast<std::size_t>(communicator->rank())] = trained(own, communicator->rank(), from);
  });
  return outcomes;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double(a[i]) - double(b[i])));
  return most;
}

/// Names, shapes and bits.
bool same_tensors(TrainingState<float> a, TrainingState<float> b) {
  for (auto* state : {&a, &b}) state->values.erase("ranks");
  if (a.tensors.size() != b.tensors.size() || a.values != b.values) return false;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].first != b.tensors[i].first) return false;
    const auto x = a.tensors[i].second.span(), y = b.tensors[i].second.span();
    if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("N ranks train as one process does, bit for bit, for every N up to the batches of an update") {
  for (const index_t accumulate : {index_t{4}, index_t{5}}) {
    const Outcome one = trained(options_of(accumulate));
    CHECK(one.losses.size() == 12);
    CHECK(one.validations.size() == 3);  // after 5, 10 and 12 updates
    for (const int ranks : {1, 2, 3, 4}) {
      for (const bool overlap : {true, false}) {
        if (!overlap && ranks != 3) continue;
        CAPTURE(accumulate);
        CAPTURE(ranks);
        CAPTURE(overlap);
        TrainingOptions options = options_of(accumulate);
        options.loop.distributed.overlap = overlap;
        for (const Outcome& rank : trained_by(ranks, options)) CHECK((rank == one));
      }
    }
  }
}

TEST_CASE("workers of one process train as one thread does, bit for bit") {
  const Outcome one = trained(options_of(5));
  for (const index_t workers : {index_t{2}, index_t{4}}) {
    TrainingOptions options = options_of(5);
    options.loop.workers = workers;
    CHECK((trained(options) == one));
  }
}

TEST_CASE("an optimizer whose state is kept in parts has the same bits, and saves what one process saves") {
  TrainingOptions options = options_of(4);
  options.groups = {{.pattern = "encoder.layers.0.norm1.*", .rate = 0.5}};  // which one rank holds
  const Outcome one = trained(options);
  options.loop.distributed.shard_optimizer = true;
  const auto ranks = trained_by(3, options);
  for (const Outcome& rank : ranks) CHECK((rank == one));
  CHECK(same_tensors(ranks[0].state, one.state));
}

TEST_CASE("a training goes on with another number of ranks, and with its optimizer in other parts") {
  const Outcome whole = trained(options_of(4));
  TrainingOptions first = options_of(4);
  first.loop.max_steps = 5;
  first.loop.distributed.shard_optimizer = true;
  const Outcome begun = trained_by(4, first)[0];
  for (const int ranks : {1, 2, 3}) {
    TrainingOptions rest = options_of(4);
    rest.loop.distributed.shard_optimizer = ranks == 3;
    for (const Outcome& rank : trained_by(ranks, rest, &begun.state)) {
      CHECK(rank.weights == whole.weights);
    }
  }
}

TEST_CASE("sums of each rank's own batches, native sums and sums in bf16 differ by rounding alone") {
  const Outcome one = trained(options_of(4));
  for (const Reduction reduction : {Reduction::fixed_order, Reduction::local_first, Reduction::native}) {
    for (const ReductionPrecision precision : {ReductionPrecision::full, ReductionPrecision::bf16}) {
      if (reduction == Reduction::native && precision == ReductionPrecision::bf16) continue;
      CAPTURE(static_cast<int>(reduction));
      CAPTURE(static_cast<int>(precision));
      TrainingOptions options = options_of(4);
      options.loop.distributed.reduction = reduction;
      options.loop.distributed.precision = precision;
      const auto ranks = trained_by(2, options);
      CHECK(ranks[0].weights == ranks[1].weights);
      // Adam divides by the gradient's size: a gradient near 0 may have another sign.
      CHECK(std::abs(ranks[0].norms[0] / one.norms[0] - 1) <
            (precision == ReductionPrecision::full ? 1e-6 : 4e-3));
      CHECK(std::abs(ranks[0].losses.back() - one.losses.back()) <
            (precision == ReductionPrecision::full ? 1e-5 : 1e-2));
      const bool exact = reduction == Reduction::fixed_order && precision == ReductionPrecision::full;
      CHECK((ranks[0].weights == one.weights) == exact);
      CHECK(largest_difference(ranks[0].weights, one.weights) < 0.05);
    }
  }
}

TEST_CASE("a rank computes its own batches alone") {
  struct Batches {
    std::vector<std::vector<index_t>>& made;
    std::size_t rank;
    index_t num_batches(index_t) const { return 6; }
    double batch(index_t, index_t k) const {
      made[rank].push_back(k);
      return static_cast<double>(k);
    }
  };
  std::vector<std::vector<index_t>> made(2);
  run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    Parameter<double> p{Tensor<double>::scalar(1)};
    Adam<double> optimizer({p.handle()});
    Batches batches{made, static_cast<std::size_t>(communicator->rank())};
    train<double>(
        {p.handle()}, [&](const Context<double>& ctx, double x) { return multiply(ctx.use(p), x); }, batches,
        optimizer, [](index_t) { return 0.1; }, {.epochs = 1, .accumulate = 4, .communicator = communicator});
  });
  CHECK(made[0] == std::vector<index_t>{0, 2, 4});
  CHECK(made[1] == std::vector<index_t>{1, 3, 5});
}

TEST_CASE("a parameter that no batch of an update uses is not stepped, one that some use is") {
  // Batch k uses parameter k alone; the third has no batch.
  const auto run = [](const std::shared_ptr<Communicator>& communicator, bool shard) {
    std::vector<Parameter<double>> p;
    std::vector<ParameterHandle<double>> handles;
    for (int i = 0; i < 3; ++i) {
      p.emplace_back(Tensor<double>::scalar(1));
      p.back().set_name("p" + std::to_string(i));
      handles.push_back(p.back().handle());
    }
    Adam<double> optimizer(handles, {.weight_decay = 0});
    const std::vector<int> batches{0, 1};
    train<double>(
        handles,
        [&](const Context<double>& ctx, int k) {
          return multiply(ctx.use(p[static_cast<std::size_t>(k)]), 2);
        },
        batches, optimizer, [](index_t) { return 0.1; },
        {.epochs = 1,
         .accumulate = 2,
         .communicator = communicator,
         .distributed = {.shard_optimizer = shard}});
    CHECK(optimizer.state().size() == (shard && communicator != nullptr ? 3 : 6));
    return std::vector<double>{p[0].value().item(), p[1].value().item(), p[2].value().item()};
  };
  const std::vector<double> one = run(nullptr, false);
  CHECK(one[0] < 1);
  CHECK(one[2] == 1);
  for (const bool shard : {false, true}) {
    run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
      CHECK(run(communicator, shard) == one);
    });
  }
}

TEST_CASE("an error of one rank ends all with its message") {
  std::mutex mutex;
  std::vector<std::string> messages;
  const auto run = [&] {
    run_ranks(3, [&](const std::shared_ptr<Communicator>& communicator) {
      Parameter<double> p{Tensor<double>::scalar(1)};
      Adam<double> optimizer({p.handle()});
      const std::vector<double> batches{1, 2, 3};
      int calls = 0;
      const auto loss = [&](const Context<double>& ctx, double x) {
        if (communicator->rank() == 1 && ++calls == 3) throw ValueError("loss", "the third batch is bad");
        return multiply(ctx.use(p), x);
      };
      try {
        train<double>({p.handle()}, loss, batches, optimizer, [](index_t) { return 0.1; },
                      {.max_steps = 10, .accumulate = 3, .communicator = communicator});
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        messages.push_back(error.what());
        throw;
      }
    });
  };
  CHECK(message_of<ValueError>(run) == "[loss] the third batch is bad");
  std::sort(messages.begin(), messages.end());
  CHECK(messages == std::vector<std::string>{"[distributed] rank 1: [loss] the third batch is bad",
                                             "[distributed] rank 1: [loss] the third batch is bad",
                                             "[loss] the third batch is bad"});
}

TEST_CASE("all ranks skip the same update, and a stop of one rank stops all") {
  std::vector<index_t> steps(3), skipped(3);
  std::vector<TrainingEnd> ends(3);
  run_ranks(3, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto me = static_cast<std::size_t>(communicator->rank());
    Parameter<double> p{Tensor<double>::scalar(1)};
    Adam<double> optimizer({p.handle()});
    const std::vector<double> batches{1, 2, 3};
    std::stop_source stop;
    index_t calls = 0;
    const auto loss = [&](const Context<double>& ctx, double x) {
      ++calls;
      if (me == 2 && calls == 7) stop.request_stop();
      return multiply(ctx.use(p), me == 1 && calls == 2 ? std::nan("") : x);
    };
    TrainingLoop<double> loop({p.handle()}, loss, batches, optimizer, [](index_t) { return 0.1; },
                              {.max_steps = 100, .accumulate = 3, .communicator = communicator});
    ends[me] = loop.run(stop.get_token());
    steps[me] = loop.step();
    skipped[me] = loop.skipped();
  });
  CHECK(steps == std::vector<index_t>{7, 7, 7});
  CHECK(skipped == std::vector<index_t>{1, 1, 1});
  CHECK(ends == std::vector<TrainingEnd>(3, TrainingEnd::interrupted));
}

TEST_CASE("what ranks cannot do together is refused") {
  const auto refusal = [](int ranks, const std::function<void(LoopOptions&, int)>& change) {
    return message_of<ValueError>([&] {
      run_ranks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
        Parameter<double> p{Tensor<double>::scalar(1)};
        Adam<double> optimizer({p.handle()});
        const std::vector<double> batches{1, 2, 3};
        LoopOptions options{.max_steps = 2, .accumulate = 2, .communicator = communicator};
        change(options, communicator->rank());
        train<double>(
            {p.handle()}, [&](const Context<double>& ctx, double x) { return multiply(ctx.use(p), x); },
            batches, optimizer, [](index_t) { return 0.1; }, options);
      });
    });
  };
  CHECK(contains(refusal(3, [](LoopOptions&, int) {}),
                 "accumulate is 2, must be at least the number of ranks, 3"));
  CHECK(contains(refusal(2, [](LoopOptions& o, int) { o.workers = 2; }), "workers is 2, must be 1"));
  CHECK(contains(refusal(1, [](LoopOptions& o, int) { o.workers = 3; }),
                 "accumulate is 2, must be at least the number of workers, 3"));
  CHECK(contains(refusal(2, [](LoopOptions& o, int rank) { o.seed += static_cast<std::uint64_t>(rank); }),
                 "the options of rank 1 differ from those of rank 0 (seed: "));
}

TEST_CASE("ranks with different corpora or options end before the first update, and say what differs") {
  const EncodedCorpus same = reversal_corpus(60, 5), longer = reversal_corpus(61, 5),
                      other = reversal_corpus(60, 7);
  int updates = 0;
  const auto refusal = [&](
                           const EncodedCorpus& of_rank_1,
                           const std::function<void(TrainingOptions&)>& change = [](TrainingOptions&) {}) {
    return message_of<ValueError>([&] {
      run_ranks(2, [&](const std::shared_ptr<Communicator>& communicator) {
        const bool first = communicator->rank() == 0;
        auto model = small_model(0.1);
        TrainingOptions options = options_of(2);
        options.loop.communicator = communicator;
        options.loop.max_steps = 2;
        options.batch_tokens = 60;
        if (!first) change(options);
        Recorder sink;
        Trainer trainer(model, first ? same : of_rank_1, nullptr, options, sink);
        if (first) sink.at_step = [&](index_t) { ++updates; };
        trainer.run();
      });
    });
  };
  CHECK(contains(refusal(longer),
                 "the corpus of rank 1 differs from that of rank 0 (number of pairs: 61, expected 60)"));
  CHECK(contains(refusal(other), "(as many pairs, but not the same ones)"));
  CHECK(contains(refusal(same, [](TrainingOptions& o) { o.batch_tokens = 61; }),
                 "the options of rank 1 differ from those of rank 0 (batch_tokens: 61, expected 60)"));
  const std::string two = refusal(same, [](TrainingOptions& o) {
    o.label_smoothing = 0.25;
    o.learning_rate = 0.5;
  });
  CHECK(contains(two, "label_smoothing: 0.25, expected"));
  CHECK(contains(two, "learning_rate: 0.5, expected"));
  CHECK(contains(refusal(same, [](TrainingOptions& o) { o.groups = {{.pattern = "*", .rate = 2}}; }),
                 R"((groups: [["*",2.0,-1.0]], expected []))"));
  CHECK(contains(refusal(same, [](TrainingOptions& o) { o.text.end_id = 1; }), "(text: "));
  CHECK(updates == 0);
  CHECK(refusal(same, [](TrainingOptions& o) { o.prefetch = 0; }) == "no error");
  CHECK(updates == 2);
}
