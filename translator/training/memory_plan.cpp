#include "translator/training/memory_plan.hpp"

#include <cmath>
#include <exception>
#include <string_view>

#include "eigenformer/train/distributed/communicator.hpp"

namespace eigenformer {

std::size_t bytes_of(const std::string& text) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit = text.substr(end);
  const std::size_t letter = unit.empty() ? std::string_view::npos : std::string_view("KMGT").find(unit[0]);
  const bool plain = unit.empty() || unit == "B";
  const bool scaled = letter != std::string_view::npos &&
                      (unit.size() == 1 || unit.substr(1) == "B" || unit.substr(1) == "iB");
  const double bytes = value * (scaled ? std::pow(1024.0, static_cast<double>(letter + 1)) : 1);
  if (end == 0 || !(plain || scaled) || !(bytes >= 1 && bytes < 1e18))
    throw ValueError("memory", {"'", text, "' is not an amount of memory, expected one such as 800M or 2G"});
  return static_cast<std::size_t>(bytes);
}

void MemoryPlan::apply(TrainingOptions& options) const {
  options.batch_tokens = batch_tokens;
  options.loop.accumulate = accumulate;
  options.loop.checkpoint_activations = checkpoint_activations;
}

MemoryPlan MemoryPlan::of_all(std::span<const MemoryPlan> plans) {
  if (plans.empty()) throw ValueError("memory", "there is no plan, expected at least one");
  MemoryPlan all = plans.front();
  for (const MemoryPlan& plan : plans) {
    all.batch_tokens = std::min(all.batch_tokens, plan.batch_tokens);
    all.accumulate = std::max(all.accumulate, plan.accumulate);
    all.checkpoint_activations = all.checkpoint_activations || plan.checkpoint_activations;
    all.process = std::max(all.process, plan.process);
    all.bytes = std::max(all.bytes, plan.bytes);
    all.lasting = std::max(all.lasting, plan.lasting);
  }
  return all;
}

std::string MemoryPlan::batches() const {
  return "batches of " + std::to_string(batch_tokens) + " target tokens, " + std::to_string(accumulate) +
         " per update, " + (checkpoint_activations ? "with" : "without") + " activation checkpointing";
}

std::string MemoryPlan::text_of(std::size_t bytes) {
  const double mib = static_cast<double>(bytes) / (1024.0 * 1024.0);
  if (mib < 1024) return std::to_string(static_cast<long long>(std::ceil(mib))) + " MiB";
  const auto tenths = static_cast<long long>(std::ceil(mib / 1024 * 10));
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

namespace detail {

BytesOfTokens BytesOfTokens::of(const std::array<double, 3>& bytes, double n) {
  BytesOfTokens b;
  b.source = std::max(0.0, (bytes[0] - bytes[1]) / (n / 2));
  b.target = std::max(0.0, (bytes[0] - bytes[2]) / (n / 2));
  b.rest = std::max(0.0, bytes[0] - n * (b.source + b.target));
  return b;
}

Batch probe_batch(const Batch& from, index_t sequences, index_t source_length, index_t target_length) {
  const auto repeat = [](const std::vector<std::int32_t>& ids, index_t count) {
    std::vector<std::int32_t> result(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = ids[i % ids.size()];
    return result;
  };
  const auto layout = [&](index_t length) {
    return SequenceLayout::packed(std::vector<index_t>(static_cast<std::size_t>(sequences), length));
  };
  Batch batch;
  batch.source = repeat(from.source, sequences * source_length);
  batch.target_input = repeat(from.target_input, sequences * target_length);
  batch.target_output = repeat(from.target_output, sequences * target_length);
  batch.source_layout = layout(source_length);
  batch.target_layout = layout(target_length);
  return batch;
}

std::size_t reduction_memory(const LoopOptions& options, std::size_t trained) {
  if (options.communicator == nullptr) return 0;
  const auto ranks = static_cast<std::size_t>(options.communicator->size());
  if (ranks == 1) return 0;
  const std::size_t bucket =
      std::min(trained, static_cast<std::size_t>(options.distributed.bucket_kib) << 10);
  const std::size_t sums = options.distributed.reduction == Reduction::native ? 0 : trained / ranks;
  const std::size_t local = options.distributed.reduction == Reduction::fixed_order ? 0 : trained;
  return trained + sums + local + 3 * bucket;
}

}  // namespace detail

}  // namespace eigenformer
