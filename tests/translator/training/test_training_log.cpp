#include <filesystem>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

#include "eigenformer/version.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"
#include "translator/training/training_log.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> events(const std::vector<nlohmann::json>& lines) {
  std::vector<std::string> all;
  for (const auto& line : lines) all.push_back(line.at("event").get<std::string>() + line.at("step").dump());
  return all;
}

StepReport step(index_t n, double weight = 10) {
  StepReport r;
  r.step = n;
  r.loss = 2;
  r.weight = weight;
  r.seconds = static_cast<double>(n);
  return r;
}

}  // namespace

TEST_CASE("TrainingLog: what a training tells, a line each, and passed on") {
  const TemporaryFolder folder;
  const auto path = training_log_file(folder / "model");
  const EncodedCorpus corpus = reversal_corpus(200, 1), validation = reversal_corpus(20, 2);
  auto model = small_model(0.1);
  Recorder sink;
  TrainingLog log(path, sink);
  Trainer trainer(model, corpus, &validation,
                  {.loop = {.max_steps = 6, .validate_every = 4, .report_every = 2}, .batch_tokens = 60},
                  log);
  log.on_notice("before the start");
  CHECK(!std::filesystem::exists(path));
  log.start({{"settings", {{"batch_tokens", 60}}}});
  log.end(trainer.run());
  CHECK(sink.steps.size() == 3);
  CHECK(sink.validations.size() == 2);
  CHECK(sink.best > 0);
  CHECK(sink.checkpoints > 0);

  const TrainingLogLines read = read_training_log(path);
  CHECK(read.bytes == std::filesystem::file_size(path));
  CHECK(events(read.lines) == std::vector<std::string>{"start0", "notice0", "step2", "step4", "validation4",
                                                       "step6", "validation6", "end6"});
  CHECK(read.lines[0].at("settings").at("batch_tokens") == 60);
  CHECK(read.lines[0].at("version") == version_string());
  CHECK(read.lines[0].at("format") == 1);
  CHECK(read.lines[0].at("resumed") == false);
  CHECK(contains(read.lines[1].at("text").get<std::string>(), "warm-up"));
  CHECK(read.lines[2].at("loss").get<double>() == doctest::Approx(sink.steps[0].loss));
  CHECK(read.lines[2].at("objective").get<double>() == doctest::Approx(sink.steps[0].objective));
  CHECK(read.lines[2].at("learning_rate").get<double>() == sink.steps[0].learning_rate);
  CHECK(read.lines[5].at("tokens").get<double>() ==
        sink.steps[0].weight + sink.steps[1].weight + sink.steps[2].weight);
  CHECK(sink.steps[0].weight > 60);
  CHECK(read.lines[4].at("measures").at("loss").get<double>() == doctest::Approx(sink.validations[0].value));
  CHECK(read.lines[4].at("by") == "loss");
  CHECK(read.lines[4].at("best") == true);
  CHECK(read.lines[7].at("reason") == "max_steps");
  double last = 0;
  for (const auto& line : read.lines) {
    CHECK(line.at("time").get<std::string>().size() == 24);
    CHECK(line.at("seconds").get<double>() >= last);
    last = line.at("seconds").get<double>();
  }
}

TEST_CASE("TrainingLog: seconds never decrease, though reports count from the start of the loop") {
  const TemporaryFolder folder;
  const auto path = folder / "log.jsonl";
  TrainingLog log(path, TrainingSink::silent());
  log.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  log.on_notice("late");
  StepReport report = step(1);
  report.seconds = 0.001;
  log.on_step(report);
  const TrainingLogLines read = read_training_log(path);
  CHECK(read.lines[1].at("seconds").get<double>() >= 0.005);
  CHECK(read.lines[2].at("seconds") == read.lines[1].at("seconds"));
}

