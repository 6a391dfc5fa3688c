#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/io/parity/parity.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "fixtures.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::Fixture;
using eigenformer::testing::message_of;
using eigenformer::testing::TemporaryFolder;

namespace {

Linear<float> make_linear(index_t out = 20) {
  RandomGenerator rng(1);
  return Linear<float>({12, out}, rng);
}

const auto apply = [](const Linear<float>& layer) {
  return [&layer](const Context<float>& ctx, ParityInputs<float>& in) { return layer(ctx, in["x"]); };
};

/// The linear fixture, changed by f(name, values), where f returns whether to keep the tensor.
template <class F>
ParityFixture changed(const TemporaryFolder& folder, F&& f) {
  const Fixture fixture("layers/linear");
  std::vector<std::pair<std::string, Tensor<double>>> tensors;
  for (const std::string& name : fixture.file().names()) {
    auto values = fixture.get<double>(name).clone();
    if (f(name, values)) tensors.emplace_back(name, values);
  }
  save_safetensors(folder / "changed", tensors);
  return ParityFixture::open(folder / "changed");
}

}  // namespace

TEST_CASE("a module that agrees has a table of its output and of every gradient") {
  const Fixture fixture("layers/linear");
  auto layer = make_linear();
  const auto report = check_parity(fixture, layer, apply(layer));
  CHECK_MESSAGE(report.ok(), report.str());
  CHECK(report.worst() < 1e-6);
  std::vector<std::string> names;
  for (const auto& t : report.tensors) {
    names.push_back(t.name);
    CHECK(t.compared == t.shape.numel());
  }
  CHECK(names == std::vector<std::string>{"out.y", "grad.weight", "grad.bias", "grad_in.x"});
  CHECK(contains(report.str(), "4 of 4 tensors agree"));
  CHECK(contains(report.str(), "grad.weight  (20, 12)"));
  CHECK(report.str(false) == "tensor  shape  error  tolerance\n4 of 4 tensors agree\n");
}

TEST_CASE("the table says which tensor differs, where it does most, by how much, and in how many elements") {
  const TemporaryFolder folder;
  auto layer = make_linear();
  const auto fixture = changed(folder, [](const std::string& name, Tensor<double>& values) {
    if (name == "grad.weight") {
      values.at({13, 7}) += 4;
      values.at({2, 3}) -= 0.5;
    }
    return true;
  });
  const auto report = check_parity(fixture, layer, apply(layer));
  CHECK_FALSE(report.ok());
  const TensorParity& weight = report.tensors[1];
  CHECK(weight.name == "grad.weight");
  CHECK_FALSE(weight.ok());
  CHECK(weight.index == std::vector<index_t>{13, 7});
  CHECK(weight.differing == 2);
  const double expected = fixture.get<double>("grad.weight").at({13, 7});
  CHECK(weight.expected == expected);
  CHECK(weight.actual == doctest::Approx(expected - 4).epsilon(1e-5));
  CHECK(weight.error == doctest::Approx(4 / std::max(1.0, std::abs(expected))).epsilon(1e-5));
  CHECK(report.worst() == weight.error);
  CHECK(contains(report.str(), "DIFFERS at [13, 7]: "));
  CHECK(contains(report.str(), "2 of 240 elements differ"));
  CHECK(contains(report.str(), "3 of 4 tensors agree"));
  CHECK_FALSE(contains(report.str(false), "out.y"));
}

TEST_CASE("other shapes, absent gradients and gradients of nothing are differences too") {
  const TemporaryFolder folder;
  auto layer = make_linear();
  const auto fixture = changed(folder, [](const std::string& name, Tensor<double>& values) {
    if (name == "grad.bias") values = Tensor<double>::zeros({20, 1});
    return name != "grad.weight";
  });
  const auto report = check_parity(fixture, layer, apply(layer));
  CHECK(std::isinf(report.worst()));
  CHECK(contains(report.str(), "DIFFERS: the fixture has no such gradient"));
  CHECK(contains(report.str(), "DIFFERS: shape (20,), expected (20, 1)"));
  const auto more =
      changed(folder, [](const std::string& name, Tensor<double>&) { return !name.starts_with("param"); });
  Linear<float> without_bias = [] {
    RandomGenerator rng(1);
    return Linear<float>({12, 20, false}, rng);
  }();
  const auto text = check_parity(more, without_bias, apply(without_bias)).str();
  CHECK(contains(text, "grad.bias"));
  CHECK(contains(text, "DIFFERS: the module has no parameter of shape (20,)"));
  auto narrow = make_linear(19);
  CHECK(contains(check_parity(more, narrow, apply(narrow)).str(),
                 "DIFFERS: shape (2, 5, 19), expected (2, 5, 20)"));
}

