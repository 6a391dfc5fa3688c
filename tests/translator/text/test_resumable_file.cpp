#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "eigenformer/data/files/mapped_file.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "translator/text/resumable_file.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
namespace fs = std::filesystem;

TEST_CASE("resumable file: it appears complete, and what was saved outlives an interruption") {
  const testing::TemporaryFolder folder;
  const fs::path path = folder.path() / "out", part = folder.path() / "out.part";
  {
    ResumableFile file(path);
    CHECK_FALSE(file.saved());
    CHECK_THROWS_AS(file.write("x"), IoError);
    CHECK_THROWS_AS(file.resume(), ValueError);
    file.restart();
    file.write("one ");
    file.save("1");
    file.write("two ");
    file.save("2");
    file.write("thr");  // never saved
    CHECK(
        contains(message_of<IoError>([&] { ResumableFile second(path); }), "another process is writing it"));
  }
  CHECK_FALSE(fs::exists(path));
  CHECK(detail::read_file(part) == "one two thr");
  {
    ResumableFile file(path);
    REQUIRE(file.saved());
    CHECK(*file.saved() == "2");
    CHECK_THROWS_AS(file.resume(9), ValueError);
    file.resume(4);
    CHECK(file.bytes_written() == 4);
    file.write("two ");
    file.resume();
    CHECK(file.bytes_written() == 8);
    file.write("three");
    file.commit();
    CHECK_THROWS_AS(file.write("x"), IoError);
  }
  CHECK(detail::read_file(path) == "one two three");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("resumable file: without a save nothing is left, and a restart forgets what was saved") {
  const testing::TemporaryFolder folder;
  const fs::path path = folder.write("out", "kept");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  const auto in_folder = [&] {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
  };
  {
    ResumableFile file(path);
    file.restart();
    file.write("lost");
  }
  CHECK(in_folder() == 1);
  CHECK(detail::read_file(path) == "kept");
  {
    ResumableFile file(path);
    file.restart();
    file.write("saved");
    file.save("s");
  }
  CHECK(in_folder() == 3);
  {
    ResumableFile file(path);
    file.restart();
    CHECK_FALSE(file.saved());
    file.write("new");
    file.commit();
  }
  CHECK(in_folder() == 1);
  CHECK(detail::read_file(path) == "new");
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  // A crash of commit() between the rename and the removal of the state.
  folder.write("out.part.state", "3\ns");
  {
    ResumableFile file(path);
    CHECK_FALSE(file.saved());
    file.restart();
    file.commit();
  }
  CHECK(in_folder() == 1);
}

TEST_CASE("resumable file: what cannot be right is refused") {
  const testing::TemporaryFolder folder;
  const fs::path path = folder.path() / "out";
  folder.write("out.part", "four");
  for (const char* state : {"5\nx", "4", "", "x\ny", "-1\n"}) {
    CAPTURE(state);
    folder.write("out.part.state", state);
    CHECK(contains(message_of<IoError>([&] { ResumableFile file(path); }),
                   "does not describe it; remove both"));
  }
  CHECK_THROWS_AS(ResumableFile(folder.path() / "no" / "out"), IoError);
  CHECK_THROWS_AS(ResumableFile(folder.path()), IoError);
  CHECK_THROWS_AS(ResumableFile("/dev/null"), IoError);
}