TEST_CASE("TrainingLog: after a resume the lines of updates that are made again are gone") {
  const TemporaryFolder folder;
  const auto path = folder / "log.jsonl";
  {
    TrainingLog log(path, TrainingSink::silent());
    log.start();
    for (index_t n = 1; n <= 5; ++n) log.on_step(step(n));
  }  // killed
  std::ofstream(path, std::ios::app) << "{\"event\":\"st";
  TrainingLog log(path, TrainingSink::silent());
  log.start({}, 3);
  log.on_step(step(4, 7));
  log.end("out of luck");
  const auto lines = read_training_log(path).lines;
  CHECK(events(lines) ==
        std::vector<std::string>{"start0", "step1", "step2", "step3", "start3", "step4", "end4"});
  CHECK(lines[4].at("resumed") == true);
  CHECK(lines[5].at("tokens") == 37);
  CHECK(lines[5].at("seconds").get<double>() == 7);  // 3 of the first run, 4 of this one
  CHECK(lines[6].at("reason") == "out of luck");

  TrainingLog other(path, TrainingSink::silent());
  other.start();  // not resumed
  CHECK(events(read_training_log(path).lines) == std::vector<std::string>{"start0"});
  std::filesystem::remove(path);
  TrainingLog lost(path, TrainingSink::silent());
  lost.start({}, 8);
  CHECK(events(read_training_log(path).lines) == std::vector<std::string>{"start8"});
}

TEST_CASE("TrainingLog: another training's log stays until the first save") {
  const TemporaryFolder folder;
  const auto path = folder / "log.jsonl";
  const std::string old = "{\"event\":\"start\",\"step\":0,\"seconds\":0}\n";
  std::ofstream(path) << old;
  TrainingLog log(path, TrainingSink::silent());
  log.start_when_saved({{"pairs", 5}});
  log.on_step(step(1));
  log.on_checkpoint();  // of what is no better than the model that is there
  CHECK(text_of(path) == old);
  log.on_best();
  CHECK(text_of(path) == old);
  log.on_checkpoint();
  CHECK(events(read_training_log(path).lines) == std::vector<std::string>{"start0", "step1"});
  log.on_step(step(2));
  log.on_best();
  log.on_checkpoint();
  const auto lines = read_training_log(path).lines;
  CHECK(events(lines) == std::vector<std::string>{"start0", "step1", "step2"});
  CHECK(lines[0].at("pairs") == 5);
}

TEST_CASE("TrainingLog: of a damaged log the lines before the damage stay") {
  const TemporaryFolder folder;
  const auto path = folder / "log.jsonl";
  {
    TrainingLog log(path, TrainingSink::silent());
    log.start();
    log.on_step(step(1));
  }
  std::ofstream(path, std::ios::app) << "[]\n{\"event\":\"step\",\"step\":2,\"seconds\":1}\n";
  CHECK(contains(message_of<IoError>([&] { (void)read_training_log(path); }), "line 3"));
  TrainingLog log(path, TrainingSink::silent());
  log.start({}, 2);
  CHECK(events(read_training_log(path).lines) == std::vector<std::string>{"start0", "step1", "start2"});
}

TEST_CASE("TrainingLog: translations that are no UTF-8, numbers that are none") {
  const TemporaryFolder folder;
  const auto path = folder / "log.jsonl";
  TrainingLog log(path, TrainingSink::silent());
  log.start();
  ValidationReport r;
  r.step = 3;
  r.name = "bleu";
  r.value = 12.5;
  r.others = {{"loss", std::nan("")}};
  r.samples = {{"a\nb", "\"c\"", "\xff"}};
  log.on_validation(r);
  const auto line = read_training_log(path).lines.at(1);
  CHECK(line.at("measures").at("bleu") == 12.5);
  CHECK(line.at("measures").at("loss").is_null());
  CHECK(line.at("samples").at(0).at("source") == "a\nb");
  CHECK(line.at("samples").at(0).at("output") == "\xef\xbf\xbd");
}

TEST_CASE("TrainingLog: on a full disk lines are lost, and one notice says so") {
  const TemporaryFolder folder;
  const auto path = folder / "log.jsonl";
  Recorder sink;
  TrainingLog log(path, sink);
  log.start();
  log.on_step(step(1));
  const auto size = std::filesystem::file_size(path);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{size + 20, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  log.on_step(step(2));
  log.on_step(step(3));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK(std::filesystem::file_size(path) == size);
  REQUIRE(sink.notices.size() == 1);
  CHECK(contains(sink.notices[0], "log.jsonl"));
  CHECK(sink.steps.size() == 3);
  log.on_step(step(4));
  CHECK(events(read_training_log(path).lines) == std::vector<std::string>{"start0", "step1", "step4"});
  CHECK(text_of(path).ends_with("}\n"));
}
