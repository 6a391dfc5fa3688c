#include "eigenformer/core/base/error.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <doctest/doctest.h>

#include "eigenformer/core/tensor/shape.hpp"

using namespace eigenformer;

TEST_CASE("Error: what() names the op in brackets") {
  const ValueError error("dropout", "rate is 1.5, must be in [0, 1)");
  CHECK(std::string(error.what()) == "[dropout] rate is 1.5, must be in [0, 1)");
  CHECK(error.op() == "dropout");
}

TEST_CASE("Error: a message in parts reads as if they were added up") {
  const std::string name = "weights";
  const std::string_view rest = "x is not y";
  const ValueError error(
      "op", {"'", name, "' has ", std::int8_t{-3}, " of ", std::uint64_t{18446744073709551615u}, ' ',
             rest.substr(0, 1), "; ", 0.25, " and ", 1.5f, " of shape ", Shape{2, 3}});
  CHECK(std::string(error.what()) ==
        "[op] 'weights' has -3 of 18446744073709551615 x; 0.25 and 1.5 of shape (2, 3)");
  CHECK(std::string(IoError("op", {"two ", "texts"}).what()) == "[op] two texts");
  CHECK(std::string(ShapeError("op", {"two ", "texts"}, {Shape{4}}).what()) == "[op] two texts");
}

TEST_CASE("Error: every kind is an Error and a runtime_error") {
  const auto caught_as_error = [](auto error) {
    try {
      throw error;
    } catch (const Error& e) {
      return e.op() == "op" && std::string(e.what()) == "[op] message";
    }
    return false;
  };
  CHECK(caught_as_error(IndexError("op", "message")));
  CHECK(caught_as_error(ValueError("op", "message")));
  CHECK(caught_as_error(IoError("op", "message")));
  CHECK(caught_as_error(ShapeError("op", "message")));
  CHECK(std::is_base_of_v<std::runtime_error, Error>);
  CHECK_FALSE(std::is_base_of_v<ValueError, IndexError>);
}

TEST_CASE("ShapeError: keeps the operands' shapes in order") {
  const ShapeError error("matmul", "shapes differ", {Shape{2, 3}, Shape{5}});
  REQUIRE(error.shapes().size() == 2);
  CHECK(error.shapes()[0] == Shape{2, 3});
  CHECK(error.shapes()[1] == Shape{5});
  CHECK(ShapeError("op", "none").shapes().empty());
}
