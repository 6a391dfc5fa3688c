#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// The values of all ranks, in the order of ranks.
EIGENFORMER_IO_FUNCTION std::vector<nlohmann::json> json_of_ranks(Communicator& communicator,
                                                                  const nlohmann::json& own);

// Throws ValueError unless all ranks have the same text.
EIGENFORMER_IO_FUNCTION void require_same_on_ranks(Communicator& communicator, const char* what,
                                                   const std::string& text);

// Throws ValueError unless all ranks have the same options (the result of options_to_json()), and names those
// that differ.
EIGENFORMER_IO_FUNCTION void require_same_options(Communicator& communicator, const nlohmann::json& options);

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
    nlohmann::json names_and_shapes = nlohmann::json::array();
    std::vector<std::byte> values;
    for (const StateEntry<T>& entry : optimizer.state()) {
      std::vector<index_t> dims;
      for (index_t d = 0; d < entry.value.rank(); ++d) dims.push_back(entry.value.dim(d));
      names_and_shapes.push_back({entry.name, dims});
      const auto bytes = std::as_bytes(entry.value.span());
      values.insert(values.end(), bytes.begin(), bytes.end());
    }
    const std::vector<nlohmann::json> described = json_of_ranks(*communicator_, names_and_shapes);
    const std::vector<std::vector<std::byte>> all = communicator_->gather(values);
    gathered_.emplace();
    if (communicator_->rank() != 0) return;
    std::vector<Entries> of(names_.size() + 1);  // in the order of a single process
    for (std::size_t r = 0; r < all.size(); ++r) {
      const std::byte* from = all[r].data();
      for (const nlohmann::json& entry : described[r]) {
        const auto name = entry.at(0).get<std::string>();
        const auto dims = entry.at(1).get<std::vector<index_t>>();
        Tensor<T> value{Shape(std::span<const index_t>(dims))};
        const auto to = std::as_writable_bytes(value.span());
        std::copy(from, from + to.size(), to.begin());
        from += to.size();
        of[parameter_of(name)].push_back({name, std::move(value), {}});
      }
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

  std::shared_ptr<Communicator> communicator_;
  std::vector<int> owners_;
  std::vector<std::string> names_;
  std::optional<Entries> gathered_ = Entries{};  // before the first step there is no state
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::vector<nlohmann::json> json_of_ranks(Communicator& communicator,
                                                                  const nlohmann::json& own) {
  const std::string text = own.dump();
  std::vector<nlohmann::json> values;
  for (const std::vector<std::byte>& bytes : communicator.gather(std::as_bytes(std::span(text)), true)) {
    values.push_back(
        nlohmann::json::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  }
  return values;
}

EIGENFORMER_IO_FUNCTION void require_same_on_ranks(Communicator& communicator, const char* what,
                                                   const std::string& text) {
  const std::vector<nlohmann::json> all = json_of_ranks(communicator, text);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw ValueError("distributed",
                     {what, " of rank ", r, " differ from those of rank 0 (those of this rank: ", text, ")"});
  }
}

EIGENFORMER_IO_FUNCTION void require_same_options(Communicator& communicator, const nlohmann::json& options) {
  const std::vector<nlohmann::json> all = json_of_ranks(communicator, options);
  for (std::size_t r = 1; r < all.size(); ++r) {
    std::string differences;
    for (const auto& [name, value] : all[r].items()) {
      if (!all[0].contains(name) || all[0][name] == value) continue;
      append_listed(differences, name + ": " + value.dump() + ", expected " + all[0][name].dump());
    }
    if (differences.empty()) continue;
    throw ValueError("distributed",
                     {"the options of rank ", r, " differ from those of rank 0 (", differences, ")"});
  }
}

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
