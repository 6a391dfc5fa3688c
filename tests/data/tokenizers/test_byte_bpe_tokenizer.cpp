#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("GPT-2's rule cuts contractions, letters, numbers, marks and spaces") {
  CHECK(detail::ByteBpeTokenizer::split("We don't  see 1234 birds' nests") ==
        Words{"We", " don", "'t", " ", " see", " 1234", " birds", "'", " nests"});
  CHECK(detail::ByteBpeTokenizer::split("x\t\n y  ") == Words{"x", "\t\n", " y", "  "});
  CHECK(detail::ByteBpeTokenizer::split("\xC3\xA4\xC3\xB6 \xC2\xBD\xC2\xB2 'sa'll 't-'") ==
        Words{"\xC3\xA4\xC3\xB6", " \xC2\xBD\xC2\xB2", " '", "sa", "'ll", " '", "t", "-'"});
  CHECK(detail::ByteBpeTokenizer::split("\xC2\xA0z") == Words{"\xC2\xA0", "z"});
  CHECK(detail::ByteBpeTokenizer::split("").empty());
  CHECK(detail::ByteBpeTokenizer::split("ab \xF0\x9F\x98 \xFF\xFF") ==
        Words{"ab", " \xEF\xBF\xBD", " \xEF\xBF\xBD\xEF\xBF\xBD"});
}

TEST_CASE("byte pairs are merged in the order of the list, everywhere, and bytes come back") {
  // "Ġ" is the byte of a space.
  const detail::ByteBpeTokenizer tokenizer({{"<unk>", "a", "b", "ab", "abab", "\xC4\xA0",
                                             "\xC4\xA0"
                                             "ab",
                                             "\xC3\x83", "\xC2\xA4"},
                                            0,
                                            {}},
                                           {"a b", "ab ab", "\xC4\xA0 ab"});
  CHECK(tokenizer.encode("abab") == Ids{4});
  CHECK(tokenizer.encode("ababab") == Ids{4, 3});
  CHECK(tokenizer.encode("ba ab") == Ids{2, 1, 6});
  CHECK(tokenizer.encode("\xC3\xA4") == Ids{7, 8});
  CHECK(tokenizer.decode(Ids{4, 6, 7, 8}) == "abab ab\xC3\xA4");
  CHECK(tokenizer.decode(Ids{7, 1}) ==
        "\xEF\xBF\xBD"
        "a");
  CHECK(tokenizer.encode("c") == Ids{0});
  CHECK_THROWS_AS(detail::ByteBpeTokenizer({{"a"}, -1, {}}, {"a"}), ValueError);
  CHECK_THROWS_AS(detail::ByteBpeTokenizer({{"a"}, -1, {}}, {"a b c"}), ValueError);
  const testing::TemporaryFolder folder;
  tokenizer.save(folder.path());
  const auto loaded = load_tokenizer("byte_bpe", folder.path());
  CHECK(loaded->encode("ababab ab") == Ids{4, 3, 6});
  CHECK_THROWS_AS((void)load_tokenizer("wordpiece", folder.path()), IoError);
}

TEST_CASE("a word of a million letters is encoded in no time that grows with its square") {
  const detail::ByteBpeTokenizer tokenizer({{"<unk>", "a", "b", "ab", "ba", "abab"}, 0, {}},
                                           {"a b", "ab ab", "b a"});
  std::string word;
  for (int i = 0; i < 250'000; ++i) word += i % 7 == 0 ? "bba" : "abab";
  CHECK(tokenizer.encode(word).size() > 200'000);
}
