#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/program.hpp"
#include "examples/translator/translator_corpus.hpp"
#include "test_tools.hpp"
#include "traced_child.hpp"

using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

struct Files {
  std::string model, state, before_decay;
  bool operator==(const Files&) const = default;
};
Files files_of(const fs::path& folder) {
  const fs::path before_decay = folder / "training/before_decay.safetensors";
  return {read_file(folder / "model.safetensors"), read_file(folder / "training/last.safetensors"),
          fs::exists(before_decay) ? read_file(before_decay) : std::string()};
}

/// Runs a program in this process's place, its streams going nowhere.
int replace_by(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {(programs_folder() / name).string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream < 3; ++stream) ::dup2(nowhere, stream);
  ::close(nowhere);
  ::execv(argv[0], argv.data());
  return 127;
}

/// Kills `translator train` at every stride-th system call that changes files; see test_training_folder.cpp.
/// With another model in the folder that is kept until the new one is whole.
int kill_everywhere(bool over_another, int first, int stride) {
  const TinyCorpus corpus;
  const std::vector<std::string> options = {"--max-steps",    "5", "--validate-every", "2",
                                            "--average-last", "2", "--schedule",       "wsd"};
  REQUIRE(run("translator", corpus.train(options)).code == 0);
  const Files expected = files_of(corpus.model);
  const fs::path old = corpus.folder / "old", folder = corpus.folder / "killed";
  std::vector<std::string> other = corpus.train({"--max-steps", "1", "--seed", "7", "--model", old.string()});
  REQUIRE(run("translator", other).code == 0);
  std::vector<std::string> anew = options;
  anew.insert(anew.end(), {"--model", folder.string()});
  if (over_another) anew.push_back("--overwrite");
  for (int kill_at = first, kills = 0;; kill_at += stride) {
    CAPTURE(kill_at);
    if (over_another) fs::copy(old, folder, fs::copy_options::recursive);
    const TracedEnd end = run_traced([&] { return replace_by("translator", corpus.train(anew)); }, kill_at);
    if (!end.killed) {
      CHECK(end.code == 0);
      CHECK(files_of(folder) == expected);
      return kills;
    }
    ++kills;
    const Ended inspected = run("translator", {"inspect", "--model", folder.string()});
    CAPTURE(inspected.err);
    // Until something is promised there is nothing, or the old model.
    const bool begin = inspected.code != 0 || (over_another && files_of(folder) == files_of(old));
    if (over_another) CHECK(inspected.code == 0);
    if (inspected.code == 0) {
      CHECK(
          run("translator", {"translate", "--model", folder.string(), "--max-length", "3"}, "I see\n").code ==
          0);
    }
    const Ended ended =
        begin ? run("translator", corpus.train(anew))
              : run("translator", {"train", "--resume", "--model", folder.string(), "--threads", "1"});
    CHECK_MESSAGE(ended.code == 0, ended.err);
    CHECK(files_of(folder) == expected);
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      CHECK_FALSE(contains(name, ".tmp-"));
      CHECK_FALSE(name.starts_with('.'));
    }
    fs::remove_all(folder);
  }
}

}  // namespace

TEST_CASE("translator train, killed at some system calls, leaves a folder that goes on to the same bits") {
  CHECK(kill_everywhere(false, 9, 47) >= 2);
  CHECK(kill_everywhere(true, 30, 61) >= 1);
}

TEST_CASE("translator train, killed at every system call, leaves a folder that goes on to the same bits" *
          doctest::test_suite("long")) {
  const int anew = kill_everywhere(false, 1, 1), over_another = kill_everywhere(true, 1, 1);
  MESSAGE(anew << " kills of a training in a new folder, " << over_another << " over another model");
  CHECK(anew > 50);
  CHECK(over_another > 50);
}

TEST_CASE("models are read without an error while a training saves them") {
  const TinyCorpus corpus;
  Program training("translator", corpus.train({"--epochs", "1000000", "--validate-every", "1"}));
  REQUIRE(training.says("  step 20/"));
  for (int i = 0; i < 12; ++i) {
    const Ended ended =
        i % 2 == 0
            ? run("translator", {"inspect", "--model", corpus.model})
            : run("translator", {"translate", "--model", corpus.model, "--max-length", "3"}, "I see\n");
    CHECK_MESSAGE(ended.code == 0, ended.err);
  }
  training.signal(SIGINT);
  CHECK(training.wait().code == 130);
}

TEST_CASE("an old model stays until there is a new one, and goes then") {
  const TinyCorpus corpus;
  REQUIRE(run("translator", corpus.train({"--max-steps", "2", "--seed", "7"})).code == 0);
  const Files old = files_of(corpus.model);
  {
    Program killed("translator",
                   corpus.train({"--overwrite", "--epochs", "100000", "--validate-every", "0"}));
    REQUIRE(killed.says("model: "));
    killed.signal(SIGKILL);
    killed.wait();
  }
  // Which may have been before the first validation, or after.
  CHECK(run("translator", {"inspect", "--model", corpus.model}).code == 0);
  REQUIRE(run("translator", corpus.train({"--overwrite", "--max-steps", "2", "--seed", "7"})).code == 0);
  CHECK(files_of(corpus.model) == old);
  {
    Program killed("translator",
                   corpus.train({"--overwrite", "--epochs", "100000", "--validate-every", "1000000"}));
    REQUIRE(killed.says("  step 20/"));
    CHECK(files_of(corpus.model) == old);
    killed.signal(SIGTERM);
    CHECK(killed.wait().code == 130);
  }
  // What was asked to end saves what it has.
  CHECK(files_of(corpus.model) != old);
  CHECK(run("translator", {"train", "--resume", "--model", corpus.model, "--max-steps", "1"}).code == 0);
}

TEST_CASE("a folder that cannot be written, a pipe for a file, and a damaged state are refused by name") {
  const TinyCorpus corpus;
  // The corpus is not there: the folder is looked at first.
  Ended ended = run("translator", {"train", "--source", "/no/a", "--target", "/no/b", "--model", "/proc"});
  CHECK(ended.code == 1);
  CHECK_MESSAGE(contains(ended.err, "/proc"), ended.err);
  CHECK_FALSE(contains(ended.err, "/no/a"));

  REQUIRE(run("translator", corpus.train({"--max-steps", "2"})).code == 0);
  const fs::path state = fs::path(corpus.model) / "training/last.safetensors";
  const std::string good = read_file(state);
  const auto refused = [&](const std::string& bytes) {
    corpus.folder.write("model/training/last.safetensors", bytes);
    ended = run("translator", {"train", "--resume", "--model", corpus.model});
    CHECK(ended.code == 1);
    CHECK_MESSAGE(contains(ended.err, state.string()), ended.err);
  };
  std::string flipped = good;
  flipped[good.size() - 5] = static_cast<char>(flipped[good.size() - 5] ^ 64);
  refused(flipped);
  refused(good.substr(0, good.size() - 1));
  refused("");

  for (const char* name : {"options.json", "model.safetensors", "tokenizer.vocab"}) {
    CAPTURE(name);
    const fs::path path = fs::path(corpus.model) / name;
    const std::string bytes = read_file(path);
    fs::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    ended = run("translator", {"inspect", "--model", corpus.model});
    CHECK(ended.code == 1);
    CHECK_MESSAGE(contains(ended.err, "it is not a regular file"), ended.err);
    CHECK(run("translator", {"train", "--resume", "--model", corpus.model}).code == 1);
    fs::remove(path);
    corpus.folder.write(std::string("model/") + name, bytes);
  }
}
