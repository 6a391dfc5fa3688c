#include "eigenformer/data/tokenizers/wordpiece_tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("WordPiece takes the longest pieces; case, accents and control characters go") {
  const detail::ForeignVocabulary v{
      {"[UNK]", "un", "##aff", "##able", "!", "naive", "\xE7\x8A\xAC", "Un"}, 0, {}};
  const detail::WordPieceTokenizer lower(v), cased(v, false);
  CHECK(lower.encode("Unaffable!") == Ids{1, 2, 3, 4});
  CHECK(lower.encode("na\xC3\xAFve \xE7\x8A\xAC\xE7\x8A\xAC") == Ids{5, 6, 6});
  CHECK(lower.encode("un\xE2\x80\x8B"
                     "aff\tunx") == Ids{1, 2, 0});
  // Of category C, unassigned code points stay, as in the tokenizers package: those of a newer Unicode too.
  CHECK(lower.encode("un\xEE\x80\x80"
                     "aff") == Ids{1, 2});
  CHECK(lower.encode("un\xCD\xB8"
                     "aff") == Ids{0});
  CHECK(cased.encode("un \xCD\xB8 un") == Ids{1, 0, 1});
  CHECK(lower.encode(std::string(101, 'u')) == Ids{0});
  CHECK(cased.encode("Unaffable un") == Ids{7, 2, 3, 1});
  CHECK(cased.encode("Na\xC3\xAFve") == Ids{0});
  CHECK(lower.decode(Ids{1, 2, 3, 4}) == "unaffable !");
  const testing::TemporaryFolder folder;
  lower.save(folder.path());
  CHECK(load_tokenizer("wordpiece", folder.path())->encode("UN") == Ids{1});
}
