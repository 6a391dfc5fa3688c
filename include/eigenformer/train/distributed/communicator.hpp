#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// Connects the ranks of a distributed training: that of run_ranks(), MpiCommunicator, or a class of the
/// caller's own.
///
/// All functions but rank(), size(), concurrent() and fail() are collective: all ranks call them in the same
/// order. One thread of a rank communicates at a time; it need not always be the same one (see concurrent()).
/// Collective functions throw IoError when another rank has failed.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const noexcept = 0;  ///< the number of this process or thread, from 0
  virtual int size() const noexcept = 0;  ///< the number of ranks, at least 1

  /// Sends send[r] to each rank r and fills receive[r] with what rank r sends; both spans have size()
  /// elements. Rank a's send[b] and rank b's receive[a] must have the same number of bytes. Returns when this
  /// rank's memory may be reused.
  virtual void exchange(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive) = 0;

  /// Replaces values by their elementwise sum over all ranks, in the order that is fastest: all ranks get the
  /// same bits, which depend on the number of ranks. The span has one size on all ranks. Default: sums in the
  /// order of ranks.
  virtual void sum(std::span<float> values) { sum_in_order(values); }
  /// The same in double.
  virtual void sum(std::span<double> values) { sum_in_order(values); }

  /// Whether threads other than the one that created this object may communicate. Default: true.
  virtual bool concurrent() const noexcept { return true; }

  /// Reports to the other ranks, as far as possible, that this rank cannot go on: their pending and later
  /// collective calls throw IoError with this message. Does not wait.
  virtual void fail(const std::string& message) noexcept = 0;

  /// Overwrites `data` on all ranks with that of rank 0, which has the same size.
  void broadcast(std::span<std::byte> data);

  /// Returns the values of all ranks on all ranks, in the order of ranks.
  template <class V>
  requires(std::is_trivially_copyable_v<V>) std::vector<V> all(const V& value) {
    return all(std::span<const V>(&value, 1));
  }
  /// The same for lists, which have one length on all ranks: returns them concatenated.
  template <class V>
  requires(std::is_trivially_copyable_v<V>) std::vector<V> all(std::span<const V> values) {
    const auto n = static_cast<std::size_t>(size());
    std::vector<V> result(n * values.size());
    std::vector<std::span<const std::byte>> send(n, std::as_bytes(values));
    std::vector<std::span<std::byte>> receive;
    for (std::size_t r = 0; r < n; ++r)
      receive.push_back(std::as_writable_bytes(std::span(result).subspan(r * values.size(), values.size())));
    exchange(send, receive);
    return result;
  }

  /// Returns the data of all ranks in the order of ranks, on rank 0 or, with for_all, on all ranks; sizes may
  /// differ. On ranks that get nothing the size() elements are empty.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> data, bool for_all = false);

 private:
  template <class V>
  void sum_in_order(std::span<V> values) {
    const auto n = static_cast<std::size_t>(size());
    const auto me = static_cast<std::size_t>(rank());
    const auto piece = [&](std::size_t r) {
      const std::size_t begin = values.size() * r / n;
      return values.subspan(begin, values.size() * (r + 1) / n - begin);
    };
    std::vector<V> parts(n * piece(me).size());
    std::vector<std::span<const std::byte>> send;
    std::vector<std::span<std::byte>> receive;
    const auto part = [&](std::size_t r) {
      return std::span(parts).subspan(r * piece(me).size(), piece(me).size());
    };
    for (std::size_t r = 0; r < n; ++r) {
      send.push_back(std::as_bytes(piece(r)));
      receive.push_back(std::as_writable_bytes(part(r)));
    }
    exchange(send, receive);
    std::vector<V> total(part(0).begin(), part(0).end());
    for (std::size_t r = 1; r < n; ++r) {
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += part(r)[i];
    }
    for (std::size_t r = 0; r < n; ++r) {
      send[r] = std::as_bytes(std::span<const V>(total));
      receive[r] = std::as_writable_bytes(piece(r));
    }
    exchange(send, receive);
  }
};

/// The number of processes started together with this one by mpirun (OpenMPI, MPICH) or srun (Slurm), from
/// the environment; 1 without them.
inline long processes_of_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) return std::max(1L, std::atol(value));
  }
  return 1;
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION void Communicator::broadcast(std::span<std::byte> data) {
  const auto n = static_cast<std::size_t>(size());
  std::vector<std::span<const std::byte>> send(n);
  std::vector<std::span<std::byte>> receive(n);
  if (rank() == 0) {
    std::fill(send.begin() + 1, send.end(), std::span<const std::byte>(data));
  } else {
    receive[0] = data;
  }
  exchange(send, receive);
}

EIGENFORMER_IO_FUNCTION std::vector<std::vector<std::byte>> Communicator::gather(
    std::span<const std::byte> data, bool for_all) {
  const std::vector<std::size_t> sizes = all(data.size());
  std::vector<std::vector<std::byte>> result(sizes.size());
  std::vector<std::span<const std::byte>> send(sizes.size());
  std::vector<std::span<std::byte>> receive(sizes.size());
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (for_all || r == 0) send[r] = data;
    if (!for_all && rank() != 0) continue;
    result[r].resize(sizes[r]);
    receive[r] = result[r];
  }
  exchange(send, receive);
  return result;
}

}  // namespace eigenformer

#endif
