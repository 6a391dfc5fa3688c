#include "translator/training/memory_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "eigenformer/train/distributed/thread_communicator.hpp"
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

// Peak bytes of tensors in a training, without those that exist before.
std::size_t peak_of(Seq2SeqTransformer<float>& model, const EncodedCorpus& text, const TrainingOptions& o) {
  MemoryPool& pool = Runtime::instance().pool();
  pool.trim();
  pool.reset_peak();
  const std::size_t before = pool.statistics().bytes_in_use;
  Trainer(model, text, nullptr, o).run();
  return pool.statistics().peak_bytes - before;
}

// Trains, and checks that a plan has enough memory. Returns the peak.
std::size_t check_peak(const MemoryPlan& plan, Seq2SeqTransformer<float>& model, const EncodedCorpus& text,
                       const TrainingOptions& o) {
  const std::size_t peak = peak_of(model, text, o), planned = plan.bytes - plan.process;
  MESSAGE(plan.str() << "; beside the process " << planned / 1024 << " KiB, measured " << peak / 1024
                     << " KiB");
  CHECK(peak <= planned);
  return peak;
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
  std::size_t process = whole.process;  // may grow between plans, with a sanitizer by a lot
  for (std::size_t beside = whole.bytes - whole.process; beside > 4 * mib; beside -= 4 * mib) {
    const std::size_t limit = process + beside;
    std::optional<MemoryPlan> plan;
    try {
      plan = plan_memory(model, text, asked, limit);
    } catch (const ValueError&) {
      continue;
    }
    process = plan->process;
    CHECK(plan->bytes <= limit);
    CHECK(plan->batch_tokens * plan->accumulate == 2048);
    const std::string batches = plan->str().substr(0, plan->str().find(':'));
    if (batches == last) continue;
    last = batches;
    checkpoints = checkpoints || plan->checkpoint_activations;
    parts = parts || plan->accumulate > 1;
    TrainingOptions o = asked;
    plan->apply(o);
    const std::size_t peak = check_peak(*plan, model, text, o);
    CHECK(3 * peak + 16 * mib > plan->bytes - plan->process);  // 16 MiB are for what is not measured
  }
  CHECK(parts);
  CHECK(checkpoints);
}

TEST_CASE("what cannot fit is refused with numbers, and so are batches that cannot change") {
  const EncodedCorpus text = corpus();
  auto model = model_of(16, 1);
  const std::string message =
      message_of<ValueError>([&] { (void)plan_memory(model, text, options(512), mib); });
  CHECK(contains(message, "[memory] training within 1 MiB of memory is not possible: it takes about "));
  CHECK(contains(message, "with the smallest batches ("));
  // The limit, the whole and what does not depend on batches: each once.
  std::size_t amounts = 0;
  for (std::size_t at = 0; (at = message.find(" MiB", at)) != std::string::npos; at += 4) ++amounts;
  CHECK(amounts == 3);
  CHECK(contains(message_of<ValueError>([&] { (void)plan_memory(model, text, options(512), mib, true); }),
                 "with its batches ("));
  const MemoryPlan fixed = plan_memory(model, text, options(512), std::size_t{1} << 40, true);
  CHECK(fixed.batch_tokens == 512);
}

TEST_CASE("averaged weights are a part of the plan: the best, the last, and a moving average") {
  const EncodedCorpus text = corpus();
  auto model = model_of(128, 2);
  std::size_t weights = 0;
  for (const auto& p : parameters(model))
    weights += static_cast<std::size_t>(p->value.numel()) * sizeof(float);
  // Without the process, whose size changes by itself.
  const auto lasting = [&](const TrainingOptions& o) {
    const MemoryPlan plan = plan_memory(model, text, o, std::size_t{1} << 40);
    return plan.lasting - plan.process;
  };
  const TrainingOptions plain = options(64);
  TrainingOptions last = plain, best = plain, moving = plain, both = plain;
  last.loop.average_last = 7;
  best.loop.average_best = 7;
  moving.loop.ema_decay = 0.9;
  // What a backward leaves in the pool differs by some bytes from run to run.
  const auto is_about = [&](std::size_t bytes, std::size_t expected) {
    CHECK(std::max(bytes, expected) - std::min(bytes, expected) < weights / 100);
  };
  is_about(lasting(last), lasting(plain) + 9 * weights);
  is_about(lasting(best), lasting(plain) + 9 * weights);
  is_about(lasting(moving), lasting(plain) + weights);
  // A frozen parameter has no moving average.
  moving.frozen = "encoder.*";
  TrainingOptions frozen = plain;
  frozen.frozen = "encoder.*";
  CHECK(lasting(moving) < lasting(frozen) + weights);

  both.loop = {.max_steps = 8, .validate_every = 1, .average_best = 7, .ema_decay = 0.9};
  double worse = 0;
  both.loop.validation.measure = [&] { return worse += 1; };
  for (const auto& p : parameters(model)) p->frozen = false;
  const MemoryPlan plan = plan_memory(model, text, both, std::size_t{1} << 40);
  check_peak(plan, model, text, both);
}

