#include "eigenformer/io/safetensors/json_text.hpp"

#include <doctest/doctest.h>

#include <string>

#include "eigenformer/io/ctranslate2/import_tools.hpp"
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

TEST_CASE("a value that is nested too deeply to be printed is refused with its file") {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("config.json", "{\"d_model\":" + nested(1'000'000) + "}");
  CHECK(contains(
      testing::message_of<IoError>([&] { (void)detail::JsonFile::open(path).get<int>("d_model", 1); }),
      "config.json' is truncated or not JSON"));
}
