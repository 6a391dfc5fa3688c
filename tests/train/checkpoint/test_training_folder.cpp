#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/train/checkpoint/training_folder.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "traced_child.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

using Model = Seq2SeqTransformer<float>;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Saves a model and its training's state, as `translator train` does.
class SavingSink : public TrainingSink {
 public:
  SavingSink(const fs::path& path, const Model& model) : folder_(path), model_(model) {}
  void watch(const Trainer<Model>& trainer) { trainer_ = &trainer; }
  void on_best() override {
    folder_.stage([&](const FolderTransaction& save) { stage_model(save, model_); });
  }
  void on_checkpoint() override { folder_.save(trainer_->state()); }
  void on_decay() override { folder_.save_before_decay(trainer_->state()); }

 private:
  TrainingFolder folder_;
  const Model& model_;
  const Trainer<Model>* trainer_ = nullptr;
};

enum class Begin { anew, over_another };

/// A training with a validation, an average, a decay from update 6 on and several saves; goes on where the
/// folder holds one.
struct Training {
  EncodedCorpus corpus = reversal_corpus(40, 1), validation = reversal_corpus(6, 2);
  TrainingOptions options{.loop = {.max_steps = 7, .validate_every = 3, .average_last = 2, .seed = 3},
                          .batch_tokens = 60,
                          .learning_rate = 5e-3,
                          .warmup = 4,
                          .schedule = ScheduleKind::warmup_stable_decay};

  int run(const fs::path& folder, Begin begin, bool resume) const {
    const ThreadScope scope(1);  // threads do not come along into a forked child
    auto model = small_model(0.1f);
    SavingSink sink(folder, model);
    Trainer trainer(model, corpus, &validation, options, sink);
    sink.watch(trainer);
    if (resume) {
      resume_training(trainer, TrainingFolder::state_file(folder), TrainingFolder::before_decay_file(folder));
    } else if (begin == Begin::anew) {
      sink.on_best();
      sink.on_checkpoint();
    }
    trainer.run();
    return 0;
  }
};

struct Files {
  std::string model, state, before_decay;
  bool operator==(const Files&) const = default;
};
Files files_of(const fs::path& folder) {
  return {bytes_of(detail::folder_file(folder, "model.safetensors")),
          bytes_of(TrainingFolder::state_file(folder)), bytes_of(TrainingFolder::before_decay_file(folder))};
}

/// Kills a training at every `stride`-th system call that changes files, and checks that each folder it
/// leaves is whole and that the training goes on to the end of one that was not killed. Returns the number of
/// kills.
int kill_everywhere(Begin begin, int first, int stride) {
  const Training training;
  const TemporaryFolder base;
  const auto another = [&](const fs::path& folder) {
    if (begin != Begin::over_another) return Files{};
    auto model = small_model(0.1f, 99);
    TrainingFolder old(folder);
    old.stage([&](const FolderTransaction& save) { stage_model(save, model); });
    old.save(TrainingState<float>{{{"old", Tensor<float>::zeros({2})}}, {{"mine", 1}}});
    return files_of(folder);
  };
  const fs::path whole = base / "whole";
  another(whole);
  training.run(whole, begin, false);
  const Files expected = files_of(whole);
  for (int kill_at = first, kills = 0;; kill_at += stride) {
    CAPTURE(kill_at);
    const fs::path folder = base / ("killed-" + std::to_string(kill_at));
    const Files old = another(folder);
    const TracedEnd end = run_traced([&] { return training.run(folder, begin, false); }, kill_at);
    if (!end.killed) {
      CHECK(end.code == 0);
      CHECK(files_of(folder) == expected);
      return kills;
    }
    ++kills;
    const bool has_model = is_model_folder(folder);
    bool resume = has_model;
    if (has_model) {
      CHECK_NOTHROW(load_model_folder<Model>(folder));
      const Files now = files_of(folder);
      if (now.model == old.model || now.state == old.state) {
        CHECK(now == old);
        resume = false;
      }
    }
    training.run(folder, begin, resume);
    CHECK(files_of(folder) == expected);
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{"model.safetensors", "options.json", "training"});
    fs::remove_all(folder);
  }
}

}  // namespace

TEST_CASE("a training killed at some system calls leaves a whole folder, and goes on to the same bits") {
  CHECK(kill_everywhere(Begin::anew, 3, 31) >= 4);
  CHECK(kill_everywhere(Begin::over_another, 17, 41) >= 2);
}

