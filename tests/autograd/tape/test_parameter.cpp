#include "eigenformer/autograd/tape/parameter.hpp"

#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Parameter<float> named(const char* name, const Tensor<float>& value) {
  Parameter<float> p(value);
  p.set_name(name);
  return p;
}

}  // namespace

TEST_CASE("Parameter: every one has its own id, in any thread") {
  std::vector<std::vector<std::uint64_t>> ids(3);
  std::vector<std::thread> threads;
  for (auto& list : ids) {
    threads.emplace_back([&list] {
      for (int i = 0; i < 200; ++i) list.push_back(Parameter<float>(Tensor<float>::zeros({1})).id());
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<std::uint64_t> unique;
  for (const auto& list : ids) unique.insert(list.begin(), list.end());
  CHECK(unique.size() == 600);
}

TEST_CASE("Parameter: a move keeps id, name and storage") {
  Parameter<float> a = named("w", Tensor<float>::ones({2, 3}));
  const auto id = a.id();
  const float* data = a.value().data();
  Parameter<float> b = std::move(a);
  CHECK(b.id() == id);
  CHECK(b.name() == "w");
  CHECK(b.value().data() == data);
  Parameter<float> c;
  c = std::move(b);
  CHECK(c.id() == id);
  CHECK(std::is_nothrow_move_constructible_v<Parameter<double>>);
  CHECK(std::is_nothrow_move_assignable_v<Parameter<double>>);
}

TEST_CASE("Parameter: copy construction makes an independent parameter with a new id") {
  Parameter<float> a = named("w", Tensor<float>::ones({2}));
  a.set_frozen(true);
  const Parameter<float> b = a;
  CHECK(b.id() != a.id());
  CHECK(b.name() == "w");
  CHECK(b.frozen());
  a.value().fill(7);
  CHECK(values(b.value()) == std::vector<float>{1, 1});
}

TEST_CASE("Parameter: copy assignment keeps the id and copies the values, which handles see") {
  Parameter<float> a = named("a", Tensor<float>::ones({2}));
  const Parameter<float> b = named("b", Tensor<float>::from({2}, {5, 6}));
  const auto id = a.id();
  const ParameterHandle<float> handle = a.handle();
  a = b;
  CHECK(a.id() == id);
  CHECK(values(a.value()) == std::vector<float>{5, 6});
  CHECK(values(handle->value) == std::vector<float>{5, 6});
  a.value().fill(0);
  CHECK(values(b.value()) == std::vector<float>{5, 6});
  const Parameter<float>& self = a;
  a = self;
  CHECK(a.id() == id);
}

TEST_CASE("Parameter: copy assignment of another shape, and to and from an absent one") {
  Parameter<float> a = named("a", Tensor<float>::ones({2}));
  const auto id = a.id();
  a = named("b", Tensor<float>::ones({3, 4}));  // a move: a new identity
  CHECK(a.id() != id);
  const Parameter<float> wide = named("c", Tensor<float>::full({5}, 2));
  const auto kept = a.id();
  a = wide;
  CHECK(a.id() == kept);
  CHECK(a.shape() == Shape{5});
  a = Parameter<float>();
  CHECK_FALSE(a.defined());
  a = wide;
  REQUIRE(a.defined());
  CHECK(a.id() != wide.id());
  const Parameter<float> absent;
  a = absent;
  CHECK_FALSE(a.defined());
}

TEST_CASE("Parameter: an absent or moved-from parameter says so") {
  const Parameter<float> absent;
  CHECK_FALSE(absent.defined());
  const std::string message =
      "[parameter] this parameter does not exist: it is optional and absent, or was moved from";
  CHECK(message_of<ValueError>([&] { (void)absent.value(); }) == message);
  CHECK(message_of<ValueError>([&] { (void)absent.id(); }) == message);
  CHECK(message_of<ValueError>([&] { (void)absent.handle(); }) == message);
  CHECK(message_of<ValueError>([&] { (void)absent.frozen(); }) == message);
  Parameter<float> a(Tensor<float>::ones({1}));
  const Parameter<float> b = std::move(a);
  CHECK_THROWS_AS((void)a.shape(), ValueError);  // NOLINT(bugprone-use-after-move): what is tested
  CHECK_FALSE(Parameter<float>(absent).defined());
}

TEST_CASE("Parameter: a handle outlives the parameter") {
  ParameterHandle<float> handle;
  {
    const Parameter<float> p = named("w", Tensor<float>::full({2}, 3));
    handle = p.handle();
  }
  CHECK(handle->name == "w");
  CHECK(values(handle->value) == std::vector<float>{3, 3});
}
