#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/kernels/simd/isa.hpp"
#include "eigenformer/train/distributed/reducer.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer::detail {

// Throws ValueError unless all ranks have the same text.
EIGENFORMER_IO_FUNCTION void require_same_on_ranks(Communicator& communicator, const char* what,
                                                   const std::string& text);

// Throws ValueError unless all ranks have the same options (the result of options_to_json()), and names those
// that differ.
EIGENFORMER_IO_FUNCTION void require_same_options(Communicator& communicator, const nlohmann::json& options);

// Accumulates an update on N ranks: rank r computes micro-batches r, r + N, r + 2N ...
template <class T>
class RankAccumulator final : public Accumulator<T> {
 public:
  RankAccumulator(const Gradients<T>& gradients, std::shared_ptr<Communicator> communicator,
                  const DistributedOptions& options, std::vector<int> owners)
      : communicator_(std::move(communicator)),
        options_(options),
        owners_(std::move(owners)),
        part_(zeros_like(gradients)),
        reducer_(gradients, communicator_, options, owners_) {
    if (options.reduction != Reduction::fixed_order) local_ = zeros_like(gradients);
  }

  UpdateLoss add(Updates<T>& batches, const PassOptions& pass, Gradients<T>& gradients) override {
    const index_t n = communicator_->size(), me = communicator_->rank(), count = batches.size();
    const auto rounds = static_cast<std::size_t>((count + n - 1) / n);
    std::vector<index_t> own;
    for (index_t k = me; k < count; k += n) own.push_back(k);

    std::vector<double> shares(rounds);
    for (std::size_t a = 0; a < own.size(); ++a) shares[a] = batches.weight(own[a]);
    UpdateLoss sum;
    sum.weight = in_order(shares);
    require_weight(sum.weight);
    std::vector<UpdateLoss> losses(own.size());
    const auto forward = [&](std::size_t a) {
      return micro_batch_loss(batches, own[a], sum.weight, pass, tape_, losses[a]);
    };
    if (options_.reduction == Reduction::fixed_order) {
      for (std::size_t a = 0; a < rounds; ++a) {
        const Var<T> loss = a < own.size() ? forward(a) : Var<T>();
        const index_t active = std::min(n, count - static_cast<index_t>(a) * n);
        reducer_.begin(part_, gradients, static_cast<int>(active), a == 0, a + 1 == rounds);
        part_.zero();
        if (a < own.size()) tape_.backward(loss, part_, tell_);
        reducer_.end();
      }
    } else {
      local_.zero();
      for (std::size_t a = 0; a + 1 < own.size(); ++a) {
        const Var<T> loss = forward(a);
        backward_locally(loss, a == 0, {});
      }
      const Var<T> loss = own.empty() ? Var<T>() : forward(own.size() - 1);
      reducer_.begin(local_, gradients, static_cast<int>(std::min(n, count)), true, true);
      if (!own.empty()) backward_locally(loss, own.size() == 1, tell_);
      reducer_.end();
    }
    reducer_.wait();
    add_losses(losses, count, sum);
    return sum;
  }

  // With a sharded optimizer each rank has the gradients of its own parameters: the ranks exchange their sums
  // of squares.
  double norm(const Gradients<T>& gradients) override {
    if (owners_.empty()) return global_norm(gradients);
    const std::size_t entries = gradients.entries().size();
    std::vector<double> squares(entries);
    for (std::size_t e = 0; e < entries; ++e) {
      const auto& entry = gradients.entries()[e];
      if (entry.written) squares[e] = kernels::sum_of_squares<T>(entry.value.data(), entry.value.numel());
    }
    const std::vector<double> all = communicator_->all(std::span<const double>(squares));
    double sum = 0;
    for (std::size_t e = 0; e < entries; ++e) {
      if (owners_[e] >= 0) sum += all[static_cast<std::size_t>(owners_[e]) * entries + e];
    }
    return std::sqrt(sum);
  }

  void stepped() override {
    if (!owners_.empty()) reducer_.share_weights();
  }

