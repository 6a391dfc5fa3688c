#include "eigenformer/kernels/packed/packed_weights.hpp"

#include <doctest/doctest.h>

#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;

TEST_CASE("PackedWeights: rows are found as they were added, by parameter, first row and number") {
  const auto w = random_vector<float>(12 * 5, 3);
  const auto rows = [&](index_t first, index_t count) {
    return PackedMatrix::pack(w.data() + first * 5, count, 5);
  };
  PackedWeights weights;
  CHECK(weights.size() == 0);
  CHECK(weights.bytes() == 0);
  CHECK(weights.find(7, 0, 4) == nullptr);
  CHECK_FALSE(weights.contains(7));
  weights.add(7, 0, rows(0, 4));
  weights.add(7, 4, rows(4, 8));
  weights.add(9, 2, rows(2, 3));
  CHECK(weights.size() == 3);
  CHECK(weights.bytes() == rows(0, 4).bytes() + rows(4, 8).bytes() + rows(2, 3).bytes());
  REQUIRE(weights.find(7, 0, 4) != nullptr);
  CHECK(weights.find(7, 0, 4)->n() == 4);
  REQUIRE(weights.find(7, 4, 8) != nullptr);
  CHECK(weights.find(7, 4, 8)->n() == 8);
  CHECK(weights.find(7, 0, 12) == nullptr);  // never as a part, nor put together
  CHECK(weights.find(7, 0, 3) == nullptr);
  CHECK(weights.find(7, 1, 3) == nullptr);
  CHECK(weights.find(8, 0, 4) == nullptr);
  CHECK(weights.find(10, 0, 4) == nullptr);
  CHECK(weights.contains(7));
  CHECK_FALSE(weights.contains(8));
  CHECK(weights.contains(9));
  CHECK_FALSE(weights.contains(10));
}
