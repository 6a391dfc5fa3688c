// The main() of all programs of tests. Where EIGENFORMER_ISA asks for what the CPU lacks, nothing is tested:
// ctest counts exit code 77 as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "eigenformer/kernels/simd/simd.hpp"

int main(int argc, char** argv) {
  using namespace eigenformer::kernels;
  const char* wanted = std::getenv("EIGENFORMER_ISA");
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (wanted == nullptr || std::string(wanted) != isa_name(isa) || isa <= detail::best_isa()) continue;
    std::printf("Skipped: this CPU has no %s\n", wanted);
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
