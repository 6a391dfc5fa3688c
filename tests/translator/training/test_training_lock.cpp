#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "translator/training/training_lock.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace fs = std::filesystem;

TEST_CASE("TrainingLock: a second training in one folder is refused, by the other's process id") {
  const TemporaryFolder folder;
  const TrainingLock lock(folder / "model");
  CHECK(lock.held());
  const auto message = message_of<IoError>([&] { const TrainingLock second(folder / "model"); });
  CHECK(message.find("process " + std::to_string(::getpid())) != std::string::npos);
  CHECK(message.find((folder / "model").string()) != std::string::npos);
  CHECK_NOTHROW(TrainingLock(folder / "other"));
}

TEST_CASE("TrainingLock: what it made it removes, and nothing else") {
  const TemporaryFolder folder;
  { const TrainingLock lock(folder / "new" / "model"); }
  CHECK(fs::exists(folder / "new"));
  CHECK(!fs::exists(folder / "new" / "model"));
  fs::create_directories(folder / "old");
  { const TrainingLock lock(folder / "old"); }
  CHECK(fs::is_empty(folder / "old"));
  fs::create_directories(folder / "full" / "training");
  (void)folder.write("full/training/last.safetensors", "state");
  {
    const TrainingLock lock(folder / "full");
    CHECK(lock.held());
    CHECK_THROWS_AS(TrainingLock(folder / "full"), IoError);
  }
  CHECK(fs::exists(folder / "full" / "training" / "last.safetensors"));
  CHECK(!fs::exists(folder / "full" / "training" / "lock"));
}

TEST_CASE("TrainingLock: a folder that was moved away keeps its lock, another one in its place has its own") {
  const TemporaryFolder folder;
  std::optional<TrainingLock> lock(folder / "model");
  fs::rename(folder / "model", folder / "moved");
  const TrainingLock second(folder / "model");
  CHECK_THROWS_AS(TrainingLock(folder / "moved"), IoError);
  lock.reset();
  CHECK(fs::exists(second.path()));
  CHECK_THROWS_AS(TrainingLock(folder / "model"), IoError);
}

TEST_CASE("TrainingLock: that of a killed process hinders nobody") {
  const TemporaryFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const TrainingLock lock(folder.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(message_of<IoError>([&] {
          const TrainingLock lock(folder.path());
        }).find("process " + std::to_string(child)) != std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(fs::exists(folder / "training/lock"));
  CHECK(TrainingLock(folder.path()).held());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("TrainingLock: of several that try at once, never two have it") {
  const TemporaryFolder folder;
  std::atomic<int> inside = 0, most = 0, times = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        try {
          const TrainingLock lock(folder.path());
          const int now = ++inside;
          if (now > most) most = now;
          ++times;
          --inside;
        } catch (const IoError&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);
  CHECK(times > 0);
}

TEST_CASE("TrainingLock: a folder that cannot be made is refused") {
  const TemporaryFolder folder;
  (void)folder.write("file", "");
  CHECK_THROWS_AS(TrainingLock(folder / "file"), IoError);
}
