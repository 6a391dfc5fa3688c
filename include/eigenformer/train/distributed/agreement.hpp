#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/train/distributed/communicator.hpp"

namespace eigenformer::detail {

// The conditions a rank checks between two updates.
struct Seen {
  bool stop = false;   // its stop token was set
  bool decay = false;  // its token for an early decay was set
  double seconds = 0;  // of this run, by its clock
  double limit = 0;    // seconds until its end must begin; 0: none
};

// The conditions that hold for all ranks: stop and decay if any rank does, time by the clock of rank 0.
EIGENFORMER_IO_FUNCTION Seen agree(const std::shared_ptr<Communicator>& communicator, Seen seen);

// Measures on rank 0 and broadcasts the value.
inline std::function<double()> on_rank_0(std::shared_ptr<Communicator> communicator,
                                         std::function<double()> measure) {
  return [communicator = std::move(communicator), measure = std::move(measure)] {
    return communicator->from(0, communicator->rank() == 0 ? measure() : 0.0);
  };
}

// Names and shapes.
template <class T>
std::string description_of(const std::vector<ParameterHandle<T>>& parameters) {
  std::string text;
  for (const auto& p : parameters)
    text += p->name + p->value.shape().str() + (p->frozen ? " frozen, " : ", ");
  return text;
}

// An optimizer's state that is sharded: each rank keeps the entries of its own parameters. Entries are named
// after parameters: "<name>.exp_avg".
template <class T>
class ShardedState {
 public:
  using Entries = std::vector<StateEntry<T>>;

  ShardedState(const std::vector<ParameterHandle<T>>& parameters, const std::vector<int>& owners,
               std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)), owners_(owners) {
    for (const auto& p : parameters) names_.push_back(p->name);
  }

  // Collects the entries of all ranks on rank 0 and keeps them until forget(). Collective: all ranks call it.
  void gather(const Optimizer<T>& optimizer) {
    if (gathered_) return;
    const std::vector<std::vector<std::byte>> all = communicator_->gather(bytes_of(optimizer.state()));
    gathered_.emplace();
    if (communicator_->rank() != 0) return;
    std::vector<Entries> of(names_.size() + 1);  // in the order of a single process
    for (const std::vector<std::byte>& bytes : all) {
      for (StateEntry<T>& entry : entries_of(bytes)) of[parameter_of(entry.name)].push_back(std::move(entry));
    }
    for (Entries& entries : of) {
      for (StateEntry<T>& entry : entries) gathered_->push_back(std::move(entry));
    }
  }
  void forget() { gathered_.reset(); }

  Entries state(const Optimizer<T>& optimizer) {
    if (gathered_) return *gathered_;
    gather(optimizer);
    Entries all = std::move(*gathered_);
    forget();
    return all;
  }

  // The entries of this rank's parameters, out of all entries.
  Entries own(const Entries& all) {
    gathered_.emplace(communicator_->rank() == 0 ? all : Entries{});
    Entries own;
    for (const StateEntry<T>& entry : all) {
      const std::size_t p = parameter_of(entry.name);
      // Entries of no parameter are passed on: the optimizer refuses them.
      if (p == names_.size() || owners_[p] == communicator_->rank()) own.push_back(entry);
    }
    return own;
  }

 private:
  // The parameter with the longest name that is a prefix of the entry's name.
  std::size_t parameter_of(const std::string& entry) const {
    std::size_t found = names_.size(), longest = 0;
    for (std::size_t p = 0; p < names_.size(); ++p) {
      const std::string& name = names_[p];
      if (name.size() >= longest && entry.size() > name.size() && entry[name.size()] == '.' &&
          entry.starts_with(name)) {
        found = p;
        longest = name.size();
      }
    }
    return found;
  }

  static std::vector<std::byte> bytes_of(const Entries& entries) {
    std::vector<std::byte> bytes;
    const auto put = [&](const void* data, std::size_t size) {
      const auto* from = static_cast<const std::byte*>(data);
      bytes.insert(bytes.end(), from, from + size);
    };
    const auto put_number = [&](index_t number) { put(&number, sizeof(number)); };
    for (const StateEntry<T>& entry : entries) {
      put_number(static_cast<index_t>(entry.name.size()));
      put(entry.name.data(), entry.name.size());
      put_number(entry.value.rank());
      for (index_t d = 0; d < entry.value.rank(); ++d) put_number(entry.value.dim(d));
      put(entry.value.data(), static_cast<std::size_t>(entry.value.numel()) * sizeof(T));
    }
    return bytes;
  }
  static Entries entries_of(const std::vector<std::byte>& bytes) {
    Entries entries;
    const std::byte* at = bytes.data();
    const auto take = [&](void* to, std::size_t size) {
      std::memcpy(to, at, size);
      at += size;
    };
    const auto take_number = [&] {
      index_t number = 0;
      take(&number, sizeof(number));
      return number;
    };
    while (at != bytes.data() + bytes.size()) {
      std::string name(static_cast<std::size_t>(take_number()), '\0');
      take(name.data(), name.size());
      std::vector<index_t> dims(static_cast<std::size_t>(take_number()));
      for (index_t& d : dims) d = take_number();
      Tensor<T> value{Shape(std::span<const index_t>(dims))};
      take(value.data(), static_cast<std::size_t>(value.numel()) * sizeof(T));
      entries.push_back({std::move(name), std::move(value), {}});
    }
    return entries;
  }

  std::shared_ptr<Communicator> communicator_;
  std::vector<int> owners_;
  std::vector<std::string> names_;
  std::optional<Entries> gathered_ = Entries{};  // before the first step there is no state
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION Seen agree(const std::shared_ptr<Communicator>& communicator, Seen seen) {
  if (communicator == nullptr) return seen;
  const std::vector<Seen> all = communicator->all(seen);
  Seen agreed = all[0];
  for (const Seen& rank : all) {
    agreed.stop = agreed.stop || rank.stop;
    agreed.decay = agreed.decay || rank.decay;
  }
  return agreed;
}

}  // namespace eigenformer::detail

#endif
