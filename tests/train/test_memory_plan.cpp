#include "eigenformer/train/memory_plan.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

// Sentences of 12 to 28 tokens.
EncodedCorpus corpus() {
  EncodedCorpus all;
  RandomGenerator rng(6);
  for (int i = 0; i < 400; ++i) {
    std::vector<std::int32_t> source(static_cast<std::size_t>(12 + rng.uniform_int(17)));
    std::vector<std::int32_t> target(static_cast<std::size_t>(12 + rng.uniform_int(17)));
    for (auto* side : {&source, &target}) {
      for (auto& id : *side) id = 4 + static_cast<std::int32_t>(rng.uniform_int(19));
    }
    all.source.push_back(source);
    all.target.push_back(target);
  }
  return all;
}

Seq2SeqTransformer<float> model_of(index_t d, index_t layers) {
  RandomGenerator rng(3);
  return {{.source_vocab_size = 23,
           .layer = {.d_model = d, .num_heads = 4, .dim_feedforward = 4 * d, .dropout = {0.1}},
           .encoder = {.num_layers = layers},
           .decoder = {.num_layers = layers}},
          rng};
}

TrainingOptions options(index_t batch_tokens) {
  return {.loop = {.max_steps = 2, .validate_every = 0}, .batch_tokens = batch_tokens};
}

// Peak bytes of tensors in two updates, without those that exist before.
std::size_t peak_of(Seq2SeqTransformer<float>& model, const EncodedCorpus& text, const TrainingOptions& o) {
  MemoryPool& pool = Runtime::instance().pool();
  pool.trim();
  pool.reset_peak();
  const std::size_t before = pool.statistics().bytes_in_use;
  Trainer(model, text, nullptr, o).run();
  return pool.statistics().peak_bytes - before;
}

}  // namespace

TEST_CASE("amounts of memory are read with their units") {
  CHECK(bytes_of("4096") == 4096);
  CHECK(bytes_of("2K") == 2048);
  CHECK(bytes_of("1.5G") == 3 * 512 * mib);
  CHECK(bytes_of("800MiB") == 800 * mib);
  CHECK(bytes_of("1TB") == mib * mib);
  for (const char* wrong : {"", "G", "2X", "2GG", "-1G", "0", "nan", "2Gi", "1e30"}) {
    CHECK_MESSAGE(
        contains(message_of<ValueError>([&] { (void)bytes_of(wrong); }),
                 "'" + std::string(wrong) + "' is not an amount of memory, expected one such as 800M"),
        wrong);
  }
  CHECK(MemoryPlan::text_of(310 * mib - 5) == "310 MiB");
  CHECK(MemoryPlan::text_of(1200 * mib) == "1.2 GiB");
}

TEST_CASE("a plan's batches take what it says, and an update keeps its tokens") {
  const EncodedCorpus text = corpus();
  auto model = model_of(64, 3);
  const auto before = weights_of(model);
  const TrainingOptions asked = options(2048);
  const MemoryPlan whole = plan_memory(model, text, asked, std::size_t{1} << 40);
  CHECK(weights_of(model) == before);
  CHECK(whole.batch_tokens == 2048);
  CHECK(whole.accumulate == 1);
  CHECK(!whole.checkpoint_activations);

  bool checkpoints = false, parts = false;
  std::string last;
  for (std::size_t limit = whole.bytes; limit > 4 * mib; limit -= 4 * mib) {
    std::optional<MemoryPlan> plan;
    try {
      plan = plan_memory(model, text, asked, limit);
    } catch (const ValueError&) {
      break;
    }
    CHECK(plan->bytes <= limit);
    CHECK(plan->batch_tokens * plan->accumulate == 2048);
    const std::string batches = plan->str().substr(0, plan->str().find(':'));
    if (batches == last) continue;
    last = batches;
    checkpoints = checkpoints || plan->checkpoint_activations;
    parts = parts || plan->accumulate > 1;
    TrainingOptions o = asked;
    plan->apply(o);
    const std::size_t peak = peak_of(model, text, o);
    const std::size_t planned = plan->bytes - plan->process;
    MESSAGE(plan->str() << "; beside the process " << planned / 1024 << " KiB, measured " << peak / 1024
                        << " KiB");
    CHECK(peak <= planned);
    CHECK(3 * peak + 16 * mib > planned);  // 16 MiB are for what is not measured
  }
  CHECK(parts);
  CHECK(checkpoints);
}

TEST_CASE("what cannot fit is refused with numbers, and so are batches that cannot change") {
  const EncodedCorpus text = corpus();
  auto model = model_of(16, 1);
  const std::string message =
      message_of<ValueError>([&] { (void)plan_memory(model, text, options(512), mib); });
  CHECK(contains(
      message, "[memory] training within 1 MiB of memory is not possible: the smallest batches take about "));
  CHECK(contains(message, "without batches, gradients and moments"));
  CHECK(contains(message_of<ValueError>([&] { (void)plan_memory(model, text, options(512), mib, true); }),
                 "its batches take"));
  const MemoryPlan fixed = plan_memory(model, text, options(512), std::size_t{1} << 40, true);
  CHECK(fixed.batch_tokens == 512);
}
