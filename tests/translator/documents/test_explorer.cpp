#include "translator/explorer/explorer.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

ExploredSentence sentence() {
  ExploredSentence s{.line = 7, .source = "</script><b> & \"x\"", .target = "<!-- \xFF"};
  s.source_tokens = {"</script>", "</s>"};
  s.target_tokens = {"ein", "Hund", "</s>"};
  s.maps.source = {Tensor<float>::full(Shape{2, 2, 2}, 0.12345f)};
  s.maps.target = {};  // a recurrent decoder
  s.maps.memory = {Tensor<float>::full(Shape{1, 3, 2}, 1.0f), Tensor<float>::full(Shape{2, 3, 2}, 0.0004f)};
  return s;
}

}  // namespace

TEST_CASE("explorer: the page holds texts and rounded weights, and nothing of a text can end an element") {
  const std::vector<ExploredSentence> sentences = {sentence()};
  const std::string page = explorer_page(sentences, "A & <b>");
  CHECK(contains(page, "<title>A &amp; &lt;b></title>"));
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(open) + open.size(), end = page.find("</script>", begin);
  const std::string data = page.substr(begin, end - begin);
  CHECK_FALSE(contains(data, "<"));
  const nlohmann::json json = nlohmann::json::parse(data);
  const nlohmann::json& s = json.at("sentences").at(0);
  CHECK(s.at("line") == 7);
  CHECK(s.at("source") == sentences[0].source);
  CHECK(s.at("target") == "<!-- \xEF\xBF\xBD");
  CHECK(s.at("input_tokens") == std::vector<std::string>{"<s>", "ein", "Hund"});
  CHECK(s.at("maps").at("source") ==
        nlohmann::json::array({nlohmann::json::array({{123, 123, 123, 123}, {123, 123, 123, 123}})}));
  CHECK(s.at("maps").at("target").empty());
  CHECK(s.at("maps").at("memory").at(0).at(0) == std::vector<int>(6, 1000));
  CHECK(s.at("maps").at("memory").at(1).at(1) == std::vector<int>(6, 0));
  // Nothing is loaded from elsewhere.
  CHECK_FALSE(contains(page, "src="));
  CHECK_FALSE(contains(page, "href="));
  CHECK_FALSE(contains(page, "url("));
  CHECK(contains(explorer_page({}), "\"sentences\":[]"));
}

TEST_CASE("explorer: weights that do not fit the tokens are refused") {
  std::vector<ExploredSentence> sentences = {sentence()};
  sentences[0].target_tokens.pop_back();
  CHECK_THROWS_WITH_AS((void)explorer_page(sentences), doctest::Contains("must be (heads, 2, 2)"),
                       ShapeError);
  const auto refused = [&] { return message_of<ValueError>([&] { (void)explorer_page(sentences); }); };
  for (const float weight : {std::numeric_limits<float>::quiet_NaN(), -0.1F, 1.5F}) {
    sentences = {sentence()};
    sentences[0].maps.memory[1].span()[5] = weight;
    CAPTURE(weight);
    CHECK(contains(refused(), "a weight of the attention 'memory' is "));
    CHECK(contains(refused(), "must be between 0 and 1"));
  }
  sentences = {sentence(), sentence()};
  sentences[1].maps = {};
  CHECK(contains(refused(), "sentence 1 has no attention weights, expected those of at least one layer"));
}
