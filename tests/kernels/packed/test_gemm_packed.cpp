#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;
using Format = PackedMatrix::Format;

namespace {

struct Weights {
  index_t n, k;
  std::vector<float> w, transposed;

  Weights(index_t n_, index_t k_) : n(n_), k(k_), w(random_vector<float>(n * k, 7)), transposed(w.size()) {
    for (index_t j = 0; j < n; ++j) {
      for (index_t p = 0; p < k; ++p) transposed[size(p * n + j)] = w[size(j * k + p)];
    }
  }
};

// The input row as the int8 product sees it, by the same rule in double.
void quantize_row(const float* x, index_t k, std::vector<int>& q, float& scale) {
  float largest = 0.0f;
  for (index_t p = 0; p < k; ++p) largest = std::max(largest, std::abs(x[p]));
  scale = largest / 127.0f;
  const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  q.resize(size(k));
  for (index_t p = 0; p < k; ++p) q[size(p)] = static_cast<int>(std::nearbyint(x[p] * inverse));
}

}  // namespace

TEST_CASE("packed float32 and bf16 weights give the bits of gemm, with inputs rounded where that is faster") {
  for_each_isa([&] {
    for (const auto& shape :
         {std::pair<index_t, index_t>{1, 1}, {31, 40}, {33, 17}, {67, 515}, {300, 1100}, {2100, 33}}) {
      const index_t n = shape.first, k = shape.second;
      const Weights weights(n, k);
      const auto bias = random_vector<float>(n, 8);
      for (const Format format : {Format::float32, Format::bf16}) {
        // Where bfloat16 does not pay, the weights alone are rounded.
        const bool rounds = format == Format::bf16 && bf16_products_pay();
        const auto precision = rounds ? GemmPrecision::bf16 : GemmPrecision::full;
        std::vector<float> values = weights.w;
        if (format == Format::bf16) {
          for (float& w : values) w = static_cast<float>(bfloat16(w));
        }
        const auto packed = PackedMatrix::pack(weights.w.data(), n, k, format);
        const auto other = PackedMatrix::pack_to_round(weights.transposed.data(), n, k, true);
        CHECK(packed.n() == n);
        CHECK(packed.k() == k);
        CHECK(packed.format() == format);
        for (const index_t m : {1, 2, 4, 15, 32, 130}) {
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(m);
          const index_t ldx = k + 3, ldc = n + 1;
          const auto x = random_vector<float>(m * ldx, 9), old = random_vector<float>(m * ldc, 10);
          GemmEpilogue<float> epilogue;
          epilogue.bias = bias.data();
          for (const float beta : {0.0f, 1.0f, 0.5f}) {
            std::vector<float> want = old, got = old, want_other = old, got_other = old;
            gemm<float>(false, true, m, n, k, 1.0f, x.data(), ldx, values.data(), k, beta, want.data(), ldc,
                        epilogue, precision);
            gemm_packed(m, x.data(), ldx, packed, beta, got.data(), ldc, epilogue);
            gemm<float>(false, true, m, n, k, 1.0f, x.data(), ldx, weights.w.data(), k, beta,
                        want_other.data(), ldc, epilogue, GemmPrecision::bf16);
            gemm_packed(m, x.data(), ldx, other, beta, got_other.data(), ldc, epilogue);
            REQUIRE(same_bits(got, want));
            REQUIRE(same_bits(got_other, want_other));
          }
        }
      }
    }
  });
}

TEST_CASE("packed products with a factor: float32 as gemm, int8 refuses it") {
  const index_t m = 5, n = 67, k = 33;
  const Weights weights(n, k);
  const auto x = random_vector<float>(m * k, 9), old = random_vector<float>(m * n, 10);
  std::vector<float> want = old, got = old;
  gemm<float>(false, true, m, n, k, 0.5f, x.data(), k, weights.w.data(), k, 1.0f, want.data(), n);
  gemm_packed(m, x.data(), k, PackedMatrix::pack(weights.w.data(), n, k), 1.0f, got.data(), n, {}, 0.5f);
  CHECK(same_bits(got, want));
  const auto int8 = PackedMatrix::pack(weights.w.data(), n, k, Format::int8);
  got = old;
  CHECK_THROWS_WITH_AS(gemm_packed(m, x.data(), k, int8, 1.0f, got.data(), n, {}, 0.5f),
                       "[gemm_packed] alpha is 0.5, must be 1 for int8 weights", ValueError);
  CHECK(same_bits(got, old));
}

