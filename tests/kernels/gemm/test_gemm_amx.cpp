#include "eigenformer/kernels/gemm/gemm_amx.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/kernels/gemm/gemm_driver.hpp"
#include "kernels/emulated_tiles.hpp"
#include "kernels/gemm_testing.hpp"

#if EIGENFORMER_X86
using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;
using eigenformer::testing::EmulatedTiles;
namespace d = eigenformer::detail::kernels::detail;

namespace {

std::uint32_t bf16_bits(float x) { return d::PackAmxTransposed::bits(x); }

// Panels of pairs, as PackBf16 makes them on a CPU that has its instructions.
void pairs_of(index_t k, index_t rows, index_t width, const float* src, index_t step, index_t row,
              float* dst) {
  for (index_t p = 0; p < k; p += 2) {
    for (index_t i = 0; i < width; ++i) {
      const float* at = src + p * step + i * row;
      const std::uint32_t low = i < rows ? bf16_bits(at[0]) : 0;
      const std::uint32_t high = i < rows && p + 1 < k ? bf16_bits(at[step]) : 0;
      dst[p / 2 * width + i] = std::bit_cast<float>(low | high << 16);
    }
  }
}
void pairs_transposed(index_t k, index_t rows, index_t width, const float* src, index_t ld, float* dst) {
  pairs_of(k, rows, width, src, 1, ld, dst);
}
void pairs_adjacent(index_t k, index_t rows, index_t width, const float* src, index_t ld, float* dst) {
  pairs_of(k, rows, width, src, ld, 1, dst);
}

const d::GemmKernels<float>& emulated() {
  static const auto kernels = d::gemm_kernels_amx<EmulatedTiles>(&pairs_transposed, &pairs_adjacent);
  return kernels;
}

// Rows below the smallest number for tiles go by AVX2.
bool is_here() { return available_isa().has(IsaFeature::avx2); }

std::vector<float> product_by_tiles(const Product<float>& p, float alpha, float beta, bool with_bias,
                                    index_t first = 0, index_t count = -1) {
  if (count < 0) count = p.m;
  std::vector<float> c(p.c.begin() + first * p.ldc, p.c.begin() + (first + count) * p.ldc);
  GemmEpilogue<float> epilogue;
  if (with_bias) epilogue.bias = p.bias.data();
  const float* a = p.a.data() + (p.transpose_a ? first : first * p.lda);
  d::gemm_run<float>({p.transpose_a, p.transpose_b, count, p.n, p.k, alpha, a, p.lda, p.b.data(), p.ldb, beta,
                      c.data(), p.ldc, epilogue},
                     emulated());
  return c;
}

}  // namespace

TEST_CASE("bf16 products by AMX equal the sum of products of rounded inputs, at every edge of the tiles") {
  if (!is_here()) return;
  using Sizes = std::vector<index_t>;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      // All edges in the layout of a linear layer; the others differ in how they are packed alone.
      const bool all = !ta && tb;
      for (const index_t m : all ? Sizes{1, 2, 3, 5, 9, 13, 15, 16, 17, 33, 49} : Sizes{3, 17, 33}) {
        for (const index_t n : all ? Sizes{1, 16, 31, 33, 67} : Sizes{31, 67}) {
          for (const index_t k : all ? Sizes{1, 31, 33, 65} : Sizes{33, 65}) {
            const Product<float> p(ta, tb, m, n, k);
            CAPTURE(ta);
            CAPTURE(tb);
            CAPTURE(m);
            CAPTURE(n);
            CAPTURE(k);
            REQUIRE(p.error(product_by_tiles(p, 1.0f, 0.0f, false), 1.0, 0.0, false, true) < 8.0);
          }
        }
      }
      // Blocks of k: 1024, and of an odd number of tiles.
      for (const index_t k : {1023, 1024, 1025, 1040, 2100}) {
        const Product<float> p(ta, tb, 50, 35, k);
        CAPTURE(k);
        REQUIRE(p.error(product_by_tiles(p, 0.7f, 0.5f, true), static_cast<double>(0.7f), 0.5, true, true) <
                32.0);
      }
    }
  }
  CHECK(!EmulatedTiles::state().configured);
}

