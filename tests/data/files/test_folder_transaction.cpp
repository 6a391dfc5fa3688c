#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using eigenformer::testing::TemporaryFolder;
using Names = std::vector<std::string>;

namespace {

std::string read(const std::filesystem::path& folder, const std::string& name) {
  return read_file(folder_file(folder, name));
}

void save(const std::filesystem::path& folder, const std::string& a, const std::string& b) {
  FolderTransaction transaction(folder);
  write_file(transaction.file("a"), a);
  write_file(transaction.file("b"), b);
  transaction.commit();
}

}  // namespace

TEST_CASE("commit replaces the files together and leaves others alone") {
  const TemporaryFolder folder;
  write_file(folder / "notes", "mine");
  save(folder.path(), "a1", "b1");
  save(folder.path(), "a2", "b2");
  CHECK(read(folder.path(), "a") == "a2");
  CHECK(read(folder.path(), "b") == "b2");
  CHECK(read(folder.path(), "notes") == "mine");
  CHECK(folder.names() == Names{"a", "b", "notes"});
}

TEST_CASE("without commit everything stays, and a new folder goes again") {
  const TemporaryFolder folder;
  save(folder.path(), "a1", "b1");
  {
    FolderTransaction transaction(folder.path());
    write_file(transaction.file("a"), "a2");
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
    if (step >= 1) write_file(staging / "a", "a2");
    if (step >= 2) write_file(staging / "b", "b2");
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
    write_file(transaction.file("a"), "a2");
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
    for (const char* name : {"", ".", "..", ".hidden", "a/b", "/a"})
      CHECK_THROWS_AS(transaction.file(name), ValueError);
    transaction.commit();
    CHECK_THROWS_AS(transaction.commit(), IoError);
    CHECK_THROWS_AS(transaction.file("a"), IoError);
  }
  write_file(folder / "file", "x");
  CHECK_THROWS_AS(FolderTransaction(folder / "file"), IoError);
  CHECK_THROWS_AS(FolderTransaction(folder / "file/inner"), IoError);
}
