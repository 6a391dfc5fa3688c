#include "eigenformer/train/step/prefetched.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {

/// Batches that are their numbers; one of them may fail. They notice when two threads are inside.
struct Numbers {
  index_t size = 10;
  index_t failing = -1;
  std::atomic<int> inside{0}, made{0};
  std::atomic<bool> met{false};

  struct Visit {
    explicit Visit(Numbers& of) : numbers(of) {
      if (numbers.inside.fetch_add(1) != 0) numbers.met = true;
    }
    ~Visit() { numbers.inside.fetch_sub(1); }
    Numbers& numbers;
  };

  index_t num_batches(index_t epoch) {
    const Visit visit(*this);
    return size + epoch;
  }
  std::vector<index_t> batch(index_t epoch, index_t k) {
    const Visit visit(*this);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (k >= size + epoch) throw IndexError("numbers", {"no batch ", k});
    if (k == failing) throw IoError("numbers", {"batch ", k, " is damaged"});
    ++made;
    return {epoch, k};
  }
};

using Number = std::vector<index_t>;

}  // namespace

TEST_CASE("prefetched batches: the same ones in the same order, epoch after epoch") {
  for (const index_t depth : {1, 3, 100}) {
    Numbers numbers;
    PrefetchedBatches batches(numbers, depth);
    for (index_t epoch = 0; epoch < 3; ++epoch) {
      for (index_t k = 0; k < batches.num_batches(epoch); ++k) {
        CHECK(batches.batch(epoch, k) == Number{epoch, k});
        CHECK(batches.num_batches(2 - epoch) == 12 - epoch);
      }
    }
    CHECK(numbers.made == 33);
    CHECK_FALSE(numbers.met);
  }
}

TEST_CASE("prefetched batches: any other batch may be asked for") {
  Numbers numbers;
  {
    PrefetchedBatches batches(numbers, 2);
    for (const index_t k : {7, 8, 2, 9, 9, 0, 1}) CHECK(batches.batch(0, k) == Number{0, k});
    CHECK(batches.batch(4, 13) == Number{4, 13});
    CHECK(batches.batch(0, 9) == Number{0, 9});
    CHECK_THROWS_AS((void)batches.batch(0, 10), IndexError);
    CHECK_THROWS_AS((void)batches.batch(0, 10), IndexError);
  }
  CHECK_FALSE(numbers.met);
}

TEST_CASE("prefetched batches: an error comes with its batch, again when that is asked again") {
  Numbers numbers;
  numbers.failing = 3;
  PrefetchedBatches batches(numbers);
  for (index_t k = 0; k < 3; ++k) CHECK(batches.batch(0, k) == Number{0, k});
  for (int time = 0; time < 2; ++time)
    CHECK(contains(message_of<IoError>([&] { (void)batches.batch(0, 3); }), "batch 3 is damaged"));
  CHECK(batches.batch(0, 4) == Number{0, 4});
  CHECK_THROWS_AS(PrefetchedBatches(numbers, -1), ValueError);
}

TEST_CASE("prefetched batches: they end at any time, used or not") {
  Numbers numbers;
  { const PrefetchedBatches unused(numbers); }
  for (int i = 0; i < 5; ++i) {
    PrefetchedBatches batches(numbers, 3);
    (void)batches.batch(0, i);
  }
  CHECK(numbers.inside == 0);
}
