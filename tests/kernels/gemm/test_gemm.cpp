#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;

namespace {

template <class T>
double gemm_error(const Product<T>& p, T alpha, T beta, bool with_bias) {
  std::vector<T> c = p.c;
  GemmEpilogue<T> epilogue;
  if (with_bias) epilogue.bias = p.bias.data();
  gemm<T>(p.transpose_a, p.transpose_b, p.m, p.n, p.k, alpha, p.a.data(), p.lda, p.b.data(), p.ldb, beta,
          c.data(), p.ldc, epilogue);
  return p.error(c, static_cast<double>(alpha), static_cast<double>(beta), with_bias);
}

// Around the tiles (1 to 14 rows, 8, 16 and 32 columns), their doubles and the blocks of k (512 floats, 256
// doubles).
const index_t row_sizes[] = {1, 2, 3, 5, 6, 7, 13, 14, 15, 31, 127};
const index_t column_sizes[] = {1, 7, 9, 15, 16, 17, 31, 32, 33, 67};
const index_t depth_sizes[] = {1, 3, 15, 16, 17, 35, 257};

}  // namespace

TEST_CASE_TEMPLATE("gemm equals plain loops for every size around its tiles", T, float, double) {
  for_each_isa([&] {
    for (const index_t m : row_sizes) {
      for (const index_t n : column_sizes) {
        for (const index_t k : {index_t{1}, index_t{17}, index_t{35}}) {
          // All four layouts over the sizes, in turn.
          const bool ta = (m + n) % 2 != 0, tb = (n + k) % 2 != 0;
          const Product<T> p(ta, tb, m, n, k);
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(ta);
          CAPTURE(tb);
          REQUIRE(gemm_error<T>(p, T(1), T(0), false) < 8.0);
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("gemm takes every layout, depth, alpha, beta and bias", T, float, double) {
  for_each_isa([&] {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const index_t k : depth_sizes) {
          const Product<T> p(ta, tb, 19, 37, k);
          CAPTURE(ta);
          CAPTURE(tb);
          CAPTURE(k);
          for (const T alpha : {T(1), T(-0.7)}) {
            for (const T beta : {T(0), T(1), T(0.5)}) {
              REQUIRE(gemm_error<T>(p, alpha, beta, false) < 8.0);
              REQUIRE(gemm_error<T>(p, alpha, beta, true) < 8.0);
            }
          }
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("gemm cuts long sums and wide products into blocks", T, float, double) {
  for_each_isa([&] {
    for (const index_t k : {255, 256, 511, 512, 513, 1027}) {
      CAPTURE(k);
      REQUIRE(gemm_error<T>(Product<T>(false, true, 3, 41, k), T(1), T(1), true) < 16.0);
      REQUIRE(gemm_error<T>(Product<T>(true, false, 16, 33, k), T(1), T(0), true) < 16.0);
    }
    REQUIRE(gemm_error<T>(Product<T>(false, false, 5, 2083, 23), T(1), T(0.5), true) < 8.0);
    REQUIRE(gemm_error<T>(Product<T>(true, true, 603, 70, 23), T(1), T(1), true) < 8.0);
    REQUIRE(gemm_error<T>(Product<T>(true, true, 303, 70, 512), T(1), T(1), true) < 16.0);
  });
}

TEST_CASE_TEMPLATE("gemm with beta 0 does not read C", T, float, double) {
  for_each_isa([&] {
    for (const index_t k : {0, 5, 600}) {
      Product<T> p(false, true, 15, 34, k);
      std::fill(p.c.begin(), p.c.end(), std::numeric_limits<T>::quiet_NaN());
      std::vector<T> c = p.c;
      gemm<T>(false, true, p.m, p.n, p.k, T(1), p.a.data(), p.lda, p.b.data(), p.ldb, T(0), c.data(), p.ldc);
      for (index_t i = 0; i < p.m; ++i) {
        for (index_t j = 0; j < p.n; ++j) {
          double magnitude = 0.0;
          const double want = p.expected(i, j, 1.0, 0.0, false, 0.0, magnitude);
          REQUIRE(static_cast<double>(c[size(i * p.ldc + j)]) == doctest::Approx(want).epsilon(1e-4));
        }
      }
    }
  });
}

TEST_CASE("gemm with an empty dimension") {
  Product<float> p(false, false, 3, 5, 0);
  CHECK(gemm_error<float>(p, 1.0f, 0.5f, true) < 1.0);
  CHECK(gemm_error<float>(p, 1.0f, 0.0f, false) == 0.0);
  std::vector<float> c{1.0f, 2.0f};
  gemm<float>(false, false, 0, 2, 3, 1.0f, nullptr, 3, nullptr, 2, 0.0f, c.data(), 2);
  gemm<float>(false, false, 2, 0, 3, 1.0f, nullptr, 3, nullptr, 0, 0.0f, c.data(), 1);
  CHECK(c == std::vector<float>{1.0f, 2.0f});
  CHECK_THROWS_WITH_AS(gemm<float>(false, false, -1, 2, 3, 1.0f, nullptr, 3, nullptr, 2, 0.0f, c.data(), 2),
                       "[gemm] sizes m = -1, n = 2, k = 3 must not be negative", ShapeError);
}

TEST_CASE("gemm lets NaN and infinity through") {
  for_each_isa([&] {
    Product<float> p(false, false, 15, 33, 17, 0);
    p.a[size(14 * p.lda + 16)] = std::numeric_limits<float>::quiet_NaN();
    p.b[size(2 * p.ldb + 32)] = std::numeric_limits<float>::infinity();
    std::vector<float> c = p.c;
    gemm<float>(false, false, p.m, p.n, p.k, 1.0f, p.a.data(), p.lda, p.b.data(), p.ldb, 0.0f, c.data(),
                p.ldc);
    for (index_t i = 0; i < p.m; ++i) {
      for (index_t j = 0; j < p.n; ++j) {
        const float x = c[size(i * p.ldc + j)];
        if (i == 14) {
          REQUIRE(std::isnan(x));
        } else {
          REQUIRE(std::isinf(x) == (j == 32));
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("a row of gemm has the same bits alone, in any batch and with any number of threads", T,
                   float, double) {
  for_each_isa([&] {
    for (const bool tb : {false, true}) {
      const Product<T> p(false, tb, 290, 150, 530, 1);  // several blocks of rows
      const auto rows = [&](index_t first, index_t count, int threads) {
        const ThreadScope thread_scope(threads);
        std::vector<T> c(size(count * p.n));
        GemmEpilogue<T> epilogue;
        epilogue.bias = p.bias.data();
        gemm<T>(false, tb, count, p.n, p.k, T(0.7), p.a.data() + first * p.lda, p.lda, p.b.data(), p.ldb,
                T(0), c.data(), p.n, epilogue);
        return c;
      };
      const std::vector<T> all = rows(0, p.m, 1);
      REQUIRE(same_bits(all, rows(0, p.m, 2)));
      REQUIRE(same_bits(all, rows(0, p.m, 3)));
      for (const index_t count : {1, 2, 3, 4, 5, 9, 13, 14, 32, 127}) {
        for (const index_t first : {index_t{0}, index_t{7}, p.m - count}) {
          CAPTURE(count);
          CAPTURE(first);
          const auto from = all.begin() + first * p.n;
          REQUIRE(same_bits(rows(first, count, count % 2 == 0 ? 2 : 1),
                            std::vector<T>(from, from + count * p.n)));
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("few rows, for which B is not packed, have the bits of many, in every layout and width", T,
                   float, double) {
  for_each_isa([&] {
    for (const index_t n : {15, 16, 33, 64, 130, 300}) {
      for (const index_t k : {1, 16, 37, 600}) {
        for (const bool ta : {false, true}) {
          for (const bool tb : {false, true}) {
            const Product<T> p(ta, tb, 16, n, k, 1);
            GemmEpilogue<T> epilogue;
            epilogue.bias = p.bias.data();
            for (const T beta : {T(0), T(1), T(0.5)}) {
              const auto rows = [&](index_t step) {
                std::vector<T> c = p.c;
                for (index_t i = 0; i < p.m; i += step) {
                  gemm<T>(ta, tb, step, n, k, T(0.7), p.a.data() + (ta ? i : i * p.lda), p.lda, p.b.data(),
                          p.ldb, beta, c.data() + i * p.ldc, p.ldc, epilogue);
                }
                return c;
              };
              CAPTURE(n);
              CAPTURE(k);
              CAPTURE(ta);
              CAPTURE(tb);
              const std::vector<T> all = rows(p.m);
              REQUIRE(same_bits(rows(1), all));
              REQUIRE(same_bits(rows(2), all));
            }
          }
        }
      }
    }
  });
}

TEST_CASE("a column of gemm does not depend on the width or the layout") {
  for_each_isa([&] {
    const index_t m = 17, n = 75, k = 40;
    const auto a = random_vector<float>(m * k, 5), b = random_vector<float>(k * n, 6);
    std::vector<float> at(a.size()), bt(b.size()), all(size(m * n));
    for (index_t i = 0; i < m; ++i) {
      for (index_t p = 0; p < k; ++p) at[size(p * m + i)] = a[size(i * k + p)];
    }
    for (index_t p = 0; p < k; ++p) {
      for (index_t j = 0; j < n; ++j) bt[size(j * k + p)] = b[size(p * n + j)];
    }
    gemm<float>(false, false, m, n, k, 1.0f, a.data(), k, b.data(), n, 0.0f, all.data(), n);
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        std::vector<float> c(all.size());
        gemm<float>(ta, tb, m, n, k, 1.0f, ta ? at.data() : a.data(), ta ? m : k, tb ? bt.data() : b.data(),
                    tb ? k : n, 0.0f, c.data(), n);
        REQUIRE(same_bits(c, all));
      }
    }
    for (index_t j = 0; j < n; j += 11) {
      std::vector<float> c(size(m));
      gemm<float>(false, true, m, 1, k, 1.0f, a.data(), k, bt.data() + j * k, k, 0.0f, c.data(), 1);
      for (index_t i = 0; i < m; ++i) REQUIRE(same_product(c[size(i)], all[size(i * n + j)]));
    }
  });
}

TEST_CASE("the epilogue sees every finished element of C once") {
  struct Context {
    const float* c;
    std::vector<std::atomic<int>> seen;
    index_t ldc;
  };
  for_each_isa([&] {
    for (const int threads : {1, 2}) {
      const ThreadScope thread_scope(threads);
      for (const auto& [m, k] : std::initializer_list<std::pair<index_t, index_t>>{
               {131, 0}, {131, 20}, {131, 1030}, {1, 20}, {1, 1030}, {2, 20}}) {
        const Product<float> p(false, true, m, 2090, k);
        std::vector<float> plain = p.c, c = p.c;
        GemmEpilogue<float> epilogue;
        epilogue.bias = p.bias.data();
        const auto run = [&](std::vector<float>& out) {
          gemm<float>(false, true, p.m, p.n, p.k, 1.0f, p.a.data(), p.lda, p.b.data(), p.ldb, 1.0f,
                      out.data(), p.ldc, epilogue);
        };
        run(plain);
        Context context{c.data(), std::vector<std::atomic<int>>(size(p.m * p.n)), p.ldc};
        epilogue.context = &context;
        epilogue.apply = [](const void* opaque, float* tile, index_t ldc, index_t row, index_t rows,
                            index_t col, index_t cols) {
          auto& seen = *static_cast<Context*>(const_cast<void*>(opaque));
          if (tile != seen.c + row * ldc + col || ldc != seen.ldc) return;
          for (index_t i = 0; i < rows; ++i) {
            for (index_t j = 0; j < cols; ++j) {
              ++seen.seen[size((row + i) * 2090 + col + j)];
              tile[i * ldc + j] *= -2.0f;
            }
          }
        };
        run(c);
        for (index_t i = 0; i < p.m; ++i) {
          for (index_t j = 0; j < p.n; ++j) {
            REQUIRE(context.seen[size(i * p.n + j)] == 1);
            REQUIRE(c[size(i * p.ldc + j)] == -2.0f * plain[size(i * p.ldc + j)]);
          }
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("gemm_batched multiplies each pair and shares an operand with stride 0", T, float,
                   double) {
  const index_t batch = 11, m = 7, n = 18, k = 5;
  const auto a = random_vector<T>(batch * m * k, 1), b = random_vector<T>(batch * k * n, 2);
  const auto old = random_vector<T>(batch * m * n, 3);
  for (const int threads : {1, 2}) {
    const ThreadScope thread_scope(threads);
    for (const index_t count : {index_t{2}, batch}) {
      for (const index_t stride_a : {index_t{0}, m * k}) {
        for (const index_t stride_b : {index_t{0}, k * n}) {
          std::vector<T> c = old, want = old;
          gemm_batched<T>({.count = count,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a = {a.data(), k, stride_a},
                           .b = {b.data(), n, stride_b},
                           .c = c.data(),
                           .ldc = n,
                           .stride_c = m * n,
                           .beta = T(1)});
          for (index_t i = 0; i < count; ++i) {
            gemm<T>(false, false, m, n, k, T(1), a.data() + i * stride_a, k, b.data() + i * stride_b, n, T(1),
                    want.data() + i * m * n, n);
          }
          REQUIRE(same_bits(c, want));
          CHECK(c[0] != old[0]);
        }
      }
    }
  }
}
