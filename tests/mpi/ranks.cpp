// mpirun -n N mpi_ranks: what N processes train has the bits of what one trains.
// mpirun -n N mpi_ranks throws: one rank throws, all end with its message.

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/train/distributed/mpi.hpp"
#include "eigenformer/train/trainer.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

int failures = 0;

void check(bool good, const char* what, int rank) {
  if (good) return;
  std::fprintf(stderr, "FAILED on rank %d: %s\n", rank, what);
  ++failures;
}

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses, norms;
  std::size_t saved = 0;
};

Outcome trained(const DistributedOptions& distributed, const std::shared_ptr<Communicator>& communicator) {
  static const EncodedCorpus corpus = reversal_corpus(150, 5), held_out = reversal_corpus(10, 6);
  const int rank = communicator == nullptr ? 0 : communicator->rank();
  auto model = small_model(0.1, 3 + static_cast<std::uint64_t>(rank));
  Recorder sink;
  Outcome outcome;
  Trainer trainer(model, corpus, &held_out,
                  {.loop = {.max_steps = 6,
                            .accumulate = 4,
                            .clip_norm = 0.5,
                            .validate_every = 3,
                            .report_every = 1,
                            .communicator = communicator,
                            .distributed = distributed},
                   .batch_tokens = 60,
                   .warmup = 4},
                  sink);
  sink.at_checkpoint = [&] {
    if (rank == 0) outcome.saved = trainer.state().tensors.size();
  };
  trainer.run();
  outcome.weights = weights_of(model);
  for (const StepReport& r : sink.steps) {
    outcome.losses.push_back(r.loss);
    outcome.norms.push_back(r.gradient_norm);
  }
  return outcome;
}

void compare(const std::shared_ptr<Communicator>& communicator) {
  const int rank = communicator->rank();
  const Outcome one = trained({}, nullptr);
  for (const bool shard : {false, true}) {
    for (const bool overlap : {false, true}) {
      const Outcome many =
          trained({.bucket_kib = 1, .overlap = overlap, .shard_optimizer = shard}, communicator);
      check(many.weights == one.weights, shard ? "weights, sharded" : "weights", rank);
      check(many.losses == one.losses && many.norms == one.norms, "losses and norms", rank);
      check(rank != 0 || many.saved == one.saved, "tensors of the state", rank);
    }
  }
  const Outcome native = trained({.reduction = Reduction::native, .bucket_kib = 1}, communicator);
  check(std::abs(native.norms[0] / one.norms[0] - 1) < 1e-6, "the norm of MPI's own sum", rank);
  check(std::abs(native.losses.back() - one.losses.back()) < 1e-5, "the losses of MPI's own sum", rank);
  std::vector<double> values{1, static_cast<double>(rank)};
  communicator->sum(std::span<double>(values));
  const int n = communicator->size();
  check(values == std::vector<double>{double(n), n * (n - 1) / 2.0}, "MPI's own sum", rank);
}

void throws(const std::shared_ptr<Communicator>& communicator) {
  const int rank = communicator->rank();
  Parameter<double> p{Tensor<double>::scalar(1)};
  Adam<double> optimizer({p.handle()});
  const std::vector<double> batches{1, 2, 3};
  int calls = 0;
  const auto loss = [&](const Context<double>& ctx, double x) {
    if (rank == 1 && ++calls == 3) throw ValueError("loss", "the third batch is bad");
    return multiply(ctx.use(p), x);
  };
  std::string message;
  try {
    train<double>({p.handle()}, loss, batches, optimizer, [](index_t) { return 0.1; },
                  {.max_steps = 10, .accumulate = 3, .communicator = communicator});
  } catch (const Error& error) {
    message = error.what();
  }
  check(message == (rank == 1 ? "[loss] the third batch is bad"
                              : "[distributed] rank 1: [loss] the third batch is bad"),
        message.c_str(), rank);
}

}  // namespace

int main(int argc, char**) {
  Runtime::instance().set_threads(1);
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  {
    const auto communicator = std::make_shared<MpiCommunicator>();
    check(communicator->concurrent(), "threads may communicate", communicator->rank());
    if (argc > 1) {
      throws(communicator);
    } else {
      compare(communicator);
    }
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
