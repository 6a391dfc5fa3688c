#include "eigenformer/kernels/packed/gemm_int8_driver.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/kernels/packed/gemm_int8_driver.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "kernels/emulated_tiles.hpp"
#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;
using eigenformer::testing::EmulatedTiles;
using eigenformer::testing::WithIsa;

namespace {

// gemm_packed() as it is with AMX, on emulated tiles.
void product_by_tiles(index_t m, const float* x, index_t ldx, const PackedMatrix& w, float beta, float* c,
                      index_t ldc, const GemmEpilogue<float>& epilogue) {
  namespace d = eigenformer::detail::kernels::detail;
  const index_t steps = (w.k() + 3) / 4, stride = d::int8_tile_stride(steps), rows = d::int8_tile_rows(m);
  // What lies beyond the rows and steps is not to matter.
  std::vector<d::Int8Four> quantized(size(rows * stride), 0xffa5ff5au);
  std::vector<float> row_scale(size(m));
  d::quantize_rows(m, w.k(), x, ldx, 0.0f, quantized.data(), stride, row_scale.data());
  const d::Int8Problem problem{m,
                               w.n(),
                               steps,
                               quantized.data(),
                               stride,
                               row_scale.data(),
                               reinterpret_cast<const d::Int8Four*>(w.int8_panels()),
                               w.int8_scale(),
                               w.int8_sum(),
                               beta,
                               c,
                               ldc,
                               epilogue};
  d::gemm_ranges(m, w.n(), Runtime::instance().threads(), 32, 32,
                 [&](index_t i0, index_t i1, index_t j0, index_t j1) {
                   d::int8_range_by_tiles<EmulatedTiles>(problem, i0, i1, j0, j1);
                 });
}

void add_thousand(const void*, float* tile, index_t ldc, index_t, index_t rows, index_t, index_t cols) {
  for (index_t i = 0; i < rows; ++i) {
    for (index_t j = 0; j < cols; ++j) tile[i * ldc + j] += 1000.0f;
  }
}

}  // namespace

TEST_CASE("int8 products by AMX have the bits of the others, at every edge of the tiles") {
  const WithIsa with({IsaFeature::avx2});
  for (const index_t k : {1, 3, 4, 5, 60, 63, 64, 65, 128, 131, 200}) {
    for (const index_t n : {1, 31, 32, 33, 67}) {
      const auto weights = random_vector<float>(n * k, 7), bias = random_vector<float>(n, 8);
      const auto packed = PackedMatrix::pack(weights.data(), n, k, PackedMatrix::Format::int8);
      for (const index_t m : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 70}) {
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        const index_t ldx = k + 2, ldc = n + 3;
        const auto x = random_vector<float>(m * ldx, 9), old = random_vector<float>(m * ldc, 10);
        const float beta = m % 3 == 0 ? 0.0f : m % 3 == 1 ? 1.0f : 0.5f;
        GemmEpilogue<float> epilogue;
        if (m % 2 == 0) epilogue.bias = bias.data();
        if (k % 2 == 0) epilogue.apply = add_thousand;
        std::vector<float> want = old, got = old;
        gemm_packed(m, x.data(), ldx, packed, beta, want.data(), ldc, epilogue);
        product_by_tiles(m, x.data(), ldx, packed, beta, got.data(), ldc, epilogue);
        REQUIRE(same_bits(got, want));
      }
    }
  }
  CHECK(!EmulatedTiles::state().configured);
}

TEST_CASE("int8 products by AMX: several blocks of rows, ranges of several threads, largest sums") {
  const WithIsa with({IsaFeature::avx2});
  const index_t m = 600, n = 100, k = 72;
  const auto weights = random_vector<float>(n * k, 7), x = random_vector<float>(m * k, 9);
  const auto packed = PackedMatrix::pack(weights.data(), n, k, PackedMatrix::Format::int8);
  std::vector<float> want(size(m * n)), got(want.size());
  GemmEpilogue<float> epilogue;
  epilogue.apply = add_thousand;
  gemm_packed(m, x.data(), k, packed, 0.0f, want.data(), n, epilogue);
  for (const int threads : {1, 3}) {
    const ThreadScope thread_scope(threads);
    got.assign(got.size(), 5.0f);
    product_by_tiles(m, x.data(), k, packed, 0.0f, got.data(), n, epilogue);
    CHECK(same_bits(got, want));
  }
  // 65536 products of 255 and 127 are the largest sum of 32 bits.
  const index_t deep = 65536;
  const std::vector<float> ones(size(17 * deep), 1.0f);
  const auto largest = PackedMatrix::pack(ones.data(), 2, deep, PackedMatrix::Format::int8);
  want.assign(34, 0.0f);
  got = want;
  gemm_packed(17, ones.data(), deep, largest, 0.0f, want.data(), 2);
  product_by_tiles(17, ones.data(), deep, largest, 0.0f, got.data(), 2, {});
  CHECK(same_bits(got, want));
  CHECK(want[33] == doctest::Approx(65536.0));
}

TEST_CASE("int8 products by AMX: NaN, infinity and rows of zeros") {
  const WithIsa with({IsaFeature::avx2});
  const index_t m = 18, n = 40, k = 70;
  const auto weights = random_vector<float>(n * k, 7);
  auto x = random_vector<float>(m * k, 9);
  x[size(2 * k + 5)] = std::numeric_limits<float>::quiet_NaN();
  x[size(17 * k + 69)] = std::numeric_limits<float>::infinity();
  std::fill_n(x.begin() + 4 * k, k, 0.0f);
  const auto packed = PackedMatrix::pack(weights.data(), n, k, PackedMatrix::Format::int8);
  std::vector<float> want(size(m * n)), got(want.size());
  gemm_packed(m, x.data(), k, packed, 0.0f, want.data(), n);
  product_by_tiles(m, x.data(), k, packed, 0.0f, got.data(), n, {});
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK((same_bits(got[i], want[i]) || (std::isnan(got[i]) && std::isnan(want[i]))));
  }
  CHECK(std::isnan(got[size(2 * n)]));
  CHECK(std::isnan(got[size(17 * n)]));
  CHECK(got[size(4 * n)] == 0.0f);
}
