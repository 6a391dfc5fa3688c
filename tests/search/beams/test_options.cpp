#include <cstdint>
#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;

TEST_CASE("search options are written and read, ids included") {
  SearchOptions search;
  search.beam_size = 3;
  search.rule = SearchRule::ctranslate2;
  search.prefix_ids = {7, 9};
  search.forbidden_ids = {};
  const auto back = options_from_json<SearchOptions>(options_to_json(search));
  CHECK(back.beam_size == 3);
  CHECK(back.rule == SearchRule::ctranslate2);
  CHECK(back.prefix_ids == search.prefix_ids);
  CHECK(back.forbidden_ids.empty());
  const auto refusal = [](const nlohmann::json& wrong) {
    return message_of<ValueError>([&] { (void)options_from_json<SearchOptions>({{"prefix_ids", wrong}}); });
  };
  CHECK(contains(refusal({1.5}), "prefix_ids is [1.5], expected a list of ids"));
  CHECK(contains(refusal(3), "prefix_ids is 3, expected a list of ids"));
  CHECK(contains(refusal(nlohmann::json::array({std::int64_t{1} << 40})), "expected a list of ids"));
}

TEST_CASE("impossible fields are refused by name and value") {
  const auto refusal = [](const auto& options) {
    return message_of<ValueError>([&] { options.validate(); });
  };
  CHECK_NOTHROW(SearchOptions{}.validate());
  CHECK_NOTHROW(Sampling{}.validate());
  CHECK_NOTHROW(BatchSearchOptions{}.validate());
  CHECK(refusal(SearchOptions{.beam_size = 0}) == "[search] beam_size is 0, must be positive");
  CHECK(refusal(SearchOptions{.no_repeat_ngram_size = -1}) ==
        "[search] no_repeat_ngram_size is -1, must not be negative");
  CHECK(refusal(SearchOptions{.repetition_penalty = 0}) ==
        "[search] repetition_penalty is 0, must be positive");
  CHECK(refusal(Sampling{.top_p = 1.5}) == "[sampling] top_p is 1.5, must be in (0, 1]");
  CHECK(refusal(SearchOptions{.sampling = Sampling{}, .max_length = 4, .min_length = 5}) ==
        "[search] min_length is 5, must be at most max_length, which is 4");
  CHECK(refusal(BatchSearchOptions{.batch_tokens = 0}) == "[search] batch_tokens is 0, must be positive");
}
