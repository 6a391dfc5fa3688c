#include "eigenformer/io/safetensors/json_text.hpp"

#include <doctest/doctest.h>

#include <string>

#include "eigenformer/io/shared/import_tools.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;

namespace {

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace

TEST_CASE("JSON that is nested too deeply is none") {
  CHECK_FALSE(detail::parse_json(nested(64)).is_discarded());
  CHECK(detail::parse_json(nested(65)).is_discarded());
  CHECK(detail::parse_json("{\"a\":" + nested(64) + "}").is_discarded());
  CHECK(detail::parse_json("[[],[],{\"[[\":\"\\\"[[\"}]") ==
        nlohmann::json{nlohmann::json::array(), nlohmann::json::array(), {{"[[", "\"[["}}});
  std::string wide = "[";
  for (int i = 0; i < 100; ++i) wide += "[{}],";
  CHECK(detail::parse_json(wide + "1]").size() == 101);
  CHECK(detail::parse_json("[\"" + std::string(70, '[') + "\"]").size() ==
        1);  // in a string, brackets are text
  CHECK(detail::parse_json("").is_discarded());
  CHECK(detail::parse_json("]]" + nested(3)).is_discarded());
  CHECK(detail::parse_json("\"\\").is_discarded());
  CHECK(detail::parse_json(std::string(100'000'001, ' ')).is_discarded());
  CHECK(detail::parse_json("[" + std::string(1000, ' ') + "]").is_array());
}

TEST_CASE("unique JSON is JSON, and a name twice in one object is none") {
  const std::string text =
      R"({"a":[1,-2,2.5,"x\u00e9\n",true,false,null,[],{},[[{"a":{"a":18446744073709551615}}]]],"b":{"a":1}} )";
  CHECK(detail::parse_unique_json(text) == nlohmann::json::parse(text));
  for (const char* single : {"3", "\"x\"", "null", "[]", "{}", "-0.0"})
    CHECK(detail::parse_unique_json(single) == nlohmann::json::parse(single));
  for (const char* bad : {"", "{", "[1", "{\"a\"}", "{} {}", "[1,]", "\"\xff\"", "1e999"})
    CHECK(detail::parse_unique_json(bad).is_discarded());
  CHECK(detail::parse_unique_json(nested(64)) == nlohmann::json::parse(nested(64)));
  CHECK(detail::parse_unique_json(nested(65)).is_discarded());
  CHECK(contains(testing::message_of<ValueError>(
                     [&] { (void)detail::parse_unique_json(R"({"a":1,"b":[{"c":1,"d":2,"c":3}]})"); }),
                 "has the name 'c' twice in one object, expected it once"));
}

// In time quadratic in the members, as nlohmann's parser with a callback needs it, these would take many
// minutes.
TEST_CASE("unique JSON with many members in one array or object is read member by member") {
  std::string objects = "{\"n\":{}", array = "[{}";
  for (int i = 0; i < 100'000; ++i) {
    objects += ",\"" + std::to_string(i) + "\":{}";
    array += ",{}";
  }
  CHECK(detail::parse_unique_json(objects + "}").size() == 100'001);
  CHECK(detail::parse_unique_json(array + "]").size() == 100'001);
  CHECK_THROWS_AS((void)detail::parse_unique_json(objects + ",\"7\":0}"), ValueError);
}

TEST_CASE("a value that is nested too deeply to be printed is refused with its file") {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("config.json", "{\"d_model\":" + nested(1'000'000) + "}");
  CHECK(contains(
      testing::message_of<IoError>([&] { (void)detail::JsonFile::open(path).get<int>("d_model", 1); }),
      "config.json' is truncated or not JSON"));
}
