#include "eigenformer/kernels/packed/packed_weights.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;

namespace {

Tensor<float> matrix(index_t rows, index_t columns, std::uint64_t seed) {
  return Tensor<float>::from(Shape{rows, columns}, random_vector<float>(rows * columns, seed));
}

// x times the cached weights, and by gemm(), which packs at each product.
void check_products(WeightCache& cache, const Tensor<float>& w, index_t first, index_t count, bool transposed,
                    float alpha = 1.0f) {
  const index_t k = w.dim(1), in = transposed ? count : k, out = transposed ? k : count, m = 33;
  const auto x = random_vector<float>(m * in, 5), old = random_vector<float>(m * out, 6);
  std::vector<float> got = old, want = old;
  gemm_packed(m, x.data(), in, cache.get(w, first, count, transposed), 1.0f, got.data(), out, {}, alpha);
  gemm<float>(false, !transposed, m, out, in, alpha, x.data(), in, w.data() + first * k, k, 1.0f, want.data(),
              out, {}, GemmPrecision::bf16);
  CHECK(same_bits(got, want));
}

}  // namespace

TEST_CASE("cached weights give the bits of products in bf16, whole and in slices, for x W^T and x W") {
  for_each_isa([] {
    WeightCache cache;
    const Tensor<float> w = matrix(70, 45, 1);
    for (const bool transposed : {false, true}) {
      check_products(cache, w, 0, 70, transposed);
      check_products(cache, w, 13, 40, transposed, 0.7f);
    }
    CHECK(cache.size() == 4);
  });
}

TEST_CASE("cached weights are packed once a change, and go when the weights go") {
  WeightCache cache;
  Tensor<float> w = matrix(40, 30, 1);
  const auto first_value = [&] {
    const PackedMatrix packed = cache.get(w, 0, 40, false);
    const std::int32_t row = 0;
    std::vector<float> values(30);
    packed.read_rows("test", &row, 1, 1.0f, values.data());
    return values[0];
  };
  const float before = first_value();
  w.data()[0] = 3.0f;  // without mark_changed(), so the cache keeps the old panels
  CHECK(first_value() == before);
  w.mark_changed();
  CHECK(first_value() == 3.0f);
  w.data()[0] = 4.0f;
  cache.clear();
  CHECK(cache.size() == 0);
  CHECK(first_value() == 4.0f);
  check_products(cache, w, 0, 40, false);
  w = matrix(40, 30, 2);
  check_products(cache, w, 0, 40, false);
  CHECK(cache.size() == 1);

  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { (void)cache.get(w, 0, 40, true); });
  for (std::thread& t : threads) t.join();
  check_products(cache, w, 0, 40, true);
  CHECK(cache.size() == 2);
}

TEST_CASE(
    "two shapes of the same memory are packed separately, also where their slices begin at one element") {
  WeightCache cache;
  const Tensor<float> w = matrix(24, 10, 9), wide = w.reshape(Shape{12, 20});
  for (const bool transposed : {false, true}) {
    check_products(cache, w, 0, 7, transposed);
    const PackedMatrix packed = cache.get(wide, 0, 7, transposed);
    REQUIRE((transposed ? packed.n() : packed.k()) == 20);
    check_products(cache, wide, 0, 7, transposed);
    check_products(cache, w, 0, 7, transposed);
  }
  CHECK(cache.size() == 4);
}

TEST_CASE("weights that are no matrix, rows that are not there, and alpha of int8 weights are refused") {
  WeightCache cache;
  CHECK_THROWS_WITH_AS((void)cache.get(Tensor<float>(Shape{4}), 0, 4, false),
                       "[weight_cache] weight (4,) must be a matrix", ShapeError);
  CHECK_THROWS_WITH_AS((void)cache.get(Tensor<float>(Shape{4, 3}), 2, 3, false),
                       "[weight_cache] 3 rows starting at row 2 are outside a weight of shape (4, 3)",
                       IndexError);
  const float one = 1.0f;
  float c = 0.0f;
  const PackedMatrix w = PackedMatrix::pack(&one, 1, 1, PackedMatrix::Format::int8);
  CHECK_THROWS_WITH_AS(gemm_packed(1, &one, 1, w, 0.0f, &c, 1, {}, 2.0f),
                       "[gemm_packed] alpha is 2, must be 1 for int8 weights", ValueError);
}