TEST_CASE("a plan for LoRA is that of the adapter, which the model does not keep") {
  const EncodedCorpus text = corpus();
  auto model = model_of(128, 2);
  const auto all = parameters(model);
  all[1]->frozen = true;
  std::size_t weights = 0;
  for (const auto& p : all) weights += static_cast<std::size_t>(p->value.numel()) * sizeof(float);
  TrainingOptions o = options(64);
  o.lora.rank = 2;
  const MemoryPlan plan = plan_memory(model, text, o, std::size_t{1} << 40);
  // Moments and gradients of the whole model would be three times its weights.
  CHECK(plan.lasting - plan.process < weights);
  CHECK(lora_parameters(model).empty());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i]->frozen == (i == 1));
  check_peak(plan, model, text, o);
  // The same for an adapter that is there already.
  TrainingOptions attached = o;
  attached.lora.rank = 0;
  const MemoryPlan same = plan_memory(model, text, attached, std::size_t{1} << 40);
  CHECK(same.lasting - same.process < weights);
  CHECK(!lora_parameters(model).empty());
}

TEST_CASE("ranks of different sizes agree on a plan that is within the limit of each") {
  MemoryPlan parts{.batch_tokens = 256, .accumulate = 8, .process = 700, .bytes = 900, .lasting = 800};
  const MemoryPlan checkpoints{
      .batch_tokens = 2048, .accumulate = 1, .checkpoint_activations = true, .process = 720, .bytes = 850};
  const MemoryPlan both = MemoryPlan::of_all(std::vector{parts, checkpoints});
  CHECK(both.batch_tokens == 256);
  CHECK(both.accumulate == 8);
  CHECK(both.checkpoint_activations);
  CHECK(both.process == 720);
  CHECK(both.bytes == 900);
  CHECK(both.lasting == 800);
  CHECK_THROWS_AS((void)MemoryPlan::of_all({}), ValueError);
}

TEST_CASE("gradients of small matrices are a part of the plan") {
  const EncodedCorpus text = corpus();
  auto model = model_of(64, 4);  // its largest matrix has less than MemoryPool::large
  std::size_t weights = 0;
  for (const auto& p : parameters(model))
    weights += static_cast<std::size_t>(p->value.numel()) * sizeof(float);
  for (const index_t accumulate : {index_t{1}, index_t{2}}) {
    CAPTURE(accumulate);
    TrainingOptions o = options(64);
    o.loop.accumulate = accumulate;
    const MemoryPlan plan = plan_memory(model, text, o, std::size_t{1} << 40);
    // Adam's moments and the gradients.
    CHECK(plan.lasting - plan.process >= 3 * weights);
    check_peak(plan, model, text, o);
  }
}

TEST_CASE("a rank's gradients of a batch and its sums are a part of the plan") {
  const EncodedCorpus text = corpus();
  auto model = model_of(128, 1);
  std::size_t weights = 0;
  for (const auto& p : parameters(model))
    weights += static_cast<std::size_t>(p->value.numel()) * sizeof(float);
  TrainingOptions o = options(256);
  o.loop.accumulate = 4;
  o.loop.distributed.bucket_kib = 1;
  const auto bytes = [&] {
    const MemoryPlan plan = plan_memory(model, text, o, std::size_t{1} << 34);
    return plan.lasting - plan.process;
  };
  (void)bytes();    // what the first plan creates for good
  std::mutex turn;  // the plans share one memory pool
  std::vector<std::size_t> more(4);
  run_ranks(4, [&](const std::shared_ptr<Communicator>& communicator) {
    const std::lock_guard lock(turn);
    o.loop.communicator = nullptr;
    const std::size_t alone = bytes();
    o.loop.communicator = communicator;
    const std::size_t with_ranks = bytes();
    more[static_cast<std::size_t>(communicator->rank())] = with_ranks - alone;
  });
  for (const std::size_t of_rank : more) {
    CHECK(of_rank >= weights * 5 / 4);
    CHECK(of_rank <= weights * 5 / 4 + 3 * 1024);
  }
}
