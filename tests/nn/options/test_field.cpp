#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "eigenformer/nn/options/field.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::message_of;

namespace {

struct OneOfEach {
  index_t positive = 1;
  double not_negative = 0;
  double rate = 0;
  double share = 1;
  double finite = 0;
  std::optional<double> optional_rate{};

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"positive", "", Allowed::positive}, self.positive);
    visit(OptionField{"not_negative", "", Allowed::not_negative}, self.not_negative);
    visit(OptionField{"rate", "", Allowed::rate}, self.rate);
    visit(OptionField{"share", "", Allowed::share}, self.share);
    visit(OptionField{"finite", "", Allowed::finite}, self.finite);
    visit(OptionField{"optional_rate", "", Allowed::rate}, self.optional_rate);
  }
};

std::string refusal(const OneOfEach& options) {
  return message_of<ValueError>([&] { validate_fields("op", options); });
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("each range refuses what is outside, by the field's name and value") {
  CHECK_NOTHROW(validate_fields("op", OneOfEach{}));
  CHECK(refusal({.positive = 0}) == "[op] positive is 0, must be positive");
  CHECK(refusal({.positive = 2147483648}) == "[op] positive is 2147483648, must be at most 2147483647");
  CHECK(refusal({.not_negative = -1e-9}) == "[op] not_negative is -1e-09, must not be negative");
  CHECK(refusal({.not_negative = infinity}) == "[op] not_negative is inf, must be finite");
  CHECK(refusal({.rate = 1}) == "[op] rate is 1, must be in [0, 1)");
  CHECK(refusal({.share = 0}) == "[op] share is 0, must be in (0, 1]");
  CHECK(refusal({.share = 1.5}) == "[op] share is 1.5, must be in (0, 1]");
  CHECK(refusal({.share = std::nan("")}) == "[op] share is nan, must be in (0, 1]");
  CHECK(refusal({.finite = -infinity}) == "[op] finite is -inf, must be finite");
  CHECK(refusal({.optional_rate = -0.25}) == "[op] optional_rate is -0.25, must be in [0, 1)");
}

TEST_CASE("ranges and numbers have a text for help and tables") {
  CHECK(std::string(detail::allowed_text(Allowed::any)).empty());
  CHECK(std::string(detail::allowed_text(Allowed::positive)) == "above 0");
  CHECK(std::string(detail::allowed_text(Allowed::not_negative)) == "0 or above");
  CHECK(std::string(detail::allowed_text(Allowed::rate)) == "in [0, 1)");
  CHECK(std::string(detail::allowed_text(Allowed::share)) == "in (0, 1]");
  CHECK(std::string(detail::allowed_text(Allowed::finite)) == "finite");
  CHECK(detail::number_text(0) == "0");
  CHECK(detail::number_text(0.1) == "0.1");
  CHECK(detail::number_text(100000) == "100000");
  CHECK(detail::number_text(1e-5) == "1e-05");
  CHECK(detail::number_text(1e30) == "1e+30");
}