TEST_CASE("a row of a bf16 product by AMX has the same bits by tiles and by vectors, for any threads") {
  if (!is_here()) return;
  for (const bool ta : {false, true}) {
    const Product<float> p(ta, true, 290, 100, 1100, 1);
    const auto rows = [&](index_t first, index_t count, int threads) {
      const ThreadScope thread_scope(threads);
      return product_by_tiles(p, 0.7f, 0.5f, true, first, count);
    };
    const std::vector<float> all = rows(0, p.m, 1);
    REQUIRE(same_bits(all, rows(0, p.m, 3)));
    for (const index_t count : {1, 2, 3, 4, 7, 11, 15, 16, 20, 35, 63}) {
      CAPTURE(count);
      const auto from = all.begin() + 21 * p.ldc;
      REQUIRE(same_bits(rows(21, count, 2), std::vector<float>(from, from + count * p.ldc)));
    }
  }
}

TEST_CASE("tiles and vectors flush the same denormal numbers to zero") {
  if (!is_here()) return;
  Product<float> p(false, true, 20, 40, 64, 1);
  for (float& x : p.a) x *= 0x1p-63f;
  for (float& x : p.b) x *= 0x1p-62f;
  // A row of denormal inputs, which would give a normal number.
  for (index_t k = 0; k < p.k; ++k) p.a[size(19 * p.lda + k)] = 0x1p-127f;
  for (index_t k = 0; k < p.k; ++k) p.b[size(39 * p.ldb + k)] = 0x1p100f;
  const std::vector<float> all = product_by_tiles(p, 1.0f, 0.0f, false);
  int zeros = 0;
  for (index_t i = 0; i < p.m; ++i) {
    const auto from = all.begin() + i * p.ldc;
    REQUIRE(same_bits(product_by_tiles(p, 1.0f, 0.0f, false, i, 1), std::vector<float>(from, from + p.ldc)));
    zeros += static_cast<int>(std::count(from, from + p.n, 0.0f));
  }
  CHECK(all[size(19 * p.ldc + 39)] == 0.0f);
  CHECK(zeros > p.n);
  CHECK(zeros < p.m * p.n / 2);
}

TEST_CASE("rows are packed for tiles alike from both layouts, with NaN, and with zeros behind them") {
  for (const index_t k : {1, 2, 31, 32, 33, 70}) {
    for (const index_t width : {1, 4, 15, 16, 32}) {
      for (const index_t rows : {index_t{1}, width - 1, width}) {
        if (rows < 1) continue;
        auto source = random_vector<float>(rows * k, 3), transposed = source;
        source[0] = std::bit_cast<float>(0x7f800001u);  // a NaN that rounding must not make infinite
        for (index_t i = 0; i < rows; ++i) {
          for (index_t p = 0; p < k; ++p) transposed[size(p * rows + i)] = source[size(i * k + p)];
        }
        const index_t blocks = (k + 31) / 32;
        std::vector<float> one(size(blocks * 16 * width), 7.0f), two = one;
        d::PackAmxTransposed::run(k, rows, width, source.data(), k, one.data());
        d::PackAmxAdjacent<16>::run(k, rows, width, transposed.data(), rows, two.data());
        REQUIRE(same_bits(one, two));
        if (is_here()) {
          two.assign(two.size(), 7.0f);
          d::body_for<d::PackAmxAdjacent<32>, 32>()(k, rows, width, transposed.data(), rows, two.data());
          REQUIRE(same_bits(one, two));
        }
        for (index_t i = 0; i < width; ++i) {
          for (index_t p = 0; p < blocks * 32; ++p) {
            const auto pair = std::bit_cast<std::uint32_t>(one[size((p / 32 * width + i) * 16 + p % 32 / 2)]);
            const std::uint32_t got = p % 2 == 0 ? pair & 0xffffu : pair >> 16;
            REQUIRE(got == (i < rows && p < k ? bf16_bits(source[size(i * k + p)]) : 0u));
          }
        }
      }
    }
  }
  CHECK(std::isnan(std::bit_cast<float>(bf16_bits(std::bit_cast<float>(0x7f800001u)) << 16)));
}

TEST_CASE("bf16 products by AMX let NaN and infinity through, and only where they belong") {
  if (!is_here()) return;
  for (const index_t m : {3, 20}) {
    Product<float> p(false, true, m, 20, 21, 0);
    p.a[size(1 * p.lda + 20)] = std::numeric_limits<float>::quiet_NaN();
    p.a[size(2 * p.lda + 7)] = -std::numeric_limits<float>::infinity();
    const std::vector<float> c = product_by_tiles(p, 1.0f, 0.0f, false);
    for (index_t j = 0; j < p.n; ++j) {
      CHECK(std::isfinite(c[size(j)]));
      CHECK(std::isnan(c[size(p.ldc + j)]));
      CHECK(std::isinf(c[size(2 * p.ldc + j)]));
    }
  }
}
#endif