TEST_CASE("int8 weights give exact integer sums") {
  for_each_isa([&] {
    for (const auto& shape :
         {std::pair<index_t, index_t>{1, 1}, {31, 3}, {32, 4}, {33, 5}, {67, 66}, {300, 131}}) {
      const index_t n = shape.first, k = shape.second;
      const Weights weights(n, k);
      const auto bias = random_vector<float>(n, 8);
      std::vector<std::int8_t> wq(weights.w.size());
      std::vector<float> scale(size(n));
      quantize_int8(weights.w.data(), n, k, wq.data(), scale.data());
      const PackedMatrix variants[] = {PackedMatrix::pack(weights.w.data(), n, k, Format::int8),
                                       PackedMatrix::pack_int8(wq.data(), scale.data(), n, k)};
      for (const index_t m : {1, 2, 3, 5, 9, 14, 15, 29, 130}) {
        const index_t ldx = k + 2, ldc = n + 3;
        const auto x = random_vector<float>(m * ldx, 9), old = random_vector<float>(m * ldc, 10);
        GemmEpilogue<float> epilogue;
        epilogue.bias = bias.data();
        for (const float beta : {0.0f, 1.0f, 0.5f}) {
          for (const PackedMatrix& packed : variants) {
            std::vector<float> c = old;
            gemm_packed(m, x.data(), ldx, packed, beta, c.data(), ldc, epilogue);
            for (index_t i = 0; i < m; ++i) {
              std::vector<int> q;
              float row_scale = 0.0f;
              quantize_row(x.data() + i * ldx, k, q, row_scale);
              for (index_t j = 0; j < ldc; ++j) {
                const float got = c[size(i * ldc + j)], before = old[size(i * ldc + j)];
                if (j >= n) {
                  REQUIRE(got == before);
                  continue;
                }
                int sum = 0;
                for (index_t p = 0; p < k; ++p) sum += q[size(p)] * wq[size(j * k + p)];
                double want = static_cast<double>(sum) * static_cast<double>(scale[size(j)]) *
                              static_cast<double>(row_scale);
                const double magnitude = std::abs(want) + 2.0;
                want += static_cast<double>(beta) * static_cast<double>(before) +
                        static_cast<double>(bias[size(j)]);
                CAPTURE(m);
                CAPTURE(n);
                CAPTURE(k);
                CAPTURE(i);
                CAPTURE(j);
                REQUIRE(std::abs(static_cast<double>(got) - want) < 4e-7 * magnitude);
              }
            }
          }
        }
      }
    }
  });
}

TEST_CASE("int8 weights approximate the float product") {
  const Weights weights(130, 256);
  const auto packed = PackedMatrix::pack(weights.w.data(), 130, 256, Format::int8);
  const auto x = random_vector<float>(6 * 256, 9);
  std::vector<float> exact(6 * 130), c(6 * 130);
  gemm<float>(false, true, 6, 130, 256, 1.0f, x.data(), 256, weights.w.data(), 256, 0.0f, exact.data(), 130);
  gemm_packed(6, x.data(), 256, packed, 0.0f, c.data(), 130);
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    error += std::pow(static_cast<double>(c[i] - exact[i]), 2);
    norm += std::pow(static_cast<double>(exact[i]), 2);
  }
  CHECK(std::sqrt(error / norm) < 0.01);
  CHECK(error > 0.0);
  CHECK(packed.bytes() < 130u * 256u * 4u / 3u);
}

