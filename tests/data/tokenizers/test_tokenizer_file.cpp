#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

TEST_CASE("a tokenizer's parts come back from their file, whatever bytes they hold") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.tokenizer";
  const std::vector<std::string> items = {"", "two words", "line\nbreak", std::string("\0\xFF", 2), "7 x\n"};
  detail::TokenizerParts parts;
  parts.set("kind", "first");
  parts.set("kind", "some\nthing");
  parts.set("empty", "");
  parts.set_list("items", items);
  parts.set_ids("ids", {3, -1, 70000});
  parts.save(path);
  const detail::TokenizerParts loaded = detail::TokenizerParts::load(path);
  CHECK(loaded.get("kind") == "some\nthing");
  CHECK(loaded.contains("empty"));
  CHECK(loaded.list("empty").empty());
  CHECK(loaded.list("items") == items);
  CHECK(loaded.ids("ids") == std::vector<std::int32_t>{3, -1, 70000});
  CHECK_FALSE(loaded.contains("other"));
  CHECK(
      contains(message_of<IoError>([&] { (void)loaded.get("other"); }), "a.tokenizer' has no part 'other'"));
  CHECK(contains(message_of<IoError>([&] { (void)loaded.ids("items"); }), "has '' in its part 'items'"));
  CHECK(contains(message_of<IoError>([&] { (void)loaded.number("ids", "12x"); }), "'12x'"));
  CHECK(contains(message_of<IoError>([&] { (void)loaded.list("kind"); }),
                 "damaged before or in its part 'kind'"));
}

TEST_CASE("what is no tokenizer's file is refused by name") {
  const testing::TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    const std::filesystem::path path = folder.write("b.tokenizer", bytes);
    const std::string said = message_of<IoError>([&] { (void)detail::TokenizerParts::load(path); });
    CHECK(contains(said, "b.tokenizer"));
    return said;
  };
  const std::string magic = "eigenformer-tokenizer 1\n";
  CHECK(detail::TokenizerParts::load(folder.write("c.tokenizer", magic + "a 3\nxyz\n")).get("a") == "xyz");
  CHECK(contains(refused("something else"), "not a tokenizer"));
  CHECK(contains(refused(magic + "a"), "damaged"));
  CHECK(contains(refused(magic + "a 3\nxyz"), "truncated in its part 'a'"));
  CHECK(contains(refused(magic + "a 9\nxyz\n"), "truncated in its part 'a'"));
  CHECK(contains(refused(magic + "a x\nxyz\n"), "damaged before or in its part 'a'"));
  CHECK(contains(refused(magic + "a 99999999999999999999999\nxyz\n"), "damaged before or in its part 'a'"));
  CHECK_THROWS_AS((void)detail::TokenizerParts::load(folder.path() / "none"), IoError);
}
