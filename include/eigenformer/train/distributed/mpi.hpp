#pragma once

// MPI's deprecated C++ bindings are not used here and cause warnings.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "eigenformer/train/distributed/communicator.hpp"

namespace eigenformer {

/// Connects ranks that are MPI processes, started by mpirun. While a rank waits it sleeps between polls,
/// which leaves the cores to computation. Calls of several threads are serialised.
///
///     const auto communicator = std::make_shared<ef::MpiCommunicator>();
///     ef::Trainer trainer(model, corpus, nullptr,
///                         {.loop = {.max_steps = 1000, .accumulate = 8, .communicator = communicator}});
class MpiCommunicator final : public Communicator {
 public:
  /// Initialises MPI unless the program has done so; the destructor finalises what the constructor
  /// initialised. Throws IoError when an MPI call fails.
  MpiCommunicator() {
    int initialized = 0, level = MPI_THREAD_SINGLE;
    check("MPI_Initialized", MPI_Initialized(&initialized));
    if (initialized == 0) {
      check("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level));
      owns_ = true;
    } else {
      check("MPI_Query_thread", MPI_Query_thread(&level));
    }
    concurrent_ = level >= MPI_THREAD_SERIALIZED;
    check("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &ranks_));
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    check("MPI_Comm_rank", MPI_Comm_rank(ranks_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(ranks_, &size_));
  }
  /// Frees the communicator and finalises MPI if the constructor initialised it. After fail() it does
  /// neither: that could wait for other ranks forever.
  ~MpiCommunicator() override {
    if (failed_) return;
    MPI_Comm_free(&ranks_);
    if (owns_) MPI_Finalize();
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  bool concurrent() const noexcept override { return concurrent_; }

  /// The number of ranks on this rank's machine, this one included. Collective. Throws IoError when an MPI
  /// call fails.
  int ranks_on_this_machine() {
    MPI_Comm machine = MPI_COMM_NULL;
    int size = 1;
    check("MPI_Comm_split_type",
          MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine));
    check("MPI_Comm_size", MPI_Comm_size(machine, &size));
    MPI_Comm_free(&machine);
    return size;
  }

  void exchange(std::span<const std::span<const std::byte>> send,
                std::span<const std::span<std::byte>> receive) override {
    Requests requests(*this);
    for (int r = 0; r < size_; ++r) {
      const std::span<std::byte> to = receive[static_cast<std::size_t>(r)];
      if (r == rank_) {
        const std::span<const std::byte> own = send[static_cast<std::size_t>(r)];
        if (own.size() != to.size()) {
          throw ValueError("exchange",
                           {"rank ", r, " sends itself ", own.size(), " bytes and expects ", to.size()});
        }
        if (!own.empty()) std::memmove(to.data(), own.data(), own.size());
        continue;
      }
      for (std::size_t at = 0; at < to.size(); at += most) {
        requests.add("MPI_Irecv", [&](MPI_Request* request) {
          return MPI_Irecv(to.data() + at, length(to.size() - at), MPI_BYTE, r, data_tag, ranks_, request);
        });
      }
    }
    // Start after the own rank, so that ranks do not all send to rank 0 first.
    for (int i = 1; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      const std::span<const std::byte> from = send[static_cast<std::size_t>(r)];
      for (std::size_t at = 0; at < from.size(); at += most) {
        requests.add("MPI_Isend", [&](MPI_Request* request) {
          return MPI_Isend(from.data() + at, length(from.size() - at), MPI_BYTE, r, data_tag, ranks_,
                           request);
        });
      }
    }
    requests.wait();
  }

  void sum(std::span<float> values) override { sum_by_mpi(values, MPI_FLOAT); }
  void sum(std::span<double> values) override { sum_by_mpi(values, MPI_DOUBLE); }

  void fail(const std::string& message) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (failed_) return;
      failed_ = true;
      failure_ = message;
      for (int r = 0; r < size_; ++r) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (r == rank_) continue;
        MPI_Isend(failure_.data(), length(failure_.size()), MPI_CHAR, r, failure_tag, ranks_, &request);
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
      }
    } catch (...) {  // the other ranks are ended by mpirun
      return;
    }
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 30;  // bytes of a message, whose length is an int
  static constexpr int data_tag = 0, failure_tag = 1;

  static int length(std::size_t size) { return static_cast<int>(std::min(size, most)); }

  static void check(const char* call, int code) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int size = 0;
    if (MPI_Error_string(code, text, &size) != MPI_SUCCESS) size = 0;
    throw IoError("mpi", {call, " failed: ", std::string(text, static_cast<std::size_t>(size))});
  }

  // Pending operations, cancelled by the destructor: MPI may write to their memory until they have ended.
  class Requests {
   public:
    explicit Requests(MpiCommunicator& communicator) : communicator_(communicator) {}
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;
    ~Requests() {
      const std::lock_guard lock(communicator_.mutex_);
      for (MPI_Request& request : requests_) {
        if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS) MPI_Request_free(&request);
      }
    }

    template <class Start>
    void add(const char* call, Start&& start) {
      const std::lock_guard lock(communicator_.mutex_);
      requests_.push_back(MPI_REQUEST_NULL);
      check(call, start(&requests_.back()));
    }

    void wait() {
      for (int polls = 0;; ++polls) {
        {
          const std::lock_guard lock(communicator_.mutex_);
          int done = 0;
          check("MPI_Testall", MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                                           MPI_STATUSES_IGNORE));
          if (done != 0) return;
          if (polls % 16 == 15) communicator_.throw_if_failed();
        }
        if (polls < 500) {
          std::this_thread::yield();
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(polls < 5000 ? 20 : 200));
        }
      }
    }

   private:
    MpiCommunicator& communicator_;
    std::vector<MPI_Request> requests_;
  };

  // Throws the failure of this rank or another. The mutex is held.
  void throw_if_failed() {
    if (failed_) throw IoError("distributed", {"rank ", rank_, ": ", failure_});
    int there = 0;
    MPI_Status status;
    check("MPI_Iprobe", MPI_Iprobe(MPI_ANY_SOURCE, failure_tag, ranks_, &there, &status));
    if (there == 0) return;
    int size = 0;
    MPI_Get_count(&status, MPI_CHAR, &size);
    std::string text(static_cast<std::size_t>(size), ' ');
    check("MPI_Recv",
          MPI_Recv(text.data(), size, MPI_CHAR, status.MPI_SOURCE, failure_tag, ranks_, MPI_STATUS_IGNORE));
    throw IoError("distributed", {"rank ", status.MPI_SOURCE, ": ", text});
  }

  template <class V>
  void sum_by_mpi(std::span<V> values, MPI_Datatype type) {
    for (std::size_t at = 0; at < values.size(); at += most) {
      Requests requests(*this);
      requests.add("MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, values.data() + at, length(values.size() - at), type, MPI_SUM,
                              ranks_, request);
      });
      requests.wait();
    }
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool owns_ = false, concurrent_ = false;
  std::mutex mutex_;  // one thread calls MPI at a time
  bool failed_ = false;
  std::string failure_;
};

}  // namespace eigenformer
