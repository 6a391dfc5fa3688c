#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "eigenformer/train/distributed/communicator.hpp"
#include "options/train_settings.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/status_line.hpp"
#include "terminal/threads.hpp"
#include "training/train_command.hpp"
#include "training/training_folder.hpp"
#if EIGENFORMER_WITH_MPI
#include "eigenformer/train/distributed/mpi.hpp"
#endif

namespace translator {

/// The processes that mpirun started for one training; a process without mpirun is the only rank. The first
/// rank writes to the folder and to the terminal.
class TrainingRanks {
 public:
  /// Throws ValueError if there are several processes and this program has no MPI: each would train by itself
  /// in the same folder.
  explicit TrainingRanks(const TrainCommand& command) {
    const long processes = ef::processes_of_mpirun();
#if EIGENFORMER_WITH_MPI
    if (!command.mpi && processes == 1) return;
    auto communicator = std::make_shared<ef::MpiCommunicator>();
    // Ranks on one machine share its cores.
    if (command.threads == 0) {
      const long cores = static_cast<long>(std::thread::hardware_concurrency()) /
                         std::max(1, communicator->ranks_on_this_machine());
      const long allowed = ef::Runtime::default_threads();
      set_threads(std::max(1L, std::min(cores, allowed)));
    }
    communicator_ = std::move(communicator);
#else
    if (command.mpi || processes > 1) {
      throw ef::ValueError("train", {(command.mpi ? std::string("--mpi is given")
                                                  : "mpirun started " + std::to_string(processes) +
                                                        " processes for one training"),
                                     ", but this program was built without MPI; install OpenMPI or MPICH "
                                     "and build it again, or train on threads with --workers"});
    }
#endif
  }
  /// Ends the other ranks with this rank's error. Returns whether this rank must print it: an error of
  /// another rank is printed by that rank and by the first.
  bool fail(const std::exception& error) const {
    if (communicator_ == nullptr) return true;
    communicator_->fail(error.what());
    const auto* const failure = dynamic_cast<const ef::IoError*>(&error);
    return first() || failure == nullptr || failure->op() != "distributed";
  }

  bool first() const { return communicator_ == nullptr || communicator_->rank() == 0; }

  /// Divides the batches of each update among ranks; by default, a new training has as many batches per
  /// update as ranks or workers.
  void share(const TrainCommand& command, TrainSettings& settings, TerminalProgress& progress) const {
    ef::LoopOptions& loop = settings.training.loop;
    const ef::index_t ranks = communicator_ == nullptr ? 1 : communicator_->size();
    const ef::index_t least = std::max(ranks, loop.workers);
    if (!command.resume && loop.accumulate == 1 && least > 1) {
      loop.accumulate = least;
      progress.say(format("each update has %lld batches, one per %s (--accumulate %lld)",
                          static_cast<long long>(least), ranks > 1 ? "rank" : "worker",
                          static_cast<long long>(least)));
    }
    loop.communicator = communicator_;
    if (ranks > 1) progress.say("training with " + std::to_string(ranks) + " processes");
  }

  /// The part of all ranks but the first: they compute, and write nothing.
  int follow(Trainer& trainer, const TrainCommand& command, const std::stop_token& stop) const {
    if (command.resume) (void)resume(trainer, command.folder);
    return trainer.run(stop) == ef::TrainingEnd::interrupted ? interrupted_exit_code : 0;
  }

 private:
  std::shared_ptr<ef::Communicator> communicator_;
};

}  // namespace translator
