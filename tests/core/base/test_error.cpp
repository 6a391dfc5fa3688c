#include "eigenformer/core/base/error.hpp"

#include <stdexcept>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include "eigenformer/core/tensor/shape.hpp"

using namespace eigenformer;

TEST_CASE("Error: what() names the op in brackets") {
  const ValueError error("dropout", "rate is 1.5, must be in [0, 1)");
  CHECK(std::string(error.what()) == "[dropout] rate is 1.5, must be in [0, 1)");
  CHECK(error.op() == "dropout");
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