TEST_CASE("a training killed at every system call leaves a whole folder, and goes on to the same bits" *
          doctest::test_suite("long")) {
  const int anew = kill_everywhere(Begin::anew, 1, 1);
  const int over_another = kill_everywhere(Begin::over_another, 1, 1);
  MESSAGE(anew << " kills of a training in a new folder, " << over_another << " over another model");
  CHECK(anew > 60);
  CHECK(over_another > 40);
}

TEST_CASE("a training with more updates goes on from the file before its decay, whichever way it ended") {
  const TemporaryFolder folder;
  const auto run = [&](const char* name, const std::vector<index_t>& limits) {
    bool resume = false;
    for (const index_t limit : limits) {
      Training training;
      training.options.loop.max_steps = limit;
      training.run(folder / name, Begin::anew, std::exchange(resume, true));
    }
    return files_of(folder / name);
  };
  const Files expected = run("whole", {20});
  CHECK(!expected.before_decay.empty());
  CHECK(run("longer", {7, 20}) == expected);
  CHECK(run("again", {7, 12, 20}) == expected);
  CHECK(run("same", {20, 20}) == expected);
}

TEST_CASE("what a save could not write leaves the last one, and is named as it would have been") {
  const TemporaryFolder folder;
  TrainingFolder training(folder / "m");
  const TrainingState<float> one{{{"a", Tensor<float>::zeros({2})}}, {{"step", 1}}};
  auto model = small_model(0);
  training.stage([&](const FolderTransaction& save) { stage_model(save, model); });
  training.save(one);
  const Files before = files_of(folder / "m");
  const std::string message = message_of<IoError>([&] {
    training.stage([](const FolderTransaction& save) {
      detail::write_file(save.file("options.json"), "{}");
      throw IoError("write", {"cannot write '", save.file("model.safetensors").string(), "': full"});
    });
  });
  CHECK(message == "[write] cannot write '" + (folder / "m/model.safetensors").string() + "': full");
  CHECK(files_of(folder / "m") == before);
  CHECK(bytes_of(folder / "m/options.json") != "{}");
  // What was staged before a failure does not come with the next save.
  training.save(one);
  CHECK(bytes_of(folder / "m/options.json") != "{}");
}

TEST_CASE("a state that is damaged or another training's is refused by the file's name") {
  const TemporaryFolder folder;
  const fs::path file = folder / "last.safetensors";
  const EncodedCorpus corpus = reversal_corpus(20, 1);
  auto model = small_model(0);
  Trainer trainer(model, corpus, nullptr, {.loop = {.max_steps = 2}, .batch_tokens = 60});
  trainer.run();
  save_training_state(file, trainer.state());
  const std::string good = bytes_of(file);
  const auto refusal = [&](const std::string& bytes) {
    detail::write_file(file, bytes);
    const std::string message = message_of<IoError>([&] { resume_training(trainer, file); });
    CHECK(contains(message, file.string()));
    return message;
  };
  // One bit of a tensor, of a value, of the header; cut off; too long; another file; nothing.
  for (const std::size_t at : {good.size() - 9, good.find("accumulate") + 13, std::size_t{20}}) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    refusal(bad);
  }
  std::string flipped = good;
  flipped[good.size() - 9] = static_cast<char>(flipped[good.size() - 9] ^ 1);
  CHECK(contains(refusal(flipped), "its checksum does not match"));
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, good.size() / 2, good.size() - 1})
    refusal(good.substr(0, size));
  refusal(good + "x");
  auto other = small_model(0);
  Trainer of_other_seed(other, corpus, nullptr, {.loop = {.max_steps = 2, .seed = 7}, .batch_tokens = 60});
  save_training_state(file, of_other_seed.state());
  CHECK(contains(refusal(bytes_of(file)), "made with seed 7"));
  detail::write_file(file, good);
  CHECK_NOTHROW(resume_training(trainer, file));
}

TEST_CASE("a training tells how large its state will be") {
  const EncodedCorpus corpus = reversal_corpus(40, 1);
  auto model = small_model(0);
  Trainer trainer(model, corpus, nullptr,
                  {.loop = {.max_steps = 6, .validate_every = 2, .average_last = 3, .ema_decay = 0.9},
                   .batch_tokens = 60});
  const std::uint64_t expected = trainer.expected_state_bytes();
  trainer.run();
  std::uint64_t real = 0;
  for (const auto& [name, tensor] : trainer.state().tensors)
    real += static_cast<std::uint64_t>(tensor.numel()) * sizeof(float);
  CHECK(expected >= real - 4 * static_cast<std::uint64_t>(trainer.state().tensors.size()));
  CHECK(expected < real + real / 50);
}
