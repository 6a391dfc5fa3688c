#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "eigenformer/core/base/float16.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "isa.hpp"

namespace gemm_testing {

using eigenformer::index_t;
using eigenformer::detail::kernels::GemmEpilogue;
using eigenformer::testing::for_each_isa;

inline std::size_t size(index_t n) { return static_cast<std::size_t>(n); }

template <class T>
std::vector<T> random_vector(index_t n, std::uint64_t seed) {
  eigenformer::RandomGenerator rng(seed);
  std::vector<T> v(size(n));
  for (T& x : v) x = static_cast<T>(rng.uniform(-1.0, 1.0));
  return v;
}

// One product with leading dimensions wider than the matrices, and its reference by plain loops in double.
template <class T>
struct Product {
  bool transpose_a, transpose_b;
  index_t m, n, k;
  index_t lda, ldb, ldc;
  std::vector<T> a, b, c, bias;

  Product(bool ta, bool tb, index_t m_, index_t n_, index_t k_, index_t extra = 3)
      : transpose_a(ta), transpose_b(tb), m(m_), n(n_), k(k_) {
    lda = (ta ? m : k) + extra;
    ldb = (tb ? k : n) + extra + 2;
    ldc = n + extra + 4;
    a = random_vector<T>((ta ? k : m) * lda, 1);
    b = random_vector<T>((tb ? n : k) * ldb, 2);
    c = random_vector<T>(m * ldc, 3);
    bias = random_vector<T>(n, 4);
  }

  T a_at(index_t i, index_t p) const { return a[size(transpose_a ? p * lda + i : i * lda + p)]; }
  T b_at(index_t p, index_t j) const { return b[size(transpose_b ? j * ldb + p : p * ldb + j)]; }

  // The expected element of C from its old value; `magnitude` is the sum of the terms' absolute values.
  double expected(index_t i, index_t j, double alpha, double beta, bool with_bias, double old,
                  double& magnitude, bool bf16 = false) const {
    double sum = 0.0;
    magnitude = 0.0;
    for (index_t p = 0; p < k; ++p) {
      double x = static_cast<double>(a_at(i, p)), y = static_cast<double>(b_at(p, j));
      if (bf16) {
        x = static_cast<double>(static_cast<float>(eigenformer::bfloat16(static_cast<float>(x))));
        y = static_cast<double>(static_cast<float>(eigenformer::bfloat16(static_cast<float>(y))));
      }
      sum += x * y;
      magnitude += std::abs(alpha * x * y);
    }
    double result = alpha * sum;
    if (beta != 0.0) result += beta * old;
    if (with_bias) result += static_cast<double>(bias[size(j)]);
    magnitude += std::abs(beta * old) + 1.0;
    return result;
  }

  // Largest error of `out` in units of the terms' sum times epsilon; infinity when something beside C was
  // written.
  double error(const std::vector<T>& out, double alpha, double beta, bool with_bias,
               bool bf16 = false) const {
    double worst = 0.0;
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < ldc; ++j) {
        const T got = out[size(i * ldc + j)], old = c[size(i * ldc + j)];
        if (j >= n) {
          if (got != old) return std::numeric_limits<double>::infinity();
          continue;
        }
        double magnitude = 0.0;
        const double want = expected(i, j, alpha, beta, with_bias, static_cast<double>(old), magnitude, bf16);
        const double e = std::abs(static_cast<double>(got) - want) / magnitude;
        if (!(e <= worst)) worst = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
      }
    }
    return worst / static_cast<double>(std::numeric_limits<T>::epsilon());
  }
};

template <class T>
bool same_bits(T x, T y) {
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  else
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  if (x.size() != y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!same_bits(x[i], y[i])) return false;
  }
  return true;
}

// Whether two results of one product, computed in other company (another width, layout or packing), agree:
// bit by bit by this library's tiles; to rounding by Eigen, whose order of summation depends on where a
// column stands.
inline bool same_product(float x, float y) {
  if (!eigenformer::detail::kernels::multiplies_by_eigen()) return same_bits(x, y);
  return std::abs(x - y) <= 1e-5f * std::max(1.0f, std::abs(y));
}

}  // namespace gemm_testing
