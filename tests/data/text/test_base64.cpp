#include "eigenformer/data/text/base64.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace eigenformer;

TEST_CASE("base64 gives the bytes that RFC 4648 has for it") {
  CHECK(detail::decode_base64("") == "");
  CHECK(detail::decode_base64("TQ==") == "M");
  CHECK(detail::decode_base64("TWE=") == "Ma");
  CHECK(detail::decode_base64("TWFu") == "Man");
  CHECK(detail::decode_base64("Zm9vYmFy") == "foobar");
  CHECK(detail::decode_base64("AAD/7/4=") == std::string("\0\0\xFF\xEF\xFE", 5));
  CHECK(detail::decode_base64("+/+/") == "\xFB\xFF\xBF");
}

TEST_CASE("what is no base64 gives nothing") {
  for (const char* text :
       {"T", "TW", "TWF", "TWFuT", "TW=u", "=TWF", "T===", "====", "TW u", "TWF\n", "TW-_"}) {
    CAPTURE(text);
    CHECK_FALSE(detail::decode_base64(text).has_value());
  }
}