TEST_CASE("a row of a packed product does not depend on its batch or the threads") {
  for_each_isa([&] {
    const Weights weights(300, 530);
    const index_t m = 600;  // several blocks of rows
    const auto x = random_vector<float>(m * 530, 9), old = random_vector<float>(m * 300, 10);
    const auto bias = random_vector<float>(300, 8);
    for (const Format format : {Format::float32, Format::bf16, Format::int8}) {
      const auto packed = PackedMatrix::pack(weights.w.data(), 300, 530, format);
      const auto rows = [&](index_t first, index_t count, int threads) {
        const ThreadScope thread_scope(threads);
        std::vector<float> c(old.begin() + first * 300, old.begin() + (first + count) * 300);
        GemmEpilogue<float> epilogue;
        epilogue.bias = bias.data();
        gemm_packed(count, x.data() + first * 530, 530, packed, 1.0f, c.data(), 300, epilogue);
        return c;
      };
      const auto all = rows(0, m, 1);
      REQUIRE(same_bits(all, rows(0, m, 2)));
      for (const index_t count : {1, 3, 4, 13, 32}) {
        const auto from = all.begin() + 11 * 300;
        REQUIRE(same_bits(rows(11, count, 2), std::vector<float>(from, from + count * 300)));
      }
    }
  });
}

TEST_CASE("packed products call the epilogue on every element once") {
  const Weights weights(301, 40);
  const auto x = random_vector<float>(131 * 40, 9);
  for (const auto& [format, m] : {std::pair<Format, index_t>{Format::float32, 131},
                                  {Format::float32, 1},
                                  {Format::float32, 2},
                                  {Format::int8, 131},
                                  {Format::int8, 1}}) {
    const auto packed = PackedMatrix::pack(weights.w.data(), 301, 40, format);
    std::vector<float> plain(size(m * 301)), c(plain.size());
    gemm_packed(m, x.data(), 40, packed, 0.0f, plain.data(), 301);
    GemmEpilogue<float> epilogue;
    epilogue.apply = [](const void*, float* tile, index_t ldc, index_t, index_t row_count, index_t,
                        index_t cols) {
      for (index_t i = 0; i < row_count; ++i) {
        for (index_t j = 0; j < cols; ++j) tile[i * ldc + j] += 1000.0f;
      }
    };
    gemm_packed(m, x.data(), 40, packed, 0.0f, c.data(), 301, epilogue);
    for (std::size_t i = 0; i < c.size(); ++i) REQUIRE(c[i] == plain[i] + 1000.0f);
  }
}

TEST_CASE("packed weights and inputs with zeros, NaN and infinity") {
  for_each_isa([&] {
    Weights weights(33, 9);
    std::fill(weights.w.begin() + 9, weights.w.begin() + 18, 0.0f);
    auto x = random_vector<float>(4 * 9, 9);
    std::fill(x.begin(), x.begin() + 9, 0.0f);
    x[size(9 + 4)] = std::numeric_limits<float>::quiet_NaN();
    x[size(18 + 8)] = std::numeric_limits<float>::infinity();
    const auto packed = PackedMatrix::pack(weights.w.data(), 33, 9, Format::int8);
    std::vector<float> c(4 * 33, std::numeric_limits<float>::quiet_NaN());
    gemm_packed(4, x.data(), 9, packed, 0.0f, c.data(), 33);
    for (index_t j = 0; j < 33; ++j) {
      CHECK(c[size(j)] == 0.0f);
      CHECK(std::isnan(c[size(33 + j)]));
      CHECK(!std::isfinite(c[size(66 + j)]));
      CHECK(std::isfinite(c[size(99 + j)]));
    }
    CHECK(c[99 + 1] == 0.0f);
  });
}

TEST_CASE("chosen outputs of packed weights have the bits of the whole product") {
  for_each_isa([&] {
    const Weights weights(71, 37);
    const std::vector<std::int32_t> rows = {70, 0,  3,  3,  31, 32, 33, 64, 9,  1,  2,  4,  5,  6,  7,  8, 40,
                                            41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56};
    const auto count = static_cast<index_t>(rows.size());
    const auto x = random_vector<float>(5 * 37, 9);
    for (const Format format : {Format::float32, Format::bf16, Format::int8}) {
      const auto whole = PackedMatrix::pack(weights.w.data(), 71, 37, format);
      const auto chosen = whole.select("test", rows.data(), count);
      CHECK(chosen.n() == count);
      CHECK(chosen.k() == 37);
      CHECK(chosen.format() == format);
      std::vector<float> all(5 * 71), some(size(5 * count));
      gemm_packed(5, x.data(), 37, whole, 0.0f, all.data(), 71);
      gemm_packed(5, x.data(), 37, chosen, 0.0f, some.data(), count);
      for (index_t i = 0; i < 5; ++i) {
        for (index_t j = 0; j < count; ++j) {
          // Eigen sums in an order that depends on the columns.
          REQUIRE(std::abs(some[size(i * count + j)] - all[size(i * 71 + rows[size(j)])]) <=
                  (multiplies_by_eigen() ? 1e-4f : 0.0f));
        }
      }
      const std::int32_t outside[] = {3, 71};
      CHECK_THROWS_AS(whole.select("test", outside, 2), IndexError);
      CHECK(whole.select("test", rows.data(), 0).n() == 0);
    }
  });
}

