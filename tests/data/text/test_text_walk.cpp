#include "eigenformer/data/text/text_walk.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace eigenformer;
using namespace eigenformer::detail;

TEST_CASE("text_walk: characters before an offset, and the ends of white space") {
  const std::string text = "a \u3000\u00E4";
  CHECK(code_point_before(text, 0).length == 0);
  CHECK(code_point_before(text, 1).value == U'a');
  CHECK(code_point_before(text, 5).value == U'\u3000');
  CHECK(code_point_before(text, 5).length == 3);
  CHECK(code_point_before(text, 7).value == U'\u00E4');
  CHECK(before_spaces(text, 5) == 1);
  CHECK(after_spaces(text, 1) == 5);
  CHECK(without_spaces(text, {1, 5}).empty());
}

TEST_CASE("text_walk: bytes that are not UTF-8 are no character, and no walk leaves the text") {
  // A character and one byte too many: the character does not end at the offset.
  const std::string text = "\u3000\x80";
  CHECK(code_point_before(text, 4).length == 0);
  CHECK(code_point_before(text, 1).length == 0);
  CHECK(before_spaces(text, 4) == 4);
  CHECK(before_spaces("\u3000 \x80 ", 6) == 5);
  CHECK(before_spaces("\xFF ", 2) == 1);
}
