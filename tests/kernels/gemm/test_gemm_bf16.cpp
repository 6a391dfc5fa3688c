#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;

namespace {

std::vector<float> bf16_product(const Product<float>& p, float beta, bool with_bias) {
  std::vector<float> c = p.c;
  GemmEpilogue<float> epilogue;
  if (with_bias) epilogue.bias = p.bias.data();
  gemm<float>(p.transpose_a, p.transpose_b, p.m, p.n, p.k, 1.0f, p.a.data(), p.lda, p.b.data(), p.ldb, beta,
              c.data(), p.ldc, epilogue, GemmPrecision::bf16);
  return c;
}

}  // namespace

TEST_CASE("bf16 products equal the sum of products of rounded inputs") {
  for_each_isa([&] {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const index_t m : {1, 3, 14, 15, 31}) {
          for (const index_t n : {1, 15, 16, 17, 31, 33, 67}) {
            for (const index_t k : {1, 2, 15, 16, 17, 31, 32, 33, 67}) {
              const Product<float> p(ta, tb, m, n, k);
              CAPTURE(ta);
              CAPTURE(tb);
              CAPTURE(m);
              CAPTURE(n);
              CAPTURE(k);
              REQUIRE(p.error(bf16_product(p, 0.0f, false), 1.0, 0.0, false, true) < 8.0);
            }
          }
        }
        for (const index_t k : {511, 513, 1023, 1024, 1025, 2100}) {
          const Product<float> p(ta, tb, 17, 35, k);
          CAPTURE(k);
          REQUIRE(p.error(bf16_product(p, 0.5f, true), 1.0, 0.5, true, true) < 32.0);
        }
      }
    }
  });
}

TEST_CASE("bf16 rounds its inputs") {
  // 1 + 2^-9 is not a bfloat16; full precision would keep it.
  const float x = 1.0f + 0x1p-9f, one = 1.0f;
  for_each_isa([&] {
    float c = 0.0f;
    gemm<float>(false, false, 1, 1, 1, 1.0f, &x, 1, &one, 1, 0.0f, &c, 1, {}, GemmPrecision::bf16);
    CHECK(c == 1.0f);
    gemm<float>(false, false, 1, 1, 1, 1.0f, &x, 1, &one, 1, 0.0f, &c, 1);
    CHECK(c == x);
  });
  const double y = 1.0 + 0x1p-9, unit = 1.0;
  double d = 0.0;
  gemm<double>(false, false, 1, 1, 1, 1.0, &y, 1, &unit, 1, 0.0, &d, 1, {}, GemmPrecision::bf16);
  CHECK(d == y);
}

TEST_CASE("bf16 lets NaN and infinity through") {
  for_each_isa([&] {
    for (const bool tb : {false, true}) {
      Product<float> p(false, tb, 3, 20, 21, 0);
      p.a[size(1 * p.lda + 20)] = std::numeric_limits<float>::quiet_NaN();
      p.a[size(2 * p.lda + 7)] = -std::numeric_limits<float>::infinity();
      const std::vector<float> c = bf16_product(p, 0.0f, false);
      for (index_t j = 0; j < p.n; ++j) {
        CHECK(std::isfinite(c[size(j)]));
        CHECK(std::isnan(c[size(p.ldc + j)]));
        CHECK(std::isinf(c[size(2 * p.ldc + j)]));
      }
    }
  });
}

TEST_CASE("a row of a bf16 product has the same bits alone, in any batch and with any number of threads") {
  for_each_isa([&] {
    const Product<float> p(false, true, 140, 290, 1100, 1);
    const auto rows = [&](index_t first, index_t count, int threads) {
      const ThreadScope thread_scope(threads);
      std::vector<float> c(size(count * p.n));
      gemm<float>(false, true, count, p.n, p.k, 1.0f, p.a.data() + first * p.lda, p.lda, p.b.data(), p.ldb,
                  0.0f, c.data(), p.n, {}, GemmPrecision::bf16);
      return c;
    };
    const std::vector<float> all = rows(0, p.m, 1);
    REQUIRE(same_bits(all, rows(0, p.m, 2)));
    for (const index_t count : {1, 3, 4, 13, 32}) {
      const auto from = all.begin() + 5 * p.n;
      REQUIRE(same_bits(rows(5, count, 2), std::vector<float>(from, from + count * p.n)));
    }
  });
}
