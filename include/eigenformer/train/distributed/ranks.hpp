#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/train/distributed/agreement.hpp"
#include "eigenformer/train/distributed/reducer.hpp"
#include "eigenformer/train/step/updates.hpp"

namespace eigenformer::detail {

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
      for (std::size_t a = 0; a + 1 < own.size(); ++a) add_backward(a == 0, forward(a), tape_, part_, local_);
      const Var<T> loss = own.empty() ? Var<T>() : forward(own.size() - 1);
      reducer_.begin(local_, gradients, static_cast<int>(std::min(n, count)), true, true);
      if (!own.empty()) add_backward(own.size() == 1, loss, tape_, part_, local_, tell_);
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
  // Adds the losses of all ranks' batches, in the order of batches.
  void add_losses(const std::vector<UpdateLoss>& own, index_t count, UpdateLoss& sum) {
    // As bits, because JSON has no NaN.
    const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
    const auto number = [](const nlohmann::json& of) {
      return std::bit_cast<double>(of.get<std::uint64_t>());
    };
    nlohmann::json losses = nlohmann::json::array();
    for (const UpdateLoss& batch : own) {
      nlohmann::json parts = nlohmann::json::array();
      for (const Measured& part : batch.parts.sums()) parts.push_back({part.name, bits(part.value)});
      losses.push_back({bits(batch.loss), std::move(parts)});
    }
    const std::vector<nlohmann::json> all = json_of_ranks(*communicator_, losses);
    for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
      const nlohmann::json& of_batch = all[k % all.size()].at(k / all.size());
      UpdateLoss batch;
      batch.loss = number(of_batch.at(0));
      for (const nlohmann::json& part : of_batch.at(1))
        batch.parts.add(part.at(0).get<std::string>(), number(part.at(1)));
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
