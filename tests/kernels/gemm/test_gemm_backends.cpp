#include <doctest/doctest.h>

#include <vector>

#include "eigenformer/kernels/gemm/gemm_backends.hpp"
#include "kernels/gemm_testing.hpp"

using namespace eigenformer;
using namespace eigenformer::kernels;
using namespace gemm_testing;

TEST_CASE_TEMPLATE("a backend gives the library's product or refuses", T, float, double) {
  for (const GemmBackend backend : {GemmBackend::own, GemmBackend::onednn, GemmBackend::blas}) {
    try {
      set_gemm_backend(backend);
    } catch (const ValueError& e) {
      CHECK(e.op() == "set_gemm_backend");
      CHECK(gemm_backend() == GemmBackend::own);
      continue;
    }
    CHECK(gemm_backend() == backend);
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Product<T> p(ta, tb, 13, 29, 37);
        std::vector<T> c = p.c;
        GemmEpilogue<T> epilogue;
        epilogue.bias = p.bias.data();
        gemm<T>(ta, tb, p.m, p.n, p.k, T(0.7), p.a.data(), p.lda, p.b.data(), p.ldb, T(0.5), c.data(), p.ldc,
                epilogue);
        CHECK(p.error(c, static_cast<double>(T(0.7)), 0.5, true) < 8.0);
      }
    }
    set_gemm_backend(GemmBackend::own);
  }
}
