// The main() of all programs of tests. Where EIGENFORMER_ISA asks for what the CPU lacks, nothing is tested:
// ctest counts exit code 77 as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "isa.hpp"

int main(int argc, char** argv) {
  using namespace eigenformer;
  const char* wanted = std::getenv("EIGENFORMER_ISA");
  for (const detail::kernels::IsaPath& path : detail::kernels::isa_paths) {
    if (wanted == nullptr || std::string(wanted) != path.name || testing::path_is_here(path)) continue;
    std::printf("Skipped: this CPU has no %s\n", wanted);
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
