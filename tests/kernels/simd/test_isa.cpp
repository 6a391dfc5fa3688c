#include <doctest/doctest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/simd/isa.hpp"
#include "eigenformer/kernels/simd/simd.hpp"
#include "isa.hpp"

using namespace eigenformer;
using namespace eigenformer::detail::kernels;
using testing::path_is_here;
using testing::WithIsa;

namespace {

constexpr Isa everything{IsaFeature::eigen,   IsaFeature::avx2,         IsaFeature::avx_vnni,
                         IsaFeature::avx512,  IsaFeature::avx512_vnni,  IsaFeature::avx512_bf16,
                         IsaFeature::neon,    IsaFeature::neon_dotprod, IsaFeature::amx_int8,
                         IsaFeature::amx_bf16};

struct VectorBytes {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(int* bytes) {
    *bytes = Bytes;
  }
};

int vector_bytes() {
  int bytes = 0;
  dispatch<VectorBytes>(&bytes);
  return bytes;
}

}  // namespace

TEST_CASE("EIGENFORMER_ISA: the path that it names is in use") {
  const char* wanted = std::getenv("EIGENFORMER_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    CHECK(std::string(isa_name(isa())) == wanted);
  } else {
    CHECK(isa() == default_isa());
  }
}

TEST_CASE("a set of features is what it was made of, and paths are different sets with different names") {
  constexpr Isa none, two{IsaFeature::avx2, IsaFeature::avx_vnni};
  CHECK(!none.has(IsaFeature::avx2));
  CHECK(two.has(IsaFeature::avx_vnni));
  CHECK(!two.has(IsaFeature::avx512));
  CHECK(two.contains(none));
  CHECK(two.contains({IsaFeature::avx2}));
  CHECK(!Isa{IsaFeature::avx2}.contains(two));
  CHECK(two.without(IsaFeature::avx_vnni) == Isa{IsaFeature::avx2});
  CHECK(none.with(IsaFeature::avx2) == Isa{IsaFeature::avx2});
  CHECK((two & Isa{IsaFeature::avx2, IsaFeature::avx512}) == Isa{IsaFeature::avx2});
  std::set<std::string> names;
  for (const IsaPath& path : isa_paths) {
    names.insert(path.name);
    CHECK(isa_name(path.isa) == std::string(path.name));
    for (const IsaPath& other : isa_paths) CHECK((path.isa == other.isa) == (&path == &other));
  }
  CHECK(names.size() == std::size(isa_paths));
  CHECK(isa_name({IsaFeature::avx2, IsaFeature::eigen}) == std::string("avx2"));
  CHECK(isa_name({IsaFeature::avx2, IsaFeature::avx_vnni, IsaFeature::avx512}) == std::string("avx512"));
}

TEST_CASE("every path can be forced alone, by its name, and loses what the CPU lacks") {
  const Isa otherwise{IsaFeature::avx2, IsaFeature::avx512};
  for (const IsaPath& path : isa_paths) {
    CHECK(isa_from_name(path.name, everything, otherwise) == path.isa);
    CHECK(isa_from_name(path.name, {}, otherwise) == Isa{});
    if (!path_is_here(path)) {
      const WithIsa with(path.isa);
      CHECK(isa() == (path.isa & available_isa()));
      CHECK(!(isa() == path.isa));
    } else {
      const WithIsa with(path.isa);
      CHECK(isa() == path.isa);
      CHECK(multiplies_by_eigen() == path.isa.has(IsaFeature::eigen));
      CHECK(vector_bytes() == (path.isa.has(IsaFeature::avx512) ? 64
                               : path.isa.has(IsaFeature::avx2) ? 32
                                                                : 16));
    }
  }
  CHECK(isa_from_name("avx512_bf16", {IsaFeature::avx2, IsaFeature::avx_vnni}, otherwise) ==
        Isa{IsaFeature::avx2});
  // As where the operating system refuses the tiles.
  CHECK(isa_name(isa_from_name(
            "amx_bf16", everything.without(IsaFeature::amx_int8).without(IsaFeature::amx_bf16), otherwise)) ==
        std::string("avx512_bf16"));
  CHECK(isa_from_name(nullptr, everything, otherwise) == otherwise);
  CHECK(isa_from_name("", everything, otherwise) == otherwise);
  CHECK_THROWS_WITH_AS(isa_from_name("sse9", everything, otherwise),
                       "[isa] EIGENFORMER_ISA is 'sse9', expected one of baseline, eigen, avx2, avx2_vnni, "
                       "avx512, avx512_vnni, "
                       "avx512_bf16, amx_int8, amx_bf16, neon, neon_dotprod",
                       ValueError);
}

TEST_CASE("a feature of this CPU comes with those on which it builds") {
  const Isa here = available_isa();
  CHECK(here.has(IsaFeature::eigen));
  const auto needs = [&](IsaFeature feature, IsaFeature base) {
    return !here.has(feature) || here.has(base);
  };
  CHECK(needs(IsaFeature::avx_vnni, IsaFeature::avx2));
  CHECK(needs(IsaFeature::avx512, IsaFeature::avx2));
  CHECK(needs(IsaFeature::avx512_vnni, IsaFeature::avx512));
  CHECK(needs(IsaFeature::avx512_bf16, IsaFeature::avx512));
  CHECK(needs(IsaFeature::amx_int8, IsaFeature::avx512_vnni));
  CHECK(needs(IsaFeature::amx_bf16, IsaFeature::avx512_bf16));
  CHECK(needs(IsaFeature::neon_dotprod, IsaFeature::neon));
  CHECK(here.has(IsaFeature::neon) == (EIGENFORMER_ARM64 == 1));
}

TEST_CASE("Intel's vdpbf16ps is not in use without AMX, unless it is asked for") {
  const Isa amx{IsaFeature::avx512, IsaFeature::avx512_bf16, IsaFeature::amx_bf16};
  const Isa vectors = amx.without(IsaFeature::amx_bf16);
  CHECK(worthwhile_isa(amx, true) == amx);
  CHECK(worthwhile_isa(vectors, true) == Isa{IsaFeature::avx512});
  CHECK(worthwhile_isa(vectors, false) == vectors);
  for (const IsaPath& path : isa_paths) {
    const WithIsa with(path.isa);
    const bool pays = isa().has(IsaFeature::avx512_bf16);
    CHECK(bf16_products_pay() == pays);
    CHECK(faster_precision(GemmPrecision::bf16) == (pays ? GemmPrecision::bf16 : GemmPrecision::full));
    CHECK(faster_precision(GemmPrecision::full) == GemmPrecision::full);
  }
}

TEST_CASE("the backend of products changes none of the CPU's features") {
  for (const IsaPath& path : isa_paths) {
    if (!path_is_here(path)) continue;
    const WithIsa with(path.isa);
    set_eigen_products(true);
    CHECK(isa().has(IsaFeature::eigen));
    CHECK(isa() == path.isa.with(IsaFeature::eigen));
    set_eigen_products(false);
    CHECK(!isa().has(IsaFeature::eigen));
    CHECK(isa() == path.isa.without(IsaFeature::eigen));
  }
}
