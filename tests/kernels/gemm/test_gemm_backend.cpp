#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using namespace gemm_testing;

namespace {

// Eigen's products while it lives.
struct EigenScope {
  bool before = multiplies_by_eigen();
  EigenScope() { set_eigen_products(true); }
  ~EigenScope() { set_eigen_products(before); }
};

}  // namespace

TEST_CASE_TEMPLATE("Eigen gives the library's product, with an epilogue, for any size", T, float, double) {
  const EigenScope eigen;
  CHECK(isa().has(IsaFeature::eigen));
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [m, n, k] :
           {std::tuple{1, 1, 1}, {1, 40, 37}, {13, 29, 37}, {2, 3, 5}, {150, 140, 600}}) {
        const Product<T> p(ta, tb, m, n, k);
        for (const double beta : {0.0, 0.5, 1.0}) {
          std::vector<T> c = p.c;
          GemmEpilogue<T> epilogue;
          epilogue.bias = p.bias.data();
          gemm<T>(ta, tb, p.m, p.n, p.k, T(0.7), p.a.data(), p.lda, p.b.data(), p.ldb, T(beta), c.data(),
                  p.ldc, epilogue);
          CHECK(p.error(c, static_cast<double>(T(0.7)), beta, true) < 8.0);
        }
      }
    }
  }
}

TEST_CASE("Eigen multiplies packed weights of every format, whatever instruction set packed them") {
  constexpr index_t m = 9, n = 150, k = 1100;
  const auto w = random_vector<float>(n * k, 1), x = random_vector<float>(m * k, 2),
             bias = random_vector<float>(n, 3), old = random_vector<float>(m * n, 4);
  GemmEpilogue<float> epilogue;
  epilogue.bias = bias.data();
  for_each_isa([&] {
    for (const auto format :
         {PackedMatrix::Format::float32, PackedMatrix::Format::bf16, PackedMatrix::Format::int8}) {
      const PackedMatrix packed = PackedMatrix::pack(w.data(), n, k, format);
      std::vector<float> own = old, got = old;
      const bool before = multiplies_by_eigen();
      set_eigen_products(false);
      gemm_packed(m, x.data(), k, packed, 0.5f, own.data(), n, epilogue);
      set_eigen_products(before);
      const EigenScope eigen;
      gemm_packed(m, x.data(), k, packed, 0.5f, got.data(), n, epilogue);
      if (format == PackedMatrix::Format::int8) {
        CHECK(same_bits(own, got));
        continue;
      }
      double worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(own[i])));
      CHECK(worst < 1e-4);
    }
  });
}

TEST_CASE("Eigen's products do not depend on the number of threads") {
  const EigenScope eigen;
  Runtime& runtime = Runtime::instance();
  const int before = runtime.threads();
  const Product<float> p(false, true, 300, 270, 500);
  std::vector<float> results[2] = {p.c, p.c};
  for (int i = 0; i < 2; ++i) {
    runtime.set_threads(i == 0 ? 1 : 3);
    gemm<float>(false, true, p.m, p.n, p.k, 1.0f, p.a.data(), p.lda, p.b.data(), p.ldb, 0.0f,
                results[i].data(), p.ldc);
  }
  runtime.set_threads(before);
  CHECK(same_bits(results[0], results[1]));
}
