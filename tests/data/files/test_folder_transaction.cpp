#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using eigenformer::testing::TemporaryFolder;
using Names = std::vector<std::string>;

namespace {

std::string read(const std::filesystem::path& folder, const std::string& name) {
  return detail::read_file(detail::folder_file(folder, name));
}

void save(const std::filesystem::path& folder, const std::string& a, const std::string& b) {
  FolderTransaction transaction(folder);
  detail::write_file(transaction.file("a"), a);
  detail::write_file(transaction.file("b"), b);
  transaction.commit();
}

}  // namespace

TEST_CASE("commit replaces the files together and leaves others alone") {
  const TemporaryFolder folder;
  detail::write_file(folder / "notes", "mine");
  save(folder.path(), "a1", "b1");
  save(folder.path(), "a2", "b2");
  CHECK(read(folder.path(), "a") == "a2");
  CHECK(read(folder.path(), "b") == "b2");
  CHECK(read(folder.path(), "notes") == "mine");
  CHECK(folder.names() == Names{"a", "b", "notes"});
}

TEST_CASE("files in a folder of the folder are replaced together with the others") {
  // All moments of the commit: before, and after each move.
  for (int step = 0; step < 5; ++step) {
    CAPTURE(step);
    const TemporaryFolder folder;
    detail::write_file(folder / "a", "a1");
    std::filesystem::create_directory(folder / "in");
    detail::write_file(folder / "in/b", "b1");
    detail::write_file(folder / "in/mine", "mine");
    const std::filesystem::path committed = folder / FolderTransaction::commit_name;
    {
      FolderTransaction transaction(folder.path());
      detail::write_file(transaction.file("a"), "a2");
      detail::write_file(transaction.file("in/b"), "b2");
      if (step == 0) continue;
      if (step == 1) {
        transaction.commit();
      } else {
        std::filesystem::rename(transaction.file("a").parent_path(), committed);
      }
    }
    if (step == 3) std::filesystem::rename(committed / "a", folder / "a");
    if (step == 4) std::filesystem::rename(committed / "in/b", folder / "in/b");
    CHECK(read(folder.path(), "a") == "a2");
    CHECK(read(folder.path(), "in/b") == "b2");
    CHECK(detail::has_folder_file(folder.path(), "in/b"));
    CHECK_FALSE(detail::has_folder_file(folder.path(), "in/c"));
    FolderTransaction::recover(folder.path());
    CHECK(detail::read_file(folder / "a") == "a2");
    CHECK(detail::read_file(folder / "in/b") == "b2");
    CHECK(detail::read_file(folder / "in/mine") == "mine");
    CHECK(folder.names() == Names{"a", "in"});
  }
}

TEST_CASE("whoever reads while another writes gets files that belong together") {
  const TemporaryFolder folder;
  save(folder.path(), "0", "0");
  const pid_t writer = ::fork();
  if (writer == 0) {
    for (int i = 1;; ++i) save(folder.path(), std::to_string(i), std::to_string(i));
  }
  int read_again = 0;
  std::set<std::string> versions;
  // A busy machine may give the writer no time for long.
  for (int i = 0; i < 300 || (i < 30000 && (versions.size() <= 2 || read_again == 0)); ++i) {
    int tries = 0;
    const auto [a, b] = detail::read_folder(folder.path(), {"a", "b"}, [&] {
      ++tries;
      std::string first = read(folder.path(), "a");
      std::this_thread::sleep_for(std::chrono::microseconds(50 * (i % 4)));
      return std::pair(std::move(first), read(folder.path(), "b"));
    });
    CHECK(a == b);
    read_again += tries > 1 ? 1 : 0;
    versions.insert(a);
  }
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  CHECK(versions.size() > 2);
  CHECK(read_again > 0);
  // Nobody writes: what is wrong is said at once, once.
  FolderTransaction::recover(folder.path());
  int tries = 0;
  CHECK_THROWS_AS(detail::read_folder(folder.path(), {"a"},
                                      [&]() -> int {
                                        ++tries;
                                        throw IoError("test", "damaged");
                                      }),
                  IoError);
  CHECK(tries == 1);
}

TEST_CASE("without commit everything stays, and a new folder goes again") {
  const TemporaryFolder folder;
  save(folder.path(), "a1", "b1");
  {
    FolderTransaction transaction(folder.path());
    detail::write_file(transaction.file("a"), "a2");
  }
  CHECK(read(folder.path(), "a") == "a1");
  CHECK(folder.names() == Names{"a", "b"});
  { FolderTransaction transaction(folder / "model"); }
  CHECK_FALSE(std::filesystem::exists(folder / "model"));
}

TEST_CASE("an interruption at any step leaves all old or all new files, and the next writer tidies up") {
  // The states a crash can leave: nothing staged yet, one or both staged, committed, one file moved, both
  // moved.
  for (int step = 0; step < 6; ++step) {
    CAPTURE(step);
    const TemporaryFolder folder;
    save(folder.path(), "a1", "b1");
    const std::filesystem::path staging = folder / (std::string(FolderTransaction::staging_prefix) + "1-0");
    const std::filesystem::path committed = folder / FolderTransaction::commit_name;
    std::filesystem::create_directory(staging);
    if (step >= 1) detail::write_file(staging / "a", "a2");
    if (step >= 2) detail::write_file(staging / "b", "b2");
    if (step >= 3) std::filesystem::rename(staging, committed);
    if (step >= 4) std::filesystem::rename(committed / "a", folder / "a");
    if (step >= 5) std::filesystem::rename(committed / "b", folder / "b");
    const std::string version = step < 3 ? "1" : "2";
    CHECK(read(folder.path(), "a") == "a" + version);
    CHECK(read(folder.path(), "b") == "b" + version);
    { FolderTransaction next(folder.path()); }
    CHECK(read(folder.path(), "a") == "a" + version);
    CHECK(read(folder.path(), "b") == "b" + version);
    CHECK(folder.names() == Names{"a", "b"});
  }
}

TEST_CASE("a process that dies in the middle of saving leaves the old files") {
  const TemporaryFolder folder;
  save(folder.path(), "a1", "b1");
  const pid_t child = ::fork();
  if (child == 0) {
    FolderTransaction transaction(folder.path());
    detail::write_file(transaction.file("a"), "a2");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(read(folder.path(), "a") == "a1");
  save(folder.path(), "a3", "b3");
  CHECK(read(folder.path(), "b") == "b3");
  CHECK(folder.names() == Names{"a", "b"});
}

TEST_CASE("bad names and folders are refused") {
  const TemporaryFolder folder;
  {
    FolderTransaction transaction(folder.path());
    for (const char* name : {"", ".", "..", ".hidden", "/a", "a/", "a/.b", ".a/b", "a/b/c", "../a"})
      CHECK_THROWS_AS(transaction.file(name), ValueError);
    transaction.commit();
    CHECK_THROWS_AS(transaction.commit(), IoError);
    CHECK_THROWS_AS(transaction.file("a"), IoError);
  }
  detail::write_file(folder / "file", "x");
  CHECK_THROWS_AS(FolderTransaction(folder / "file"), IoError);
  CHECK_THROWS_AS(FolderTransaction(folder / "file/inner"), IoError);
}