TEST_CASE("inputs of int8 weights are rounded by a given step, and cut off at 127 steps") {
  for_each_isa([&] {
    const index_t n = 45, k = 70, m = 9;
    const Weights weights(n, k);
    std::vector<std::int8_t> w(size(n * k));
    std::vector<float> scale(size(n));
    quantize_int8(weights.w.data(), n, k, w.data(), scale.data());
    auto x = random_vector<float>(m * k, 9);
    const float step = 0.0137f;  // the largest inputs are beyond 127 steps
    x[3] = 100;
    x[4] = -100;
    x[size(8 * k)] = std::numeric_limits<float>::quiet_NaN();
    const auto own = PackedMatrix::pack_int8(w.data(), scale.data(), n, k);
    const auto packed = own.with_input_step(step);
    CHECK(own.input_step() == 0.0f);
    CHECK(packed.input_step() == step);
    CHECK(packed.select("test", nullptr, 0).input_step() == step);
    std::vector<float> c(size(m * n));
    gemm_packed(m, x.data(), k, packed, 0.0f, c.data(), n);
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < n; ++j) {
        if (i == 8) {
          CHECK(std::isnan(c[size(i * n + j)]));
          continue;
        }
        std::int64_t sum = 0;
        for (index_t p = 0; p < k; ++p) {
          const float steps = std::nearbyint(x[size(i * k + p)] * (1.0f / step));
          sum += static_cast<std::int64_t>(std::clamp(steps, -127.0f, 127.0f)) * w[size(j * k + p)];
        }
        const double expected =
            static_cast<double>(sum) * static_cast<double>(step) * static_cast<double>(scale[size(j)]);
        CHECK(std::abs(static_cast<double>(c[size(i * n + j)]) - expected) < 1e-5 * (1 + std::abs(expected)));
      }
    }
    for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")})
      CHECK_THROWS_AS(own.with_input_step(bad), ValueError);
  });
  const Weights weights(3, 4);
  CHECK_THROWS_AS(PackedMatrix::pack(weights.w.data(), 3, 4).with_input_step(1), ValueError);
  const std::int8_t one = 1;
  const float scale = 1;
  CHECK_THROWS_WITH_AS((void)PackedMatrix::pack_int8(&one, &scale, 1, 1).with_input_step(1e-31f),
                       "[packed_matrix] the input step is 1e-31, must be between 1e-30 and 1e30", ValueError);
}

TEST_CASE("packed matrices of empty sizes and wrong values") {
  const PackedMatrix none;
  CHECK(none.n() == 0);
  std::vector<float> c{5.0f, 6.0f};
  const float bias[] = {1.0f, 2.0f};
  GemmEpilogue<float> epilogue;
  epilogue.bias = bias;
  gemm_packed(1, nullptr, 0, PackedMatrix::pack(nullptr, 2, 0), 0.0f, c.data(), 2, epilogue);
  CHECK(c == std::vector<float>{1.0f, 2.0f});
  CHECK_THROWS_AS(PackedMatrix::pack(nullptr, -1, 3), ShapeError);
  CHECK_THROWS_AS(gemm_packed(-1, nullptr, 0, none, 0.0f, c.data(), 2), ShapeError);
  const float bad[] = {1.0f, std::numeric_limits<float>::infinity()};
  CHECK_THROWS_AS(PackedMatrix::pack(bad, 1, 2, Format::int8), ValueError);
  CHECK_THROWS_WITH_AS(PackedMatrix::pack_int8(nullptr, nullptr, 0, 65537),
                       "[packed_matrix] k is 65537, must be at most 65536 for int8 weights", ValueError);
}