 private:
  void backward_locally(const Var<T>& loss, bool first, const typename Tape<T>::OnComplete& complete) {
    if (first) {
      tape_.backward(loss, local_, complete);
    } else {
      add_backward(loss, tape_, part_, local_, complete);
    }
  }

  // Adds the losses of all ranks' batches, in the order of batches.
  void add_losses(const std::vector<UpdateLoss>& own, index_t count, UpdateLoss& sum) {
    std::vector<std::byte> bytes;
    const auto put = [&](const void* data, std::size_t size) {
      const auto* from = static_cast<const std::byte*>(data);
      bytes.insert(bytes.end(), from, from + size);
    };
    for (const UpdateLoss& batch : own) {
      put(&batch.loss, sizeof(double));
      const std::size_t parts = batch.parts.sums().size();
      put(&parts, sizeof(parts));
      for (const LossPart& part : batch.parts.sums()) {
        const std::size_t length = part.name.size();
        put(&length, sizeof(length));
        put(part.name.data(), length);
        put(&part.value, sizeof(double));
      }
    }
    const std::vector<std::vector<std::byte>> all = communicator_->all_of(bytes);
    std::vector<std::size_t> at(all.size());
    for (index_t k = 0; k < count; ++k) {
      const auto r = static_cast<std::size_t>(k) % all.size();
      const auto take = [&](void* to, std::size_t size) {
        std::memcpy(to, all[r].data() + at[r], size);
        at[r] += size;
      };
      UpdateLoss batch;
      take(&batch.loss, sizeof(double));
      std::size_t parts = 0;
      for (take(&parts, sizeof(parts)); parts > 0; --parts) {
        std::size_t length = 0;
        take(&length, sizeof(length));
        std::string name(length, ' ');
        take(name.data(), length);
        double value = 0;
        take(&value, sizeof(value));
        batch.parts.add(name, value);
      }
      sum.add(batch);
    }
  }

  // Sums a value per micro-batch over all ranks, in the order of micro-batches.
  double in_order(const std::vector<double>& own) {
    const std::vector<double> all = communicator_->all(std::span<const double>(own));
    double sum = 0;
    for (std::size_t a = 0; a < own.size(); ++a) {
      for (std::size_t r = 0; r < all.size() / own.size(); ++r) sum += all[r * own.size() + a];
    }
    return sum;
  }

  std::shared_ptr<Communicator> communicator_;
  DistributedOptions options_;
  std::vector<int> owners_;
  Tape<T> tape_;
  Gradients<T> part_, local_;
  Reducer<T> reducer_;
  typename Tape<T>::OnComplete tell_ = [this](typename Gradients<T>::Entry& e) { reducer_.complete(e); };
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION void require_same_on_ranks(Communicator& communicator, const char* what,
                                                   const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  const std::vector<std::uint64_t> all = communicator.all(hash);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw ValueError("distributed",
                     {what, " of rank ", r, " differ from those of rank 0 (those of this rank: ", text, ")"});
  }
}

EIGENFORMER_IO_FUNCTION void require_same_options(Communicator& communicator, const nlohmann::json& options) {
  const std::string own = options.dump();
  const std::vector<std::vector<std::byte>> all = communicator.all_of(std::as_bytes(std::span(own)));
  const auto options_of = [&](std::size_t rank) {
    return nlohmann::json::parse(
        std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size()));
  };
  const nlohmann::json expected = options_of(0);
  for (std::size_t r = 1; r < all.size(); ++r) {
    const nlohmann::json other = options_of(r);
    std::string differences;
    for (const auto& [name, value] : other.items()) {
      if (!expected.contains(name) || expected[name] == value) continue;
      differences += (differences.empty() ? "" : ", ") + name + ": " + value.dump() + ", expected " +
                     expected[name].dump();
    }
    if (differences.empty()) continue;
    throw ValueError("distributed",
                     {"the options of rank ", r, " differ from those of rank 0 (", differences, ")"});
  }
}

}  // namespace eigenformer::detail

#endif