TEST_CASE("a fixture that does not fit says why") {
  const TemporaryFolder folder;
  auto narrow = make_linear(19);
  CHECK(contains(
      message_of<ValueError>([&] { (void)check_parity(Fixture("layers/linear"), narrow, apply(narrow)); }),
      "bias is (20,), must be (19,)"));
  auto layer = make_linear();
  const auto fixture =
      changed(folder, [](const std::string& name, Tensor<double>&) { return name != "in.cotangent"; });
  CHECK(contains(message_of<IoError>([&] { (void)check_parity(fixture, layer, apply(layer)); }),
                 "has gradients, but no in.cotangent"));
  CHECK(check_parity(fixture, layer, apply(layer), {.gradients = false}).tensors.size() == 1);
  const auto empty = changed(folder, [](const std::string& name, Tensor<double>&) { return name == "in.x"; });
  CHECK(contains(message_of<IoError>([&] { (void)check_parity(empty, layer, apply(layer)); }),
                 "has no tensor 'out.y'"));
}

TEST_CASE("a fixture's options are read with its name and theirs, where they are what is asked for") {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& options) {
    SafetensorsWriter writer;
    writer.add("in.x", Tensor<float>::zeros({2, 3}));
    if (!options.empty()) writer.set_metadata("options", options);
    writer.save(folder / "options");
    return ParityFixture::open(folder / "options");
  };
  const auto refusal = [&](const std::string& options) {
    return message_of<IoError>([&] { (void)with(options).option<index_t>("width"); });
  };
  CHECK(contains(refusal(""), "options' is not a parity fixture: it has no metadata 'options'"));
  CHECK(contains(refusal("{"), "is not a JSON object"));
  CHECK(contains(refusal("[1]"), "is not a JSON object"));
  CHECK(contains(refusal("{\"d\": 1}"), "it has no 'width'"));
  for (const std::string value : {"\"wide\"", "1.5", "true", "null"}) {
    CHECK(contains(refusal("{\"width\": " + value + "}"), "'width' in its metadata 'options' is " + value));
  }
  CHECK(with("{\"width\": 7}").option<index_t>("width") == 7);
  CHECK(with("{\"first\": true}").option<bool>("first"));
  CHECK(with("{\"name\": \"gelu\"}").option<std::string>("name") == "gelu");
}

TEST_CASE("only rows inside the lengths count, and NaN agrees with NaN alone") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto expected = Tensor<double>::zeros({2, 3, 2}), actual = Tensor<double>::zeros({2, 3, 2});
  actual.at({0, 2, 1}) = nan;
  actual.at({1, 1, 0}) = 5;
  CHECK_FALSE(compare_tensors("y", actual, expected, 1e-6).ok());
  CHECK(compare_tensors("y", actual, expected, 1e-6, {2, 1}).ok());
  CHECK(compare_tensors("y", actual, expected, 1e-6, {2, 1}).compared == 6);
  const auto seen = compare_tensors("y", actual, expected, 1e-6, {2, 2});
  CHECK(seen.index == std::vector<index_t>{1, 1, 0});
  CHECK(seen.error == 5);
  CHECK_FALSE(compare_tensors("y", actual, expected, 1e-6, {2, 1, 1}).ok());
  expected.at({0, 2, 1}) = nan;
  expected.at({1, 1, 0}) = 5;
  CHECK(compare_tensors("y", actual, expected, 0).ok());
  actual.at({1, 2, 1}) = infinity;
  CHECK(std::isinf(compare_tensors("y", actual, expected, 1e300).error));
  expected.at({1, 2, 1}) = infinity;
  CHECK(compare_tensors("y", actual, expected, 0).ok());
  expected.at({1, 2, 1}) = -infinity;
  CHECK_FALSE(compare_tensors("y", actual, expected, 1e300).ok());
  CHECK(compare_tensors("y", Tensor<float>(Shape{0, 3}), Tensor<double>(Shape{0, 3}), 0).ok());
}
