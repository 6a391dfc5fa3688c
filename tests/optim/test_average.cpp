#include <doctest/doctest.h>

#include "eigenformer/optim/average.hpp"
#include "optim_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("the average is that of the last N states, which later training does not touch") {
  TwoParameters two;
  StateAverage<double> last(2);
  for (const double value : {100.0, 1.0, 4.0}) {
    two.a.value().fill(value);
    two.b.value().fill(-value);
    last.add(state_dict(two));
  }
  CHECK(last.size() == 2);
  two.a.value().fill(7);
  const auto average = last.average();
  REQUIRE(average.size() == 2);
  CHECK(average[0].name == "a");
  CHECK(values(average[0].value) == std::vector<double>(15, 2.5));
  CHECK(values(average[1].value) == std::vector<double>(7, -2.5));
  load_state_dict(two, average);
  CHECK(values(two.a.value()) == std::vector<double>(15, 2.5));
}

TEST_CASE("the best states are kept, of equal ones the first, in the order in which they came") {
  StateAverage<double> best(3);
  const auto state = [](double x) {
    return std::vector<StateEntry<double>>{{"w", Tensor<double>::full({2}, x), {}}};
  };
  CHECK(best.add_best(state(1), 5));
  CHECK(best.add_best(state(2), 3));
  CHECK_FALSE(best.add_best(state(3), std::nan("")));
  CHECK(best.add_best(state(4), 4));
  CHECK_FALSE(best.add_best(state(5), 5));  // as good as the first, later
  CHECK_FALSE(best.add_best(state(6), 9));
  CHECK(best.add_best(state(7), 4));  // in place of the first
  CHECK_FALSE(best.add_best(state(8), 4));
  CHECK(best.add_best(state(9), 1));  // in place of the later of two equal ones
  REQUIRE(best.size() == 3);
  CHECK(std::vector<double>(best.costs().begin(), best.costs().end()) == std::vector<double>{3, 4, 1});
  CHECK(best.average()[0].value.at({1}) == doctest::Approx((2 + 4 + 9) / 3.0));
}

TEST_CASE("a tied parameter is averaged once, and both names have the result") {
  StateAverage<double> last(2);
  for (const double x : {1.0, 4.0}) {
    const auto shared = Tensor<double>::full({2}, x);
    last.add({{"w", shared, {}}, {"tied", shared, "w"}});
  }
  const auto average = last.average();
  REQUIRE(average.size() == 2);
  for (const auto& entry : average) CHECK(values(entry.value) == std::vector<double>(2, 2.5));
  CHECK(average[1].alias_of == "w");
  CHECK(average[1].value.data() == average[0].value.data());
}

TEST_CASE("averaging refuses nothing, and states that differ") {
  CHECK(contains(message_of<ValueError>([] { (void)StateAverage<float>(3).average(); }),
                 "no states to average"));
  CHECK(contains(message_of<ValueError>([] { StateAverage<float>(0); }), "count is 0"));
  const std::vector<StateEntry<float>> a{{"w", Tensor<float>::ones({2}), {}}},
      b{{"w", Tensor<float>::ones({3}), {}}}, c{{"v", Tensor<float>::ones({2}), {}}};
  CHECK(contains(message_of<ValueError>([&] { (void)average_states<float>({a, b}); }), "'w' of shape (2,)"));
  CHECK(contains(message_of<ValueError>([&] { (void)average_states<float>({a, c}); }), "'w' of shape (2,)"));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)average_states<float>({std::vector<StateEntry<float>>{}, a});
                 }),
                 "one has 0 entries, another 1"));
  // Tied parameters: the same in all states, and after the one that they share.
  const auto ones = Tensor<float>::ones({2});
  const std::vector<StateEntry<float>> tied{{"w", ones, {}}, {"v", ones, "w"}},
      untied{{"w", ones, {}}, {"v", ones, {}}}, backwards{{"v", ones, "w"}, {"w", ones, {}}};
  CHECK(average_states<float>({tied, tied})[1].alias_of == "w");
  CHECK(contains(message_of<ValueError>([&] { (void)average_states<float>({tied, untied}); }), "'v'"));
  CHECK(contains(message_of<ValueError>([&] { (void)average_states<float>({backwards}); }),
                 "'v' is tied to 'w', which does not come before it"));
}
