#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;

detail::ForeignVocabulary vocabulary() {
  return {{"<s>", "a", "", "b", "</s>", "<unk>", "b", "line\nbreak"}, 5, {0, 4}};
}

}  // namespace

TEST_CASE("tokens between spaces have the ids of a foreign vocabulary") {
  const detail::TokenTokenizer tokenizer(vocabulary());
  CHECK(tokenizer.vocabulary_size() == 8);
  CHECK(tokenizer.encode("a b  a nobody ") == Ids{1, 3, 1, 5});
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.decode(Ids{0, 1, 2, 6, 5, 4}) == "a b \xE2\x81\x87");
  CHECK(tokenizer.token(7) == "line\nbreak");
  CHECK(tokenizer.find("</s>") == 4);
  CHECK_FALSE(tokenizer.find("").has_value());
  CHECK_THROWS_AS((void)tokenizer.decode(Ids{8}), IndexError);
  CHECK_THROWS_AS((void)tokenizer.token(-1), IndexError);
  CHECK(detail::TokenTokenizer({{"a"}, -1, {}}).encode("b a") == Ids{0});
  CHECK_THROWS_AS(detail::TokenTokenizer({{"a"}, 1, {}}), ValueError);
  CHECK_THROWS_AS(detail::TokenTokenizer({{"a"}, -1, {3}}), ValueError);
}

TEST_CASE("a foreign tokenizer is saved and loaded, and damaged files are refused by name") {
  const testing::TemporaryFolder folder;
  detail::TokenTokenizer(vocabulary()).save(folder.path(), "source");
  const auto loaded = load_tokenizer("tokens", folder.path(), "source");
  CHECK(loaded->kind() == "tokens");
  CHECK(loaded->vocabulary_size() == 8);
  CHECK(loaded->token(7) == "line\nbreak");
  CHECK(loaded->encode("b x") == Ids{3, 5});
  const std::filesystem::path path = folder.path() / "source.tokenizer";
  const std::string whole = detail::read_text_file(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    folder.write("source.tokenizer", whole.substr(0, size));
    CHECK_THROWS_AS((void)load_tokenizer("tokens", folder.path(), "source"), IoError);
  }
  RandomGenerator rng(1);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    damaged[static_cast<std::size_t>(rng.uniform_int(static_cast<index_t>(whole.size())))] =
        static_cast<char>(rng.uniform_int(256));
    folder.write("source.tokenizer", damaged);
    try {
      (void)load_tokenizer("tokens", folder.path(), "source");
    } catch (const IoError& error) {
      CHECK(std::string(error.what()).find("source.tokenizer") != std::string::npos);
    }
  }
}
